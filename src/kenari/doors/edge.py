"""The inbound HTTP/1.1 end: connections, limits and time-outs. What a request means is not its business."""

import asyncio
import logging
import math
import os
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from kenari.core.errors import KenariError
from kenari.core.ids import request_id_bytes, request_ids
from kenari.core.ports import Exchange
from kenari.doors.answering import REQUEST_TASK
from kenari.doors.connection import Connection
from kenari.doors.exchange import Living
from kenari.doors.limits import EdgeLimits, Screen
from kenari.doors.unread import Unread
from kenari.wire.outbox import Outbox

Serve: TypeAlias = Callable[[Exchange], Coroutine[Any, Any, None]]
Begin: TypeAlias = Callable[[Exchange], Coroutine[Any, Any, bool | None] | None]
Refuse: TypeAlias = Callable[[Exchange, KenariError], None]

_log = logging.getLogger("kenari.edge")
TICK_SECONDS = 0.5
GIVE_BACK_SECONDS = 5.0
IDS_AT_ONCE = 256


class Edge:
    """All inbound connections of a process. `serve` is one task per request, `refuse` answers what never was one. Requests
    to the paths `streamed` are served as soon as their heads are there, with bodies that still come."""

    def __init__(
        self, serve: Serve, refuse: Refuse, limits: EdgeLimits, streamed: frozenset[str] = frozenset()
    ) -> None:
        self.serve: Serve = serve
        self.refuse: Refuse = refuse
        self.begin: Begin = serve
        """As `serve`, but None for a request that needs no task: it is answered by callback. One that needs a task in the
        beginning only says so by True."""
        self.screen: Screen = _welcome
        """Says what is wrong with a request by its head, where its body is large: then that is not taken."""
        self.give_back: Callable[[], None] = _keep
        """Gives free memory back to the system. A client that stops to read leaves what was read for it meanwhile."""
        self.limits = limits
        self.streamed = streamed
        self.loop = asyncio.get_running_loop()
        self.outbox = Outbox(self.loop.call_soon)
        self.connections: set[Living] = set()
        self.draining = False
        self._servers: list[asyncio.AbstractServer] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event = asyncio.Event()
        self._empty.set()
        self._ids: list[str] = []
        self._slowed = False  # some client, since memory was given back
        self._gave_back = -math.inf

    def __call__(self) -> Connection:
        """A new connection: the protocol factory of `loop.create_server`."""
        return Connection(self)

    def add_server(self, server: asyncio.AbstractServer) -> None:
        """A listening socket whose connections come here."""
        self._servers.append(server)

    def hand_to(self, serve: Serve, begin: Begin, refuse: Refuse, screen: Screen) -> None:
        """These serve from now on (the configuration was reloaded). What has begun goes on as it is."""
        self.serve, self.begin, self.refuse, self.screen = serve, begin, refuse, screen
        for connection in self.connections:
            connection.forget()

    def new_id(self) -> str:
        """The one id of a request (D14). Randomness is fetched for many at once: it takes a system call."""
        if not self._ids:
            self._ids = request_ids(os.urandom(request_id_bytes(IDS_AT_ONCE)))
        return self._ids.pop()

    def slowed(self) -> Unread:
        """A client reads too slowly from now on."""
        self._slowed = True
        return Unread(self.loop.time())

    def opened(self, connection: Living) -> None:
        """A connection stands."""
        self.connections.add(connection)
        self._empty.clear()
        if self._ticker is None:
            self._ticker = self.loop.call_later(TICK_SECONDS, self._tick)

    def closed(self, connection: Living) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    @property
    def in_flight(self) -> int:
        """How many requests are being answered."""
        return sum(connection.busy for connection in self.connections)

    def drain(self) -> None:
        """Take no new connections, end those that are idle; requests in flight go on."""
        self.draining = True
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.close_if_idle()

    async def wait_closed(self, seconds: float) -> bool:
        """Wait for the last connection to end, at most so long. True when none is left."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def wait_answered(self, seconds: float) -> None:
        """Wait for requests whose connections have ended already, at most so long: they still leave their lines."""
        left = [task for task in asyncio.all_tasks() if _is_request(task)]
        if left:
            await asyncio.wait(left, timeout=seconds)

    def close(self) -> None:
        """Break what is left, so that no client takes a cut answer for a whole one (D16)."""
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.abort()
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def fault(self, error: BaseException) -> None:
        """An error that a request let through: its kind and where it arose, never its words, which may hold content."""
        where = "nowhere"
        for frame, line in traceback.walk_tb(error.__traceback__):
            where = f"{frame.f_code.co_qualname}:{line}"
        _log.error("a request failed with %s at %s", type(error).__name__, where)

    def _tick(self) -> None:
        self._ticker = None
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.tick(now)
        if self._slowed and now >= self._gave_back + GIVE_BACK_SECONDS:
            self._slowed, self._gave_back = False, now
            self.give_back()
        if self.connections:
            self._ticker = self.loop.call_later(TICK_SECONDS, self._tick)


def _keep() -> None:
    """Nothing is given back."""


def _welcome(path: str, headers: dict[bytes, bytes]) -> None:
    """Nothing is wrong."""


def _is_request(task: "asyncio.Task[Any]") -> bool:
    """Looked at when a process ends, so that nothing has to be counted before."""
    return getattr(task.get_coro(), "__qualname__", "") == REQUEST_TASK
