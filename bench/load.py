"""The load for the measurements: a raw uvloop client that counts answers and events. Bounded in count and in time."""

import asyncio
import itertools
import re
import time
from collections.abc import Callable
from typing import cast

MARK = b"@@@@@@@@"
"""Stands in a body where a number comes that no other request has: the same body again and again would be a loop (D25)."""
_numbers = itertools.count()
_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)


def request_bytes(path: str, body: bytes, key: str) -> bytes:
    """One POST."""
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


class Client(asyncio.Protocol):
    """One connection that sends the same request again and again, `answered` after each whole answer."""

    def __init__(self, request: bytes, again: Callable[[], bool]) -> None:
        self.request, self.again = request, again
        self.transport: asyncio.Transport | None = None
        self.answers = self.events = self.bad = 0
        self.marked = MARK in request
        self.sent: list[float] = []
        self.first: list[float] = []
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tail: bytes = b""
        self.left = 0
        self.state = "head"
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.send()

    def send(self) -> None:
        """Send the request."""
        assert self.transport
        self.state, self.tail = "head", b""
        request = self.request.replace(MARK, b"%08d" % next(_numbers)) if self.marked else self.request
        self.sent_at = time.perf_counter()
        self.sent.append(self.sent_at)
        self.transport.write(request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            if self.state != "head":
                self.bad += 1
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self.state == "head":
            data = self.tail + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self.tail = data
                return
            if not data.startswith(b"HTTP/1.1 200"):
                self.bad += 1
            length = _LENGTH.search(data, 0, end)
            self.state = "sized" if length else "chunked"
            self.left = int(length.group(1)) if length else 0
            data, self.tail = data[end + 4 :], b""
        if self.state == "sized":
            self.left -= len(data)
            if self.left <= 0:
                self.finished()
        elif data:
            if len(self.first) == self.answers and b"data:" in data:
                self.first.append(time.perf_counter() - self.sent_at)
            self.events += data.count(b"\ndata:")
            self.tail = (self.tail + data)[-7:]
            if self.tail.endswith(b"0\r\n\r\n") and (len(self.tail) < 7 or self.tail.endswith(b"\r\n0\r\n\r\n")):
                self.finished()

    def finished(self) -> None:
        """A whole answer has come."""
        self.answers += 1
        self.latencies.append(time.perf_counter() - self.sent_at)
        if self.again():
            self.send()
        elif not self.done.done():
            self.done.set_result(None)
            assert self.transport
            self.transport.close()


async def closed_loop(port: int, request: bytes, connections: int, seconds: float) -> list[Client]:
    """`connections` clients which each send the next request when the last one was answered, for some seconds."""
    end = time.perf_counter() + seconds
    clients = await connect(port, request, connections, lambda: time.perf_counter() < end)
    await asyncio.wait([client.done for client in clients], timeout=seconds + 15)
    return clients


async def one_each(port: int, request: bytes, connections: int, seconds: float) -> list[Client]:
    """`connections` clients which each send one request."""
    clients = await connect(port, request, connections, lambda: False)
    await asyncio.wait([client.done for client in clients], timeout=seconds)
    return clients


async def connect(port: int, request: bytes, connections: int, again: Callable[[], bool]) -> list[Client]:
    """Open connections; each sends its first request at once."""
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: Client(request, again), "127.0.0.1", port)
        clients.append(client)
    return clients
