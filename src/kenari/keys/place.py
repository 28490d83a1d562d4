"""Where limits are counted: by the address in the configuration."""

import importlib
import importlib.util
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from kenari.core.ports import Limits
from kenari.keys.memory import MemoryLimits


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


CLIENT = "valkey"
"""The client library, which the extra of the same name brings."""


def lacks_client(url: str) -> bool:
    """Whether the limits of an address need a client library that is not installed."""
    return url.startswith("valkey://") and importlib.util.find_spec(CLIENT) is None


def limits_at(url: str, process: str, now: Callable[[], float]) -> PlacedLimits:
    """The limits of `[limits] url`. `process` names this process among those that share a server. Raises OSError where
    they cannot be had at all."""
    if not url.startswith("valkey://"):
        return MemoryLimits(now)
    # the client library costs memory and start-up time, and is only there with the extra: who needs it pays for it
    valkey = importlib.import_module("kenari.keys.valkey")
    return cast("PlacedLimits", valkey.ValkeyLimits(url, process, now))
