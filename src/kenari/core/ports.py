"""What the gateway needs from outside, and the records that cross. Rooms of floor 3 and 5 implement these."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.price import Price
from kenari.core.request import Notice
from kenari.core.usage import Usage

Ending: TypeAlias = Literal["done", "length", "failed", "client_closed", "crashed", "refused"]
"""Why a request ended. `crashed`: the process that served it died; `refused`: it was never admitted, no bill (U5)."""


class Leg(msgspec.Struct, frozen=True):
    """One call of a provider within a client's request: an attempt at its answer, or a round of server tools. The bill adds
    up the legs."""

    target: str
    usage: Usage
    outcome: str
    """`ok`, or the error code that it ended with."""
    ms: float
    billed: bool = True
    """False for a leg that failed before content: it costs nothing (U5)."""
    fee: int = 0
    """What it costs beside its tokens, in 1e-9 currency units: a search, an image, a BYOK request."""


class Line(msgspec.Struct, kw_only=True):
    """All that is known of one finished request: the log, the metrics and the bill are made of it. It holds no text of a
    prompt or an answer."""

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
    price: Price | None = None
    charge: int = 0
    """1e-9 currency units, rounded up once (F9)."""
    counted: str = ""
    """How what is marked as estimated was counted: the name of a vocabulary, `estimate` for the calibrated guess, "" where
    nothing was estimated (U3)."""


class Keys(Protocol):
    """Verifies callers' keys. A look-up in memory, never a wait."""

    def verify(self, secret: bytes) -> Caller | None:
        """The caller behind a secret, None when it is not valid."""
        ...


class Repeat(msgspec.Struct, frozen=True):
    """An Idempotency-Key (F14): digests of the key and of the body that came with it."""

    key: bytes
    body: bytes


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be set aside before a provider is called (U5, F8). Amounts in 1e-9 currency units.

    `amount` is wanted; anything down to `least` is enough when the caller left the cap open.
    """

    id: str
    caller: Caller
    model: str
    amount: int = 0
    least: int = 0
    price: Price | None = None
    repeat: Repeat | None = None


class Hold(msgspec.Struct, frozen=True):
    """A reservation that was granted. `id` is the request's id, `amount` what was set aside."""

    id: str
    caller: Caller
    amount: int = 0


class Books(Protocol):
    """The keeper's books: a hold before the provider is called, one line after it, whatever happened."""

    def reserve(self, reservation: Reservation) -> Awaitable[Hold]:
        """Set money aside; durable against the death of the process when it returns, and the only wait before the
        provider is called.

        Raises KenariError: 402 `insufficient_balance` or `budget_exceeded`, 409 `idempotency_conflict`, 503 when the
        store cannot say.
        """
        ...

    def extend(self, hold: Hold, amount: int, least: int) -> Awaitable[Hold]:
        """Set more aside for a request that goes on (another round of server tools): `amount` more is wanted, anything down
        to `least` is enough. The hold as it is then.

        Raises KenariError as `reserve` does; then the hold is as it was.
        """
        ...

    def admit(self, reservation: Reservation) -> Hold | None:
        """The hold of a request of a caller without limits, where there is nothing to wait for; None: `reserve` has to be
        asked."""
        ...

    def note(self, hold: Hold, charge: int) -> None:
        """What the request would cost if it ended now. Journalled in batches; a crash is billed the last one."""
        ...

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Close the hold with its line, never waits; `hold` is None for a request that was refused before admission.

        A hold whose line ends as `refused` is only given back: the limits refused the request while the hold was being
        made, and it leaves no bill (U5). A line that `failed` with nothing to pay also forgets the request's
        Idempotency-Key, so that the client may send it again.
        """
        ...

    def settle_later(self, hold: Hold, finish: Callable[[], Line]) -> None:
        """The same with a line that is made when it is wanted, which may be soon or after many others have ended: made one
        after the other they cost less. `finish` does not raise."""
        ...


class Rate(msgspec.Struct, frozen=True):
    """A limit as headers tell it (A4): `reset` is in seconds until it is whole again."""

    limit: int
    remaining: int
    reset: float


class Admission(msgspec.Struct, frozen=True):
    """A request that the limits let in. None: there is no such limit."""

    id: str
    caller: Caller
    requests: Rate | None = None
    tokens: Rate | None = None


class LimitReached(KenariError):
    """The limits' 429. `requests` and `tokens` say how they stand, for the headers (A4); `loop` that it was a client in a
    loop which met one (D25)."""

    def __init__(
        self, error: KenariError, requests: Rate | None = None, tokens: Rate | None = None, loop: bool = False
    ) -> None:
        super().__init__(
            error.code, error.message, error.param, retry_after=error.retry_after, should_retry=error.should_retry
        )
        self.requests, self.tokens, self.loop = requests, tokens, loop


class Limits(Protocol):
    """Limits of use per key and account, exact over the processes that share them."""

    local: bool
    """`admit` never waits: it may be asked before the books, rather than at the same time."""

    def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Awaitable[Admission]:
        """Count a request of about `tokens` tokens in. `body` is a digest of the request's body (D25).

        Raises LimitReached, a 429 `rate_limited` with the smallest honest `retry_after`.
        """
        ...

    def release(self, admission: Admission, tokens: int) -> None:
        """The request has ended and used `tokens`; never waits."""
        ...


class Records(Protocol):
    """What a caller may read of itself: JSON bodies, ready to be answered. Raises KenariError 503 while the store cannot
    say."""

    def key(self, caller: Caller) -> Awaitable[bytes]:
        """The key: its scope, limits and budgets."""
        ...

    def credits(self, caller: Caller) -> Awaitable[bytes]:
        """The account's balance."""
        ...

    def generation(self, caller: Caller, request_id: str) -> Awaitable[bytes | None]:
        """The bill line of a request of the caller's account, None when there is none."""
        ...


class Counter(Protocol):
    """Counts tokens offline, by the vocabulary that a model's name suggests."""

    def encoding(self, model: str) -> str:
        """The name of the vocabulary for a model, "" when none is known for it (or it is not loaded yet)."""
        ...

    def count(self, encoding: str, text: str) -> int:
        """The tokens of a text in this vocabulary. Long texts may be counted in part and reckoned up."""
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


class Taker(Protocol):
    """Hears of a body that comes: `on_data` as bytes come, then `on_whole` or `on_broken`, once."""

    def on_data(self, data: bytes) -> None:
        """The next bytes."""
        ...

    def on_whole(self) -> None:
        """These were all."""
        ...

    def on_broken(self, error: KenariError) -> None:
        """The rest will not come: what the client is to be told, if it is still there."""
        ...


class Incoming(Protocol):
    """The body of a request that is still coming. `size` is its length in bytes, None where the client did not say."""

    size: int | None

    @property
    def whole(self) -> bool:
        """All of it has come."""
        ...

    def take(self, taker: Taker) -> None:
        """Let it come: what is here already is heard now. Called once, or never: then the body is not read at all."""
        ...

    def pause(self) -> None:
        """Read no more of it until `resume`."""
        ...

    def resume(self) -> None:
        """Read on."""
        ...


class Outlet(Protocol):
    """Where an answer can go: a client's exchange, or somebody who passes it on to one in another process."""

    watcher: Watcher | None

    @property
    def gone(self) -> bool:
        """Nobody is there any more."""
        ...

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer at once."""
        ...

    def begin(self, status: int, headers: bytes) -> None:
        """The head of a streamed answer."""
        ...

    def write(self, data: bytes) -> None:
        """The next bytes of a streamed answer."""
        ...

    def end(self) -> None:
        """The end of a streamed answer."""
        ...

    def abort(self) -> None:
        """The answer breaks off."""
        ...


class Whole(msgspec.Struct, frozen=True):
    """An answer that has ended, as it was sent. `stream` says that it was a streamed one."""

    status: int
    headers: bytes
    body: bytes
    stream: bool


Share: TypeAlias = Callable[[str, Repeat, Outlet], Awaitable[bool]]
"""(account, repeat, outlet): let the outlet have the answer of a request in flight; False where there is none to be had."""


class Answers(Protocol):
    """Answers of requests with an Idempotency-Key beyond one process (F14)."""

    local: Share | None
    """How other processes get an answer that this one is making; set by whoever makes them."""

    @property
    def keeps(self) -> bool:
        """The operator keeps answers for a time, so that a request which comes again afterwards gets the same."""
        ...

    def attach(self, account: str, repeat: Repeat, outlet: Outlet) -> Awaitable[bool]:
        """Answer a request that was made before: with what another process is making, from its beginning, or with what was
        kept. True once an answer is under way, which goes to the outlet from then on; False when there is none."""
        ...

    def keep(self, account: str, request_id: str, whole: Whole) -> None:
        """Keep an answer for a time, sealed; never waits. To be called before the request is settled."""
        ...


Take: TypeAlias = Callable[["Exchange"], Coroutine[Any, Any, bool] | bool]
"""Takes up a request, or does nothing: False. True: it is answered by callback; or the coroutine to be run, whose result is
True where it then goes on by callback."""


class Exchange(Protocol):
    """One client request, whole, and the way to answer it. Made by the inbound end.

    `headers` has lower-case names; a repeated header's values are joined by ", ". `body` is complete and inflated; only
    where `incoming` is set is it empty, and still to come.
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
    incoming: Incoming | None
    peer: str
    gone: bool
    extra_headers: bytes
    watcher: Watcher | None

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer at once. Nothing is sent when the client has gone."""
        ...

    def begin(self, status: int, headers: bytes, data: bytes = b"") -> None:
        """The head of a streamed answer, and its first bytes if they are there already, in one write."""
        ...

    def write(self, data: bytes) -> None:
        """The next bytes of a streamed answer: one write to the socket."""
        ...

    def cork(self) -> None:
        """What follows is to be one write, up to `uncork` or the end of the answer, which come in the same turn."""
        ...

    def uncork(self) -> None:
        """Send what was kept."""
        ...

    def raw(self) -> Callable[[bytes], None] | None:
        """Takes what `write` takes as an HTTP chunk with its frame, until the end of the answer or the going of the client
        are told; None where there are no chunks or more is to be done."""
        ...

    def lead(self, take: Take) -> None:
        """Ask this one first about the requests that follow on the same connection with the same head, until others serve the
        connection (the configuration was reloaded)."""
        ...

    def drop_body(self) -> None:
        """Let go of the request's body: it will not be asked for any more."""
        ...

    def end(self, data: bytes = b"") -> None:
        """The end of a streamed answer, with its last bytes in the same write."""
        ...

    def abort(self) -> None:
        """Break the connection so that the client sees a transport error, never a clean end (D16)."""
        ...
