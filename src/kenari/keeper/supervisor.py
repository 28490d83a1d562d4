"""Starts a node's workers, starts those again that die, and ends them.

A worker is a new program (`python -m kenari.worker`), never a fork of a running loop. It inherits one end of a socket
pair and its listening sockets; what it needs to know comes over the pair, so that no secret stands on a command line.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from kenari.keeper.channel import Channel
from kenari.keeper.session import Report, Session
from kenari.keeper.words import Applied, Configure, Drain, End, FromWorker, Leaving, Setup, Word

_log = logging.getLogger("kenari.keeper")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a dead worker is started again: doubled by each death soon after a start."""
STABLE_SECONDS = 30.0
"""A worker that lived so long did not die of its start."""
REBIND_SECONDS = 1.0
"""A worker that stays away so long gives its port back, so that the kernel sends its connections to the others."""
LEAVE_SECONDS = 5.0
"""How long a worker may take to leave when its end of the pair is closed already."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `sockets` opens the listening sockets of the worker of a number (OSError when it cannot), `setup` says
    what a worker is told first, `session` serves one; `environment` is what it inherits."""

    count: int
    command: Sequence[str]
    environment: Mapping[str, str]
    sockets: Callable[[int], list[socket.socket]]
    setup: Callable[[], Setup]
    session: Callable[[Callable[[Word], None], Callable[[Report], None]], Session]


class WorkerStatus(msgspec.Struct, frozen=True):
    """How a worker is, for the operator. `version` is the configuration it serves by, 0 before it serves; `since` in
    Unix seconds."""

    number: int
    pid: int | None
    since: float
    starts: int
    version: int
    in_flight: int


class _Place:
    """One worker's place: its sockets stay when it dies, with the connections that wait in them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sockets: list[socket.socket] = []
        self.process: asyncio.subprocess.Process | None = None
        self.channel: Channel[FromWorker] | None = None
        self.session: Session | None = None
        self.since = 0.0
        self.starts = 0
        self.version = 0
        self.fault = ""

    def say(self, word: Word) -> None:
        """Say a word to the worker when there is one."""
        if self.channel is not None:
            self.channel.say(word)

    def close_sockets(self) -> None:
        """Give the port back; what waits in it is refused."""
        for one in self.sockets:
            one.close()
        self.sockets = []


class Supervisor:
    """The workers of a node. `failed` is resolved with the reason when they cannot be started at all."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._places = [_Place(number) for number in range(1, plan.count + 1)]
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._served = False
        self.failed: asyncio.Future[str] = self._loop.create_future()

    async def start(self) -> bool:
        """Start all; True when all serve, False when they cannot (`failed`) or are stopped before."""
        for place in self._places:
            place.sockets = self._plan.sockets(place.number)
        self._tasks = [self._loop.create_task(self._keep(place)) for place in self._places]
        while not (self.failed.done() or self._stopping.is_set()):
            if all(place.version for place in self._places):
                self._served = True
                return True
            await self._next_change(None)
        return False

    def status(self) -> list[WorkerStatus]:
        """How each worker is."""
        return [
            WorkerStatus(
                place.number,
                place.process.pid if place.process is not None else None,
                place.since,
                place.starts,
                place.version,
                place.session.in_flight if place.session is not None else 0,
            )
            for place in self._places
        ]

    def tell(self, word: Word) -> None:
        """Say something to every worker."""
        for place in self._places:
            place.say(word)

    async def configure(self, word: Configure, patience: float) -> None:
        """Give every worker a configuration and wait until each serves by it. One that does not follow is replaced, and
        one that dies meanwhile is started with the new one."""
        for place in self._places:
            place.fault = ""
        self.tell(word)
        until = self._loop.time() + patience
        while not self._stopping.is_set():
            behind = [one for one in self._places if 0 < one.version < word.version]
            left = until - self._loop.time()
            if not behind or left <= 0 or all(one.fault for one in behind):
                break
            await self._next_change(left)
        for place in self._places:
            if 0 < place.version < word.version:
                _log.error("worker %s %s; it is replaced", place.number, place.fault or "does not follow")
                place.say(Drain())

    def drain(self) -> None:
        """Let every worker end what it has in flight, and leave."""
        self._stop()
        self.tell(Drain())

    def end(self) -> None:
        """Let every worker break off what it has in flight, and leave."""
        self._stop()
        self.tell(End())

    async def wait(self, seconds: float) -> bool:
        """Wait for the last worker, at most so long; then kill those that are left. True when there was none."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for place in self._places:
                if late and place.process is not None and place.process.returncode is None:
                    place.process.kill()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            return not late
        return True

    # --

    def _stop(self) -> None:
        self._stopping.set()
        self._changed.set()
        for place in self._places:
            place.close_sockets()

    async def _next_change(self, seconds: float | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _heard(self, place: _Place, word: Report) -> None:
        if isinstance(word, Leaving):
            place.close_sockets()  # new connections are for those that stay
        elif isinstance(word, Applied) and word.fault:
            place.fault = word.fault
        else:
            place.version = max(place.version, word.version)
        self._changed.set()

    async def _keep(self, place: _Place) -> None:
        """One worker after the other in this place."""
        early_deaths = 0
        while not self._stopping.is_set():
            began = self._loop.time()
            try:
                place.sockets = place.sockets or self._plan.sockets(place.number)
                ending = await self._live(place)
            except OSError as error:
                ending = f"cannot be started: {error.strerror or error}"
            if self._stopping.is_set():
                return
            if not self._served:
                if not self.failed.done():
                    self.failed.set_result(f"a worker {ending}")
                self._changed.set()
                return
            early_deaths = 0 if self._loop.time() - began >= STABLE_SECONDS else early_deaths + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** max(0, early_deaths - 1))
            if pause >= REBIND_SECONDS:
                place.close_sockets()
            _log.warning("worker %s %s; it is started again in %.1f s", place.number, ending, pause)
            try:
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _live(self, place: _Place) -> str:
        """One life of a worker; how it ended."""
        ours, theirs = socket.socketpair()
        try:
            inherited = [theirs.fileno(), *(one.fileno() for one in place.sockets)]
            place.process = await asyncio.create_subprocess_exec(
                *self._plan.command,
                str(place.number),
                *map(str, inherited),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=inherited,
                env=dict(self._plan.environment),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        place.starts += 1
        place.since = time.time()
        session: Session | None = None
        try:
            channel = Channel[FromWorker](FromWorker, lambda word: session and session.hear(word))
            place.session = session = self._plan.session(channel.say, lambda word: self._heard(place, word))
            channel.say(self._plan.setup())  # before anything that all workers are told
            if self._stopping.is_set():
                channel.say(Drain())
            place.channel = channel
            await self._loop.create_unix_connection(lambda: channel, sock=ours)
            await channel.closed
        finally:
            place.channel, place.version = None, 0
            self._changed.set()
            if session is not None:
                await session.ended()
            place.session = None
            status = await self._left(place.process)
            place.process = None
        return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"

    async def _left(self, process: asyncio.subprocess.Process) -> int:
        """The exit status of a worker whose end of the pair is closed; one that does not leave is killed."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                return await process.wait()
        except TimeoutError:
            process.kill()
            return await process.wait()
