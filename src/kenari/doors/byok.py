"""What callers do with their own provider keys: list, store and forget them. A key is never shown again."""

from typing import Any

from kenari.core.errors import KenariError, bad_request
from kenari.core.own_keys import OwnKeyBook, OwnKeyShown
from kenari.core.ports import Exchange, Keys
from kenari.gateway.heads import JSON, id_lines
from kenari.keys.identify import identify
from kenari.keys.scopes import check_use
from kenari.wire import jsonx

BYOK_PATH = "/v1/byok"
MAX_BODY = 16 * 1024


class ByokDoor:
    """Serves /v1/byok and /v1/byok/{provider} for the account of the key that asks."""

    def __init__(self, keys: Keys, book: OwnKeyBook) -> None:
        self._keys, self._book = keys, book

    async def serve(self, exchange: Exchange, path: str) -> None:
        """Answer one request. Raises KenariError; a key whose scope leaves out this place may not touch the account's keys."""
        caller = identify(self._keys, exchange.headers)
        if not caller.unlimited:
            check_use(caller, BYOK_PATH, exchange.peer)
        provider = path[len(BYOK_PATH) :].removeprefix("/")
        body = await self._act(exchange, caller.account, provider, f"key:{caller.key}")
        lines = id_lines(exchange.id) + JSON + b"cache-control: no-store\r\n"
        exchange.answer(200, lines, jsonx.encode(body))

    async def _act(self, exchange: Exchange, account: str, provider: str, actor: str) -> Any:
        method = exchange.method
        if not provider:
            if method != "GET":
                raise KenariError(
                    "method_not_allowed", f"{BYOK_PATH} takes GET only; a key goes to {BYOK_PATH}/PROVIDER"
                )
            return {"data": [_body(one) for one in await self._book.shown(account)]}
        if method == "PUT":
            return _body(await self._book.put(account, provider, secret_of(exchange.body), actor=actor))
        if method == "DELETE":
            if not await self._book.drop(account, provider, actor=actor):
                raise KenariError("not_found", f"no key of yours is kept for {provider[:80]!r}")
            return {"provider": provider, "deleted": True}
        raise KenariError("method_not_allowed", f"{BYOK_PATH}/PROVIDER takes PUT and DELETE only")


def secret_of(body: bytes) -> str:
    """The key in `{"key": "..."}`. Raises the 400; it never repeats what was sent."""
    if len(body) > MAX_BODY:
        raise KenariError("request_too_large", 'a provider key is small. send {"key": "..."}')
    try:
        members = jsonx.members(body)
        found = jsonx.value(members["key"]) if list(members) == ["key"] else None
    except jsonx.Malformed:
        found = None
    if not isinstance(found, str):
        raise bad_request('send {"key": "..."} with the provider\'s key and nothing else', "key")
    return found


def _body(shown: OwnKeyShown) -> dict[str, Any]:
    return {"provider": shown.provider, "hint": shown.hint, "created_at": int(shown.created_at)}
