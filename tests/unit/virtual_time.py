"""A loop whose clock is not the machine's: what is waited for comes at once, in its order, however slow the machine is.

As long as a loop has nothing but timers to wait for, its clock goes on only when it is idle, and then straight to the next
timer: a second of silence takes no time, and no delay of the machine can make two moments change places. From the first
socket, process or thread on that a loop waits for its clock is the machine's.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop. `_run_once`, `_ready` and the rest are asyncio's own names: one turn, and what it has to do."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ahead: float | None = None  # of the machine's clock, once that is the one that counts
        super().__init__()

    def time(self) -> float:
        """Seconds."""
        return self._now if self._ahead is None else self._ahead + time.monotonic()

    def _run_once(self) -> None:
        inside: Any = self
        if self._ahead is None and (inside._default_executor is not None or len(inside._selector.get_map()) > 1):
            self._ahead = self._now - time.monotonic()
        if self._ahead is None and not inside._ready and inside._scheduled:
            self._now = max(self._now, inside._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]  # pyright: ignore


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
