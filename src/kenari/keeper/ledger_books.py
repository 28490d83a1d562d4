"""The books of a node that bills: a hold in the store before the provider is called, a line in the ledger after it.

When the store is down, free and unlimited requests go on, prepaid ones up to an allowance, and everything that is to be
written waits in the spool (docs/money.md tells the whole story).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

import msgspec

from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Line, Reservation
from kenari.keeper.books import LogBooks
from kenari.keeper.drain import drain
from kenari.keeper.endings import Ending, OpenRequest, crashed, given_back, hold_row, settlement_of
from kenari.keeper.journal import Journal
from kenari.keeper.outage import Outage
from kenari.keeper.spool import Spool, SpooledHold, SpooledLine, SpooledNotes, SpooledRelease, told
from kenari.ledger.lines import bill_of, crashed_bill
from kenari.store.database import Refused
from kenari.store.moves import Release, Settle
from kenari.store.records import HoldRow, StoreDown
from kenari.store.store import Store
from kenari.wire import jsonx

_log = logging.getLogger("kenari.books")
PATIENCE = 2.0
"""Seconds: a store that takes longer counts as down."""
TICK = 0.25
NOTE_SECONDS = 1.0
LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
PRUNE_SECONDS = 600.0
MOST_SETTLING = 1000
"""Lines that wait for the store, beyond which new requests wait for it too: one that cannot follow is not to fall behind."""
TIDY_SECONDS = 60.0
"""How long what is over stands in the journal, at most: not as long as its line in the ledger."""


class BooksSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a node bills. `node` owns its holds. `offline_allowance` is what each account may spend while the store is down,
    in 1e-9 currency units. `retention` is how many seconds bill lines are kept, None for ever."""

    node: str
    offline_allowance: int = 0
    enforce: bool = True
    retention: float | None = None


class StoreBooks:
    """Implements `core.ports.Books` over a store, with the log's line for every request as before."""

    def __init__(
        self,
        store: Store,
        log: LogBooks,
        spool: Spool,
        settings: BooksSettings,
        now: Callable[[], float],
        journal: Journal | None = None,
    ) -> None:
        """With a journal, who has no limits does not wait for the store."""
        self._store, self._log, self._spool, self._settings, self._now = store, log, spool, settings, now
        self._journal = journal
        self._clock = asyncio.get_running_loop().time
        self._open: dict[str, OpenRequest] = {}
        self._asked: dict[asyncio.Future[Hold], float] = {}
        self._given_up: set[asyncio.Future[Hold]] = set()
        self._settling: dict[str, Ending] = {}
        self._calls = (self._move_of, self._written)
        self._notes: dict[str, int] = {}
        self.outage: Outage | None = None
        """Set while the store is down."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = dict.fromkeys(("note", "renew", "prune", "tidy"), 0.0)

    # the life of the books

    async def start(self, patient: bool) -> None:
        """Open the store, drain the spool, settle what the last process of this node left open. Conflict is raised where
        waiting does not help. A store that is down is waited for when `patient`, while what can be served is served."""
        try:
            await self._store.start()
            await self._catch_up()
        except StoreDown as error:
            if not patient:
                raise
            self._go_offline(error)
        self._task(self._watch())
        self._task(self._keep_up())

    async def close(self) -> None:
        """Write what is left, and give the node's name back. What cannot be written stays in the spool."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.outage is None:
            try:
                async with asyncio.timeout(PATIENCE * 2):
                    await self._finish()
            except (StoreDown, TimeoutError) as error:
                self._go_offline(error)
        await self._store.close()
        if self._journal is not None:
            self._journal.close()
        self._log.flush()

    @property
    def open_requests(self) -> int:
        """How many requests are admitted and not settled."""
        return len(self._open)

    def flush(self) -> None:
        """Put what has ended into words: from now on it is in the log, and counted."""
        for ending in self._settling.values():
            self._made(ending)
        self._log.flush()

    # the port

    async def reserve(self, reservation: Reservation, owner: str = "") -> Hold:
        """Open a hold. `owner` names the worker it is for; this process by default."""
        owner = f"{self._settings.node}/{owner}" if owner else self._settings.node
        at_once = self._admit_at_once(reservation, owner)
        if at_once is not None:
            return at_once
        if self.outage is not None:
            return self._admit_offline(reservation, owner, self.outage, asked=False)
        hold = await self._answer(self._store.reserve(reservation, owner), reservation.id)
        if isinstance(hold, Outage):
            return self._admit_offline(reservation, owner, hold, asked=True)
        self._admit(reservation, hold, owner, offline=False)
        return hold

    async def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        """Set more aside for a request that goes on. While the store is down it counts against the allowance."""
        request = self._open.get(hold.id)
        if request is not None and request.journalled:  # nothing is taken from a balance
            request.hold = Hold(hold.id, hold.caller, request.hold.amount + amount)
            return request.hold
        outage: Outage | None = self.outage
        larger: Hold | None = None
        if outage is None:
            answer = await self._answer(self._store.extend(hold, amount, least), hold.id)
            outage, larger = (answer, None) if isinstance(answer, Outage) else (None, answer)
        if outage is not None:
            larger = outage.extend(hold, amount, least)
        assert larger is not None
        request = self._open.get(hold.id)
        if request is not None:
            request.hold = larger
        return larger

    async def _answer(self, future: "asyncio.Future[Hold]", id: str) -> Hold | Outage:
        """What the store says; the outage when it turns out to be down."""
        self._asked[future] = self._clock()
        try:
            return await future
        except StoreDown as error:
            return self._go_offline(error)
        except Refused as error:
            _log.error("the store refused to set money aside for request %s: %s", id, error)
            raise KenariError("internal_error", "the request could not be booked. send it again") from None
        except asyncio.CancelledError:
            if future not in self._given_up or self.outage is None:
                raise
            return self.outage
        finally:
            del self._asked[future]
            self._given_up.discard(future)

    def admit(self, reservation: Reservation) -> Hold | None:
        """At once, where a hold in the journal is durable before a provider is called."""
        return self._admit_at_once(reservation, self._settings.node)

    def note(self, hold: Hold, charge: int) -> None:
        """Keep the running charge; it is journalled with those of the other requests about once a second."""
        request = self._open.get(hold.id)
        if request is not None and request.noted != charge:
            request.noted = charge
            self._notes[hold.id] = charge

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Log the line, and bill it when the request was admitted. The charge is worked out here, from the line's legs
        and its price."""
        if hold is None:
            self._log.settle(None, line)
            return
        ending = self._end(hold, line)
        ending()
        self._bring(ending)

    def settle_later(self, hold: Hold, finish: Callable[[], Line]) -> None:
        """The same, when the store is given what has ended by then: money does not wait for long."""
        if self.outage is not None:
            self.settle(hold, finish())
        else:
            self._bring(self._end(hold, finish))

    def abandon(self, owner: str) -> None:
        """Settle everything that a worker has left open as crashed: it has died."""
        name = f"{self._settings.node}/{owner}"
        for id, request in list(self._open.items()):
            if request.owner == name:
                del self._open[id]
                self._notes.pop(id, None)
                self._crash(hold_row(request, self._now()))
                self._log.in_flight -= 1

    # when the store is there

    def _admit(self, reservation: Reservation, hold: Hold, owner: str, offline: bool) -> None:
        self._open[hold.id] = OpenRequest(hold, reservation.model, reservation.price, owner, offline)
        self._log.in_flight += 1

    def _admit_at_once(self, reservation: Reservation, owner: str) -> Hold | None:
        """The hold of a caller without limits, by the journal; None where the store has to be asked, or is down."""
        journal, caller = self._journal, reservation.caller
        if journal is None or not journal.ready or self.outage is not None:
            return None
        if not caller.unlimited or reservation.repeat is not None or len(self._settling) > MOST_SETTLING:
            return None
        if reservation.id in self._open:
            raise KenariError("internal_error", "two requests have one id. send the request again; tell the operator")
        hold = Hold(reservation.id, caller, reservation.amount)
        request = OpenRequest(hold, reservation.model, reservation.price, owner, offline=False, journalled=True)
        try:
            journal.append(SpooledHold(hold_row(request, self._now())))
        except OSError as error:
            _log.error("the journal cannot be written: %s. the store is asked", error.strerror)
            return None
        self._open[hold.id] = request
        self._log.in_flight += 1
        return hold

    def _end(self, hold: Hold, finish: Callable[[], Line] | Line) -> Ending:
        """A request is not open any more."""
        request = self._open.pop(hold.id, None)
        self._notes.pop(hold.id, None)
        if request is not None:
            hold = request.hold  # as it was extended
        return Ending(hold, request, finish, self._calls, (self._now(), self._clock()))

    def _move_of(self, ending: Ending) -> Settle | Release:
        """Log the line of a request that has ended, and say what the store is to do: close the hold with the bill line; without
        one when the limits refused it while the hold was being made (U5)."""
        line, hold, request = ending.line(), ending.hold, ending.request
        journalled = request is not None and request.journalled
        if line.ending == "refused":
            self._log.settle(hold, line)
            if journalled and self._journal is not None:
                self._journal.give_back(given_back(hold))
            return Release(hold.id, hold.caller.account, hold.caller.unlimited)
        if line.price is None and request is not None:
            line.price = request.price
        bill = bill_of(line, hold, ending.time)
        line.charge = bill.charge
        self._log.settle(hold, line)
        return Settle(settlement_of(bill), held=not journalled)

    def _bring(self, ending: Ending) -> None:
        """Into the ledger, or into the spool."""
        if self.outage is None:
            self._settling[ending.id] = ending
            self._store.settle_later(ending, ending)
            return
        if ending.request is not None and ending.request.offline:
            move = ending()
            self.outage.settle(ending.hold, move.settlement.charge if isinstance(move, Settle) else 0)
        self._put_by(ending)

    def _put_by(self, ending: Ending) -> None:
        """Into the spool."""
        move = self._made(ending)
        if move is None:
            return
        kept = self._keep(SpooledLine(move.settlement) if isinstance(move, Settle) else given_back(ending.hold))
        if kept and self._journal is not None:
            self._journal.forget(ending.id)

    def _made(self, ending: Ending) -> Settle | Release | None:
        try:
            return ending()
        except Exception as fault:  # noqa: BLE001 - ours: the others are kept
            _log.error("the line of request %s cannot be made: %s", ending.id, type(fault).__name__)
            return None

    def _written(self, ending: Ending, done: bool, error: BaseException | None) -> None:
        pending = self._settling.pop(ending.id, None)
        move = ending.move
        if isinstance(error, StoreDown):
            self._go_offline(error)
            if pending is not None:
                self._put_by(ending)
        elif move is None:
            _log.error("the line of request %s cannot be made: %s", ending.id, type(error).__name__)
        elif error is not None:
            self._set_aside(ending.id, move, error)
        else:
            if self._journal is not None:
                self._journal.forget(ending.id)
            if not done and pending is not None and isinstance(move, Settle):
                _log.warning("request %s had a line in the ledger already", ending.id)

    def _set_aside(self, id: str, move: Settle | Release, error: BaseException) -> None:
        """A line that the store refuses is a fault of ours: it is kept for a person, and said loudly."""
        if isinstance(move, Release):
            _log.error("the store refused to give back the hold of request %s: %s", id, type(error).__name__)
            return
        _log.error("the ledger refused the line of request %s: %s %s", id, type(error).__name__, error)
        self._spool.set_aside(jsonx.encode(SpooledLine(move.settlement)))

    def _crash(self, hold: HoldRow) -> None:
        bill = crashed_bill(hold, self._now())
        whose, line = crashed(hold, bill.charge)
        self._log.settle(None, line)
        ending = Ending(whose, None, line, self._calls, (bill.time, self._clock()))
        ending.move = Settle(settlement_of(bill))
        self._bring(ending)

    async def _watch(self) -> None:
        """See that nobody waits for a store that hangs, and whether one that was down is back."""
        while True:
            await asyncio.sleep(TICK)
            if self.outage is not None:
                await self._try_again()
                continue
            now = self._clock()
            asked = next(iter(self._asked.values()), now)
            ended = next((ending.since for ending in self._settling.values()), now)
            if now - min(asked, ended) > PATIENCE:
                self._go_offline(TimeoutError("it takes longer than 2 s"))

    async def _keep_up(self) -> None:
        """What is done from time to time while the store is there."""
        while True:
            await asyncio.sleep(TICK)
            try:
                if self.outage is None:
                    async with asyncio.timeout(PATIENCE * 2):  # wait_for of Python 3.11 may swallow a cancellation
                        await self._upkeep(self._clock())
            except (StoreDown, TimeoutError) as error:
                self._go_offline(error)
            except Refused as error:
                _log.error("the store refused upkeep: %s", error)

    async def _upkeep(self, now: float) -> None:
        if self._notes and now >= self._next["note"]:
            self._next["note"] = now + NOTE_SECONDS
            notes, self._notes = self._notes, {}
            try:
                await self._store.note(notes)
            except BaseException:
                self._notes = notes | self._notes  # the spool, or the next turn, has them
                raise
        if now >= self._next["renew"]:
            self._next["renew"] = now + RENEW_SECONDS
            for hold in await self._store.keep(self._settings.node, LEASE_SECONDS):
                self._crash(hold)
        if self._journal is not None and now >= self._next["tidy"]:
            self._next["tidy"] = now + TIDY_SECONDS
            self._journal.tidy()
        if self._settings.retention is not None and now >= self._next["prune"]:
            pruned = await self._store.prune(self._now() - self._settings.retention)
            self._next["prune"] = now + (TICK if pruned else PRUNE_SECONDS)

    async def _finish(self) -> None:
        if self._notes:
            await self._store.note(self._notes)
        await self._store.ping()  # every settlement that was queued before it is written now
        await asyncio.sleep(0)
        if not self._open and self.outage is None:
            await self._store.leave(self._settings.node)

    # when it is not

    def _go_offline(self, error: BaseException) -> Outage:
        """From now on nothing is asked of the store; what is under way goes into the spool as well, for it may not have
        been written. All that is spooled may be repeated."""
        if self.outage is None:
            _log.error("the store is down: %s. free models and unlimited keys go on; bill lines are spooled", error)
            self.outage = Outage(self._settings.offline_allowance, self._settings.enforce, self._clock())
            pending, self._settling = self._settling, {}
            for ending in pending.values():
                self._put_by(ending)
            for future in self._asked:
                self._given_up.add(future)
                future.cancel()
        return self.outage

    def _admit_offline(self, reservation: Reservation, owner: str, outage: Outage, asked: bool) -> Hold:
        try:
            hold = outage.admit(reservation)
            request = OpenRequest(hold, reservation.model, reservation.price, owner, True)
            self._spool.append(SpooledHold(hold_row(request, self._now())))
        except (KenariError, OSError) as error:
            if asked:  # the store may have opened a hold without being able to say so
                self._keep(given_back(Hold(reservation.id, reservation.caller)))
            if isinstance(error, OSError):
                _log.error("the spool cannot be written: %s", error.strerror)
                raise outage.refusal() from None
            raise
        self._admit(reservation, hold, owner, offline=True)
        return hold

    def _keep(self, record: SpooledLine | SpooledRelease | SpooledNotes) -> bool:
        try:
            self._spool.append(record)
        except OSError as error:
            _log.error("the spool cannot be written: %s. what it should hold: %s", error.strerror, told(record))
            return False
        return True

    async def _try_again(self) -> None:
        if self._notes:
            notes, self._notes = self._notes, {}
            self._keep(SpooledNotes(notes))
        try:
            async with asyncio.timeout(PATIENCE):
                await self._store.ping()
            await self._catch_up()
        except (StoreDown, TimeoutError):
            await asyncio.sleep(NOTE_SECONDS - TICK)

    async def _catch_up(self) -> None:
        """Drain the spool in its order, then settle what nobody serves any more, then go on as usual."""
        self._take_over()
        await drain(self._spool, self._store)
        if self.outage is not None:
            _log.warning("the store is back after %.1f s", self._clock() - self.outage.began)
            self.outage = None
        for request in self._open.values():
            request.offline = False
        for hold in await self._store.open_holds(self._settings.node):
            if hold.id not in self._open and hold.id not in self._settling:
                self._crash(hold)
        await self._store.ping()  # all of that is written
        self._next = dict.fromkeys(self._next, 0.0)

    def _take_over(self) -> None:
        """What the last process of this store has left in its journal goes the way of the spool; now it is this one's."""
        journal = self._journal
        if journal is None or journal.ready:
            return
        try:
            for record in journal.left(self._settings.node):
                self._spool.append(record)
            self._journal = journal if journal.begin() else None
        except OSError as error:
            _log.error("the journal cannot be used: %s. holds go to the store", error.strerror)
            self._journal = None

    def _task(self, work: "Coroutine[None, None, None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
