"""One ticker for the whole process: it drives every keepalive and every timeout, so that no request has a timer."""

import asyncio
from typing import Protocol

from kenari.gateway.faults import log_fault


class Ticking(Protocol):
    """Something that wants to know how late it is."""

    def tick(self, now: float) -> bool | None:
        """`now` is the loop's time in seconds. True when it is over and wants to hear no more."""
        ...


class Ticker:
    """Calls `tick` of every registered object each `interval` seconds, while there are any."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interval: float) -> None:
        self._loop = loop
        self.interval = interval
        """Seconds; may change while it ticks."""
        self._items: set[Ticking] = set()
        self._handle: asyncio.TimerHandle | None = None

    def add(self, item: Ticking) -> None:
        """Register; adding twice is the same as once."""
        self._items.add(item)
        if self._handle is None:
            self._handle = self._loop.call_later(self.interval, self._run)

    def remove(self, item: Ticking) -> None:
        """Forget; unknown items are fine."""
        self._items.discard(item)

    def close(self) -> None:
        """Stop ticking."""
        self._items.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        now = self._loop.time()
        for item in tuple(self._items):
            try:
                if item.tick(now):
                    self._items.discard(item)
            except Exception as fault:  # noqa: BLE001 - ours, and no reason to let all others wait without time-outs
                self._items.discard(item)
                log_fault(fault, "")
        if self._items:
            self._handle = self._loop.call_later(self.interval, self._run)
