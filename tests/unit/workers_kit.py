"""kenari with several workers as real processes, in front of a scripted provider."""

import http.client
import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.gateway import KEY, Gateway, config_text, running_gateway
from tests.upstream import Play, ScriptedProvider, scripted_provider

CHAT = "/v1/chat/completions"
WORDS = tuple(f"word{number} " for number in range(10))
PLAYS = {
    "plain": Play(text=WORDS),
    "slow": Play(text=WORDS, hangs=0.4),
    "held": Play(text=WORDS, hangs=1.5),
    "hangs": Play(text=WORDS, hangs=600),
}
PATIENCE = 15.0


def configuration(base_url: str, workers: int = 4, models: Mapping[str, str] | None = None, **server: Any) -> str:
    """A configuration with one model for each play; `models` maps further names to plays."""
    names = {name: name for name in PLAYS} | dict(models or {})
    return config_text(
        {"p": {"dialect": "chat", "base_url": base_url, "api_key": "sk-p"}},
        {name: {"targets": [f"p/{play}"]} for name, play in names.items()},
        workers=workers,
        **server,
    )


@contextmanager
def served(workers: int = 4, **server: Any) -> Generator[tuple[Gateway, ScriptedProvider]]:
    """A node of several workers."""
    with scripted_provider(PLAYS) as provider:
        with running_gateway(configuration(provider.base_url("chat"), workers, **server)) as gateway:
            yield gateway, provider


def workers_of(gateway: Gateway) -> list[psutil.Process]:
    """The worker processes, in the order of their pids."""
    children = psutil.Process(gateway.process.pid).children()
    return sorted((one for one in children if "kenari.worker" in _command(one)), key=lambda one: one.pid)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def config_file(gateway: Gateway) -> Path:
    """The file that this kenari was started with."""
    words = psutil.Process(gateway.process.pid).cmdline()
    return Path(words[words.index("--config") + 1])


def rewrite(gateway: Gateway, text: str) -> None:
    """Put a new configuration in the place of the old one, at once as editors do."""
    file = config_file(gateway)
    beside = file.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, file)


def until(true: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + patience
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def said(gateway: Gateway, words: str) -> bool:
    """Whether kenari has said this on standard error."""
    return any(words in line for line in list(gateway.said))


class Stream:
    """A streamed request that is read piece by piece on a connection of its own."""

    def __init__(self, gateway: Gateway, model: str, key: str = KEY, text: str = "x") -> None:
        self.connection = http.client.HTTPConnection(*gateway.address, timeout=30)
        asked: dict[str, Any] = {"model": model, "stream": True, "max_tokens": 100}
        body = json.dumps(asked | {"messages": [{"role": "user", "content": text}]})
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        self.connection.request("POST", CHAT, body, headers)
        self.answer = self.connection.getresponse()
        self.id = self.answer.getheader("x-request-id") or ""
        self.text = b""

    def begin(self) -> "Stream":
        """Read the first content."""
        while b"word" not in self.text:
            line = self.answer.readline()
            assert line, self.text
            self.text += line
        return self

    def rest(self) -> bytes:
        """All of the answer. Raises IncompleteRead or ConnectionError when the connection breaks."""
        try:
            self.text += self.answer.read()
        finally:
            self.connection.close()
        return self.text

    def broken(self) -> bool:
        """Whether the connection breaks before the end."""
        try:
            self.rest()
        except (http.client.HTTPException, ConnectionError):
            return True
        return False
