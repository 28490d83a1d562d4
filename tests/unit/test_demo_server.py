"""The demo's server as a child: start, health, stop, crash; and the run of the installer. With programs of our own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kenari.demo import llama
from kenari.demo import server as demo
from kenari.demo.place import Installed, Machine
from kenari.demo.progress import Progress
from kenari.demo.server import (
    DemoModel,
    ModelServer,
    child_environment,
    command_of,
    ending,
    run_installer,
    start_demo,
)

FAKE = Path(__file__).with_name("fake_llama_server.py")


def ignore(line: str) -> None:
    """Report to nobody."""


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def fake(mode: str, folder: Path, said: list[str] | None = None) -> ModelServer:
    command = [sys.executable, "-I", str(FAKE), mode, str(folder)]
    report = ignore if said is None else said.append
    return ModelServer(command, {"PATH": os.environ["PATH"]}, folder / "log" / "server.log", report)


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in sorted(folder.glob("start-*"))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Any, seconds: float = 10.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to pass")


@pytest.mark.parametrize("mode", ["good", "slow"])
def test_it_is_healthy_after_start_and_gone_after_stop(mode: str, tmp_path: Path) -> None:
    async def work() -> None:
        server = fake(mode, tmp_path)
        assert await server.start() is None
        model = DemoModel(server)
        assert model.base_url.startswith("http://127.0.0.1:")
        assert model.base_url.endswith("/v1")
        [pid] = pids(tmp_path)
        assert alive(pid)
        assert os.getpgid(pid) != os.getpgid(0)
        await model.stop()
        assert not alive(pid)
        await model.stop()
        assert pids(tmp_path) == [pid]

    run(work())
    assert "the fake server speaks" in (tmp_path / "log" / "server.log").read_text()


def test_a_server_that_ends_at_once_is_a_reason(tmp_path: Path) -> None:
    async def work() -> None:
        reason = await fake("exit", tmp_path).start()
        assert reason is not None
        assert "ended with status 3" in reason
        assert "server.log" in reason

    run(work())


def test_a_server_that_is_never_healthy_is_a_reason_and_gone(tmp_path: Path) -> None:
    async def work() -> None:
        said: list[str] = []
        reason = await fake("never", tmp_path, said).start(patience=2.3)
        assert reason is not None
        assert "did not start within 2 s" in reason
        assert said == ["the model is being loaded (2 s)"]
        assert not alive(pids(tmp_path)[0])

    run(work())


def test_a_program_that_is_missing_is_a_reason(tmp_path: Path) -> None:
    async def work() -> None:
        server = ModelServer([str(tmp_path / "none")], {}, tmp_path / "log", ignore)
        reason = await server.start()
        assert reason is not None
        assert "ended with status 1" in reason

    run(work())


def test_it_is_started_once_more_on_the_same_port(tmp_path: Path) -> None:
    async def work() -> None:
        said: list[str] = []
        server = fake("good", tmp_path, said)
        assert await server.start() is None
        address = server.base_url
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: len(pids(tmp_path)) == 2)
        assert server.base_url == address
        assert "was ended by signal 9; starting it again" in said[0]
        await until(lambda: alive(pids(tmp_path)[1]) and server.pid == pids(tmp_path)[1])
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: len(said) == 2)
        assert "was ended by signal 9" in said[1]
        assert "see " in said[1]
        await server.stop()
        assert len(pids(tmp_path)) == 2

    run(work())


def test_a_second_start_that_fails_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        said: list[str] = []
        server = fake("once", tmp_path, said)
        assert await server.start() is None
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: len(said) >= 2)
        assert "ended with status 3" in said[1]
        await server.stop()

    run(work())


def test_a_stubborn_server_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STOP_SECONDS", 0.2)

    async def work() -> None:
        server = fake("stubborn", tmp_path)
        assert await server.start() is None
        await server.stop()
        assert not alive(pids(tmp_path)[0])

    run(work())


def test_stopping_during_a_second_start_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        server = fake("slow", tmp_path)
        assert await server.start() is None
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: len(pids(tmp_path)) == 2)
        await server.stop()
        assert not any(map(alive, pids(tmp_path)))

    run(work())


def test_a_cancelled_start_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        task = asyncio.create_task(fake("never", tmp_path).start())
        await until(lambda: pids(tmp_path))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(pids(tmp_path)[0])

    run(work())


@pytest.mark.skipif(sys.platform != "linux", reason="a signal of the Linux kernel")
def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = f"""
import asyncio, sys
from pathlib import Path
from kenari.demo.server import ModelServer
async def main():
    server = ModelServer([sys.executable, "-I", {str(FAKE)!r}, "good", {str(tmp_path)!r}], {{}},
                         Path({str(tmp_path)!r}, "log"), print)
    assert await server.start() is None
    print("up", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""

    async def work() -> None:
        root = str(Path(demo.__file__).parents[2])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": root}
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n"
        [pid] = pids(tmp_path)
        assert alive(pid)
        process.kill()
        await process.wait()
        await until(lambda: not alive(pid))

    run(work())


# -- the installer's run


def test_the_installers_words_are_shown(tmp_path: Path) -> None:
    script = (
        "print('say hello'); print('step 5 10 fetching it all'); print('step 10 10 fetching it all'); print('ready')"
    )
    said: list[str] = []

    async def work() -> None:
        assert await run_installer([sys.executable, "-c", script], Progress(said.append, None)) is None

    run(work())
    assert said == ["hello", "fetching it all: 0.0 of 0.0 MB", "fetching it all: 0.0 of 0.0 MB"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [("print('why the disk is full')", "the disk is full"), ("raise SystemExit(2)", "ended without a word")],
)
def test_a_failed_installation_is_a_reason(script: str, reason: str) -> None:
    async def work() -> None:
        said = await run_installer([sys.executable, "-c", script], Progress(ignore, None))
        assert said is not None
        assert reason in said

    run(work())


def test_a_cancelled_installation_ends_all_its_processes(tmp_path: Path) -> None:
    script = f"""
import os, subprocess, sys, pathlib
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path({str(tmp_path)!r}, "start-0").write_text(str(os.getpid()))
pathlib.Path({str(tmp_path)!r}, "start-1").write_text(str(child.pid))
child.wait()
"""

    async def work() -> None:
        task = asyncio.create_task(run_installer([sys.executable, "-c", script], Progress(ignore, None)))
        await until(lambda: len(pids(tmp_path)) == 2 and all(map(alive, pids(tmp_path))))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: not any(map(alive, pids(tmp_path))))

    run(work())


# -- all together


def test_where_it_cannot_run_the_reason_comes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "this_machine", lambda: Machine("linux", "x86_64", "glibc 2.36", "free-threaded"))

    async def work() -> None:
        begun = time.monotonic()
        assert await start_demo(ignore, tmp_path) == "it runs on ordinary CPython only, this Python is free-threaded"
        assert time.monotonic() - begun < 5

    run(work())
    assert list(tmp_path.iterdir()) == []


def test_the_command_is_closed_to_the_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "secret")
    installed = Installed(tmp_path / "model.abi3.so", tmp_path / "m.gguf")
    command = command_of(installed)
    assert command[:4] == [sys.executable, "-I", "-S", "-B"]
    assert command[5:7] == [str(installed.library), str(installed.weights)]
    assert "GROQ_API_KEY" not in child_environment()
    settings = parameters_of(command)
    assert settings.hostnames == ["127.0.0.1"]
    assert settings.port == 4711
    assert settings.model.path == str(installed.weights)
    assert (settings.n_parallel, settings.n_ctx, settings.n_predict) == (2, 2 * demo.CONTEXT_WINDOW, demo.MAX_OUTPUT)
    assert settings.offline is True
    assert settings.use_jinja is True
    assert (settings.n_gpu_layers, settings.cache_ram_mib) == (0, 0)
    assert (settings.ui, settings.endpoint_slots) == (False, False)
    assert (settings.endpoint_props, settings.endpoint_metrics) == (False, False)
    assert (settings.cors_origins, settings.cors_credentials) == ("localhost", False)


def parameters_of(command: list[str]) -> Any:
    """The settings that the program makes of its command line, in a library of our own."""
    options = llama.parse([*command[5:], "--port", "4711"])
    blank = SimpleNamespace
    made = blank(model=blank(), cpuparams=blank(), cpuparams_batch=blank())
    return llama.parameters(blank(CommonParams=lambda: made), options)


# -- the program that holds the library


def program(library: Path, *more: str) -> list[str]:
    command = command_of(Installed(library, library.with_name("m.gguf")))
    return [*command, "--port", "1", *more]


def test_a_library_that_cannot_be_loaded_is_a_reason(tmp_path: Path) -> None:
    async def work() -> None:
        library = tmp_path / "model.abi3.so"
        library.write_bytes(b"this is no library")
        server = ModelServer(program(library)[:-2], {}, tmp_path / "log", ignore)
        reason = await server.start()
        assert reason is not None
        assert "could not start: its library cannot be loaded" in reason

    run(work())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "raise ImportError('libgomp.so.1: cannot open shared object file: No such file or directory')",
            "it needs libgomp.so.1, a library that this system does not have",
        ),
        ("Server = print\ndef CommonParams(): raise RuntimeError('no model')", "llama.cpp does not start: no model"),
        ("Server = print\ndef CommonParams(): return None", "llama.cpp does not start: 'NoneType'"),
    ],
)
def test_the_program_says_why_it_cannot_start(script: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(script)
    done = subprocess.run(program(tmp_path / "model.abi3.so"), capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 1
    assert done.stdout.startswith(f"why {reason}")
    assert done.stderr == ""


def test_the_program_ends_with_its_parent_by_itself(tmp_path: Path) -> None:
    """Not every kernel ends it."""
    (tmp_path / "model.py").write_text(
        "class Part: pass\n"
        "def CommonParams():\n"
        "    made = Part()\n"
        "    made.model, made.cpuparams, made.cpuparams_batch = Part(), Part(), Part()\n"
        "    return made\n"
        "class Server:\n"
        "    listening_address = 'nowhere'\n"
        "    def __init__(self, parameters): pass\n"
    )
    parent = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=sys.stderr).pid, flush=True); input()"
    command = [sys.executable, "-c", parent, *program(tmp_path / "model.abi3.so")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        pid = int(process.stdout.readline())
        assert process.stderr.readline() == "serving on nowhere\n"
        assert alive(pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.wait(10)
        asyncio.run(until(lambda: not alive(pid)))


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        (-signal.SIGILL, "", "cannot run on this processor"),
        (-signal.SIGABRT, "loading\nAMX is not ready to be used!\n", "cannot run on this processor"),
        (-signal.SIGABRT, "AVX512 is not supported by this machine", "cannot run on this processor"),
        (-signal.SIGABRT, "a.cpp:1: GGML_ASSERT(x) failed\ntrace\n", "aborted (a.cpp:1: GGML_ASSERT(x) failed)"),
        (-signal.SIGABRT, "terminate called after\n  what():  bad_alloc\n", "aborted (what():  bad_alloc)"),
        (-signal.SIGABRT, "AVX2 = 1\nnot supported\n", "aborted"),
        (-signal.SIGSEGV, "AMX is not ready to be used!", "was ended by signal 11"),
        (-signal.SIGKILL, "", "was ended by signal 9"),
        (1, "x\nwhy it needs a\nwhy it needs b\n", "could not start: it needs b"),
        (1, "no why here\n", "ended with status 1"),
        (0, "why it ended\n", "ended with status 0"),
    ],
)
def test_how_a_server_ended(status: int, words: str, said: str) -> None:
    assert ending(status, words) == said


def test_a_processor_that_is_refused_is_a_reason_at_the_start(tmp_path: Path) -> None:
    """Only what the last child wrote counts: the log has the words of earlier ones too."""

    async def work(script: str) -> str | None:
        return await ModelServer([sys.executable, "-c", script], {}, tmp_path / "log", ignore).start()

    abort = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()"
    reason = asyncio.run(work(f"print('AMX is not ready to be used!', flush=True); {abort}"))
    assert reason is not None
    assert reason.startswith("the model's server cannot run on this processor")
    reason = asyncio.run(work(abort))
    assert reason is not None
    assert reason.startswith("the model's server aborted;")
