"""Where limits are counted: by the address in the configuration."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from kenari.core.ports import Limits
from kenari.keys.memory import MemoryLimits
from kenari.keys.valkey import ValkeyLimits


class PlacedLimits(Limits, Protocol):
    """Limits with a life: started in the running loop before the first request, closed after the last."""

    down: bool
    """A server that they are shared in cannot be reached at the moment."""
    fallbacks: int
    """How many requests were counted in memory because of that."""

    def start(self) -> Awaitable[None]:
        """Begin."""
        ...

    def close(self) -> Awaitable[None]:
        """End."""
        ...


def limits_at(url: str, process: str, now: Callable[[], float]) -> PlacedLimits:
    """The limits of `[limits] url`. `process` names this process among those that share a server. Raises OSError where
    they cannot be had at all."""
    return ValkeyLimits(url, process, now) if url.startswith("valkey://") else MemoryLimits(now)
