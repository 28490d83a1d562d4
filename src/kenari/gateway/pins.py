"""Which candidate a conversation had last (M3), remembered for a while of use."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

PIN_SECONDS = 600.0
"""M3: how long a pin lives after its last use."""
MAX_PINS = 100_000
"""Conversations remembered by one process; the ones unused for longest are forgotten first."""


class Pins(Protocol):
    """Remembers the candidate of a conversation. Keys are HMACs: nothing of a caller can be read from them."""

    async def get(self, key: str) -> str | None:
        """The candidate's name; asking counts as use. Never raises: without an answer there is no pin."""
        ...

    def put(self, key: str, name: str) -> None:
        """Remember it from now on; never waits."""
        ...


class MemoryPins:
    """Pins of one process. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float], seconds: float = PIN_SECONDS, limit: int = MAX_PINS) -> None:
        self._clock, self._seconds, self._limit = clock, seconds, limit
        self._pins: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def get(self, key: str) -> str | None:
        """The candidate's name."""
        return self.look(key)

    def look(self, key: str) -> str | None:
        """The same without waiting."""
        found = self._pins.get(key)
        if found is None:
            return None
        if found[1] <= self._clock():
            del self._pins[key]
            return None
        self.put(key, found[0])
        return found[0]

    def put(self, key: str, name: str) -> None:
        """Remember it."""
        self._pins[key] = (name, self._clock() + self._seconds)
        self._pins.move_to_end(key)
        while len(self._pins) > self._limit:
            self._pins.popitem(last=False)
