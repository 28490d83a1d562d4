"""Pins of conversations shared by processes and nodes: one key with an expiry in a Valkey server for each (M3).

While the server cannot be reached a process goes on with its own pins, says so once in the log, and comes back by itself.
Nodes then still agree mostly: the order of candidates comes from the conversation itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kenari.gateway.pins import PIN_SECONDS, MemoryPins
from kenari.keys.client import make_client

_log = logging.getLogger("kenari.pins")

ANSWER_SECONDS = 0.25
"""A server that takes longer counts as down: a pin is not worth a wait."""
RETRY_SECONDS = 2.0
PREFIX = "kenari:pin:"


class ValkeyPins:
    """Pins in a Valkey server, with the process's own as its memory of them. `clock` is in seconds."""

    def __init__(self, url: str, clock: Callable[[], float], seconds: float = PIN_SECONDS) -> None:
        """Raises OSError when the client library is not installed or the address is none."""
        self._server, self._failed = make_client(url, ANSWER_SECONDS, decode_responses=True)
        self._clock, self._seconds = clock, max(1, round(seconds))
        self._memory = MemoryPins(clock, seconds)
        self._down_until = 0.0
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def down(self) -> bool:
        """The server could not be reached a moment ago."""
        return self._down_until > self._clock()

    async def get(self, key: str) -> str | None:
        """The candidate's name, as the server knows it; the process's own where it does not."""
        own = self._memory.look(key)
        if self.down:
            return own
        found = await self._try(self._server.getex(PREFIX + key, ex=self._seconds))
        if not isinstance(found, str):
            if own is not None and not self.down:
                self._tell(key, own)  # the server was emptied
            return own
        self._memory.put(key, found)
        return found

    def put(self, key: str, name: str) -> None:
        """Remember it, here at once and there soon. What is known already was prolonged by `get`."""
        known = self._memory.look(key) == name
        self._memory.put(key, name)
        if not known and not self.down:
            self._tell(key, name)

    def _tell(self, key: str, name: str) -> None:
        call = self._try(self._server.set(PREFIX + key, name, ex=self._seconds))
        task = asyncio.get_running_loop().create_task(call)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Part from the server, when what is under way has got there."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ANSWER_SECONDS)
        await self._server.aclose()

    async def _try(self, call: Awaitable[object]) -> object:
        """The server's answer, None when it has none to give."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await call
        except (self._failed, OSError, TimeoutError) as error:
            if not self.down:
                _log.warning("the valkey server of the pins cannot be reached (%s)", type(error).__name__)
            self._down_until = self._clock() + RETRY_SECONDS
            return None
