"""A provider that fails in each of 14 ways at each of six points, in front of a healthy second one, over real sockets.

Before content the client sees one clean answer and one line with both attempts in it; after content its format's own
failure; after the finish nothing at all. Never both answers, never a hang.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gateway_kit import DONE, FORMATS, PATHS, ROLE, STOP, Exchange, Rig, chunk

from kenari.core.errors import INTERRUPTED
from kenari.upstream.http import HttpUpstream

FIRST, SECOND = chunk({"content": "FIRST"}), chunk({"content": "SECOND"})
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
POINTS = ("connect", "headers", "opening", "first content", "mid-content", "after finish")
SECONDS = 0.25
"""Each time-out; the deadline is four times that."""


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(status: int, body: bytes, kind: bytes = b"application/json", more: bytes = b"") -> bytes:
    head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\n%bcontent-length: %d\r\n\r\n" % (status, kind, more, len(body))
    return head + body


class Way:
    """One way to fail: `bare` is said instead of an answer, `inside` in a body that has begun; then `then` happens."""

    def __init__(self, bare: bytes, inside: bytes, then: str = "close") -> None:
        self.bare, self.inside, self.then = bare, inside, then


def status(code: int, more: bytes = b"") -> Way:
    problem = {"message": "the script says no", "type": "x", "code": code}
    body = json.dumps({"error": problem}).encode()
    return Way(whole(code, body, more=more), framed(b"data: " + body + b"\n\n") + b"0\r\n\r\n")


ERROR = b'{"error":{"message":"no","type":"server_error"}}'
WAYS = {
    "reset": Way(b"", b"", "reset"),
    "close": Way(b"", b""),
    "silence": Way(b"", b"", "silence"),
    "comments": Way(HEAD, b"", "comments"),
    "408": status(408),
    "409": status(409),
    "429": status(429, b"retry-after: 30\r\n"),
    "500": status(500),
    "503": status(503),
    "401": status(401),
    "404": status(404),
    "200 with an error": Way(whole(200, ERROR), framed(b"event: error\ndata: " + ERROR + b"\n\n") + b"0\r\n\r\n"),
    "no HTTP": Way(b"\x16\x03\x01 what is this?\r\n\r\n", b"zz\r\nno chunk\r\n"),
    "HTML": Way(whole(200, b"<html>busy</html>", b"text/html"), framed(b"<html>busy</html>\n\n") + b"0\r\n\r\n"),
}


async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, point: str) -> None:
    """The first provider: well until the point, then in this way."""
    if point != "connect":
        await reader.readuntil(b"\r\n\r\n")
    if point in ("connect", "headers"):
        writer.write(way.bare)
    else:
        writer.write(HEAD + framed(ROLE))
        if point == "first content":  # begun, not whole
            writer.write(framed(FIRST[: len(FIRST) // 2]))
        elif point != "opening":
            writer.write(framed(FIRST) + framed(chunk({"content": "FIRST"})))
        if point == "after finish":
            writer.write(framed(STOP))
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(way.inside)
    await writer.drain()
    if way.then == "comments":
        until = time.monotonic() + (5 * SECONDS if point == "mid-content" else 60)
        while (
            not writer.transport.is_closing() and time.monotonic() < until
        ):  # in mid-content they are life, to their end
            writer.write(framed(b": alive\n\n"))
            await writer.drain()
            await asyncio.sleep(0.02)
    elif way.then == "silence":
        await reader.read(-1)
    elif way.then == "reset":
        writer.transport.abort()


async def succeed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The second provider."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(HEAD + framed(ROLE) + framed(SECOND) + framed(STOP + DONE) + b"0\r\n\r\n")
    await writer.drain()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def listening(serve: Serve) -> tuple[asyncio.Server, int]:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def ask(rig: Rig, client: str, way: Way, point: str) -> Exchange:
    """One request of a client through the gateway, over sockets to both providers."""
    first, one = await listening(lambda reader, writer: fail(reader, writer, way, point))
    second, two = await listening(succeed)
    upstream = HttpUpstream()
    door = rig.build()
    services: Any = door._gateway._services  # pyright: ignore[reportPrivateUsage]
    services.upstreams = {"http": upstream}
    services.deadline = 4 * SECONDS
    for name, port in (("p1", one), ("p2", two)):
        old = services.providers[name]
        services.providers[name] = type(old)(
            **{
                **{field: getattr(old, field) for field in old.__struct_fields__},
                "base_url": f"http://127.0.0.1:{port}/v1",
            }
        )
    body: dict[str, Any] = {"model": "m", "stream": True}
    body |= {"input": "hi"} if client == "responses" else {"messages": [{"role": "user", "content": "hi"}]}
    exchange = Exchange(PATHS[client], json.dumps(body).encode())
    try:
        await asyncio.wait_for(door.serve(exchange), 8 * SECONDS)
    finally:
        upstream.close()
        services.ticker.close()
        for server in (first, second):
            server.close()
        await asyncio.sleep(0)
    return exchange


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", WAYS)
def test_every_failure_at_every_point_d6_d7_u5(way: str, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kenari.gateway.attempt.DRAIN_SECONDS", SECONDS)
    assert (len(WAYS), len(POINTS), len(FORMATS)) == (14, 6, 3)
    for client in FORMATS:
        rig = Rig([], [])
        rig.timing = dict.fromkeys(("header_timeout", "first_event_timeout", "idle_timeout"), SECONDS)
        began = time.monotonic()
        got = asyncio.run(ask(rig, client, WAYS[way], point))
        lives = way == "comments" and point == "mid-content"
        assert (5 if lives else 0) * SECONDS <= time.monotonic() - began < 8 * SECONDS  # alive beyond each time-out
        [line] = rig.books.lines
        assert rig.books.open == 0
        assert got.status == 200
        assert got.ended
        text = got.out.decode()
        if point in ("mid-content", "after finish"):
            assert "SECOND" not in text
            assert text.count("FIRST") == (6 if client == "responses" and point == "after finish" else 2)
            assert [leg.billed for leg in line.legs] == [True]
        else:
            assert "FIRST" not in text
            assert "SECOND" in text
            assert [(leg.target, leg.billed) for leg in line.legs] == [
                ("p1/vendor-model", False),
                ("p2/vendor-model", True),
            ]
            assert line.usage == line.legs[1].usage
        assert (INTERRUPTED in text) == (point == "mid-content")
        assert (line.ending, line.status) == ("failed" if point == "mid-content" else "done", 200)
        end = {"chat": b"data: [DONE]", "messages": b"event: message_stop", "responses": b"event: response.completed"}
        failed = {"chat": b'"code":"stream_interrupted"', "messages": b"event: error", "responses": b"response.failed"}
        assert (failed[client] in got.out) == (point == "mid-content")
        assert (end[client] in got.out) == (point != "mid-content" or client == "chat")
