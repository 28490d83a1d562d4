"""A worker's side: the keeper's books and limits through the ports of `core`, over one channel.

No request waits for the keeper longer than `PATIENCE`; without a keeper nothing new is admitted.
"""

import asyncio
from collections.abc import Callable
from typing import Literal, TypeVar

from kenari.catalog.health import News
from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.own_keys import OwnKeyShown
from kenari.core.ports import (
    Admission,
    Books,
    Hold,
    LimitReached,
    Line,
    Outlet,
    Repeat,
    Reservation,
    Share,
    Whole,
)
from kenari.keeper.callers import PackedCallers
from kenari.keeper.channel import Channel
from kenari.keeper.health import Hears, Member
from kenari.keeper.relay import Relay
from kenari.keeper.words import (
    Admit,
    Admitted,
    Answer,
    DropOwnKey,
    Extend,
    Fared,
    Found,
    Held,
    KeepAnswer,
    Look,
    Note,
    OwnKeyDropped,
    OwnKeysShown,
    Push,
    PutOwnKey,
    Refused,
    Relayed,
    Release,
    Reserve,
    Settle,
    ShowOwnKeys,
    ToWorker,
    Word,
)

PATIENCE = 5.0
"""Seconds. The store may take 2 of them before it is called down, and then answers."""
SWEEP_SECONDS = 0.5

Asked = TypeVar("Asked", Held, Admitted, Found, OwnKeysShown, OwnKeyDropped)


class Link:
    """Questions to the keeper and their answers, and what it says unasked (`push`)."""

    def __init__(self, push: Callable[[Push], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.channel: Channel[ToWorker] = Channel(ToWorker, self._hear)
        self.channel.closed.add_done_callback(lambda _: self._lost())
        self._push = push
        self.relayed: Callable[[Relayed], None] | None = None
        """Hears of answers on their way."""
        self._number = 0
        self._waiting: dict[int, tuple[asyncio.Future[Answer], float]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def up(self) -> bool:
        """There is a keeper at the other end."""
        return not self.channel.closed.done()

    def say(self, word: Word) -> None:
        """Say what needs no answer."""
        self.channel.say(word)

    async def ask(self, make: Callable[[int], Word], kind: type[Asked]) -> Asked:
        """Say what `make` makes of a number, and wait for its answer.

        Raises the KenariError that the keeper's side raised, or the 503 when there is no answer in time."""
        if not self.up or self.channel.full:
            raise _gone()
        self._number = number = self._number + 1
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[number] = (future, self._loop.time() + PATIENCE)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        self.channel.say(make(number))
        answer = await future
        if not isinstance(answer, kind):
            raise TypeError(f"{type(answer).__name__} is no answer to this")
        return answer

    def _hear(self, word: ToWorker) -> None:
        if isinstance(word, Answer):
            future = self._take(word.number)
            if future is not None:
                future.set_result(word)
        elif isinstance(word, Refused):
            future = self._take(word.number)
            if future is not None:
                future.set_exception(error_of(word))
        elif isinstance(word, Relayed):
            if self.relayed is not None:
                self.relayed(word)
        else:
            self._push(word)

    def _take(self, number: int) -> "asyncio.Future[Answer] | None":
        """Who waits for this answer; None when nobody does any more."""
        future, _ = self._waiting.pop(number, (None, 0.0))
        return None if future is None or future.done() else future

    def _sweep(self) -> None:
        """Answer those that have waited too long. The oldest stand first."""
        self._sweeper = None
        now = self._loop.time()
        late: list[int] = []
        for number, (_, until) in self._waiting.items():
            if until > now:
                break
            late.append(number)
        for number in late:
            future = self._take(number)
            if future is not None:
                future.set_exception(_gone())
        if self._waiting:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _lost(self) -> None:
        for number in tuple(self._waiting):
            future = self._take(number)
            if future is not None:
                future.set_exception(_gone())
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None


class RemoteBooks:
    """`core.ports.Books` of the keeper. `orphaned` takes the lines of requests that outlive the keeper: they reach the
    log; the bill of such a request is the keeper's next start's (its hold is found and settled as crashed)."""

    def __init__(self, link: Link, callers: PackedCallers, orphaned: Books) -> None:
        self._link, self._callers, self._orphaned = link, callers, orphaned

    async def reserve(self, reservation: Reservation) -> Hold:
        """Set money aside in the keeper's books. Raises what they raise, or 503."""
        asked = reservation
        caller = self._callers.pack(asked.caller)
        held = await self._link.ask(
            lambda number: Reserve(
                number, asked.id, caller, asked.model, asked.amount, asked.least, asked.price, asked.repeat
            ),
            Held,
        )
        return Hold(asked.id, asked.caller, held.amount)

    async def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        """Set more aside in the keeper's books."""
        held = await self._link.ask(lambda number: Extend(number, hold.id, amount, least), Held)
        return Hold(hold.id, hold.caller, held.amount)

    def admit(self, reservation: Reservation) -> None:
        """Never at once: the keeper has to be asked."""

    def note(self, hold: Hold, charge: int) -> None:
        """What the request would cost if it ended now."""
        self._link.say(Note(hold.id, charge))

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Close the hold with its line."""
        if self._link.up:
            self._link.say(Settle(line))
        else:
            self._orphaned.settle(None, line)

    def settle_later(self, hold: Hold, finish: Callable[[], Line]) -> None:
        """The keeper waits for none."""
        self.settle(hold, finish())


class RemoteAnswers:
    """`core.ports.Answers` of the keeper, which knows who makes what."""

    def __init__(self, link: Link, keeps: bool) -> None:
        self._link, self.keeps = link, keeps
        self.local: Share | None = None
        self._relay = Relay(link.say, self._share)
        link.relayed = self._relay.hear
        link.channel.closed.add_done_callback(lambda _: self._relay.close())

    async def attach(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        """Ask the keeper for the answer of a request that was made before."""
        return self._link.up and await self._relay.ask(account, repeat, outlet)

    def keep(self, account: str, request_id: str, whole: Whole) -> None:
        """Let the keeper keep an answer."""
        self._link.say(KeepAnswer(account, request_id, whole))

    async def _share(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        return self.local is not None and await self.local(account, repeat, outlet)


class RemoteLimits:
    """`core.ports.Limits` of the keeper: exact over all workers, because they are counted in one place."""

    local = False
    """Admitting waits for the keeper."""

    def __init__(self, link: Link, callers: PackedCallers) -> None:
        self._link, self._callers = link, callers

    async def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Admission:
        """Count a request in. Raises 429 as the limits say, or 503."""
        packed = self._callers.pack(caller)
        try:
            let_in = await self._link.ask(lambda number: Admit(number, request_id, packed, tokens, body), Admitted)
        except BaseException:  # it may be let in too late: then nobody else would release it
            self._link.say(Release(request_id, 0))
            raise
        return Admission(request_id, caller, let_in.requests, let_in.tokens)

    def release(self, admission: Admission, tokens: int) -> None:
        """The request has ended."""
        self._link.say(Release(admission.id, tokens))


class RemoteRecords:
    """`core.ports.Records` of the keeper, which alone has the store."""

    def __init__(self, link: Link, callers: PackedCallers) -> None:
        self._link, self._callers = link, callers

    async def key(self, caller: Caller) -> bytes:
        """The caller's key."""
        return await self._look("key", caller) or b"{}"

    async def credits(self, caller: Caller) -> bytes:
        """The caller's balance."""
        return await self._look("credits", caller) or b"{}"

    async def generation(self, caller: Caller, request_id: str) -> bytes | None:
        """The bill line of one of the caller's requests."""
        return await self._look("generation", caller, request_id)

    async def _look(
        self, what: Literal["key", "credits", "generation"], caller: Caller, request: str = ""
    ) -> bytes | None:
        packed = self._callers.pack(caller)
        return (await self._link.ask(lambda number: Look(number, what, packed, request), Found)).body


class RemoteOwnKeys:
    """`core.own_keys.OwnKeyBook` of the keeper. What it changes is pushed to every worker, to this one before the answer."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def shown(self, account: str) -> list[OwnKeyShown]:
        """What an account has brought."""
        return (await self._link.ask(lambda number: ShowOwnKeys(number, account), OwnKeysShown)).keys

    async def put(self, account: str, provider: str, secret: str, *, actor: str) -> OwnKeyShown:
        """Keep a key."""
        put = await self._link.ask(lambda number: PutOwnKey(number, account, provider, secret, actor), OwnKeysShown)
        return put.keys[0]

    async def drop(self, account: str, provider: str, *, actor: str) -> bool:
        """Forget a key; False when there was none."""
        return (await self._link.ask(lambda number: DropOwnKey(number, account, provider, actor), OwnKeyDropped)).there


class RemoteHealth:
    """`keeper.health.SharedHealth` of the keeper, for the one member that this process is."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._hears: Hears | None = None

    def join(self, hears: Hears) -> Member:
        """Take part; what is known already comes soon."""
        self._hears = hears
        return self

    def tell(self, mark: str, news: News) -> None:
        """Let the others know."""
        self._link.say(Fared(mark, news))

    def leave(self) -> None:
        """Hear no more."""
        self._hears = None

    def heard(self, word: Fared) -> None:
        """The keeper says what another process has told."""
        if self._hears is not None:
            self._hears(word.mark, word.news)


def error_of(word: Refused) -> KenariError:
    """The error that the keeper's side raised."""
    error = KenariError(
        word.code,
        word.message,
        word.param,
        retry_after=word.retry_after,
        should_retry=word.should_retry,
        elsewhere=word.elsewhere,
    )
    return LimitReached(error, word.requests, word.tokens) if word.limit else error


def _gone() -> KenariError:
    return KenariError(
        "upstream_unavailable", "kenari cannot admit requests at this moment. send the request again", retry_after=1.0
    )
