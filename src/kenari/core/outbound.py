"""What the gateway needs of the outbound end: calls of providers, and who hears of them."""

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from kenari.core.errors import KenariError


class Receiver(Protocol):
    """Hears of one provider call: `on_head` once, `on_body` as bytes come, then `on_end` or `on_lost`, once."""

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """The answer's status and headers (lower-case names)."""
        ...

    def on_body(self, data: bytes) -> None:
        """Bytes of the body as they come, transfer and content coding removed."""
        ...

    def on_end(self) -> None:
        """The body is complete."""
        ...

    def on_lost(self, error: KenariError) -> None:
        """The call failed: no connection, TLS, connect timeout, reset, or the end came before the end of the body."""
        ...


class Hearer(Receiver, Protocol):
    """A receiver that may hear of a whole answer at once: of a 200 that is complete with the bytes it begins with."""

    def on_whole(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """Status 200, these headers, this body, and its end."""
        ...


class Call(Protocol):
    """One provider call under way."""

    @property
    def sent(self) -> bool:
        """A connection has its request; before that no provider can have begun to work."""
        ...

    def hear(self, receiver: Receiver) -> None:
        """From now on this one hears of it, piece by piece."""
        ...

    def hasten(self, quick: Callable[[bytes], bool] | None) -> None:
        """May be asked for while all the body so far was whole events, without a carriage return. `quick` is then offered
        what comes next as it came, chunk framing included, and says whether that was one whole chunk (in order, nothing
        more) and is done with; else it is read as ever and `quick` is not asked again before a chunk ends with an event.
        None: not any more. A call that has no such bytes never asks."""
        ...

    def abort(self) -> None:
        """Close the connection at once; nothing is heard of the call afterwards. May be called at any time."""
        ...

    def pause(self) -> None:
        """Stop reading from the provider."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...


class Stream(Protocol):
    """A body of a known length that is sent while it comes; it can be sent again from its beginning."""

    size: int

    def read(self, at: int) -> Awaitable[bytes]:
        """Bytes from an offset on, as many as are at hand; waits for the first of them. b"" only at the end. Raises the
        KenariError that the client is to be told when they do not come."""
        ...


class Outgoing(msgspec.Struct, frozen=True):
    """An HTTP POST to a provider. `url` is absolute; `headers` are ready lines (`name: value\\r\\n`) without host and
    content-length. `ca` is a file of a private authority, `proxy` an egress proxy's address. Seconds. With a `stream` that
    is the body."""

    url: str
    headers: bytes
    body: bytes
    connect_timeout: float = 10.0
    proxy: str = ""
    ca: str = ""
    stream: Stream | None = None


class Way(Protocol):
    """Where many calls go, which differ in their bodies only."""

    def send(self, body: bytes, receiver: Receiver, hearer: Hearer | None = None) -> Call:
        """Begin a call, as `Upstream.start` does. `hearer` is the receiver, where it wants to hear of whole answers."""
        ...


class Upstream(Protocol):
    """The outbound end."""

    def start(self, request: Outgoing, receiver: Receiver) -> Call:
        """Begin a call. Returns at once; `receiver` hears the rest, never before this has returned."""
        ...

    def way(self, request: Outgoing) -> Way | None:
        """What calls like this one have in common, made once for all of them; None where nothing is gained by it."""
        ...
