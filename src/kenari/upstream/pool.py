"""Connections to providers: all that are open, and the idle ones that are kept for the next call.

Last in, first out: the rest grows old and is closed.
"""

import asyncio
from collections import defaultdict
from typing import Generic, Protocol, TypeVar

from kenari.upstream.origin import Origin
from kenari.wire.outbox import Outbox


class Pooled(Protocol):
    """A connection that can be kept."""

    origin: Origin
    idle_since: float

    def drop(self) -> None:
        """Close at once; a call that is on it hears of its loss."""
        ...


C = TypeVar("C", bound=Pooled)


class Pool(Generic[C]):
    """Connections by origin. `idle_seconds` is how long an idle one is kept, `max_idle` how many per origin."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_seconds: float, max_idle: int) -> None:
        self._loop, self._idle_seconds, self._max_idle = loop, idle_seconds, max_idle
        self.outbox = Outbox(loop.call_soon)
        """Where the connections write."""
        self._open: set[C] = set()
        self._idle: defaultdict[Origin, list[C]] = defaultdict(list)
        self._sweeper: asyncio.TimerHandle | None = None

    def add(self, connection: C) -> None:
        """A connection stands."""
        self._open.add(connection)

    def idle_to(self, origin: Origin) -> list[C]:
        """The idle connections to this origin, now and later; the one that was used last is the last, and whoever takes one takes
        that. It may be closing."""
        return self._idle[origin]

    def put(self, connection: C) -> None:
        """Keep a connection for the next call."""
        idle = self._idle[connection.origin]
        if len(idle) >= self._max_idle:
            connection.drop()
            return
        connection.idle_since = self._loop.time()
        idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_seconds / 2, self._sweep)

    def forget(self, connection: C) -> None:
        """A connection has closed."""
        self._open.discard(connection)
        idle = self._idle.get(connection.origin)
        if idle and connection in idle:
            idle.remove(connection)

    def close(self) -> None:
        """Close all, those with a call too."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for idle in self._idle.values():
            idle.clear()
        for connection in tuple(self._open):
            connection.drop()

    @property
    def open(self) -> int:
        """How many connections stand, idle or with a call."""
        return len(self._open)

    @property
    def idle(self) -> int:
        """How many connections wait for a call."""
        return sum(len(idle) for idle in self._idle.values())

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._loop.time() - self._idle_seconds
        for idle in self._idle.values():
            for connection in tuple(idle):
                if connection.idle_since <= oldest:
                    connection.drop()
            idle[:] = [one for one in idle if one.idle_since > oldest]
        if any(self._idle.values()):
            self._sweeper = self._loop.call_later(self._idle_seconds / 2, self._sweep)
