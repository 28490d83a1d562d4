"""Runs workers: one process for each file, a few at a time, killed when they take too long."""

import asyncio
import contextlib
import os
import signal
import sys

from kenari.documents.kinds import UnreadableError, kind_of
from kenari.documents.limits import DocumentLimits, Job, Reading
from kenari.documents.readers import READERS
from kenari.wire import jsonx

_PLAIN = 256 * 1024
"""Bytes of plain text that are read here, without a process: nothing is parsed."""
_DIED = "reading it takes more memory or time than is allowed here, or it is broken"
_READING = jsonx.decoder(Reading)


class DocumentReader:
    """Turns files into text. `alive` counts the workers that run now."""

    def __init__(self, limits: DocumentLimits) -> None:
        self.limits = limits
        self.alive = 0
        self._room = asyncio.Semaphore(limits.workers)

    async def read(self, data: bytes, name: str = "", media_type: str = "") -> Reading:
        """The text of a file; a failure is a Reading with its error."""
        limits = self.limits
        if len(data) > limits.max_size:
            return Reading(error=f"it is larger than {limits.max_size // (1024 * 1024)} MiB. send a smaller part of it")
        if len(data) <= _PLAIN and not data.startswith(b"PK"):
            try:
                if kind_of(data, name, media_type) == "text":
                    return READERS["text"](data, limits)
            except UnreadableError as error:
                return Reading(error=error.message)
        job = Job(name=name[:200], media_type=media_type, limits=limits)
        async with self._room:
            self.alive += 1
            try:
                return await self._run(jsonx.encode(job) + b"\n" + data)
            finally:
                self.alive -= 1

    async def _run(self, message: bytes) -> Reading:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "kenari.documents.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(),
        )
        try:
            async with asyncio.timeout(self.limits.timeout):
                answer, _ = await process.communicate(message)
        except TimeoutError:
            return Reading(error=f"reading it takes longer than {self.limits.timeout:g} s")
        finally:
            if process.returncode is None:
                _kill(process.pid)
                await process.wait()
        try:
            return jsonx.read(_READING, answer)
        except jsonx.Malformed:
            return Reading(error=_DIED)


def _kill(pid: int) -> None:
    """End a worker and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """What a worker sees of our environment: no keys."""
    kept = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TESSDATA_PREFIX", "SYSTEMROOT", "VIRTUAL_ENV", "HOME")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"OMP_THREAD_LIMIT": "1"}
