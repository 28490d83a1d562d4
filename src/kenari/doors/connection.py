"""One inbound connection: requests in order, limits, slow clients, and a client that goes away."""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol, cast
from urllib.parse import unquote

import httptools

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange
from kenari.doors.exchange import HttpExchange
from kenari.doors.limits import EdgeLimits, client_address
from kenari.wire.inflate import CODINGS, CodingError, TooLargeError, inflate

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HIGH_WATER = 128 * 1024
MAX_PIPELINED = 32
THREAD_BYTES = 1024 * 1024
"""Compressed bodies above this are inflated in a thread, so that no stream waits."""
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
        self._lingers = 0.0  # until when bytes are thrown away after a refusal
        self._reading_paused = False
        self._write_paused = False
        self._since = edge.loop.time()  # of the last change of state, for the limits of time
        self._heard = self._since
        self._reset()

    def _reset(self) -> None:
        """Make ready for the next request's head."""
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_size = self._header_count = 0
        self._state = "idle"
        self._body: list[bytes] = []
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
        now = self._edge.loop.time()
        self._heard = now
        if self._lingers:
            return
        if self._state == "idle":
            self._state, self._since = "head", now
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # it was delivered as a request like any other; this connection ends with it
        except httptools.HttpParserError:
            if self._fault is None:
                self._fault = KenariError("bad_request", "the HTTP request is malformed. send plain HTTP/1.1")
        if self._state == "head" and self._fault is None:
            self._head_size += len(data)
            if self._head_size > self._edge.limits.max_head:
                self._fault = _headers_too_large()
        if self._fault is not None:
            self._refuse(self._fault)
        elif self._current is not None and self._waiting:
            self._pause_reading()

    def eof_received(self) -> bool:
        """The client has closed its side: it is gone (F6)."""
        self._leave()
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
        if self._current is not None and self._current.watcher is not None:
            self._current.watcher.on_resume()

    # -- httptools

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._state == "idle":  # a pipelined one
            self._state, self._since = "head", self._edge.loop.time()

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url
        if len(self._url) > self._edge.limits.max_head:
            self._fault = _headers_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._header_count += 1
        self._head_size += len(name) + len(value) + 4
        limits = self._edge.limits
        if self._head_size > limits.max_head or self._header_count > limits.max_headers:
            self._fault = _headers_too_large()
            return
        name = name.lower()
        self._headers[name] = self._headers[name] + b", " + value if name in self._headers else value

    def on_headers_complete(self) -> None:
        """The head is whole: refuse a body that cannot be taken before it comes."""
        if self._fault is not None:
            return
        self._state, self._since = "body", self._edge.loop.time()
        headers = self._headers
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:18]) > self._edge.limits.max_body:
            self._fault = _too_large(self._edge.limits.max_body)
            return
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"identity", b"", *CODINGS):
            self._fault = KenariError("unsupported_media_type", "content-encoding must be gzip, deflate or zstd")
            return
        if headers.get(b"expect", b"").lower() == b"100-continue" and self._current is None and self._transport:
            self._transport.write(CONTINUE)

    def on_body(self, data: bytes) -> None:
        """Bytes of the body."""
        if self._fault is not None:
            return
        self._size += len(data)
        if self._size > self._edge.limits.max_body:
            self._fault = _too_large(self._edge.limits.max_body)
            self._body.clear()
        else:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._fault is not None or self._lingers:
            return
        exchange = self._exchange()
        exchange.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._reset()
        self._since = self._edge.loop.time()
        if len(self._waiting) >= MAX_PIPELINED:
            self._fault = KenariError("bad_request", "too many requests at once on one connection. wait for answers")
            return
        if self._current is None:
            self._start(exchange)
        else:
            self._waiting.append(exchange)

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
        self._since = self._edge.loop.time()
        if not exchange.keeps or self._edge.draining:
            if self._transport is not None and not self._lingers:
                self._transport.close()
            return
        if self._waiting:
            self._start(self._waiting.popleft())
        if not self._waiting and self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def close_if_idle(self) -> None:
        """End a connection that answers nothing."""
        if self._current is None and self._transport is not None:
            self._transport.close()
        elif self._current is not None:
            self._current.keeps = False

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
        waited = now - self._since
        if self._state == "head":
            if waited > limits.head_seconds:
                self._refuse(_too_slow())
        elif self._state == "body":
            silent = now - self._heard > limits.body_idle_seconds
            crawls = waited > limits.body_idle_seconds and self._size < waited * limits.body_rate
            if silent or crawls:
                self._refuse(_too_slow())
        elif self._current is None and waited > limits.idle_seconds and self._transport is not None:
            self._transport.close()

    def _exchange(self) -> HttpExchange:
        method = "GET"
        path, query = "", ""
        try:
            method = self._parser.get_method().decode("latin-1")
            parsed = httptools.parse_url(self._url)
            path = (parsed.path or b"").decode("latin-1")
            query = (parsed.query or b"").decode("latin-1")
        except (httptools.HttpParserError, AttributeError):
            path = self._url.decode("latin-1").partition("?")[0]
        if "%" in path:
            path = unquote(path, errors="replace")
        exchange = HttpExchange(self, method, path, query, self._headers)
        exchange.http10 = self._parser.get_http_version() == "1.0"
        exchange.keeps = self._parser.should_keep_alive() and not exchange.http10 and not self._edge.draining
        exchange.peer = self._address()
        return exchange

    def _address(self) -> str:
        limits = self._edge.limits
        if not limits.trusted_proxies:
            return self._peer
        return client_address(self._peer, self._headers.get(b"x-forwarded-for", b""), limits.trusted_proxies)

    def _start(self, exchange: HttpExchange) -> None:
        self._current = exchange
        coding = exchange.headers.get(b"content-encoding", b"identity").strip().lower()
        if coding in CODINGS:
            self._task = self._edge.loop.create_task(self._inflate(exchange, coding))
        else:
            self._task = self._edge.loop.create_task(self._edge.serve(exchange))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A request's task is over; what it let through is our fault."""
        if task.cancelled():
            return
        error = task.exception()
        exchange = self._current
        if error is None:
            return
        self._edge.fault(error)
        if exchange is not None and not exchange.done:
            if exchange.begun:
                exchange.abort()
            else:
                self._edge.refuse(exchange, KenariError("internal_error", "something went wrong. send it again"))

    async def _inflate(self, exchange: HttpExchange, coding: bytes) -> None:
        limit = self._edge.limits.max_body
        try:
            if len(exchange.body) > THREAD_BYTES:
                exchange.body = await asyncio.to_thread(inflate, coding, exchange.body, limit)
            else:
                exchange.body = inflate(coding, exchange.body, limit)
        except TooLargeError:
            self._edge.refuse(exchange, _too_large(limit))
            return
        except CodingError:
            message = f"the body is not valid {coding.decode()}. send it again, or without content-encoding"
            self._edge.refuse(exchange, KenariError("bad_request", message))
            return
        await self._edge.serve(exchange)

    def _refuse(self, error: KenariError) -> None:
        """Answer a request that never became one; the connection ends, after what the client still sends is read."""
        if self._lingers:
            return
        self._lingers = self._edge.loop.time() + LINGER_SECONDS
        self._body.clear()
        if self._current is not None or self._transport is None:  # an answer is under way: no second one into it
            self.abort()
            return
        exchange = self._exchange()
        exchange.keeps = False
        self._current = exchange
        self._edge.refuse(exchange, error)
        transport = self._transport
        if transport and transport.can_write_eof():
            transport.write_eof()

    def _leave(self) -> None:
        exchange = self._current
        for waiting in self._waiting:
            waiting.leave()
        self._waiting.clear()
        if exchange is not None:
            exchange.leave()

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()


def _headers_too_large() -> KenariError:
    return KenariError("headers_too_large", "the request's headers are too large or too many. send fewer")


def _too_large(limit: int) -> KenariError:
    return KenariError("request_too_large", f"the request body is larger than {limit} bytes. send less")


def _too_slow() -> KenariError:
    return KenariError("request_timeout", "the request came too slowly. send it again on a new connection")
