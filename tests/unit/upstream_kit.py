"""A provider on a real socket that plays what it is told, and a receiver that remembers."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import trustme
from edge_kit import PATIENCE

from kenari.core.errors import KenariError
from kenari.core.outbound import Outgoing
from kenari.upstream.http import HttpUpstream

KEY = "sk-secret-key"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Play: TypeAlias = "Callable[[Wire], Coroutine[Any, Any, None]]"


class Dummy(asyncio.Transport):
    """A transport that swallows. `waits` are the bytes that the provider has not read."""

    def __init__(self) -> None:
        super().__init__()
        self.closed, self.waits = False, 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nobody reads."""

    def abort(self) -> None:
        """Close."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def get_write_buffer_size(self) -> int:
        """What waits."""
        return self.waits

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """As above."""


class Wire:
    """One connection as the provider sees it."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number, self.reader, self.writer = number, reader, writer

    async def request(self) -> tuple[bytes, bytes]:
        """Head and body of the next request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length: "):
                size = int(line[16:])
        return head, await self.reader.readexactly(size)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def reset(self) -> None:
        self.writer.transport.abort()


class Provider:
    """A listening socket; `play` is run for each connection, which is closed after it."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.wires: list[Wire] = []
        self.port = 0
        self.scheme = "http"
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        wire = Wire(len(self.wires), reader, writer)
        self.wires.append(wire)
        try:
            await self._play(wire)
            if not writer.is_closing() and writer.can_write_eof():
                writer.write_eof()
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def asks(self, **how: Any) -> Outgoing:
        """A call of this provider."""
        host = how.pop("host", "127.0.0.1")
        how.setdefault("body", b'{"q":1}')
        url = f"{self.scheme}://{host}:{self.port}/v1/chat/completions?a=b"
        return Outgoing(url=url, headers=b"authorization: Bearer " + KEY.encode() + b"\r\n", **how)


@contextlib.asynccontextmanager
async def provider_for(
    play: Play, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncGenerator[Provider]:
    """A provider on a free port of the loopback."""
    provider = Provider(play)
    server = await asyncio.start_server(provider, host, 0, ssl=context)
    provider.port = server.sockets[0].getsockname()[1]
    provider.scheme = "https" if context else "http"
    try:
        yield provider
    finally:
        server.close()
        await provider.stop()


class Authority:
    """A private authority, its file, and a server's context."""

    def __init__(self, folder: Path, host: str) -> None:
        authority = trustme.CA()
        self.file = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.file)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(self.context)  # pyright: ignore[reportUnknownMemberType]


class Ear:
    """A receiver that remembers; `act` may do something with each thing it hears."""

    def __init__(self, act: Callable[[str], None] | None = None) -> None:
        self.heard: list[str] = []
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.error: KenariError | None = None
        self.over = asyncio.Event()
        self.first = asyncio.Event()
        self._act = act

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._note("head")
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        assert data
        self.body += data
        if self.heard[-1:] != ["body"]:
            self._note("body")

    def on_end(self) -> None:
        self._note("end")
        self.over.set()

    def on_lost(self, error: KenariError) -> None:
        self.error = error
        self._note("lost")
        self.over.set()

    def _note(self, what: str) -> None:
        self.heard.append(what)
        self.first.set()
        if self._act is not None:
            self._act(what)

    async def told(self) -> "Ear":
        """Wait for the end of the call."""
        async with asyncio.timeout(PATIENCE):
            await self.over.wait()
        return self

    @property
    def code(self) -> str:
        """The error's code; its words name no key and no address."""
        assert self.error is not None, self.heard
        for secret in (KEY, "127.0.0.1", "localhost", "http", "/v1"):
            assert secret not in self.error.message
        assert self.error.elsewhere
        return self.error.code


async def ask(upstream: HttpUpstream, request: Outgoing) -> Ear:
    """A whole call."""
    ear = Ear()
    upstream.start(request, ear)
    assert ear.heard == []
    return await ear.told()
