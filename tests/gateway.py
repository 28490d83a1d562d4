"""`kenari serve` as a child process in front of a provider, for tests that want the real thing.

Port 0 is asked for, and the address is read from what kenari prints. Used from synchronous and asynchronous tests.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

KEY = "kn-test-bootstrap"
READY = re.compile(r"kenari is ready on (\S+)")
START_SECONDS = 30.0
STOP_SECONDS = 15.0


class Answer(NamedTuple):
    """A whole HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    def frames(self) -> list[tuple[str, str]]:
        """(event, data) of a stream's frames; comments are left out."""
        out: list[tuple[str, str]] = []
        for block in self.body.decode().split("\n\n"):
            event = data = ""
            for line in block.split("\n"):
                if line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: "):
                    data = line[6:]
            if data:
                out.append((event, data))
        return out


class Gateway:
    """A running kenari. `url` has no path; `lines` is its request log so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.url = ""
        self.lines: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.ready = threading.Event()
        self._readers = [
            threading.Thread(target=self._read_log, daemon=True),
            threading.Thread(target=self._read_words, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def call(
        self,
        path: str,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        key: str | None = KEY,
        seconds: float = 60,
    ) -> Answer:
        """One request, the whole answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=seconds)
        try:
            sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            lines = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
            connection.request(method, path, sent, lines | dict(headers or {}))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read())
        finally:
            connection.close()

    def line_of(self, request_id: str, patience: float = 5.0) -> dict[str, Any]:
        """The log line of a request; it comes a moment after the answer."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            for line in list(self.lines):
                if line["id"] == request_id:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no line of request {request_id}")

    def stop(self) -> int:
        """End it as an operator would; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for reader in self._readers:
            reader.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        return self.process.returncode

    def _read_log(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def _read_words(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            found = READY.search(line)
            if found is not None:
                self.url = found.group(1)
                self.ready.set()
        self.ready.set()


def config_text(
    providers: Mapping[str, Mapping[str, Any]], models: Mapping[str, Mapping[str, Any]], **server: Any
) -> str:
    """A kenari.toml. Values are written as JSON, which TOML reads alike for texts, numbers, booleans and lists."""
    settings = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "drain": "2s"} | server
    lines = ["[server]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    for kind, tables in (("providers", providers), ("models", models)):
        for name, table in tables.items():
            lines.append(f"[{kind}.{json.dumps(name)}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
            for key, value in table.items():
                if isinstance(value, dict):
                    lines.append(f"[{kind}.{json.dumps(name)}.{key}]")
                    lines += [f"{inner} = {json.dumps(one)}" for inner, one in cast("dict[str, Any]", value).items()]
    return "\n".join(lines) + "\n"


@contextmanager
def running_gateway(config: str, *options: str, env: Mapping[str, str] | None = None) -> Generator[Gateway]:
    """kenari with this configuration, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="kenari-test-") as folder:
        file = Path(folder) / "kenari.toml"
        file.write_text(config, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "kenari.cli", "serve", "--config", str(file), *options],
            cwd=folder,
            env=os.environ | {"KENARI_BOOTSTRAP_KEY": KEY} | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        gateway = Gateway(process)
        try:
            if not gateway.ready.wait(START_SECONDS) or not gateway.url:
                raise AssertionError("kenari did not start: " + "".join(gateway.said[-20:]))
            yield gateway
        finally:
            gateway.stop()
