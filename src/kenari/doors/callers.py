"""What a caller may read of itself on the public door: `GET /v1/key`, `/v1/credits`, `/v1/generation?id=`."""

import re
from urllib.parse import parse_qs

from kenari.core.errors import KenariError, bad_request
from kenari.core.ports import Exchange, Keys, Records
from kenari.gateway.heads import JSON, id_lines
from kenari.keys.identify import identify

KEY_PATH = "/v1/key"
CREDITS_PATH = "/v1/credits"
GENERATION_PATH = "/v1/generation"
CALLER_PATHS = frozenset({KEY_PATH, CREDITS_PATH, GENERATION_PATH})
_ID = re.compile(r"(?:resp_)?([0-9a-f]{16})")
_NO_STORE = b"cache-control: no-store\r\n"


async def serve_caller(exchange: Exchange, path: str, keys: Keys, records: Records | None) -> None:
    """Answer one of these paths. `records` is None where nothing is stored. Raises KenariError."""
    if exchange.method not in ("GET", "HEAD"):
        raise KenariError("method_not_allowed", f"{path} takes GET only")
    caller = identify(keys, exchange.headers)
    if records is None:
        raise KenariError("not_found", "nothing is stored here ([store] url is none:), so there is nothing to read")
    if path == KEY_PATH:
        body: bytes | None = await records.key(caller)
    elif path == CREDITS_PATH:
        body = await records.credits(caller)
    else:
        body = await records.generation(caller, _wanted_id(exchange.query))
    if body is None:
        raise KenariError(
            "not_found", "there is no bill of a request with this id (yet). see x-request-id of its answer"
        )
    exchange.answer(200, id_lines(exchange.id) + JSON + _NO_STORE, body)


def _wanted_id(query: str) -> str:
    """The request id that is asked for; a Responses id names the same request. Raises the 400."""
    given = parse_qs(query).get("id", [""])[-1]
    found = _ID.fullmatch(given)
    if found is None:
        raise bad_request("send the id of a request: /v1/generation?id= and its x-request-id", "id")
    return found.group(1)
