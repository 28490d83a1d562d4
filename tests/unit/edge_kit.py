"""A real inbound end on a real socket, a server that does as it is told, and raw clients for both HTTP ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import listen

PATIENCE = 8.0
"""Seconds that a test waits for something that must come."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test on uvloop, as kenari does."""

    async def bounded() -> None:
        async with asyncio.timeout(25):
            await main

    uvloop.run(bounded())


class Watch:
    """A watcher that remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.gone = asyncio.Event()
        self.paused = asyncio.Event()
        self.resumed = asyncio.Event()

    def on_gone(self) -> None:
        self.heard.append("gone")
        self.gone.set()

    def on_pause(self) -> None:
        self.heard.append("pause")
        self.paused.set()

    def on_resume(self) -> None:
        self.heard.append("resume")
        self.resumed.set()


class Desk:
    """Answers every request by `act`; keeps what it saw."""

    def __init__(self, act: Callable[[Exchange], Coroutine[Any, Any, None]] | None = None) -> None:
        self.seen: list[Exchange] = []
        self.refused: list[str] = []
        self._act = act or echo

    async def serve(self, exchange: Exchange) -> None:
        self.seen.append(exchange)
        await self._act(exchange)

    def refuse(self, exchange: Exchange, error: KenariError) -> None:
        self.refused.append(error.code)
        exchange.answer(error.status, b"x-code: %b\r\n" % error.code.encode(), error.message.encode())


async def echo(exchange: Exchange) -> None:
    """Say what came."""
    body = f"{exchange.method} {exchange.path} {exchange.query} {len(exchange.body)}".encode()
    exchange.answer(200, b"content-type: text/plain\r\n", body)


@contextlib.asynccontextmanager
async def edge_for(desk: Desk, limits: EdgeLimits | None = None) -> AsyncGenerator[tuple[Edge, int], None]:
    """An edge on a free port of the loopback."""
    edge = Edge(desk.serve, desk.refuse, limits or EdgeLimits())
    try:
        address = await listen(edge, "127.0.0.1:0")
        yield edge, int(address.rpartition(":")[2])
    finally:
        edge.close()
        assert await edge.wait_closed(PATIENCE)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at time-outs often, so that a test of one is short."""
    monkeypatch.setattr("kenari.doors.edge.TICK_SECONDS", 0.02)


class Client:
    """A raw client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")
            pairs = (line.partition(": ") for line in lines[1:] if line)
            headers = {name.lower(): value for name, _, value in pairs}
            if head_only or lines[0].split(" ")[1][0] == "1":
                body = b""
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            elif "transfer-encoding" in headers:
                body = await self._chunks()
            else:
                body = await self.reader.read()
            return int(lines[0].split(" ")[1]), headers, body

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return body

    async def ended(self) -> bytes:
        """What still comes before the connection ends; a reset is an end too."""
        got = b""
        async with asyncio.timeout(PATIENCE):
            try:
                while data := await self.reader.read(65536):
                    got += data
            except ConnectionError:
                pass
        return got

    def reset(self) -> None:
        """Go away without ceremony."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def client_of(port: int, **how: Any) -> AsyncGenerator[Client, None]:
    """A client connection to the loopback."""
    reader, writer = await asyncio.open_connection(how.pop("host", "127.0.0.1"), port, **how)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


async def until(true: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - what tests wait for has no event
            await asyncio.sleep(0.005)
