"""A body that comes once and may have to be sent several times: short ones stay in memory, the rest of long ones on disk.

Memory is bounded whatever the body's size: what is not on disk yet is at most `MEMORY`, and then the client is read no
more until the disk has followed. The file has no name, or loses it at once: nothing of it outlives the request (S104).
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import Callable
from typing import IO

from kenari.core.errors import KenariError

_log = logging.getLogger("kenari.spool")

MEMORY = 1024 * 1024
"""Bytes that are held in memory; shorter bodies never touch the disk."""
BLOCK = 256 * 1024
"""Bytes that are written and read at once."""


class Spool:
    """Bytes in the order in which they came. `flow` is called with False when no more may come for a while, then True."""

    def __init__(self, flow: Callable[[bool], None], memory: int = MEMORY) -> None:
        self._flow, self._memory = flow, memory
        self._tail = bytearray()  # from `_stored` on
        self._stored = 0  # bytes that are on disk
        self._file: IO[bytes] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._reading = 0
        self._whole = self._closed = self._held_back = False
        self._error: KenariError | None = None
        self._news = asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes that have come."""
        return self._stored + len(self._tail)

    def put(self, data: bytes) -> None:
        """The next bytes."""
        if self._error is not None or self._closed:
            return
        self._tail += data
        if len(self._tail) > self._memory:
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write())
            if not self._held_back:
                self._held_back = True
                self._flow(False)
        self._news.set()

    def finish(self) -> None:
        """These were all."""
        self._whole = True
        self._news.set()

    def fail(self, error: KenariError) -> None:
        """The rest does not come: whoever reads is told so."""
        self._error = self._error or error
        self._news.set()

    async def read(self, at: int) -> bytes:
        """Bytes from an offset on; waits for the first of them, b"" at the end. Raises what `fail` was given."""
        while True:
            if self._error is not None:
                raise self._error
            if at < self._stored and self._file is not None:
                return await self._read(self._file, at, min(BLOCK, self._stored - at))
            if at < self.size:
                start = at - self._stored
                return bytes(self._tail[start : start + BLOCK])
            if self._whole:
                return b""
            self._news.clear()
            await self._news.wait()

    def close(self) -> None:
        """Nobody reads it any more."""
        self._closed = True
        self._tail.clear()
        self._drop()

    async def _read(self, file: IO[bytes], at: int, most: int) -> bytes:
        self._reading += 1
        reading = asyncio.ensure_future(asyncio.to_thread(os.pread, file.fileno(), most, at))
        reading.add_done_callback(self._has_read)
        try:
            return await asyncio.shield(reading)  # who waits may be cancelled; the thread has the file until it is done
        except OSError as error:
            raise self._broken(error) from None

    def _has_read(self, reading: "asyncio.Future[bytes]") -> None:
        self._reading -= 1
        if not reading.cancelled():
            reading.exception()
        if self._closed:
            self._drop()

    async def _write(self) -> None:
        """Bring what is in memory to the disk until little is left."""
        try:
            while len(self._tail) > self._memory // 2 and not self._closed:
                block = bytes(self._tail[:BLOCK])
                self._file = file = self._file or await asyncio.to_thread(tempfile.TemporaryFile, prefix="kenari-")
                await asyncio.to_thread(_append, file.fileno(), block)
                if not self._closed:
                    del self._tail[: len(block)]
                    self._stored += len(block)
        except OSError as error:
            self.fail(self._broken(error))
        finally:
            self._writing = None
            if self._closed:
                self._drop()
        if self._held_back:
            self._held_back = False
            self._flow(True)

    def _broken(self, error: OSError) -> KenariError:
        _log.error("a request's body cannot be kept: %s", error.strerror or type(error).__name__)
        return KenariError("internal_error", "there is no room for the request at this moment. send it again later")

    def _drop(self) -> None:
        if self._file is not None and self._writing is None and not self._reading:
            file, self._file = self._file, None
            file.close()


def _append(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
