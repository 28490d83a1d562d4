"""The admin door: the management API, its OpenAPI document, and /metrics. On a port of its own, by its own token (A3)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange
from kenari.doors.admin import accounts, keys, operations, own_keys, reports
from kenari.doors.admin.guard import Guard
from kenari.doors.admin.openapi import document
from kenari.doors.admin.services import Management
from kenari.doors.admin.table import PREFIX, Asked, Route, RouteTable
from kenari.doors.admin.values import read_body, read_query, shown
from kenari.gateway.heads import JSON, error_lines, id_lines
from kenari.store.records import Conflict, StoreDown, Unknown
from kenari.wire import jsonx

ROUTES: tuple[Route, ...] = (*accounts.ROUTES, *keys.ROUTES, *own_keys.ROUTES, *reports.ROUTES, *operations.ROUTES)
OPENAPI_PATH = PREFIX + "/openapi.json"
METRICS_PATH = "/metrics"
MAX_BODY = 1024 * 1024
"""Bytes of a request's body on the admin port."""
PATIENCE = 15.0
"""Seconds that the store may take for a call."""
_PRIVATE = b"cache-control: no-store\r\n"
_log = logging.getLogger("kenari.admin")

Render = Callable[[str], tuple[bytes, bytes]]
"""The exposition for an `accept` header, and its content type."""


class AdminDoor:
    """Serves exchanges of the admin port. `open_metrics`: /metrics needs no token, since only this machine reaches it."""

    def __init__(
        self,
        house: Management,
        guard: Guard,
        render: Render,
        open_metrics: bool,
        routes: Sequence[Route] = ROUTES,
    ) -> None:
        self._house, self._guard, self._render, self._open_metrics = house, guard, render, open_metrics
        self._table = RouteTable(routes)
        self._document = jsonx.encode(document(routes, house.version))

    def serve(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """The coroutine that answers this exchange."""
        return self._answer(exchange)

    def refuse(self, exchange: Exchange, error: KenariError) -> None:
        """Answer what went wrong, in the OpenAI envelope."""
        self._refuse(exchange, error, b"")

    async def _answer(self, exchange: Exchange) -> None:
        allowed = b""
        try:
            if exchange.path == METRICS_PATH and self._open_metrics:
                actor = ""
            else:
                actor = await self._guard.admit(exchange)
            if exchange.path in (METRICS_PATH, OPENAPI_PATH):
                self._fixed(exchange)
                return
            found = self._table.find(exchange.path)
            if found is None:
                raise KenariError("not_found", f"there is nothing at {shown(exchange.path)}. see GET {OPENAPI_PATH}")
            methods, names = found
            allowed = _allow(methods)
            route = methods.get("GET" if exchange.method == "HEAD" else exchange.method)
            if route is None:
                raise KenariError("method_not_allowed", f"{shown(exchange.path)} takes {_words(methods)} only")
            asked = _read(route, exchange, actor, names)
            async with asyncio.timeout(PATIENCE):
                answer = await route.act(self._house, asked)
                if route.method != "GET":
                    await self._house.spread()
            exchange.answer(route.status, id_lines(exchange.id) + JSON + _PRIVATE, jsonx.encode(answer))
        except KenariError as error:
            self._refuse(exchange, error, allowed if error.code == "method_not_allowed" else b"")
        except Unknown as error:
            self._refuse(exchange, KenariError("not_found", str(error)), b"")
        except Conflict as error:
            self._refuse(exchange, KenariError("conflict", str(error)), b"")
        except (StoreDown, TimeoutError):
            message = "the store does not answer now. see what it has before you send a change again"
            self._refuse(exchange, KenariError("upstream_unavailable", message, retry_after=2), b"")

    def _fixed(self, exchange: Exchange) -> None:
        """The two paths that are no rows of the table."""
        if exchange.method not in ("GET", "HEAD"):
            error = KenariError("method_not_allowed", f"{exchange.path} takes GET only")
            self._refuse(exchange, error, b"allow: GET, HEAD\r\n")
        elif exchange.path == OPENAPI_PATH:
            exchange.answer(200, id_lines(exchange.id) + JSON, self._document)
        else:
            body, kind = self._render(exchange.headers.get(b"accept", b"").decode("latin-1"))
            lines = b"content-type: " + kind + b"\r\n" + _PRIVATE
            exchange.answer(200, id_lines(exchange.id) + lines, body)

    def _refuse(self, exchange: Exchange, error: KenariError, extra: bytes) -> None:
        detail = {"message": error.message, "type": error.kind.type, "param": error.param, "code": error.code}
        lines = id_lines(exchange.id) + error_lines(error) + _PRIVATE + extra
        if error.status == 401:
            lines += b"www-authenticate: Bearer\r\n"
        exchange.answer(error.status, lines, jsonx.encode({"error": detail}))


def _read(route: Route, exchange: Exchange, actor: str, names: dict[str, str]) -> Asked:
    """What a call says. Raises the 400 and the 415."""
    query = body = None
    if route.query is not None:
        query = read_query(route.query, exchange.query)
    elif exchange.query:
        read_query(_Nothing, exchange.query)
    if route.body is not None:
        kind = exchange.headers.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
        if kind != b"application/json" and exchange.body:
            raise KenariError("unsupported_media_type", "send JSON with content-type: application/json")
        body = read_body(route.body, exchange.body)
    elif exchange.body.strip():
        raise KenariError("bad_request", f"{route.method} {PREFIX}{route.path} takes no body")
    return Asked(actor=actor, path=names, query=query, body=body)


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The query of a route that has none."""


def _allow(methods: Any) -> bytes:
    return b"allow: " + _words(methods).encode() + b"\r\n"


def _words(methods: Any) -> str:
    return ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
