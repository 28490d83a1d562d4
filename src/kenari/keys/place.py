"""Where limits are counted: by the address in the configuration."""

from collections.abc import Callable

from kenari.keys.memory import MemoryLimits
from kenari.keys.valkey import ValkeyLimits


def limits_at(url: str, process: str, now: Callable[[], float]) -> MemoryLimits | ValkeyLimits:
    """The limits of `[limits] url`. `process` names this process among those that share a server. Those of a server are to
    be started and closed. Raises OSError where they cannot be had at all."""
    return ValkeyLimits(url, process, now) if url.startswith("valkey://") else MemoryLimits(now)
