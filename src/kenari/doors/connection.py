"""One inbound connection: requests in order, limits, slow clients, and a client that goes away."""

import asyncio
import inspect
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange
from kenari.doors.exchange import HttpExchange
from kenari.doors.limits import (
    EdgeLimits,
    body_too_large,
    client_address,
    headers_too_large,
    plain_body,
    too_slow,
)
from kenari.wire.inflate import CODINGS

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HIGH_WATER = 128 * 1024
MAX_PIPELINED = 32
LINGER_SECONDS = 2.0


class Owner(Protocol):
    """What a connection needs of its edge."""

    limits: EdgeLimits
    loop: asyncio.AbstractEventLoop
    draining: bool

    def serve(self, exchange: Exchange, /) -> Coroutine[Any, Any, None]:
        """Answer a whole request."""
        ...

    def refuse(self, exchange: Exchange, error: KenariError, /) -> None:
        """Answer what never became one."""
        ...

    def opened(self, connection: "Connection") -> None:
        """A connection stands."""
        ...

    def closed(self, connection: "Connection") -> None:
        """A connection has ended."""
        ...

    def fault(self, error: BaseException) -> None:
        """An error that a request's task let through."""
        ...


class Connection(asyncio.Protocol):
    """Reads requests, gives whole ones to the edge's `serve`, one at a time and in order."""

    def __init__(self, edge: Owner) -> None:
        self._edge = edge
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._peer = ""
        self._waiting: deque[HttpExchange] = deque()
        self._current: HttpExchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._lingers = 0.0  # the connection ends, at the latest then; until then bytes are thrown away
        self._refusal: KenariError | None = None  # what the last of `_waiting` will be told
        self._fresh = False  # a request began in the bytes that came last
        self._reading_paused = False
        self._write_paused = False
        self._since = edge.loop.time()  # of the last change of state, for the limits of time
        self._heard = self._since
        self._reset()

    def _reset(self) -> None:
        """Make ready for the next request's head."""
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_size = self._header_count = self._bare = 0
        self._state = "idle"
        self._body = b""
        self._pieces: bytearray | None = None  # of a body that came in several
        self._size = 0
        self._fault: KenariError | None = None

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass
        self._transport.set_write_buffer_limits(HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self._peer = str(cast("tuple[Any, ...]", peer)[0]) if isinstance(peer, tuple) and peer else ""
        self._edge.opened(self)
        if self._edge.draining:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of several."""
        self._heard = self._edge.loop.time()
        if self._lingers or self._refusal is not None:
            return
        size, self._fresh = self._size, False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_upgrade(data[int(upgrade.args[0]) :])
        except httptools.HttpParserCallbackError as error:
            self._edge.fault(error.__context__ or error)
            self._fault = KenariError("internal_error", "something went wrong. send it again")
        except httptools.HttpParserError:
            if self._fault is None:
                self._fault = KenariError("bad_request", "the HTTP request is malformed. send plain HTTP/1.1")
        if self._state != "idle" and self._size == size and not self._fresh:
            self._count_bare(len(data))
        if self._fault is not None:
            self._refuse(self._fault)
        elif self._waiting:
            self._pause_reading()

    def eof_received(self) -> bool:
        """The client has closed its side: it is gone (F6)."""
        self._leave()
        self._lingers = self._lingers or self._edge.loop.time() + LINGER_SECONDS
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._transport = None
        self._edge.closed(self)
        self._leave()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._write_paused = True
        if self._current is not None and self._current.watcher is not None:
            self._current.watcher.on_pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._write_paused = False
        if self._current is None:
            self._next()
        elif self._current.watcher is not None:
            self._current.watcher.on_resume()

    # -- httptools

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._state == "idle":
            self._state, self._since, self._fresh = "head", self._heard, True

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        if self._fault is not None:
            return
        self._url += url
        if len(self._url) > self._edge.limits.max_head:
            self._fault = headers_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; after the body a trailer, which is counted and means nothing here."""
        if self._fault is not None:
            return
        self._header_count += 1
        self._head_size += len(name) + len(value) + 4
        limits = self._edge.limits
        if self._head_size > limits.max_head or self._header_count > limits.max_headers:
            self._fault = headers_too_large()
            return
        if self._state == "body":
            return
        name = name.lower()
        self._headers[name] = self._headers[name] + b", " + value if name in self._headers else value

    def on_headers_complete(self) -> None:
        """The head is whole: refuse a body that cannot be taken before it comes."""
        if self._fault is not None:
            return
        self._state, self._since = "body", self._heard
        headers = self._headers
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:18]) > self._edge.limits.max_body:
            self._fault = body_too_large(self._edge.limits.max_body)
            return
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"identity", b"", *CODINGS):
            self._fault = KenariError("unsupported_media_type", "content-encoding must be gzip, deflate or zstd")
            return
        if b"expect" in headers and self._current is None and not self._waiting:
            self._continue()

    def on_body(self, data: bytes) -> None:
        """Bytes of the body."""
        if self._fault is not None:
            return
        self._size += len(data)
        if self._size > self._edge.limits.max_body:
            self._fault = body_too_large(self._edge.limits.max_body)
        elif self._pieces is not None:
            self._pieces += data
        elif self._body:
            self._pieces = bytearray(self._body)
            self._pieces += data
        else:
            self._body = data

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._fault is not None or self._lingers:
            return
        if b"upgrade" in self._headers and self._awaits_body():
            return
        exchange = self._exchange()
        exchange.body = self._body if self._pieces is None else bytes(self._pieces)
        self._reset()
        self._since = self._heard
        if self._current is None and not self._write_paused and not self._waiting:
            self._start(exchange)
        elif len(self._waiting) < MAX_PIPELINED:
            self._waiting.append(exchange)
        else:
            self._fault = KenariError("bad_request", "too many requests at once on one connection. wait for answers")

    # -- exchanges

    def send(self, data: bytes) -> None:
        """Bytes of an answer."""
        if self._transport is not None:
            self._transport.write(data)

    def answered(self, exchange: HttpExchange) -> None:
        """An answer is complete: the next request, or the end."""
        if exchange is not self._current:
            return
        self._current = None
        self._since = self._heard = self._edge.loop.time()  # a client that had to wait was not slow
        if not exchange.keeps or self._edge.draining:
            self._close()
        elif not self._write_paused:
            self._next()

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def close_if_idle(self) -> None:
        """End a connection that answers nothing and takes nothing in."""
        if self._current is not None:
            self._current.keeps = False
        elif self._state == "idle" and not self._waiting:
            self._close()

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return self._current is not None

    def tick(self, now: float) -> None:
        """Slow and silent clients."""
        limits = self._edge.limits
        if self._lingers:
            if now >= self._lingers:
                self.abort()
            return
        if self._current is not None:  # while an answer is under way, the next request may take its time
            return
        waited = now - self._since
        if self._state == "idle" or self._waiting:
            if waited > limits.idle_seconds:
                self._close()
        elif self._state == "head":
            if waited > limits.head_seconds:
                self._refuse(too_slow())
        else:
            silent = now - self._heard > limits.body_idle_seconds
            crawls = waited > limits.body_idle_seconds and self._size < waited * limits.body_rate
            if silent or crawls:
                self._refuse(too_slow())

    def _exchange(self) -> HttpExchange:
        method = "GET"
        path, query = "", ""
        try:
            method = self._parser.get_method().decode("latin-1")
            parsed = httptools.parse_url(self._url)
            path = (parsed.path or b"/").decode("latin-1")
            query = (parsed.query or b"").decode("latin-1")
        except (httptools.HttpParserError, AttributeError):
            path = self._url.decode("latin-1").partition("?")[0]
        if "%" in path:
            path = unquote(path, errors="replace")
        exchange = HttpExchange(self, method, path, query, self._headers)
        exchange.http10 = self._parser.get_http_version() != "1.1"
        exchange.keeps = self._parser.should_keep_alive() and not exchange.http10 and not self._edge.draining
        exchange.peer = self._address()
        return exchange

    def _address(self) -> str:
        limits = self._edge.limits
        if not limits.trusted_proxies:
            return self._peer
        return client_address(self._peer, self._headers.get(b"x-forwarded-for", b""), limits.trusted_proxies)

    def _next(self) -> None:
        """The answer before is out: the next request that waits, and reading on behind the last one."""
        if self._waiting:
            self._start(self._waiting.popleft())
        elif self._state == "body" and not self._size and b"expect" in self._headers:
            self._continue()
        if not self._waiting and self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def _start(self, exchange: HttpExchange) -> None:
        self._current = exchange
        if self._refusal is not None and not self._waiting:
            self._answer_refusal(exchange, self._refusal)
            return
        coding = exchange.headers.get(b"content-encoding", b"identity").strip().lower()
        if coding in CODINGS:
            task = self._edge.loop.create_task(self._inflate(exchange, coding))
        else:
            task = self._edge.loop.create_task(self._edge.serve(exchange))
        self._task = task
        task.add_done_callback(partial(self._ended, exchange))

    def _ended(self, exchange: HttpExchange, task: asyncio.Task[None]) -> None:
        """A request's task is over; what it let through, or left unanswered, is our fault."""
        cancelled = task.cancelled()
        error = None if cancelled else task.exception()
        if error is not None:
            self._edge.fault(error)
        if exchange.done or exchange.gone:
            return
        if exchange.begun or cancelled:
            exchange.abort()
        else:
            self._edge.refuse(exchange, KenariError("internal_error", "something went wrong. send it again"))

    async def _inflate(self, exchange: HttpExchange, coding: bytes) -> None:
        try:
            exchange.body = await plain_body(coding, exchange.body, self._edge.limits.max_body)
        except KenariError as error:
            self._edge.refuse(exchange, error)
            return
        if not exchange.gone:
            await self._edge.serve(exchange)

    def _continue(self) -> None:
        """The client waits for leave to send its body."""
        expected = self._headers[b"expect"].lower() == b"100-continue"
        if expected and self._transport is not None and self._parser.get_http_version() == "1.1":
            self._transport.write(CONTINUE)

    def _awaits_body(self) -> bool:
        """The parser ends a request that wants an upgrade with its head; its body is still to come."""
        headers = self._headers
        framed = b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""
        return framed and not self._size and b"upgrade" in headers.get(b"connection", b"").lower()

    def _pass_upgrade(self, rest: bytes) -> None:
        """Nothing is upgraded here: a request that asks for it is one like any other, and its body is read."""
        if self._fault is not None:
            return
        head = b""
        if self._state == "body":  # its body follows: read the request again without the wish
            lines = [b"%b: %b\r\n" % pair for pair in self._headers.items() if pair[0] not in _HOP_HEADERS]
            version = self._parser.get_http_version().encode()
            head = b"%b %b HTTP/%b\r\n%b\r\n" % (self._parser.get_method(), self._url, version, b"".join(lines))
            self._reset()
        self._parser = httptools.HttpRequestParser(self)
        if head or rest:
            self.data_received(head + rest)

    def _count_bare(self, size: int) -> None:
        """Bytes that brought no body: a long head, endless chunk extensions or trailers."""
        self._bare += size
        if self._bare > self._edge.limits.max_head and self._fault is None:
            self._fault = headers_too_large()

    def _refuse(self, error: KenariError) -> None:
        """Answer a request that never became one, after the answers before it; then the connection ends."""
        if self._lingers or self._refusal is not None or self._transport is None:
            return
        self._body, self._pieces = b"", None
        exchange = self._exchange()
        exchange.keeps = False
        if self._current is not None or self._waiting:
            self._refusal = error
            self._waiting.append(exchange)
        else:
            self._current = exchange
            self._answer_refusal(exchange, error)

    def _answer_refusal(self, exchange: HttpExchange, error: KenariError) -> None:
        """Answer, end our side, and let the client send for a while yet, so that it reads the answer."""
        self._lingers = self._edge.loop.time() + LINGER_SECONDS
        self._edge.refuse(exchange, error)
        transport = self._transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()

    def _close(self) -> None:
        """End the connection when what is on its way is out; a client that does not read it is cut off later."""
        if self._transport is not None and not self._lingers:
            self._lingers = self._edge.loop.time() + self._edge.limits.idle_seconds
            self._transport.close()

    def _leave(self) -> None:
        exchange, task = self._current, self._task
        for waiting in self._waiting:
            waiting.leave()
        self._waiting.clear()
        if exchange is None:
            return
        exchange.leave()
        if task is not None and not task.done() and _is_new(task):
            task.cancel()  # nobody waits for what has not begun

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()


_HOP_HEADERS = (b"connection", b"upgrade", b"http2-settings", b"expect")


def _is_new(task: asyncio.Task[None]) -> bool:
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
