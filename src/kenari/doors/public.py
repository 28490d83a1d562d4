"""The public door: which path is served by what. Everything here is what a client of any format may call."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from kenari.catalog.listing import list_body, model_body, sees
from kenari.catalog.models import Catalog
from kenari.core.errors import KenariError
from kenari.core.ports import Exchange, Keys, Records
from kenari.dialects.base import Dialect
from kenari.dialects.registry import BY_PATH, DIALECTS
from kenari.dialects.responses.compact import COMPACT
from kenari.doors.byok import BYOK_PATH, ByokDoor
from kenari.doors.callers import CALLER_PATHS, serve_caller
from kenari.doors.exchange import HttpExchange
from kenari.doors.websocket import ResponsesSocket
from kenari.gateway.heads import JSON, answer_error, id_lines
from kenari.gateway.kinds.asks import SPOTS
from kenari.gateway.serve import Gateway
from kenari.keys.identify import identify

_log = logging.getLogger("kenari.public")

COUNT_PATH = "/v1/messages/count_tokens"
MODELS_PATH = "/v1/models"
STATE_PATHS = ("/healthz", "/readyz", "/")
_OTHERS = frozenset((COUNT_PATH, COMPACT.path, *CALLER_PATHS, *STATE_PATHS))
STREAMED_PATHS = frozenset(prefix + path for path, spot in SPOTS.items() if spot.form for prefix in ("", "/v1"))
"""Where a request's body is passed on while it comes."""
_TEXT_TYPES = (b"application/json", b"text/", b"application/x-www-form-urlencoded")


class PublicDoor:
    """Serves exchanges of the inbound end. `ready` says whether the process can serve (readyz), `cors_origins` which
    pages of a browser may call it, `max_body` how large a message of a WebSocket may be."""

    records: Records | None = None
    """What callers may read of themselves; None where nothing is stored."""

    def __init__(
        self,
        gateway: Gateway,
        keys: Keys,
        catalog: Catalog,
        cors_origins: tuple[str, ...],
        ready: Callable[[], bool],
        max_body: int = 32 * 1024 * 1024,
    ) -> None:
        self.byok: ByokDoor | None = None
        """Set where callers may bring their own provider keys."""
        self._gateway, self._keys, self._catalog = gateway, keys, catalog
        self._cors, self._ready = cors_origins, ready
        self._max_body = max_body

    def serve(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """The coroutine that answers this exchange."""
        dialect = self._plainly(exchange)
        return self._route(exchange, exchange.path) if dialect is None else self._gateway.complete(exchange, dialect)

    def begin(self, exchange: Exchange) -> Coroutine[Any, Any, bool | None] | None:
        """Answer this exchange without a task if that can be done; else the coroutine that answers it."""
        dialect = self._plainly(exchange)
        return self._gateway.begin(exchange, dialect) if dialect is not None else self._route(exchange, exchange.path)

    def _plainly(self, exchange: Exchange) -> Dialect | None:
        """The dialect of a request that is for a chat endpoint beyond doubt, as nearly every one is; None: it is routed."""
        if exchange.method != "POST" or self._cors or exchange.headers.get(b"content-type", _PLAIN) != _PLAIN:
            return None
        return BY_PATH.get(exchange.path)

    def refuse(self, exchange: Exchange, error: KenariError) -> None:
        """Answer a request that the inbound end could not accept, in the format that its path speaks; a page reads it too."""
        if self._cors:
            self._let_in(exchange)
        answer_error(exchange, dialect_of(exchange.path, exchange.headers), error)

    def screen(self, path: str, headers: dict[bytes, bytes]) -> KenariError | None:
        """What is wrong with a request whose body is large, before that is taken: thousands who need no key could fill the
        memory with bodies that nobody reads."""
        if path.startswith("/v1/v1/"):
            path = path[3:]
        if not (path in BY_PATH or path in SPOTS or path in _OTHERS or path.startswith((BYOK_PATH, MODELS_PATH))):
            return _nothing_at(path)
        try:
            identify(self._keys, headers)
        except KenariError as error:
            return error
        return None

    async def _route(self, exchange: Exchange, path: str) -> None:
        dialect = dialect_of(path, exchange.headers)
        try:
            if path.startswith("/v1/v1/"):  # SDKs append /v1/messages to a pasted /v1 base (D24)
                path = path[3:]
            if self._cors and self._preflight(exchange):
                return
            await self._dispatch(exchange, path)
        except KenariError as error:
            answer_error(exchange, dialect, error, _allow(error, path))

    async def _dispatch(self, exchange: Exchange, path: str) -> None:
        method = exchange.method
        if path in BY_PATH or path in (COUNT_PATH, COMPACT.path):
            if method == "POST":
                _check_content_type(exchange)
                served = self._gateway.count if path == COUNT_PATH else self._gateway.complete
                await served(exchange, COMPACT if path == COMPACT.path else BY_PATH.get(path) or DIALECTS["messages"])
                return
            if path == DIALECTS["responses"].path and b"upgrade" in exchange.headers:
                self._open_socket(exchange)
                return
            raise KenariError("method_not_allowed", f"{path} takes POST only")
        if self.byok is not None and (path == BYOK_PATH or path.startswith(BYOK_PATH + "/")):
            await self.byok.serve(exchange, path)
        elif path in SPOTS:
            if method != "POST":
                raise KenariError("method_not_allowed", f"{path} takes POST only")
            await self._gateway.kinds.serve(exchange, path)
        elif path == MODELS_PATH or path.startswith(MODELS_PATH + "/"):
            self._models(exchange, path)
        elif path in CALLER_PATHS:
            await serve_caller(exchange, path, self._keys, self.records)
        elif path in STATE_PATHS:
            self._state(exchange, path)
        else:
            raise _nothing_at(path)

    def _open_socket(self, exchange: Exchange) -> None:
        """Responses over a WebSocket. The key is looked at once for the whole connection, and again for each turn."""
        wanted = exchange.headers[b"upgrade"].strip().lower() == b"websocket" and exchange.method == "GET"
        taken = None
        if wanted and isinstance(exchange, HttpExchange):
            identify(self._keys, exchange.headers)
            taken = exchange.hand_over()
        if taken is None or not isinstance(exchange, HttpExchange):
            raise KenariError(
                "upgrade_required", "only a websocket is served here. send GET with a websocket handshake, or POST"
            )
        ResponsesSocket(taken, exchange, self._gateway.complete, DIALECTS["responses"], self._max_body)

    def _models(self, exchange: Exchange, path: str) -> None:
        if exchange.method not in ("GET", "HEAD"):
            raise KenariError("method_not_allowed", f"{MODELS_PATH} takes GET only")
        seen = sees(identify(self._keys, exchange.headers))
        anthropic = b"anthropic-version" in exchange.headers
        if path == MODELS_PATH:
            body = list_body(self._catalog, anthropic, seen)
        else:
            body = model_body(self._catalog, path[len(MODELS_PATH) + 1 :], anthropic, seen)
        exchange.answer(200, id_lines(exchange.id) + JSON, body)

    def _state(self, exchange: Exchange, path: str) -> None:
        if exchange.method not in ("GET", "HEAD"):
            raise KenariError("method_not_allowed", f"{path} takes GET only")
        ready = path != "/readyz" or self._ready()
        status, word = (200, b"ok") if ready else (503, b"draining")
        lines = id_lines(exchange.id) + JSON + b"cache-control: no-store\r\n"
        exchange.answer(status, lines, b'{"service":"kenari","status":"' + word + b'"}')

    def _preflight(self, exchange: Exchange) -> bool:
        """Answer a browser's preflight of an allowed origin, or let the answer carry the origin. True when answered."""
        allowed = self._let_in(exchange)
        if allowed and exchange.method == "OPTIONS" and b"access-control-request-method" in exchange.headers:
            exchange.extra_headers = b""
            exchange.answer(204, id_lines(exchange.id) + allowed + _PREFLIGHT, b"")
            return True
        return False

    def _let_in(self, exchange: Exchange) -> bytes:
        """Let the answer carry the origin of an allowed page; the lines that say so, none for others."""
        origin = exchange.headers.get(b"origin", b"").decode("latin-1")
        if not origin or not ("*" in self._cors or origin in self._cors):
            return b""
        allowed = b"access-control-allow-origin: " + origin.encode("latin-1") + b"\r\nvary: origin\r\n"
        exchange.extra_headers = allowed + _EXPOSED
        return allowed


_PLAIN = b"application/json"
_PREFLIGHT = (
    b"access-control-allow-methods: GET, POST, OPTIONS\r\n"
    b"access-control-allow-headers: authorization, content-type, x-api-key, anthropic-version, anthropic-beta, "
    b"anthropic-dangerous-direct-browser-access, x-session-id, idempotency-key, x-stainless-arch, x-stainless-lang, "
    b"x-stainless-os, x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, "
    b"x-stainless-runtime-version, x-stainless-timeout, x-stainless-helper-method\r\n"
    b"access-control-max-age: 600\r\n"
)
_EXPOSED = (
    b"access-control-expose-headers: x-request-id, request-id, x-kenari-ignored, retry-after, retry-after-ms, "
    b"x-should-retry, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens\r\n"
)


def dialect_of(path: str, headers: dict[bytes, bytes]) -> Dialect:
    """The format whose error envelope a path speaks: Messages below /v1/messages, and on the list of models for clients
    of that format (M1), else OpenAI's."""
    if path.startswith("/v1/v1/"):
        path = path[3:]
    if path.startswith("/v1/messages") or (path.startswith(MODELS_PATH) and b"anthropic-version" in headers):
        return DIALECTS["messages"]
    return BY_PATH.get(path, DIALECTS["chat"])


def _check_content_type(exchange: Exchange) -> None:
    """JSON, or a type that clients send by mistake with JSON in it; never a form with parts or a file."""
    kind = exchange.headers.get(b"content-type", b"application/json").lower().lstrip()
    if not kind.startswith(_TEXT_TYPES) and b"json" not in kind:
        raise KenariError("unsupported_media_type", "send JSON with content-type: application/json")


def _allow(error: KenariError, path: str) -> bytes:
    if error.code == "upgrade_required":
        return b"upgrade: websocket\r\n"
    if error.code != "method_not_allowed":
        return b""
    if path.startswith(BYOK_PATH + "/"):
        return b"allow: PUT, DELETE\r\n"
    posts = path in BY_PATH or path in SPOTS or path in (COUNT_PATH, COMPACT.path)
    return b"allow: POST\r\n" if posts else b"allow: GET, HEAD\r\n"


def _nothing_at(path: str) -> KenariError:
    return KenariError("not_found", f"there is nothing at {_shown(path)}. see GET /v1/models and the docs")


def _shown(path: str) -> str:
    """A path as it may stand in a message: printable and short."""
    return "".join(char if char.isprintable() else "?" for char in path[:100])
