"""Responses over a WebSocket: each message is a request, its events come back as messages, one turn after the other.

The protocol's frames are the library's business; what a turn means is the gateway's, which sees an exchange like any
other. What a connection remembers is in `dialects/responses/chain.py`, and is gone when it closes.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import State
from websockets.server import ServerProtocol

from kenari.core.errors import KenariError
from kenari.core.events import Start, Stop
from kenari.core.ports import Exchange, Incoming, Take, Watcher
from kenari.dialects.base import Answer, Dialect
from kenari.dialects.responses.chain import Chain
from kenari.doors.exchange import Handover, HttpExchange
from kenari.gateway.heads import error_lines
from kenari.wire import jsonx
from kenari.wire.sse import Frames

_log = logging.getLogger("kenari.websocket")
_log.setLevel(logging.WARNING)  # the library would log each connection, and content when it debugs

Complete = Callable[[Exchange, Dialect], Coroutine[Any, Any, None]]
"""Answers a request of a dialect: the gateway's `complete`."""

MAX_WAITING = 8
"""Messages that may wait while a turn is answered; turns are answered in order."""
HIGH_WATER = 128 * 1024
FLOOD = 4 * HIGH_WATER
"""What may wait for a client that does not read, before what it sends is not read either."""
PING_SECONDS = 30.0
SILENT_SECONDS = 120.0
"""A client that answers no ping for so long is gone."""
IDLE_SECONDS = 3600.0
CLOSE_SECONDS = 3.0
"""How long the client's closing frame is waited for after ours (RFC 6455, 7.1.1): who breaks off at once, while bytes of
the client are still under way, may take the frame that says why from it."""


class SocketExchange:
    """One turn, as the gateway sees a request. The stream's frames become messages."""

    def __init__(self, socket: "ResponsesSocket", opening: HttpExchange, peer: str) -> None:
        self.id = os.urandom(8).hex()
        self.method, self.path, self.query, self.headers = opening.method, opening.path, "", opening.headers
        self.body = b""
        self.incoming: Incoming | None = None
        self.peer = peer
        self.gone = False
        self.extra_headers = b""
        self.watcher: Watcher | None = None
        self.done = False
        self._socket = socket
        self._frames = Frames()

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """A refusal: the body is the error's envelope."""
        if not self.gone and not self.done:
            self._socket.refused(status, headers, body)
            self.end()

    def begin(self, status: int, headers: bytes, data: bytes = b"") -> None:
        """A stream begins; a message needs no head."""
        self.write(data)

    def write(self, data: bytes) -> None:
        """Frames of the stream; a comment, our sign of life, is a ping."""
        if self.gone or self.done or not data:
            return
        comments = self._frames.comments
        for frame in self._frames.feed(data):
            self._socket.say(frame.event, frame.data)
        if self._frames.comments != comments:
            self._socket.ping()

    def cork(self) -> None:
        """Each frame is a message of its own."""

    def uncork(self) -> None:
        """Nothing was kept."""

    def lead(self, take: Take) -> None:
        """Messages have no heads."""

    def raw(self) -> None:
        """A message is no chunk."""

    def drop_body(self) -> None:
        """What the next turn goes on from is read from it when this one is over."""

    def end(self, data: bytes = b"") -> None:
        """The turn is answered."""
        self.write(data)
        self.done, self.watcher = True, None

    def abort(self) -> None:
        """The turn broke off: so does the connection (D16)."""
        if not self.gone and not self.done:
            self.end()
            self._socket.abort()

    def leave(self) -> None:
        """The client has gone."""
        if self.gone or self.done:
            return
        self.gone = True
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            watcher.on_gone()


class ResponsesSocket(asyncio.Protocol):
    """One connection, from its handshake on. `serve` answers a turn, `dialect` reads it."""

    def __init__(
        self, taken: Handover, opening: HttpExchange, serve: Complete, dialect: Dialect, max_message: int
    ) -> None:
        self._transport, self._host, self._peer = taken
        self._opening = opening
        self._serve, self._dialect = serve, dialect
        self._protocol = ServerProtocol(max_size=max_message, logger=_log)
        self._chain = Chain(max_message)
        self._pieces: list[bytes] = []
        self._waiting: deque[bytes] = deque()
        self._turn: SocketExchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._heard = self._pinged = self._since = self._host.loop.time()
        self._closing: float | None = None
        self._deaf = False
        self._transport.set_write_buffer_limits(HIGH_WATER)
        self._transport.set_protocol(self)
        self._host.opened(self)
        self._shake_hands()

    def _shake_hands(self) -> None:
        """Give the protocol the request as it came, and send its answer."""
        opening = self._opening
        lines = [b"%b: %b" % pair for pair in opening.headers.items() if pair[0] != b"content-length"]
        self._protocol.receive_data(b"\r\n".join([b"GET /v1/responses HTTP/1.1", *lines, b"", b""]))
        for event in self._protocol.events_received():
            if isinstance(event, Handshake):
                response = self._protocol.accept(event)
                for name in ("x-request-id", "request-id"):
                    response.headers[name] = opening.id
                self._protocol.send_response(response)
        self._flush()
        if self._protocol.state is not State.OPEN:
            self._transport.close()

    # -- asyncio

    def data_received(self, data: bytes) -> None:
        """Bytes of frames."""
        self._heard = self._host.loop.time()
        unread = self._transport.get_write_buffer_size()
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        self._flush()
        if self._transport.get_write_buffer_size() > max(unread, FLOOD) and not self._transport.is_closing():
            self._transport.pause_reading()  # it is answered (pings are) and does not read
            self._deaf = True

    def eof_received(self) -> bool:
        """The client has closed its side."""
        self._protocol.receive_eof()
        self._flush()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, and its memory with it."""
        self._host.closed(self)
        self._waiting.clear()
        self._chain.forget()
        if self._turn is not None:
            self._turn.leave()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self._turn is not None and self._turn.watcher is not None:
            self._turn.watcher.on_pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._deaf:
            self._deaf = False
            self._transport.resume_reading()
        if self._turn is not None and self._turn.watcher is not None:
            self._turn.watcher.on_resume()

    # -- the edge

    @property
    def busy(self) -> bool:
        """A turn is being answered."""
        return self._turn is not None

    def tick(self, now: float) -> None:
        """Keep the way open through proxies, and end what nobody uses."""
        if now - self._heard > SILENT_SECONDS or (self._closing is not None and now - self._closing > CLOSE_SECONDS):
            self.abort()
        elif self._turn is None and now - self._since > IDLE_SECONDS:
            self._close(CloseCode.GOING_AWAY)
        elif now - max(self._pinged, self._heard) > PING_SECONDS:
            self.ping()

    def close_if_idle(self) -> None:
        """The process goes away: no new turn, and the end after the one under way."""
        self._waiting.clear()
        if self._turn is None:
            self._close(CloseCode.GOING_AWAY)

    def abort(self) -> None:
        """Break the connection."""
        self._transport.abort()

    def forget(self) -> None:
        """Nothing is known of turns."""

    # -- turns

    def say(self, event: bytes, data: bytes) -> None:
        """One event of the turn under way."""
        if event == b"response.completed":
            self._chain.keep(data)
        elif event == b"response.failed":
            self._chain.forget()
        self._send(data)

    def refused(self, status: int, headers: bytes, body: bytes) -> None:
        """The turn under way is answered by an error."""
        self._chain.forget()
        error = jsonx.members(body)["error"]
        lines = [line.partition(b": ") for line in headers.split(b"\r\n")]
        hints = {name.decode(): value.decode() for name, _, value in lines if name.startswith((b"retry", b"x-should"))}
        self._send(jsonx.encode({"type": "error", "status": status, "error": error, "headers": hints}))

    def ping(self) -> None:
        """A sign of life that asks for one."""
        self._pinged = self._host.loop.time()
        if self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")
            self._flush()

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            if frame.data:
                self._pieces.append(bytes(frame.data))
            if frame.fin:
                message = b"".join(self._pieces)
                self._pieces.clear()
                self._hear(message)

    def _hear(self, message: bytes) -> None:
        if self._closing is not None:
            return
        if self._turn is not None:
            if len(self._waiting) >= MAX_WAITING:
                self._close(CloseCode.POLICY_VIOLATION)
            else:
                self._waiting.append(message)
            return
        self._turn = SocketExchange(self, self._opening, self._peer)
        self._task = self._host.loop.create_task(self._run(self._turn, message))

    async def _run(self, turn: SocketExchange, message: bytes) -> None:
        """One turn's task."""
        try:
            turn.body = self._chain.compose(message)
            if self._chain.warm:
                self._warm(turn)
            else:
                await self._serve(turn, self._dialect)
        except KenariError as error:
            turn.answer(error.status, error_lines(error), self._dialect.encode_error(error, turn.id))
        except Exception as fault:  # noqa: BLE001 - whatever it is: it is logged, and the connection ends
            self._host.fault(fault)
        turn.abort()  # nothing, when it was answered
        self._turn = self._task = None
        self._since = self._host.loop.time()
        if self._host.draining:
            self._close(CloseCode.GOING_AWAY)
        elif self._waiting:
            self._hear(self._waiting.popleft())

    def _warm(self, turn: SocketExchange) -> None:
        """A turn with `generate: false` only announces a conversation that the next one continues."""
        request = self._dialect.decode_request(turn.body)
        answer = Answer(
            id=turn.id,
            created=int(time.time()),
            model=request.model,
            request=request,
            seal=lambda _: "",
            now=time.time,
        )
        encoder = self._dialect.encoder(answer)
        turn.write(encoder.encode([Start(), Stop("stop")]) + encoder.finish())
        turn.end()

    # -- the wire

    def _send(self, data: bytes) -> None:
        if self._protocol.state is State.OPEN:
            self._protocol.send_text(data)
            self._flush()

    def _close(self, code: CloseCode) -> None:
        """Say that it ends and why. The library closes the connection when the client has said so too."""
        self._waiting.clear()
        if self._turn is not None:
            self._turn.leave()
        if self._protocol.state is State.OPEN:
            self._closing = self._host.loop.time()
            self._protocol.send_close(code)
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._closing = self._closing or self._host.loop.time()
                self._transport.write_eof()
            else:
                self._transport.close()
