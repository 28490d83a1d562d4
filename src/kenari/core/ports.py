"""What the gateway needs from outside, and the records that cross. Rooms of floor 3 and 5 implement these."""

from typing import Literal, Protocol, TypeAlias

import msgspec

from kenari.core.errors import KenariError
from kenari.core.request import Notice
from kenari.core.usage import Usage

Ending: TypeAlias = Literal["done", "length", "failed", "client_closed", "refused"]


class Caller(msgspec.Struct, frozen=True):
    """Who calls: the account, the key's id (never its secret), and whether limits apply (A1)."""

    account: str
    key: str
    unlimited: bool = False


class Leg(msgspec.Struct, frozen=True):
    """One call of a provider within a client's request: an attempt, later also a round of server tools."""

    target: str
    usage: Usage
    outcome: str
    """`ok`, or the error code that it ended with."""
    ms: float


class Line(msgspec.Struct, kw_only=True):
    """All that is known of one finished request: what the log says of it now, and the bill later. No text of anyone."""

    id: str
    account: str = ""
    key: str = ""
    model: str = ""
    target: str = ""
    client_format: str = ""
    provider_format: str = ""
    stream: bool = False
    status: int = 0
    code: str = ""
    ending: Ending = "refused"
    usage: Usage = Usage()
    legs: list[Leg] = []
    first_content_ms: float | None = None
    duration_ms: float = 0.0
    notices: list[Notice] = []
    method: str = ""
    path: str = ""
    peer: str = ""


class Keys(Protocol):
    """Verifies callers' keys. A look-up in memory, never a wait."""

    def verify(self, secret: bytes) -> Caller | None:
        """The caller behind a secret, None when it is not valid."""
        ...


class Hold(msgspec.Struct, frozen=True):
    """A reservation for one request (U5). `id` is the request's id."""

    id: str
    caller: Caller


class Books(Protocol):
    """The keeper's books: a hold before the provider is called, one line after it, whatever happened."""

    def reserve(self, caller: Caller, request_id: str) -> Hold:
        """Reserve for a request. Raises KenariError (402) when the caller cannot pay."""
        ...

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Close the hold with its line; `hold` is None for a request that was refused before admission."""
        ...


class Watcher(Protocol):
    """Hears of the client's side of an exchange."""

    def on_gone(self) -> None:
        """The client has gone: its connection is closed, reset or half-closed (F6). Called once."""
        ...

    def on_pause(self) -> None:
        """The client reads too slowly: stop producing until `on_resume`."""
        ...

    def on_resume(self) -> None:
        """The client reads again."""
        ...


class Exchange(Protocol):
    """One client request, whole, and the way to answer it. Made by the inbound end.

    `headers` has lower-case names; a repeated header's values are joined by ", ". `body` is complete and inflated.
    `path` is percent-decoded, without the query. Header lines are given ready-made: `name: value\\r\\n` each; lengths,
    transfer coding, `connection` and `date` are the inbound end's business. `extra_headers` are lines that go out with
    whatever head is sent (CORS).
    """

    id: str
    method: str
    path: str
    query: str
    headers: dict[bytes, bytes]
    body: bytes
    peer: str
    gone: bool
    extra_headers: bytes
    watcher: Watcher | None

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer at once. Nothing is sent when the client has gone."""
        ...

    def begin(self, status: int, headers: bytes) -> None:
        """The head of a streamed answer."""
        ...

    def write(self, data: bytes) -> None:
        """The next bytes of a streamed answer: one write to the socket."""
        ...

    def end(self) -> None:
        """The end of a streamed answer."""
        ...

    def abort(self) -> None:
        """Break the connection so that the client sees a transport error, never a clean end (D16)."""
        ...


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


class Call(Protocol):
    """One provider call under way."""

    def abort(self) -> None:
        """Close the connection at once; nothing is heard of the call afterwards. May be called at any time."""
        ...

    def pause(self) -> None:
        """Stop reading from the provider."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...


class Outgoing(msgspec.Struct, frozen=True):
    """An HTTP POST to a provider. `url` is absolute; `headers` are ready lines (`name: value\\r\\n`) without host and
    content-length. `ca` is a file of a private authority, `proxy` an egress proxy's address. Seconds."""

    url: str
    headers: bytes
    body: bytes
    connect_timeout: float = 10.0
    proxy: str = ""
    ca: str = ""


class Upstream(Protocol):
    """The outbound end."""

    def start(self, request: Outgoing, receiver: Receiver) -> Call:
        """Begin a call. Returns at once; `receiver` hears the rest, never before this has returned."""
        ...
