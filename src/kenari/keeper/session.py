"""The keeper's side of one worker: it serves the worker the books and limits of the node, and cleans up behind it.

What the worker has open is known here, so that its death frees everything at once: each hold is settled as `crashed`,
each admission released.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

import msgspec

from kenari.core.errors import KenariError
from kenari.core.own_keys import OwnKeyBook
from kenari.core.ports import (
    Admission,
    Books,
    Hold,
    LimitReached,
    Limits,
    Line,
    Outlet,
    Records,
    Repeat,
    Reservation,
)
from kenari.keeper.answers import NodeAnswers
from kenari.keeper.callers import UnpackedCallers
from kenari.keeper.health import Member, SharedHealth
from kenari.keeper.relay import Relay
from kenari.keeper.words import (
    Admit,
    Admitted,
    Applied,
    Attach,
    DropOwnKey,
    Extend,
    Fared,
    Found,
    FromWorker,
    Held,
    KeepAnswer,
    Leaving,
    Look,
    Note,
    OwnKeyDropped,
    OwnKeyQuestion,
    OwnKeysShown,
    Piece,
    PutOwnKey,
    Ready,
    Refused,
    Relayed,
    Release,
    Reserve,
    Settle,
    ShowOwnKeys,
    Sign,
    Word,
)

_log = logging.getLogger("kenari.keeper")
_INTERNAL = "something went wrong in kenari. send the request again; tell the operator"


Report: TypeAlias = Ready | Applied | Leaving


class NodeBooks(Books, Protocol):
    """The books of a node: they know for which worker a request was admitted."""

    def reserve(self, reservation: Reservation, owner: str = "") -> Awaitable[Hold]:
        """As `Books.reserve`, for a worker."""
        ...

    def abandon(self, owner: str) -> None:
        """Settle all that a worker has left open as `crashed`: its last estimate, at most what was set aside (U5)."""
        ...


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What a session serves a worker with."""

    books: NodeBooks
    limits: Limits
    records: Records | None
    callers: UnpackedCallers
    own_book: OwnKeyBook | None = None
    answers: NodeAnswers
    health: SharedHealth | None = None


class Session:
    """One life of one worker, by the name of `owner`. `say` reaches the worker, `report` hears what concerns the
    supervisor."""

    def __init__(
        self, owner: str, shared: Shared, say: Callable[[Word], None], report: Callable[[Report], None]
    ) -> None:
        self._owner = owner
        self._books, self._limits, self._records = shared.books, shared.limits, shared.records
        self._callers, self._own_book = shared.callers, shared.own_book
        self._say, self._report = say, report
        self._answers = shared.answers
        self.relay = Relay(say, self._attach)
        """The way of answers to and from this worker."""
        self._health = shared.health
        self._member: Member | None = None
        self._open: dict[str, Hold] = {}
        self._admitted: dict[str, tuple[Admission, int]] = {}
        self._early: dict[str, Line | None] = {}  # requests that wait for their hold, and their line if it came first
        self._released: dict[str, int | None] = {}  # the same for admissions
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    @property
    def in_flight(self) -> int:
        """How many requests of this worker have a hold."""
        return len(self._open)

    def hear(self, word: FromWorker) -> None:
        """What the worker says."""
        match word:
            case Reserve():
                self._early[word.id] = None
                self._begin(self._reserve(word))
            case Extend():
                self._begin(self._answer(word.number, "extend", self._extend(word)))
            case Note():
                self._note(word.id, word.charge)
            case Settle():
                self._settle(word.line)
            case Admit():
                self._released[word.id] = None
                self._begin(self._admit(word))
            case Release():
                self._release(word.id, word.tokens)
            case Look():
                self._begin(self._answer(word.number, word.what, self._look(word)))
            case ShowOwnKeys() | PutOwnKey() | DropOwnKey():
                self._begin(self._answer(word.number, type(word).__name__, self._own(word)))
            case KeepAnswer():
                self._answers.keep(word.account, word.request, word.whole)
            case Attach() | Piece() | Sign() | Fared():
                self._pass_on(word)
            case Ready() | Applied() | Leaving():
                self._join()
                self._report(word)

    def _join(self) -> None:
        """Hear from now on how candidates fare elsewhere."""
        if self._health is not None and self._member is None:
            self._member = self._health.join(lambda mark, news: self._say(Fared(mark, news)))

    def _pass_on(self, word: Relayed | Fared) -> None:
        """What is meant for other workers."""
        if not isinstance(word, Fared):
            self.relay.hear(word)
        elif self._member is not None:
            self._member.tell(word.mark, word.news)

    async def ended(self) -> None:
        """The worker has gone: all that it left open is closed. Returns when its last question was answered."""
        self._ended = True
        self.relay.close()
        if self._member is not None:
            self._member.leave()
        self._abandon()
        for request, (_, tokens) in tuple(self._admitted.items()):
            self._release(request, tokens)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reserve(self, word: Reserve) -> None:
        reservation = Reservation(
            id=word.id,
            caller=self._callers.unpack(word.caller),
            model=word.model,
            amount=word.amount,
            least=word.least,
            price=word.price,
            repeat=word.repeat,
        )
        try:
            if word.repeat is not None:
                self._answers.claim(word.repeat, word.id, self.relay)
            hold = await self._books.reserve(reservation, self._owner)
        except KenariError as error:
            self._refuse(word.number, error, word.id)
            return
        except Exception as fault:  # noqa: BLE001 - ours: the client gets a 500, the operator the kind of fault
            self._refuse(word.number, _internal("reserve", fault), word.id)
            return
        self._open[word.id] = hold
        line = self._early.pop(word.id, None)
        if line is not None:  # the worker has given up waiting, and its request has ended
            self._settle(line)
        elif self._ended:
            self._abandon()
        else:
            self._say(Held(word.number, hold.amount))

    async def _attach(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        return await self._answers.attach(account, repeat, outlet, self.relay)

    def _refuse(self, number: int, error: KenariError, request: str) -> None:
        self._answers.over(request, again=True)
        line = self._early.pop(request, None)
        if line is not None:
            self._books.settle(None, line)
        self._say(_refused(number, error))

    async def _extend(self, word: Extend) -> Word:
        hold = self._open.get(word.id)
        if hold is None:  # the worker has given up waiting for it, or is gone
            raise KenariError("upstream_unavailable", "this request is not open any more. send it again")
        larger = await self._books.extend(hold, word.amount, word.least)
        if word.id in self._open:
            self._open[word.id] = larger
        return Held(word.number, larger.amount)

    def _note(self, request: str, charge: int) -> None:
        hold = self._open.get(request)
        if hold is not None:
            self._books.note(hold, charge)

    def _settle(self, line: Line) -> None:
        if line.id in self._early:
            self._early[line.id] = line
            return
        self._books.settle(self._open.pop(line.id, None), line)
        self._answers.over(line.id, again=line.status >= 400 and not line.charge)

    def _abandon(self) -> None:
        for request in self._open:
            self._answers.over(request, again=False)
        self._open.clear()
        self._books.abandon(self._owner)

    async def _answer(self, number: int, what: str, work: Awaitable[Word]) -> None:
        try:
            word = await work
        except KenariError as error:
            self._say(_refused(number, error))
        except Exception as fault:  # noqa: BLE001 - as above
            self._say(_refused(number, _internal(what, fault)))
        else:
            self._say(word)

    async def _look(self, word: Look) -> Word:
        caller = self._callers.unpack(word.caller)
        records = self._records
        if records is None:  # the worker was told so, and does not ask
            raise TypeError
        if word.what == "generation":
            return Found(word.number, await records.generation(caller, word.request))
        return Found(word.number, await (records.key(caller) if word.what == "key" else records.credits(caller)))

    async def _own(self, word: OwnKeyQuestion) -> Word:
        book = self._own_book
        if book is None:  # as above
            raise TypeError
        if isinstance(word, ShowOwnKeys):
            return OwnKeysShown(word.number, await book.shown(word.account))
        if isinstance(word, PutOwnKey):
            return OwnKeysShown(
                word.number, [await book.put(word.account, word.provider, word.secret, actor=word.actor)]
            )
        return OwnKeyDropped(word.number, await book.drop(word.account, word.provider, actor=word.actor))

    async def _admit(self, word: Admit) -> None:
        caller = self._callers.unpack(word.caller)
        try:
            admission = await self._limits.admit(caller, word.id, word.tokens, word.body)
        except KenariError as error:
            self._released.pop(word.id, None)
            self._say(_refused(word.number, error))
            return
        except Exception as fault:  # noqa: BLE001 - as above
            self._released.pop(word.id, None)
            self._say(_refused(word.number, _internal("admit", fault)))
            return
        self._admitted[word.id] = (admission, word.tokens)
        used = self._released.pop(word.id, None)
        if used is not None or self._ended:
            self._release(word.id, word.tokens if used is None else used)
        else:
            self._say(Admitted(word.number, admission.requests, admission.tokens))

    def _release(self, request: str, tokens: int) -> None:
        if request in self._released:
            self._released[request] = tokens
            return
        admission, _ = self._admitted.pop(request, (None, 0))
        if admission is not None:
            self._limits.release(admission, tokens)


def _internal(what: str, fault: Exception) -> KenariError:
    _log.error("%s failed with %s", what, type(fault).__name__)
    return KenariError("internal_error", _INTERNAL)


def _refused(number: int, error: KenariError) -> Refused:
    limit = isinstance(error, LimitReached)
    return Refused(
        number,
        error.code,
        error.message,
        error.param,
        error.retry_after,
        error.should_retry,
        error.elsewhere,
        limit,
        error.requests if limit else None,
        error.tokens if limit else None,
    )
