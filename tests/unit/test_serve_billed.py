"""`kenari serve` with a store, as a process: lines are there after SIGTERM and after kill -9."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from store_kit import opened

from kenari.cli import main
from kenari.ledger.lines import Bill, read_bill

CONFIG = """
[server]
listen = "127.0.0.1:{port}"
admin_listen = "127.0.0.1:{admin}"
[store]
url = "{url}"
node = "here"
[providers.slow]
dialect = "chat"
base_url = "scripted:"
[models.m]
targets = ["slow/x"]
price = {{ input = "1", output = "2" }}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(folder: Path, port: int) -> Generator[subprocess.Popen[bytes]]:
    """The server as a process, until it is ended."""
    env = os.environ | {"KENARI_BOOTSTRAP_KEY": "kn-test", "KENARI_SECRET": "a secret of the tests"}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kenari.cli", "serve"], cwd=folder, env=env, stdout=log, stderr=log
        )
    try:
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def ask(port: int, **more: Any) -> Any:
    """A chat request; the answer while it is open."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]} | more).encode()
    headers = {"authorization": "Bearer kn-test", "content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, headers)
    return urllib.request.urlopen(request, timeout=20)


async def bills(url: str) -> list[Bill]:
    """The lines, the newest first."""
    async with opened(url, node="reader") as store:
        return [read_bill(line.body) for line in await store.requests()]


def test_U5_a_server_that_is_ended_or_killed_leaves_one_line_for_each_request(
    store_url: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    port = free_port()
    (tmp_path / "kenari.toml").write_text(CONFIG.format(port=port, admin=free_port(), url=store_url))
    with serving(tmp_path, port) as process:
        with ask(port) as answer:
            assert answer.status == 200
            first = answer.headers["x-request-id"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    with serving(tmp_path, port) as process:
        with ask(port, stream=True) as answer:
            second = answer.headers["x-request-id"]
            assert answer.readline()
            process.kill()
            process.wait(10)
    with serving(tmp_path, port) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    found = {bill.id: bill for bill in asyncio.run(bills(store_url))}
    assert set(found) == {first, second}
    assert (found[first].reason, found[first].status, found[first].account) == ("done", 200, "operator")
    assert (found[second].reason, found[second].charge) == ("crashed", 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KENARI_SECRET", "a secret of the tests")
    assert main(["ledger", "verify"]) == 0, capsys.readouterr().out


def test_a_second_server_on_the_same_store_does_not_start(tmp_path: Path) -> None:
    port = free_port()
    text = CONFIG.format(port=port, admin=free_port(), url=f"sqlite:///{tmp_path}/kenari.db")
    (tmp_path / "kenari.toml").write_text(text)
    with serving(tmp_path, port):
        (tmp_path / "kenari.toml").write_text(text.replace(str(port), str(free_port())))
        second = subprocess.run(
            [sys.executable, "-m", "kenari.cli", "serve"], cwd=tmp_path, capture_output=True, timeout=30, check=False
        )
    assert second.returncode == 1
    assert b"another process already runs as node" in second.stderr
