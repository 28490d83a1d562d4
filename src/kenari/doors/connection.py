"""One inbound connection: requests in order, limits, slow clients, and a client that goes away."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import httptools

from kenari.core.errors import KenariError
from kenari.doors.answering import Answering
from kenari.doors.exchange import Handover, HttpExchange, Owner, exchange_of
from kenari.doors.incoming import IncomingBody, cut_off, incoming_of
from kenari.doors.limits import announced_fault, body_too_large, headers_too_large, malformed, our_fault, too_slow
from kenari.doors.repeat import Repeat, repeat_of
from kenari.doors.unread import Unread
from kenari.wire.http1 import CONTINUE, LOWER, has_body, head_size, joined_headers, without_upgrade

HIGH_WATER = 128 * 1024
MAX_PIPELINED = 32
FEW_WAITING = 4
FEW_BYTES = 64 * 1024
"""Behind the request that is being answered this much may wait while reading goes on; only who reads sees a client go."""
LINGER_SECONDS = 2.0
GOODBYE_SECONDS = 3.0
"""How long a TLS client that has everything may take to say that it ends the connection too: pooled clients do not."""


class Connection(asyncio.Protocol):
    """Reads requests, gives whole ones to the edge's `serve`, one at a time and in order."""

    def __init__(self, edge: Owner) -> None:
        self._edge = edge
        self._transport: asyncio.Transport | None = None
        self.send: Callable[[bytes], None] = _nowhere
        """Takes bytes of an answer, while there is a transport."""
        self._parser: httptools.HttpRequestParser | None = None  # made for a head that is not known
        self._peer = ""
        self._waiting: list[HttpExchange] = []  # few, and nearly always none
        self._current: HttpExchange | None = None
        self._answering = Answering(edge)
        self._lingers = 0.0  # the connection ends, at the latest then; until then bytes are thrown away
        self._incoming: IncomingBody | None = None  # of the request that is being answered, while it still comes
        self._farewell = 0.0  # a TLS connection ends then if nothing is left to be written
        self._refusal: KenariError | None = None  # what the last of `_waiting` will be told
        self._deaf = False  # nothing of what still comes is a request
        self._known: Repeat | None = None  # the head of the last request that was whole in one reading
        self._came = 0  # at most so much is the head that is being read
        self._fresh = False  # a request began in the bytes that came last
        self._reading_paused = False
        self._unread: Unread | None = None  # the client reads too slowly
        self._since = self._heard = edge.loop.time()  # of the last change of state, and of the last bytes
        self._reset()

    def _reset(self) -> None:
        """Make ready for the next request's head."""
        self._url = self._body = b""
        self._headers: dict[bytes, bytes] = {}
        self._lines: list[tuple[bytes, bytes]] = []  # of the head and then of the trailer, as they come
        self._bare = 0
        self._state = "idle"
        self._pieces: bytearray | None = None  # of a body that came in several
        self._size = 0
        self._fault: KenariError | None = None

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass
        self.send = partial(self._edge.outbox.put, self._transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self._peer = str(cast("tuple[Any, ...]", peer)[0]) if isinstance(peer, tuple) and peer else ""
        self._edge.opened(self)
        if self._edge.draining:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of several."""
        self._heard = self._edge.loop.time()
        if self._lingers or self._deaf:
            return
        if self._known is not None and self._state == "idle" and self._take_again(self._known, data):
            return
        learns = self._state == "idle"  # else these bytes do not begin with a head
        size, self._fresh = self._size, False
        self._came = len(data) + (0 if learns else self._came)
        try:
            self._reader().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            learns = False  # what is answered is not what came
            self._pass_upgrade(data[int(upgrade.args[0]) :])
        except httptools.HttpParserCallbackError as error:
            self._edge.fault(error.__context__ or error)
            self._fault = our_fault()
        except httptools.HttpParserError:
            self._fault = self._fault or malformed()
        if self._state != "idle":
            self._count_bare(0 if self._fresh or self._size != size else len(data))
        elif learns and self._current is not None and self._fresh and self._fault is None and not self._waiting:
            self._known = repeat_of(data, self._current)
            if self._known is not None:  # it stands between two requests, and may not be needed again
                self._parser = None
        if self._fault is not None:
            self._refuse(self._fault)
        elif self._waiting and self._has_enough():
            self.set_reading(False)

    def _take_again(self, known: Repeat, data: bytes) -> bool:
        """Take a request whose head is that of the last one. False when it has to be parsed."""
        if self._current is not None or self._waiting or self._unread or self._edge.draining:
            return False
        exchange = known.again(data, self._edge.new_id(), self._edge.limits.max_body)
        if exchange is None:
            return False
        self._since, self._current = self._heard, exchange
        self._answering.start(exchange, known.take)
        return True

    def eof_received(self) -> bool:
        """The client has closed its side: it is gone (F6). What it was answered before is still written."""
        self._edge.outbox.flush()
        self._leave()
        self._lingers = self._lingers or self._edge.loop.time() + LINGER_SECONDS
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended. What it was told goes now, not when the collector finds it: the parser refers to it."""
        self._transport, self.send = None, _nowhere
        self._edge.closed(self)
        self._leave()
        self._known = None
        self._reset()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._unread = self._edge.slowed()
        if self._current is not None and self._current.watcher is not None:
            self._current.watcher.on_pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._unread = None
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
        self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole: refuse a body that cannot be taken before it comes."""
        if self._fault is not None:
            return
        self._state, self._since = "body", self._heard
        limits = self._edge.limits
        if len(self._lines) > limits.max_headers:
            self._fault = headers_too_large()
            return
        headers = self._headers = {LOWER[name]: value for name, value in self._lines}
        if len(headers) != len(self._lines):
            headers = self._headers = joined_headers(self._lines)
        if self._came > limits.max_head and head_size(self._url, self._lines) > limits.max_head:
            self._fault = headers_too_large()
        else:
            self._fault = announced_fault(self._url, headers, limits.max_body, self._edge.screen)
        if self._fault is None and self._is_free() and not self._stream() and b"expect" in headers:
            self._continue()

    def on_body(self, data: bytes) -> None:
        """Bytes of the body."""
        if self._fault is not None:
            return
        self._size += len(data)
        if self._size > self._edge.limits.max_body:
            self._fault = body_too_large(self._edge.limits.max_body)
        elif self._incoming is not None:
            self._incoming.feed(data)
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
        if self._incoming is not None:
            self._end_stream(self._incoming)
            return
        if b"upgrade" in self._headers and self._reader().should_upgrade() and has_body(self._headers):
            return  # the parser ends it with its head; the body is still to come (`_pass_upgrade`)
        exchange = self._exchange()
        exchange.body = self._body if self._pieces is None else bytes(self._pieces)
        self._reset()
        self._since = self._heard
        if self._is_free():
            self._start(exchange)
        elif len(self._waiting) < MAX_PIPELINED:
            self._waiting.append(exchange)
        else:
            self._fault = KenariError("bad_request", "too many requests at once on one connection. wait for answers")

    # -- exchanges

    def answered(self, exchange: HttpExchange) -> None:
        """An answer is complete: the next request, or the end."""
        if exchange is not self._current:
            return
        self._current = None
        if self._incoming is not None:  # the rest of its body is thrown away while the client hears the answer
            self._incoming.fail(cut_off())
            self._incoming = None
            self._linger()
            return
        self._since = self._heard = self._edge.loop.time()  # a client that had to wait was not slow
        if not exchange.keeps or self._edge.draining:
            self._close()
        elif self._unread is None and (self._waiting or self._reading_paused or self._state != "idle"):
            self._next()

    def forget(self) -> None:
        """Others serve from now on: what is known of requests is not true any more."""
        self._known = None

    def hand_over(self, exchange: HttpExchange) -> Handover | None:
        """Leave the transport to another protocol, which answers from now on; None when that cannot be any more."""
        transport = self._transport
        if transport is None or exchange is not self._current or self._waiting or self._lingers:
            return None
        self._edge.outbox.flush()
        self._transport = self._current = None
        self.send = _nowhere
        self._edge.closed(self)
        return Handover(transport, self._edge, self._peer)

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

    # -- bodies that are passed on as they come (incoming.Valve)

    def wanted(self) -> None:
        """A body is wanted."""
        if b"expect" in self._headers and not self._size:
            self._continue()

    def set_reading(self, reading: bool) -> None:
        """Read from the client, or do not."""
        if self._reading_paused is reading and self._transport is not None:
            self._reading_paused = not reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def _stream(self) -> bool:
        """Begin to answer the request whose body is coming, where its endpoint passes bodies on. False elsewhere."""
        incoming = self._incoming = incoming_of(self._url, self._headers, self._edge.streamed, self)
        if incoming is None:
            return False
        exchange = self._exchange()
        exchange.incoming = incoming
        if self._size:  # it came behind the request before
            incoming.feed(self._body if self._pieces is None else bytes(self._pieces))
            self._body, self._pieces = b"", None
        self._start(exchange)
        return True

    def _is_free(self) -> bool:
        """A request can be answered at once."""
        return self._current is None and self._unread is None and not self._waiting

    def _end_stream(self, incoming: IncomingBody) -> None:
        self._incoming = None
        self._reset()
        self._since = self._heard
        self.set_reading(True)
        incoming.finish()

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return self._current is not None

    def tick(self, now: float) -> None:
        """Slow and silent clients."""
        limits = self._edge.limits
        if self._lingers:
            if now >= self._lingers or self._is_over(now):
                self.abort()
            return
        if self._unread is not None and self._unread.lasts(self._transport, now) > limits.unread_seconds:
            self.abort()
        if self._current is not None and self._incoming is None:  # meanwhile the next request may take its time
            return
        if self._incoming is not None and self._incoming.waits:
            self._heard = now  # it is not the client who is slow
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

    def _is_over(self, now: float) -> bool:
        """Only the client's goodbye is awaited, and has been for long enough."""
        transport = self._transport
        if not self._farewell or transport is None:
            return False
        if transport.get_write_buffer_size():
            self._farewell = now + GOODBYE_SECONDS
        return now >= self._farewell

    def _exchange(self) -> HttpExchange:
        return exchange_of(self, self._edge, self._reader(), (self._url, self._headers, self._peer))

    def _reader(self) -> httptools.HttpRequestParser:
        parser = self._parser = self._parser or httptools.HttpRequestParser(self)
        return parser

    def _next(self) -> None:
        """The answer before is out: the next request that waits, and reading on behind the last one."""
        if self._waiting:
            self._start(self._waiting.pop(0))
        elif self._state == "body" and not self._stream() and not self._size and b"expect" in self._headers:
            self._continue()
        if not self._waiting:
            self.set_reading(True)

    def _start(self, exchange: HttpExchange) -> None:
        self._current = exchange
        if self._refusal is not None and not self._waiting:
            self._answer_refusal(exchange, self._refusal)
            return
        self._answering.start(exchange)

    def _continue(self) -> None:
        """The client waits for leave to send its body."""
        expected = self._headers[b"expect"].lower() == b"100-continue"
        if expected and self._transport is not None and self._reader().get_http_version() == "1.1":
            self.send(CONTINUE)

    def _pass_upgrade(self, rest: bytes) -> None:
        """Nothing is upgraded here: a request that asks for it is one like any other, and its body is read."""
        if self._fault is not None:
            return
        parser, self._parser = self._reader(), None
        if parser.get_method() == b"CONNECT":  # what follows is meant for somebody else
            self._deaf = True
            return
        head = b""
        if self._state == "body":  # its body follows: read the request again without the wish
            head = without_upgrade(parser.get_method(), self._url, parser.get_http_version(), self._headers)
            self._reset()
        if head or rest:
            self.data_received(head + rest)

    def _count_bare(self, size: int) -> None:
        """Bytes that brought no body: a long head, endless chunk extensions or trailers; and lines of both."""
        self._bare += size
        limits = self._edge.limits
        if self._fault is None and (self._bare > limits.max_head or len(self._lines) > limits.max_headers):
            self._fault = headers_too_large()

    def _has_enough(self) -> bool:
        """So much waits that no more is read, although then nothing is heard of the client's going."""
        held = self._size + sum(len(exchange.body) for exchange in self._waiting)
        return len(self._waiting) >= FEW_WAITING or held > FEW_BYTES

    def _refuse(self, error: KenariError) -> None:
        """Answer a request that never became one, after the answers before it; then the connection ends."""
        if self._lingers or self._refusal is not None or self._transport is None:
            return
        self._body, self._pieces = b"", None
        self._deaf = True
        if self._incoming is not None:
            self._incoming.fail(error)  # its request is being answered, and will say so
            return
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
        self._answering.refuse(exchange, error)
        self._linger()

    def _linger(self) -> None:
        """End our side; what the client still sends is thrown away."""
        self._lingers = self._edge.loop.time() + LINGER_SECONDS
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():
            self._edge.outbox.flush()
            transport.write_eof()

    def _close(self) -> None:
        """End the connection when what is on its way is out; a client that does not read it is cut off later."""
        if self._transport is not None and not self._lingers:
            now = self._edge.loop.time()
            self._lingers = now + self._edge.limits.idle_seconds
            if self._transport.get_extra_info("ssl_object") is not None:
                self._farewell = now + GOODBYE_SECONDS
            self._edge.outbox.flush()
            self._transport.close()

    def _leave(self) -> None:
        exchange = self._current
        for waiting in self._waiting:
            waiting.leave()
        self._waiting.clear()
        if exchange is None:
            return
        exchange.leave()
        if self._incoming is not None:
            self._incoming.fail(cut_off())
            self._incoming = None
        self._answering.leave()


def _nowhere(data: bytes) -> None:
    """The connection is gone."""
