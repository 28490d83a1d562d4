"""Work of ours that a client waits for - tools, the reading of documents - and that ends when the client goes away (U6)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kenari.gateway.sinks import Sink

T = TypeVar("T")


class Waiting:
    """The source behind the client's sink while something of ours runs."""

    def __init__(self, task: "asyncio.Future[Any]") -> None:
        self._task = task

    def leave(self) -> None:
        """The client has gone: it is stopped."""
        self._task.cancel()

    def pause(self) -> None:
        """Nothing comes meanwhile."""

    def resume(self) -> None:
        """Nothing comes meanwhile."""

    def forget(self) -> bool:
        """It goes on with what was asked."""
        return False


async def while_waiting(sink: Sink, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work; None when the client went away, which cancels it."""
    task = asyncio.ensure_future(work)
    if sink.gone:
        task.cancel()
    sink.attach(Waiting(task))
    try:
        return await task
    except asyncio.CancelledError:
        if sink.gone:
            return None
        raise
    finally:
        sink.attach(None)
        task.cancel()
