"""One request and its answer on the wire (core.ports.Exchange)."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

import httptools
import msgspec

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange, Incoming, Take, Watcher
from kenari.doors.limits import EdgeLimits, Screen, client_address, plain_body
from kenari.doors.unread import Unread
from kenari.wire.http1 import CHUNK, LAST_CHUNK, content_coding, split_target, status_line
from kenari.wire.outbox import Outbox


class Living(Protocol):
    """A connection as its edge sees it, whatever protocol is spoken on it."""

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        ...

    def tick(self, now: float) -> None:
        """Look at the clock: `now` is the loop's time."""
        ...

    def close_if_idle(self) -> None:
        """End, now or after the request that is being answered."""
        ...

    def abort(self) -> None:
        """Break off."""
        ...

    def forget(self) -> None:
        """Others serve from now on."""
        ...


class Host(Protocol):
    """What a connection of another protocol needs of the edge that it belongs to."""

    loop: asyncio.AbstractEventLoop
    draining: bool

    def opened(self, connection: Living) -> None:
        """A connection stands."""
        ...

    def closed(self, connection: Living) -> None:
        """A connection has ended."""
        ...

    def fault(self, error: BaseException) -> None:
        """An error that a request's task let through."""
        ...


class Owner(Host, Protocol):
    """What a connection needs of its edge."""

    limits: EdgeLimits
    screen: Screen
    streamed: frozenset[str]
    outbox: Outbox

    def serve(self, exchange: Exchange, /) -> Coroutine[Any, Any, None]:
        """Answer a whole request."""
        ...

    def begin(self, exchange: Exchange, /) -> Coroutine[Any, Any, bool | None] | None:
        """The same; None for one that needs no task. Its result may be True: then it goes on by callback."""
        ...

    def refuse(self, exchange: Exchange, error: KenariError, /) -> None:
        """Answer what never became one."""
        ...

    def new_id(self) -> str:
        """The id of a request."""
        ...

    def slowed(self) -> Unread:
        """A client reads too slowly from now on."""
        ...


class Handover(NamedTuple):
    """A transport that another protocol takes over, the edge it belongs to, and the client's address."""

    transport: asyncio.Transport
    host: Host
    peer: str


class Wire(Protocol):
    """What an exchange needs of its connection."""

    def send(self, data: bytes, /) -> None:
        """Bytes to the client."""
        ...

    def answered(self, exchange: "HttpExchange") -> None:
        """The answer is complete."""
        ...

    def abort(self) -> None:
        """Break the connection."""
        ...

    def hand_over(self, exchange: "HttpExchange") -> Handover | None:
        """Leave the transport to another protocol."""
        ...


class Led(Protocol):
    """Requests with the same head on one connection."""

    take: Take | None
    """Who is asked first about them."""


_SIZED = b"%b%b%bcontent-length: %d\r\n\r\n%b"


class HttpExchange(msgspec.Struct, eq=False):
    """A request that is whole. `keeps` says whether the connection lives on after its answer, `repeat` by what its head was
    recognised."""

    wire: Wire
    id: str
    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes = b""
    peer: str = ""
    keeps: bool = True
    http10: bool = False
    incoming: Incoming | None = None
    gone: bool = False
    extra_headers: bytes = b""
    watcher: Watcher | None = None
    repeat: Led | None = None
    _begun: bool = False
    _done: bool = False
    _chunked: bool = False
    _kept: list[bytes] | None = None  # what is to be one write

    @property
    def done(self) -> bool:
        """The answer is complete."""
        return self._done

    @property
    def begun(self) -> bool:
        """A head has been sent."""
        return self._begun

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer in one write; nothing when the client has gone or was already answered."""
        if self.gone or self._begun or self._done:
            return
        self._begun = self._done = True
        self.watcher = None
        wire, beginning = self.wire, self._beginning(status)
        if status == 204:
            wire.send(b"%b%b%b\r\n" % (beginning, headers, self.extra_headers))
        else:
            sent = b"" if self.method == "HEAD" else body
            wire.send(_SIZED % (beginning, headers, self.extra_headers, len(body), sent))
        wire.answered(self)

    def begin(self, status: int, headers: bytes, data: bytes = b"") -> None:
        """The head of a streamed answer, with its first bytes: chunked, for HTTP/1.0 delimited by the end of the connection
        (F13)."""
        if self.gone or self._begun or self._done:
            return
        self._begun = True
        self._chunked = not self.http10
        if self._chunked:
            headers += b"transfer-encoding: chunked\r\n"
        else:
            self.keeps = False
        head = b"%b%b%b\r\n" % (self._beginning(status), headers, self.extra_headers)
        if self.method == "HEAD":
            self._chunked = False
            self._send(head)
            self.end()
        else:
            self._send(head + self._framed(data) if data else head)

    def write(self, data: bytes) -> None:
        """The next bytes, with their chunk's frame in the same write."""
        if self.gone or self._done or not data:
            return
        self._send(self._framed(data))

    def _framed(self, data: bytes) -> bytes:
        return CHUNK % (len(data), data) if self._chunked else data

    def cork(self) -> None:
        """Each write is a system call, and may wake the client: keep what follows."""
        if self._kept is None:
            self._kept = []

    def uncork(self) -> None:
        """Send it."""
        kept, self._kept = self._kept, None
        if kept and not self.gone:
            self.wire.send(b"".join(kept))

    def _send(self, data: bytes) -> None:
        if self._kept is None:
            self.wire.send(data)
        else:
            self._kept.append(data)

    def raw(self) -> Callable[[bytes], None] | None:
        """Takes whole chunks; None where the answer has none, or is over."""
        if not self._chunked or self.gone or self._done or self._kept is not None:
            return None
        return self.wire.send

    def lead(self, take: Take) -> None:
        """Ask it first about what follows."""
        if self.repeat is not None:
            self.repeat.take = take

    def drop_body(self) -> None:
        """It is not needed any more."""
        self.body = b""

    def end(self, data: bytes = b"") -> None:
        """The answer is complete with these bytes."""
        if self.gone or self._done:
            return
        self._done = True
        self.watcher = None
        if data:
            data = self._framed(data)
        if self._chunked:
            data += LAST_CHUNK
        if self._kept:
            data = b"".join([*self._kept, data])
        self._kept = None
        if data:
            self.wire.send(data)
        self.wire.answered(self)

    def abort(self) -> None:
        """Break the connection (D16); an answer that is complete, or whose client has gone, stays as it is."""
        if self.gone or self._done:
            return
        self._done = True
        self.watcher = None
        self.wire.abort()

    def hand_over(self) -> Handover | None:
        """The transport, for a protocol that answers this request and all that follows; None when it is too late."""
        if self.gone or self._begun or self._done:
            return None
        taken = self.wire.hand_over(self)
        if taken is not None:
            self._begun = self._done = True
        return taken

    async def inflate(self, limit: int) -> None:
        """Undo the body's coding. Raises KenariError for a body that is larger than `limit` then, or is not what it says."""
        coding = content_coding(self.headers)
        if coding:
            self.body = await plain_body(coding, self.body, limit)

    def leave(self) -> None:
        """The client has gone."""
        if self.gone or self._done:
            return
        self.gone = True
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            watcher.on_gone()

    def _beginning(self, status: int) -> bytes:
        """What the answer begins with; its date, too."""
        if self.incoming is not None and not self.incoming.whole:
            self.keeps = False  # the rest of its body stands where the next request would begin
        second = int(time.time())
        line = _beginnings.lines.get(status) if second == _beginnings.second else None
        line = line or _beginnings.make(status, second)
        return line if self.keeps and not self.http10 else line + b"connection: close\r\n"


def exchange_of(
    wire: Wire, edge: Owner, parser: httptools.HttpRequestParser, head: tuple[bytes, dict[bytes, bytes], str]
) -> HttpExchange:
    """The request whose head (its target, headers, and the peer's address) a parser has read."""
    url, headers, peer = head
    path, query = split_target(url)
    exchange = HttpExchange(wire, edge.new_id(), parser.get_method().decode(), path, query, headers)
    keeps = parser.should_keep_alive()
    if not keeps or b"connection" in headers:  # else it is 1.1, which need not be asked for
        exchange.http10 = parser.get_http_version() != "1.1"
    exchange.keeps = keeps and not exchange.http10 and not edge.draining and exchange.method != "CONNECT"
    trusted = edge.limits.trusted_proxies
    exchange.peer = client_address(peer, headers.get(b"x-forwarded-for", b""), trusted) if trusted else peer
    return exchange


class _Beginnings:
    """What every answer of a status begins with, its date included; made once a second."""

    __slots__ = ("lines", "second")

    def __init__(self) -> None:
        self.second = 0
        self.lines: dict[int, bytes] = {}

    def make(self, status: int, second: int) -> bytes:
        """One that is not there yet."""
        if second != self.second:
            self.second, self.lines = second, {}
        date = time.strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n", time.gmtime(second))
        line = self.lines[status] = status_line(status) + date.encode()
        return line


_beginnings = _Beginnings()
