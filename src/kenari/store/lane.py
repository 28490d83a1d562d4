"""A thread that works through jobs with a database connection of its own, so that no disk or network ever stops the loop.

What has queued up while one batch ran is the next batch. Nothing that somebody waits for waits on purpose; what nobody waits
for goes with the next job that somebody does, or after a few milliseconds: so a request that ends and one that begins
share a transaction, and requests that end in the same moment are put into words together, which costs less. Results come
back with one call into the loop for each batch.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from kenari.store.database import Broken, Database, Refused
from kenari.store.records import Conflict, StoreDown

T = TypeVar("T")
J = TypeVar("J")
_log = logging.getLogger("kenari.store")
RETRY_SECONDS = 0.5
"""How long after a failed connection the next one is tried; until then every job fails at once."""
LARGEST_BATCH = 400
LATER_SECONDS = 0.005
"""How long a job that nobody waits for is kept back, at most."""
LATER_JOBS = 64
"""How many are, at most: they are made at once, and the loop waits meanwhile."""

CATCH_UP_SECONDS = 1.0
"""How long who asks waits for what was kept back, at most."""


class Waiter(Protocol):
    """Who hears what came of a job: a future, or something that costs less."""

    def cancelled(self) -> bool:
        """Nobody wants it any more."""
        ...

    def done(self) -> bool:
        """It has its outcome already."""
        ...

    def set_result(self, result: Any, /) -> None:
        """It is done."""
        ...

    def set_exception(self, exception: BaseException, /) -> None:
        """It is not."""
        ...


class Job(msgspec.Struct, Generic[J], eq=False):
    """Something to do, and who waits for it."""

    what: J
    future: Waiter


Done: TypeAlias = list[tuple[Waiter, Any, BaseException | None]]


class Lane(Generic[J]):
    """The thread. `prepare` is called on each new connection. `work` does a batch and notes what came of each job as soon as
    that is certain: when the database breaks in the middle, the rest fails. `again` says that it only reads, so that what
    fails may be tried once more on a new connection. `late` hears of what came for somebody who had given up."""

    def __init__(
        self,
        database: Database,
        prepare: Callable[[Database], None],
        work: Callable[[list[Job[J]], Done], None],
        late: Callable[[J, Any], None],
        again: bool = False,
    ) -> None:
        self._database, self._prepare, self._work, self._late = database, prepare, work, late
        self._again = again
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[list[Job[J]] | None] = SimpleQueue()
        self._kept: list[tuple[Callable[[], J], Waiter]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._later: Waiter | None = None  # of the last job that was kept back
        # who else wants to know that a waiter has heard, by its id
        self._catching: dict[int, asyncio.Future[None]] = {}
        self._thread = threading.Thread(target=self._run, name="kenari-store", daemon=True)
        self._connected = False
        self._tried = 0.0
        self._why = StoreDown("not connected")
        self.slowest = 0.0
        """Seconds of the longest batch so far."""

    @property
    def waiting(self) -> int:
        """Jobs in the queue, nearly: those that were put there together are one."""
        return self._queue.qsize() + len(self._kept)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def do(self, what: J) -> "asyncio.Future[Any]":
        """Queue a job; the future of its result. Cancelling it before its batch begins undoes it."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._hand_over(Job(what, future))
        return future

    def do_later(self, make: Callable[[], J], waiter: Waiter) -> None:
        """Queue a job that nobody waits for: it comes before whatever is queued after it. It is made, on the loop, when it is
        handed over; `waiter` hears of it, and is never cancelled."""
        self._later = waiter
        self._kept.append((make, waiter))
        if len(self._kept) >= LATER_JOBS:
            self._hand_over()
        elif self._timer is None:
            self._timer = self._loop.call_later(LATER_SECONDS, self._hand_over)

    async def catch_up(self) -> None:
        """Wait, not for long, until what was kept back is done: who asks now sees it."""
        later = self._later
        if later is None or later.done():
            return
        self._hand_over()
        if not later.done():
            caught = self._catching.setdefault(id(later), self._loop.create_future())
            await asyncio.wait({caught}, timeout=CATCH_UP_SECONDS)

    def _hand_over(self, last: Job[J] | None = None) -> None:
        """Give the thread all that was kept back, and one job more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._kept = self._kept, []
        jobs: list[Job[J]] = []
        for make, waiter in kept:
            try:
                jobs.append(Job(make(), waiter))
            except Exception as fault:  # noqa: BLE001 - ours: who waits hears of it, the others are done
                self._deliver([], [(waiter, None, fault)])
        if last is not None:
            jobs.append(last)
        if jobs:
            self._queue.put(jobs)

    async def close(self) -> None:
        """Work through what is queued, then end the thread and disconnect."""
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ended = False
        while not ended:
            batch: list[Job[J]] = []
            jobs = self._queue.get()
            while jobs is not None:
                batch += [job for job in jobs if not job.future.cancelled()]
                try:
                    jobs = self._queue.get_nowait() if len(batch) < LARGEST_BATCH else _NOTHING
                except Empty:
                    jobs = _NOTHING
                if jobs is _NOTHING:
                    break
            ended = jobs is None
            if batch:
                began = time.monotonic()
                done = self._done(batch, self._again)
                self.slowest = max(self.slowest, time.monotonic() - began)
                self._tell(batch, done)
        self._database.close()

    def _done(self, batch: list[Job[J]], again: bool) -> Done:
        """The outcomes of a batch; StoreDown for all of them when there is no connection. `again`: a connection that has
        broken since it was last used is made anew first."""
        done: Done = []
        error: BaseException = self._why
        if self._connected or self._connect():
            try:
                self._work(batch, done)
            except Broken as broken:
                self._connected, self._tried = False, 0.0
                error = self._why = StoreDown(str(broken))
                _log.warning("the store is not there: %s", broken)
            except Exception as fault:  # noqa: BLE001 - ours: who waits hears of it, the thread lives on
                error = fault
            self._database.rollback()
        else:
            error = self._why
        known = {id(one[0]) for one in done}
        left = [job for job in batch if id(job.future) not in known]
        if left and again and not self._connected:
            return done + self._done(left, again=False)
        return done + [(job.future, None, error) for job in left]

    def _connect(self) -> bool:
        now = time.monotonic()
        if self._tried and now - self._tried < RETRY_SECONDS:
            return False
        try:
            self._database.connect()
            self._prepare(self._database)
        except (Broken, Refused) as error:
            self._why = StoreDown(str(error))
        except Conflict as conflict:
            if str(conflict) != str(self._why):
                _log.error("the store cannot be used: %s", conflict)
            self._why = StoreDown(str(conflict))
            self._why.__cause__ = conflict
        else:
            self._connected = True
            return True
        self._tried = time.monotonic()
        return False

    def _tell(self, batch: list[Job[J]], done: Done) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, batch, done)

    def _deliver(self, batch: list[Job[J]], done: Done) -> None:
        """On the loop: wake who waits; what came too late for somebody who gave up is handed to `late`."""
        for future, result, error in done:
            if future.done():
                if error is None:
                    self._late(next(job.what for job in batch if job.future is future), result)
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
        if self._catching:
            for future, _, _ in done:
                caught = self._catching.pop(id(future), None)
                if caught is not None:
                    caught.set_result(None)


_NOTHING: Any = object()
