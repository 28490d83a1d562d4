"""Idle connections to providers, kept for the next call. Last in, first out: the rest grows old and is closed."""

import asyncio
from typing import Generic, Protocol, TypeVar

import msgspec


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a connection leads: scheme, host, port, and how it is reached.

    `authority` is host and port as the host header names them, `place` the same with the port always.
    """

    tls: bool
    host: str
    port: int
    authority: str
    place: str
    ca: str = ""
    proxy: str = ""
    proxy_host: str = ""
    proxy_port: int = 0
    proxy_auth: bytes = b""


class Pooled(Protocol):
    """A connection that can be kept."""

    origin: Origin
    idle_since: float

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


C = TypeVar("C", bound=Pooled)


class Pool(Generic[C]):
    """Idle connections by origin. `idle_seconds` is how long one is kept, `max_idle` how many per origin."""

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_seconds: float, max_idle: int) -> None:
        self._loop, self._idle_seconds, self._max_idle = loop, idle_seconds, max_idle
        self._idle: dict[Origin, list[C]] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def take(self, origin: Origin) -> C | None:
        """A usable idle connection to this origin, None when there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
        return None

    def put(self, connection: C) -> None:
        """Keep a connection for the next call."""
        idle = self._idle.setdefault(connection.origin, [])
        if len(idle) >= self._max_idle:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        idle.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_seconds / 2, self._sweep)

    def forget(self, connection: C) -> None:
        """A connection has closed."""
        idle = self._idle.get(connection.origin)
        if idle and connection in idle:
            idle.remove(connection)

    def close(self) -> None:
        """Close all."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for idle in self._idle.values():
            for connection in tuple(idle):
                connection.abort()
        self._idle.clear()

    @property
    def idle(self) -> int:
        """How many connections wait."""
        return sum(len(idle) for idle in self._idle.values())

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._loop.time() - self._idle_seconds
        for origin, idle in tuple(self._idle.items()):
            for connection in tuple(idle):
                if connection.idle_since <= oldest:
                    connection.abort()
            self._idle[origin] = [one for one in idle if one.idle_since > oldest]
        self._idle = {origin: idle for origin, idle in self._idle.items() if idle}
        if self._idle:
            self._sweeper = self._loop.call_later(self._idle_seconds / 2, self._sweep)
