"""How a request of a connection gets its answer: at once by callback where the edge can, else by a task of its own."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

from kenari.core.errors import KenariError
from kenari.core.ports import Take
from kenari.doors.exchange import HttpExchange, Owner
from kenari.doors.limits import our_fault

LARGE = 64 * 1024
"""Bytes of a body beyond which a request waits for the next turn of the loop."""


class Answering:
    """Answers the requests of one connection, one after the other. What is let through, or left unanswered, is our fault."""

    __slots__ = ("_answer", "_edge", "_task")

    def __init__(self, edge: Owner) -> None:
        self._edge = edge
        self._task: asyncio.Task[None] | None = None
        self._answer: Coroutine[Any, Any, bool | None] | None = None  # what it runs; True: it goes on by callback

    def start(self, exchange: HttpExchange, take: Take | None = None) -> None:
        """Answer a whole request. `take` is asked first whether it does."""
        self._task = self._answer = answer = None
        # a large body waits for the next turn of the loop, when the bytes it came in are free again: memory stays hot
        if b"content-encoding" not in exchange.headers and len(exchange.body) <= LARGE:
            try:
                taken = take is not None and take(exchange)
                if taken is True:
                    return
                answer = self._answer = taken or self._edge.begin(exchange)
            except Exception as error:  # noqa: BLE001 - as in `_run`
                self._edge.fault(error)
                self.refuse(exchange, our_fault())
                return
            if answer is None:
                return
        self._task = self._edge.loop.create_task(self._run(exchange, answer))

    def refuse(self, exchange: HttpExchange, error: KenariError) -> None:
        """Refuse; a refusal that fails, or says nothing, must not leave the client waiting, nor stop the ticker."""
        try:
            self._edge.refuse(exchange, error)
        except Exception as fault:  # noqa: BLE001 - see above
            self._edge.fault(fault)
        exchange.abort()  # nothing, when it was answered

    def leave(self) -> None:
        """The client has gone: nobody waits for what has not begun."""
        if self._task is not None and not self._task.done() and _is_new(self._task):
            self._task.cancel()
            if self._answer is not None:
                self._answer.close()

    async def _run(self, exchange: HttpExchange, answer: Coroutine[Any, Any, bool | None] | None) -> None:
        try:
            if answer is None:
                if b"content-encoding" in exchange.headers and not await self._is_plain(exchange):
                    return
                answer = self._edge.serve(exchange)
            if await answer:
                return
        except Exception as error:  # noqa: BLE001 - whatever it is: the client is told and the next one is served
            self._edge.fault(error)
        except BaseException:
            exchange.abort()
            raise
        if exchange.done or exchange.gone:
            return
        if exchange.begun:
            exchange.abort()
        else:
            self.refuse(exchange, our_fault())

    async def _is_plain(self, exchange: HttpExchange) -> bool:
        """Undo the body's coding. False when that was the end of the request."""
        try:
            await exchange.inflate(self._edge.limits.max_body)
        except KenariError as error:
            self.refuse(exchange, error)
        return not (exchange.gone or exchange.done)


REQUEST_TASK = Answering._run.__qualname__  # pyright: ignore[reportPrivateUsage]
"""The name of the coroutine of every task that answers a request."""


def _is_new(task: "asyncio.Task[None]") -> bool:
    """Whether a task has not begun."""
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
