"""One connection to a provider and the call that it carries: requests out, answers in, by callback.

Callbacks go straight from `data_received` to the receiver; there is no queue and no task per chunk.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Protocol, cast

import httptools
import msgspec

from kenari.core.errors import KenariError, interrupted
from kenari.core.outbound import Hearer, Receiver, Stream
from kenari.upstream.origin import Origin
from kenari.upstream.pool import Pool
from kenari.upstream.sending import Sender
from kenari.wire.http1 import LOWER
from kenari.wire.inflate import MAX_GROWTH, CodingError, Inflater, TooLargeError
from kenari.wire.repeat import KnownHead, known_head

_log = logging.getLogger("kenari.upstream")

MAX_HEADERS = 64 * 1024
"""Bytes of heads, trailers and chunk frames that may come without a byte of a body between them."""

_OK = b"HTTP/1.1 200 "

NO_ANSWER = "the model's provider closed the connection without an answer. send the request again"
BROKEN = "the model's provider sent a malformed answer. send the request again"


_EDGE = b"\n\n\r\n"
"""What a reading ends with that ends with a chunk of whole frames: no head of a chunk holds an empty line."""


class HeadTooLongError(Exception):
    """The head of an answer is larger than MAX_HEADERS."""


class Opener(Protocol):
    """Opens connections for calls."""

    def open_for(self, call: "HttpCall") -> None:
        """Send a call's request on a connection of its own."""
        ...


class HttpCall(msgspec.Struct, eq=False):
    """One call under way (core.outbound.Call): it may wait for a connection, be on one, or be over.

    `request` is emptied as soon as it cannot be needed again, for streams are long and bodies are large; `stream` is the body
    where it is not in it. `began`: a byte of the answer has come. `fresh`: a connection was opened for it. `hearer` is the
    receiver while it may hear of a whole answer at once. `quick` takes whole chunks unread (`hasten`).
    """

    opener: Opener
    origin: Origin
    request: bytes
    connect_timeout: float
    receiver: Receiver
    hearer: Hearer | None = None
    stream: Stream | None = None
    connection: "Connection | None" = None
    task: asyncio.Task[None] | None = None
    over: bool = False
    paused: bool = False
    began: bool = False
    fresh: bool = False
    quick: Callable[[bytes], bool] | None = None

    @property
    def sent(self) -> bool:
        """A connection has its request, and carries it."""
        return self.connection is not None

    def hear(self, receiver: Receiver) -> None:
        """From now on this one hears of it, piece by piece."""
        self.receiver, self.hearer = receiver, None

    def abort(self) -> None:
        """Close the connection at once; the receiver hears nothing more."""
        self.finish()
        if self.task is not None:
            self.task.cancel()
        if self.connection is not None:
            self.connection.abort()

    def pause(self) -> None:
        """Stop reading from the provider."""
        self.paused = True
        if self.connection is not None:
            self.connection.set_paused(True)

    def resume(self) -> None:
        """Read on."""
        self.paused = False
        if self.connection is not None:
            self.connection.set_paused(False)

    def hasten(self, quick: Callable[[bytes], bool] | None) -> None:
        """From the next reading on, where it begins a chunk, offer its bytes as they are."""
        self.quick = quick
        if quick is None and self.connection is not None:
            self.connection.quick = None

    def lose(self, error: KenariError) -> None:
        """Tell the receiver that the call failed, once."""
        if not self.over:
            self.finish()
            self.receiver.on_lost(error)

    def finish(self) -> None:
        """Nothing more is heard of it."""
        self.over = True
        self.request, self.hearer, self.quick = b"", None, None


class Connection(asyncio.Protocol):
    """One connection to an origin. It carries one call at a time."""

    __slots__ = (
        "_bodied",
        "_body",
        "_call",
        "_complete",
        "_headers",
        "_inflater",
        "_keeps",
        "_known",
        "_known_headers",
        "_more",
        "_parser",
        "_paused",
        "_pool",
        "_room",
        "_sender",
        "_transport",
        "_void",
        "idle_since",
        "origin",
        "quick",
    )

    def __init__(self, pool: Pool["Connection"], origin: Origin) -> None:
        self._pool, self.origin = pool, origin
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._call: HttpCall | None = None
        self._headers: dict[bytes, bytes] = {}
        self._inflater: Inflater | None = None
        self._room = 0  # how much plain text may still come of this reading
        self._void = 0  # bytes since the last ones of a body
        self._bodied = False
        self._body = b""  # of the reading that is being parsed, and what follows it there
        self._more: list[bytes] = []
        self._complete = False
        self._keeps = False  # it can carry another call after this answer
        self._paused = False
        self._sender: Sender | None = None
        self._known: KnownHead | None = None  # of the last answer that was whole in one reading
        self._known_headers = self._headers
        self.idle_since = 0.0
        self.quick: Callable[[bytes], bool] | None = None  # takes whole chunks unread, while the parser is between two

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass
        self._pool.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        quick = self.quick
        if quick is not None:
            if quick(data):
                return
            self.quick = None
        call, parser = self._call, self._parser
        if call is None or parser is None:  # nobody asked: the connection is of no use any more
            self.abort()
            return
        hearer = None if call.began else call.hearer
        if hearer is not None and self._is_heard_at_once(call, hearer, data):
            return
        if not call.began:  # the first bytes of the answer are there: the request will not be sent again
            if not call.fresh and data[9:13] == b"408 " and _gives_up(data):
                self.abort()
                call.connection = None
                call.opener.open_for(call)
                return
            call.began, call.request = True, b""
        if not self._is_parsed(call, parser, data):
            return
        if self._complete:
            if hearer is not None:
                self._learn(data)
            self._settle(call)
        elif self._void > MAX_HEADERS:
            self._break(call)
        elif call.quick is not None and self._inflater is None and data.endswith(_EDGE):
            self.quick = call.quick

    def _is_parsed(self, call: HttpCall, parser: httptools.HttpResponseParser, data: bytes) -> bool:
        """Parse, and hand over what came of the body. False when that was the end of the call."""
        self._void += len(data)
        self._room = MAX_GROWTH
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keeps = False
            if not self._complete:
                self._deliver(call)
                self._note_fault(error.__context__)
                self._break(call)
                return False
        if self._body:
            self._deliver(call)
        return True

    def _is_heard_at_once(self, call: HttpCall, hearer: Hearer, data: bytes) -> bool:
        """Hear of an answer that is whole and begins with the head of the last one. False when it has to be parsed."""
        transport = self._transport
        body = None if self._known is None else self._known.body_of(data)
        if body is None or transport is None:
            return False
        self._call = None
        if self._paused:
            self.set_paused(False)
        if transport.is_closing() or transport.get_write_buffer_size():
            self.abort()
        else:
            self._pool.put(self)
        call.connection = call.hearer = None
        call.over, call.request = True, b""
        hearer.on_whole(self._known_headers, body)
        return True

    def _learn(self, data: bytes) -> None:
        """The answer was all of these bytes: its head may come again."""
        self._known = None
        length = self._headers.get(b"content-length", b"")
        if self._keeps and self._inflater is None and data.startswith(_OK) and length.isdigit():
            self._known, self._known_headers = known_head(data, int(length)), self._headers

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: an answer without a length is complete with it, any other is broken off."""
        self._pool.forget(self)
        self._stop_sending()
        self.quick = None
        self._transport = self._parser = None  # the parser refers to this connection: a cycle
        call, self._call = self._call, None
        if call is None or call.over:
            return
        call.connection = None
        if exc is None and self._bodied and self._delimited_by_close():
            self._finish(call)
        elif not call.fresh and not call.began:  # it died while it was idle: once more (M2)
            call.opener.open_for(call)
        elif self._bodied:
            call.lose(interrupted())
        else:
            call.lose(KenariError("upstream_error", NO_ANSWER, elsewhere=True))

    # -- the pool and the call

    def send(self, call: HttpCall) -> bool:
        """Send a call's request; its answer comes on this connection. False when it is closing: then nothing was done."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        self._call = call
        call.connection = self
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        self._headers, self._inflater = {}, None
        self._bodied = self._complete = False
        self._void = 0
        if call.stream is None:
            self._pool.outbox.put(transport, call.request)
        else:
            transport.write(call.request)
            self._sender = Sender(transport, call.stream, lambda error: self._give_up(call, error))
        if call.fresh:
            call.request = b""
        if call.paused:
            self.set_paused(True)
        return True

    def abort(self) -> None:
        """Close without ceremony; the call that is on it hears nothing."""
        self._call = self.quick = None
        self._stop_sending()
        self.drop()

    def pause_writing(self) -> None:
        """The provider reads too slowly."""
        if self._sender is not None:
            self._sender.pause()

    def resume_writing(self) -> None:
        """It reads again."""
        if self._sender is not None:
            self._sender.resume()

    def drop(self) -> None:
        """Close at once; a call that is on it hears of its loss."""
        if self._transport is not None:
            self._transport.abort()

    def set_paused(self, paused: bool) -> None:
        """Read, or do not."""
        transport = self._transport
        if transport is None or transport.is_closing() or paused is self._paused:
            return
        self._paused = paused
        if paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # -- httptools

    def on_message_begin(self) -> None:
        """An answer begins; one that nobody asked for makes the connection useless."""
        if self._complete:
            self._keeps = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers are not for us."""
        if self._bodied:
            return
        name, headers = LOWER[name], self._headers
        headers[name] = headers[name] + b", " + value if name in headers else value

    def on_headers_complete(self) -> None:
        """The head is whole; interim answers (1xx) are skipped."""
        call, parser = self._call, self._parser
        if call is None or parser is None:
            return
        headers = self._headers
        if self._void > MAX_HEADERS and sum(len(name) + len(headers[name]) for name in headers) > MAX_HEADERS:
            raise HeadTooLongError
        status = parser.get_status_code()
        if status < 200:
            self._headers = {}
            return
        self._bodied = True
        coding = headers.get(b"content-encoding")
        if coding is not None and coding.strip().lower() not in (b"identity", b""):
            self._inflater = Inflater(coding)
        if not call.over:
            call.receiver.on_head(status, headers)

    def on_body(self, data: bytes) -> None:
        """Bytes of the body, transfer coding removed. Those of one reading are handed over together."""
        self._void = 0
        call = self._call
        if call is None or call.over:
            return
        if self._inflater is not None:
            data = self._inflater.feed(data, self._room)
            self._room -= len(data)
        if not self._body:  # nearly always: one chunk in a reading
            self._body = data
        else:
            self._more.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._call is None or not self._bodied or self._complete:
            return
        self._complete = True
        self._call = None
        self._keeps = self._parser is not None and self._parser.should_keep_alive()

    def _deliver(self, call: HttpCall) -> None:
        """Hand over what one reading brought, at once: the receiver makes one write of it."""
        data, self._body = self._body, b""
        if self._more:
            data += b"".join(self._more)
            self._more = []
        if data and not call.over:
            try:
                call.receiver.on_body(data)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not pass for a loss of the connection
                self._keeps = self._complete = False
                self._note_fault(error)
                self._call = call
                self._break(call)

    def _settle(self, call: HttpCall) -> None:
        """The answer is complete and all bytes that came with it are read: keep the connection or end it."""
        self._complete = False
        transport, sender = self._transport, self._sender
        self._stop_sending()
        if (
            self._keeps
            and (sender is None or sender.done)
            and transport is not None
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        ):
            if self._paused:
                self.set_paused(False)
            self._pool.put(self)
        else:
            self.abort()
        self._finish(call)

    def _finish(self, call: HttpCall) -> None:
        call.connection = None
        if self._inflater is not None and not self._inflater.complete:
            call.lose(interrupted())
        elif not call.over:
            call.over, call.request = True, b""
            try:
                call.receiver.on_end()
            except Exception as error:  # noqa: BLE001 - as in `_deliver`: somebody waits for it
                self._note_fault(error)
                call.receiver.on_lost(KenariError("upstream_error", BROKEN, elsewhere=True))

    def _stop_sending(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.stop()

    def _give_up(self, call: HttpCall, error: KenariError) -> None:
        """The rest of a request's body does not come."""
        if self._call is call:
            self.abort()
            call.connection = None
            call.lose(error)

    def _break(self, call: HttpCall) -> None:
        """The answer is malformed. A call that was aborted meanwhile is no longer on this connection."""
        if self._call is call:
            self.abort()
            call.connection = None
            call.lose(KenariError("upstream_error", BROKEN, elsewhere=True))

    def _note_fault(self, cause: BaseException | None) -> None:
        """A fault of our own inside a callback must not pass for a provider's: log where it arose."""
        if cause is not None and not isinstance(cause, (CodingError, TooLargeError, HeadTooLongError)):
            last = traceback.extract_tb(cause.__traceback__)[-1]
            _log.error("%s while reading an answer, at %s:%s", type(cause).__name__, last.name, last.lineno)

    def _delimited_by_close(self) -> bool:
        headers = self._headers
        return b"content-length" not in headers and b"chunked" not in headers.get(b"transfer-encoding", b"").lower()


def _gives_up(data: bytes) -> bool:
    """Whether a server ends a connection that was idle for too long, and says so: it crossed the request, which was not read."""
    head = data.partition(b"\r\n\r\n")[0].lower()
    return head.startswith(b"http/1.") and b"\r\nconnection: close" in head
