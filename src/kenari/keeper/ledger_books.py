"""The books of a node that bills: a hold in the store before the provider is called, a line in the ledger after it.

When the store is down, free and unlimited requests go on, prepaid ones up to an allowance, and everything that is to be
written waits in the spool (docs/money.md tells the whole story).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial

import msgspec

from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Line, Reservation
from kenari.core.price import Price
from kenari.core.usage import Usage
from kenari.keeper.books import LogBooks
from kenari.keeper.outage import Outage
from kenari.keeper.spool import Spool, SpooledHold, SpooledLine, SpooledNotes, SpooledRelease
from kenari.ledger.lines import Bill, bill_of, crashed_bill, encode_body
from kenari.store.database import Refused
from kenari.store.records import HoldRow, Settlement, StoreDown
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


class BooksSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a node bills. `node` owns its holds. `offline_allowance` is what each account may spend while the store is down,
    in 1e-9 currency units. `retention` is how many seconds bill lines are kept, None for ever."""

    node: str
    offline_allowance: int = 0
    enforce: bool = True
    retention: float | None = None


class OpenRequest(msgspec.Struct):
    """A request that is not settled yet: what its line needs should its owner die."""

    hold: Hold
    model: str
    price: Price | None
    owner: str
    offline: bool
    noted: int = 0


class StoreBooks:
    """Implements `core.ports.Books` over a store, with the log's line for every request as before."""

    def __init__(
        self, store: Store, log: LogBooks, spool: Spool, settings: BooksSettings, now: Callable[[], float]
    ) -> None:
        self._store, self._log, self._spool, self._settings, self._now = store, log, spool, settings, now
        self._clock = asyncio.get_running_loop().time
        self._open: dict[str, OpenRequest] = {}
        self._asked: dict[asyncio.Future[Hold], float] = {}
        self._given_up: set[asyncio.Future[Hold]] = set()
        self._settling: dict[str, Settlement] = {}
        self._notes: dict[str, int] = {}
        self.outage: Outage | None = None
        """Set while the store is down."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = {"note": 0.0, "renew": 0.0, "prune": 0.0}

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
        self._log.flush()

    @property
    def open_requests(self) -> int:
        """How many requests are admitted and not settled."""
        return len(self._open)

    # the port

    async def reserve(self, reservation: Reservation, owner: str = "") -> Hold:
        """Open a hold. `owner` names the worker it is for; this process by default."""
        owner = f"{self._settings.node}/{owner}" if owner else self._settings.node
        if self.outage is not None:
            return self._admit_offline(reservation, owner, self.outage, asked=False)
        hold = await self._answer(self._store.reserve(reservation, owner), reservation.id)
        if isinstance(hold, Outage):
            return self._admit_offline(reservation, owner, hold, asked=True)
        self._admit(reservation, hold, owner, offline=False)
        return hold

    async def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        """Set more aside for a request that goes on. While the store is down it counts against the allowance."""
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

    def admit(self, reservation: Reservation) -> None:
        """Never at once: a hold is durable before a provider is called."""

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
        request = self._open.pop(hold.id, None)
        if request is not None:
            hold = request.hold  # as it was extended
        self._notes.pop(hold.id, None)
        if line.price is None and request is not None:
            line.price = request.price
        if line.ending == "refused":
            self._log.settle(hold, line)
            if request is not None and request.offline and self.outage is not None:
                self.outage.settle(hold, 0)
            self._give_back(hold)
            return
        bill = bill_of(line, hold, self._now())
        line.charge = bill.charge
        self._log.settle(hold, line)
        if request is not None and request.offline and self.outage is not None:
            self.outage.settle(hold, bill.charge)
        self._write(_settlement(bill))

    def settle_later(self, hold: Hold, finish: Callable[[], Line]) -> None:
        """Money does not wait."""
        self.settle(hold, finish())

    def abandon(self, owner: str) -> None:
        """Settle everything that a worker has left open as crashed: it has died."""
        name = f"{self._settings.node}/{owner}"
        for id, request in list(self._open.items()):
            if request.owner == name:
                del self._open[id]
                self._notes.pop(id, None)
                self._crash(_hold_row(request, self._now()))
                self._log.in_flight -= 1

    # when the store is there

    def _admit(self, reservation: Reservation, hold: Hold, owner: str, offline: bool) -> None:
        self._open[hold.id] = OpenRequest(hold, reservation.model, reservation.price, owner, offline)
        self._log.in_flight += 1

    def _write(self, settlement: Settlement) -> None:
        """Into the ledger, or into the spool."""
        if self.outage is not None:
            self._keep(SpooledLine(settlement))
            return
        self._settling[settlement.id] = settlement
        self._store.settle(settlement).add_done_callback(partial(self._written, settlement))

    def _give_back(self, hold: Hold) -> None:
        """Close a hold without a line: the limits refused the request while the hold was being made (U5)."""
        caller = hold.caller
        if self.outage is not None:
            self._keep(SpooledRelease(hold.id, caller.account, caller.unlimited))
            return
        released = self._store.release(hold.id, caller.account, caller.unlimited)
        released.add_done_callback(partial(self._given_back, hold))

    def _given_back(self, hold: Hold, future: "asyncio.Future[bool]") -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, StoreDown):
            self._go_offline(error)
            self._keep(SpooledRelease(hold.id, hold.caller.account, hold.caller.unlimited))
        elif error is not None:
            _log.error("the store refused to give back the hold of request %s: %s", hold.id, type(error).__name__)

    def _written(self, settlement: Settlement, future: "asyncio.Future[bool]") -> None:
        pending = self._settling.pop(settlement.id, None)
        error = None if future.cancelled() else future.exception()
        if isinstance(error, StoreDown):
            self._go_offline(error)
            if pending is not None:
                self._keep(SpooledLine(settlement))
        elif error is not None:
            self._set_aside(settlement, error)
        elif not future.cancelled() and not future.result() and pending is not None:
            _log.warning("request %s had a line in the ledger already", settlement.id)

    def _set_aside(self, settlement: Settlement, error: BaseException) -> None:
        """A line that the store refuses is a fault of ours: it is kept for a person, and said loudly."""
        _log.error("the ledger refused the line of request %s: %s %s", settlement.id, type(error).__name__, error)
        self._spool.set_aside(jsonx.encode(SpooledLine(settlement)))

    def _crash(self, hold: HoldRow) -> None:
        bill = crashed_bill(hold, self._now())
        line = Line(
            id=hold.id, account=hold.account, key=hold.key, model=hold.model, ending="crashed", price=hold.price
        )
        line.charge = bill.charge
        self._log.settle(None, line)
        self._write(_settlement(bill))

    async def _watch(self) -> None:
        """See that nobody waits for a store that hangs, and whether one that was down is back."""
        while True:
            await asyncio.sleep(TICK)
            if self.outage is not None:
                await self._try_again()
                continue
            now = self._clock()
            if now - next(iter(self._asked.values()), now) > PATIENCE:
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
            for settlement in pending.values():
                self._keep(SpooledLine(settlement))
            for future in self._asked:
                self._given_up.add(future)
                future.cancel()
        return self.outage

    def _admit_offline(self, reservation: Reservation, owner: str, outage: Outage, asked: bool) -> Hold:
        try:
            hold = outage.admit(reservation)
            request = OpenRequest(hold, reservation.model, reservation.price, owner, True)
            self._spool.append(SpooledHold(_hold_row(request, self._now())))
        except (KenariError, OSError) as error:
            if asked:  # the store may have opened a hold without being able to say so
                caller = reservation.caller
                self._keep(SpooledRelease(reservation.id, caller.account, caller.unlimited))
            if isinstance(error, OSError):
                _log.error("the spool cannot be written: %s", error.strerror)
                raise outage.refusal() from None
            raise
        self._admit(reservation, hold, owner, offline=True)
        return hold

    def _keep(self, record: SpooledLine | SpooledRelease | SpooledNotes) -> None:
        try:
            self._spool.append(record)
        except OSError as error:
            _log.error("the spool cannot be written: %s. what it should hold: %s", error.strerror, _told(record))

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
        await self._drain()
        if self.outage is not None:
            _log.warning("the store is back after %.1f s", self._clock() - self.outage.began)
            self.outage = None
        for request in self._open.values():
            request.offline = False
        for hold in await self._store.open_holds(self._settings.node):
            if hold.id not in self._open and hold.id not in self._settling:
                self._crash(hold)
        await self._store.ping()  # all of that is written
        self._next = {"note": 0.0, "renew": 0.0, "prune": 0.0}

    async def _drain(self) -> None:
        offset = 0
        while self._spool.waiting:
            records, end = self._spool.read(offset, 400)
            if end == offset:
                self._spool.clear()
                return
            offset = end
            asked: list[tuple[bytes, asyncio.Future[bool]]] = []
            for record, text in records:
                if isinstance(record, SpooledHold):
                    asked.append((text, self._store.adopt(record.hold)))
                elif isinstance(record, SpooledLine):
                    asked.append((text, self._store.settle(record.settlement)))
                elif isinstance(record, SpooledRelease):
                    asked.append((text, self._store.release(record.id, record.account, record.unlimited)))
                elif isinstance(record, SpooledNotes):
                    await self._store.note(record.estimates)
                else:
                    _log.error("a line of the spool cannot be read; it is kept beside it")
                    self._spool.set_aside(text)
            outcomes = await asyncio.gather(*(future for _, future in asked), return_exceptions=True)
            for (text, _), outcome in zip(asked, outcomes, strict=True):
                if isinstance(outcome, StoreDown):
                    raise outcome
                if isinstance(outcome, BaseException):
                    _log.error("the ledger refused a spooled line: %s; it is kept beside the spool", outcome)
                    self._spool.set_aside(text)

    def _task(self, work: "Coroutine[None, None, None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _settlement(bill: Bill) -> Settlement:
    """A bill on its way into the ledger. Reports add up the tokens of the bill, so that they cannot say anything else."""
    tokens = bill.tokens
    return Settlement(
        id=bill.id,
        account=bill.account,
        key=bill.key,
        model=bill.model,
        time=bill.time,
        status=bill.status,
        usage=Usage(
            tokens.input,
            tokens.cache_read,
            tokens.cache_write_5m,
            tokens.cache_write_1h,
            tokens.output,
            tokens.reasoning,
        ),
        charge=bill.charge,
        body=encode_body(bill),
        unlimited=bill.unlimited,
        price=bill.price,
    )


def _hold_row(request: OpenRequest, now: float) -> HoldRow:
    caller = request.hold.caller
    return HoldRow(
        id=request.hold.id,
        account=caller.account,
        key=caller.key,
        model=request.model,
        amount=request.hold.amount,
        estimate=request.noted,
        owner=request.owner,
        created_at=now,
        price=request.price,
        unlimited=caller.unlimited,
    )


def _told(record: SpooledLine | SpooledRelease | SpooledNotes) -> str:
    """What is lost, for the log: ids and amounts."""
    if isinstance(record, SpooledLine):
        return f"{record.settlement.id} charge {record.settlement.charge} account {record.settlement.account}"
    return type(record).__name__
