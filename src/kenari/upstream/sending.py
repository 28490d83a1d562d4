"""Sends a request's body while it comes, as fast as the provider reads it."""

import asyncio
import logging
from collections.abc import Callable

from kenari.core.errors import KenariError
from kenari.core.outbound import Stream

_log = logging.getLogger("kenari.upstream")


class Sender:
    """One body on its way to a provider; `done` when all of it was written. `broken` is called when it does not come."""

    def __init__(
        self, transport: asyncio.WriteTransport, stream: Stream, broken: Callable[[KenariError], None]
    ) -> None:
        self.done = False
        self._transport, self._stream, self._broken = transport, stream, broken
        self._writable = asyncio.Event()
        self._writable.set()
        self._task = asyncio.get_running_loop().create_task(self._send())

    def pause(self) -> None:
        """Write no more until `resume`."""
        self._writable.clear()

    def resume(self) -> None:
        """Write on."""
        self._writable.set()

    def stop(self) -> None:
        """The rest is not wanted."""
        self._task.cancel()

    async def _send(self) -> None:
        at, size = 0, self._stream.size
        try:
            while at < size:
                data = await self._stream.read(at)
                # its length was said in the head: nobody would understand the rest
                if not data or len(data) > size - at:
                    _log.error("a body has another length than was said")
                    raise KenariError("internal_error", "the request could not be passed on whole. send it again")
                at += len(data)
                self.done = at == size
                self._transport.write(data)
                await self._writable.wait()
        except KenariError as error:
            self._broken(error)
