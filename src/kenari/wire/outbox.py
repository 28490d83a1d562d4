"""Writes that wait for the end of the loop's turn, so that those of many connections follow each other.

A write is a system call at once, and the one that finds its reader asleep wakes it, which costs more than the write. A
process that serves many connections reads from several in each turn of the loop: answered one by one, each of them wakes
somebody; written together, the first one wakes the reader and the others find it awake. The code that serves is walked
through without the kernel's in between, too.
"""

from collections.abc import Callable
from typing import Protocol

MOST = 64
"""Writes that wait at most: who came first does not wait for everyone."""
MOST_BYTES = 256 * 1024
"""Bytes that wait at most: only a transport that has them can say that its reader is slow, and what floods is read many
times in a turn."""
ALONE = 4
"""Turns with one write each, after which a write waits no longer, for nobody shares the turn."""
TRUSTED = 16
"""Writes in a row that do not wait, until one waits again to see whether others share its turn by now."""


class Transport(Protocol):
    """What is written to."""

    def write(self, data: bytes, /) -> None:
        """Send."""
        ...

    def is_closing(self) -> bool:
        """Nothing more can be sent."""
        ...


class Outbox:
    """The writes of this turn, for all connections of one kind. What is to be sent before a connection is closed, or written to
    by somebody else, has to be flushed first. `soon` calls when the turn ends (`loop.call_soon`)."""

    __slots__ = ("_alone", "_bytes", "_soon", "_waiting")

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self._waiting: list[tuple[Transport, bytes]] = []
        self._bytes = 0  # that wait
        self._alone = ALONE  # turns with one write, and then writes that did not wait

    def put(self, transport: Transport, data: bytes) -> None:
        """Write, at the end of this turn at the latest."""
        waiting = self._waiting
        if waiting:
            waiting.append((transport, data))
            self._bytes += len(data)
            if len(waiting) >= MOST or self._bytes >= MOST_BYTES:
                self.flush()
        elif ALONE <= self._alone < ALONE + TRUSTED:
            self._alone += 1
            transport.write(data)
        elif len(data) >= MOST_BYTES:
            transport.write(data)
        else:
            waiting.append((transport, data))
            self._bytes = len(data)
            self._soon(self._turn)

    def flush(self) -> None:
        """Write what waits, in the order in which it came; what is for a connection that was broken off is dropped."""
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            if not transport.is_closing():
                transport.write(data)

    def _turn(self) -> None:
        """The turn ends."""
        if len(self._waiting) > 1:
            self._alone = 0
        elif self._waiting:
            self._alone = min(self._alone, ALONE - 1) + 1
        self.flush()
