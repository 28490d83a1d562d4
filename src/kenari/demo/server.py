"""A real small model for `kenari serve --demo`: llama.cpp's server as a child on loopback, installed the first time."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kenari.demo.place import (
    NOT_THIS_PROCESSOR,
    Installed,
    data_folder,
    demo_folder,
    find_installed,
    this_machine,
    unsupported,
)
from kenari.demo.progress import Progress

Report = Callable[[str], None]

MODEL_ID = "smollm2-135m:free"
"""The id under which kenari serves it. It writes text, English best; no reasoning, no images, no tools."""
MODEL_NAME = "smollm2-135m"
"""What its server calls it."""
CONTEXT_WINDOW = 8192
"""Tokens, for each request."""
MAX_OUTPUT = 4096
"""Tokens: small models may repeat themselves without end."""

SLOTS = 2
"""Requests that it works on at once."""

START_SECONDS = 60.0
"""How long a start may take; 2 s is usual."""
STOP_SECONDS = 5.0
"""How long it may take to end by itself before it is killed."""
_LOG_BYTES = 1 << 20
_PROCESSOR = re.compile(
    r"\b(AMX|AVX\w*|SSE\w*|SVE|NEON)\b[^\n]*\bnot (be )?(ready|supported|available|detected)",
    re.IGNORECASE,
)
"""llama.cpp's words when it finds less in the processor than it was built for (`AMX is not ready to be used!`)."""
_LAST_WORDS = re.compile(r"^.*(?:GGML_ASSERT|GGML_ABORT|terminate called|what\(\):).*$", re.MULTILINE)
_WHY = re.compile(r"^why (.+)$", re.MULTILINE)
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class DemoModel:
    """The running model: `base_url` for the dialect chat, and the name that the server knows it by."""

    def __init__(self, server: "ModelServer") -> None:
        self._server = server
        self.base_url = server.base_url + "/v1"
        self.model_name = MODEL_NAME

    async def stop(self) -> None:
        """End the server and wait until it is gone."""
        await self._server.stop()


async def start_demo(report: Report, data: Path | None = None) -> DemoModel | str:
    """Install the model if need be, start it and wait until it can answer. A text says why it cannot be had.

    `report` takes lines for the person at the terminal. `data` is the data folder, by default that of the environment.
    """
    reason = unsupported(this_machine())
    if reason is not None:
        return reason
    folder = data_folder(os.environ) if data is None else data
    found = find_installed(folder)
    if found is None:
        program = [sys.executable, "-P", "-m", "kenari.demo.install", str(folder)]
        reason = await run_installer(program, Progress(report, sys.stderr if sys.stderr.isatty() else None))
        if reason is not None:
            return reason
        found = find_installed(folder)
        if found is None:
            return f"the installation in {demo_folder(folder)} is not complete"
    server = ModelServer(command_of(found), child_environment(), demo_folder(folder) / "llama-server.log", report)
    reason = await server.start()
    return DemoModel(server) if reason is None else reason


def command_of(installed: Installed) -> list[str]:
    """The server's command line, all but `--port`: Python without its environment and without installed packages. Each
    slot has a whole context window."""
    threads = max(1, min(4, len(os.sched_getaffinity(0)))) if sys.platform == "linux" else 2
    program = [sys.executable, "-I", "-S", "-B", str(Path(__file__).with_name("llama.py"))]
    options = f"--alias {MODEL_NAME} --slots {SLOTS} --context {CONTEXT_WINDOW} --most {MAX_OUTPUT} --threads {threads}"
    return [*program, str(installed.library), str(installed.weights), *options.split()]


def child_environment() -> dict[str, str]:
    """The child's environment: none of kenari's secrets."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}


async def run_installer(command: Sequence[str], progress: Progress) -> str | None:
    """Run the installing program and show its progress. None when it is ready, else the reason. When this is cancelled
    the program is ended with all that it started."""
    path = os.pathsep.join(filter(None, (str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", ""))))
    process = await asyncio.create_subprocess_exec(
        *_with_parent(command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    reason: str | None = "the installation ended without a word"
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            word, _, rest = line.decode(errors="replace").rstrip("\n").partition(" ")
            if word == "step":
                done, total, label = rest.split(" ", 2)
                progress.step(label, int(done), int(total))
            elif word == "say":
                progress.say(rest)
            elif word == "why":
                reason = rest
            elif word == "ready":
                reason = None
        await process.wait()
    finally:
        progress.close()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
    return reason


class ModelServer:
    """A server program as a child on a free loopback port: in a process group of its own (Ctrl-C is for kenari, which
    then stops it), ending with its parent, started once more if it dies."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path, report: Report) -> None:
        self._command = list(command)
        self._environment = environment
        self._log = log
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._stopping = False
        self._port = 0
        self._log_start = 0

    @property
    def base_url(self) -> str:
        """The server's address, without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The child's process id, 0 before the start."""
        return self._process.pid if self._process is not None else 0

    async def start(self, patience: float = START_SECONDS) -> str | None:
        """Start it and wait until it is healthy. The reason when that fails within `patience` seconds."""
        self._port = _free_port()
        try:
            reason = await self._launch(patience)
        except BaseException:  # a cancelled start must not leave the child behind
            await self.stop()
            raise
        if reason is not None:
            await self.stop()
            return reason
        self._watch = asyncio.create_task(self._keep_alive(patience))
        return None

    async def stop(self) -> None:
        """End the child: SIGTERM, and SIGKILL if that is not enough. Returns when it is gone."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._watch is not None:
            await self._watch
            self._watch = None

    async def _launch(self, patience: float) -> str | None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self._log.exists() or self._log.stat().st_size > _LOG_BYTES
        self._log_start = 0 if fresh else self._log.stat().st_size
        with self._log.open("wb" if fresh else "ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *_with_parent([*self._command, "--port", str(self._port)]),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=self._environment,
                )
            except OSError as error:
                return f"the model's server cannot be started: {error.strerror or error}"
        return await self._wait_until_healthy(self._process, patience)

    async def _wait_until_healthy(self, process: asyncio.subprocess.Process, patience: float) -> str | None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        told = 0
        while not self._stopping:
            if process.returncode is not None:
                return f"the model's server {self._ending(process.returncode)}; see {self._log}"
            if await _is_healthy(self._port):
                return None
            waited = loop.time() - begun
            if waited >= patience:
                return f"the model's server did not start within {patience:.0f} s; see {self._log}"
            if waited >= 2.0 * (told + 1):
                told += 1
                self._report(f"the model is being loaded ({waited:.0f} s)")
            await asyncio.sleep(0.05)
        return "kenari is stopping"

    async def _keep_alive(self, patience: float) -> None:
        """Start it once more when it dies; a second death is only told."""
        for again in (True, False):
            assert self._process is not None
            status = await self._process.wait()
            if self._stopping:
                return
            then = "starting it again" if again else f"it stays away; see {self._log}"
            self._report(f"the demo model's server {self._ending(status)}; {then}")
            if not again:
                return
            reason = await self._launch(patience)
            if reason is not None or self._stopping:
                await self._end_late_child()
                if not self._stopping:
                    self._report(f"the demo model is not served any more: {reason}")
                return

    def _ending(self, status: int) -> str:
        """How the last child ended, in the words of its part of the log where there are some."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_start)
                words = log.read(_LOG_BYTES).decode(errors="replace")
        except OSError:
            words = ""
        return ending(status, words)

    async def _end_late_child(self) -> None:
        """A child that is not wanted: it does not get well, or came while `stop` was ending the one before."""
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


def _with_parent(command: Sequence[str]) -> list[str]:
    """The command, made to end with this process."""
    launcher = str(Path(__file__).with_name("launch.py"))
    return [sys.executable, "-I", "-S", launcher, str(os.getpid()), *command]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _is_healthy(port: int) -> bool:
    """`GET /health` answers 200 (llama.cpp: 503 while it loads the model)."""
    try:
        async with asyncio.timeout(2.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
                head = await reader.readline()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
    return head.split(b" ")[1:2] == [b"200"]


def ending(status: int, words: str) -> str:
    """How a server ended, from its exit status and what it wrote.

    A processor may be refused by the kernel (an illegal instruction) or by llama.cpp itself, which then aborts; an abort
    for another reason is told as what it is.
    """
    if status == -signal.SIGILL or (status == -signal.SIGABRT and _PROCESSOR.search(words)):
        return NOT_THIS_PROCESSOR
    if status == -signal.SIGABRT:
        last = _LAST_WORDS.findall(words)
        return f"aborted ({last[-1].strip()})" if last else "aborted"
    why = _WHY.findall(words)
    if status > 0 and why:
        return f"could not start: {why[-1]}"
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
