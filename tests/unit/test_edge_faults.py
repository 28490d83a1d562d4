"""The inbound end: requests made to be misread, wishes it does not grant, and faults of what stands behind it."""

import asyncio
import socket
import struct
from collections.abc import Callable
from types import CoroutineType
from typing import Any

import pytest
from edge_kit import PATIENCE, Client, Desk, Watch, client_of, edge_for, quick, run, until

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import SharedAddress, listen_on
from kenari.wire.http1 import (
    CHUNK,
    has_body,
    is_plainly_framed,
    split_target,
    status_line,
    without_upgrade,
)

__all__ = ["quick"]  # a fixture

GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: x\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
NO_CHUNKS = b"0\r\n\r\n"


# -- requests made to be misread


@pytest.mark.parametrize(
    "head",
    [
        POST + b"transfer-encoding : chunked\r\ncontent-length: 5\r\n\r\n",
        POST + b"transfer-encoding: xchunked\r\n\r\n",
        POST + b"transfer-encoding: chunked, identity\r\n\r\n",
        POST + b"transfer-encoding: gzip, chunked\r\n\r\n",
        POST + CHUNKED + b"transfer-encoding: identity\r\n\r\n",
        POST + b"transfer-encoding: identity\r\n" + CHUNKED + b"\r\n",
        POST + b"transfer-encoding: \x0bchunked\r\n\r\n",
        POST + b"transfer-encoding:\r\n chunked\r\n\r\n",
        POST + b"upgrade: h2c\r\nconnection: upgrade\r\n" + CHUNKED + b"content-length: 3\r\n\r\n",
        POST + b"upgrade: h2c\r\nconnection: upgrade\r\ntransfer-encoding: identity\r\n\r\n",
        POST + b"content-length: +5\r\n\r\n",
        POST + b"content-length: 0x5\r\n\r\n",
        POST + b"content-length: 5, 5\r\n\r\n",
        POST + b"content-length: 5 6\r\n\r\n",
        POST + b"content-length:\r\n\r\n",
        POST + b"content-length: 1_0\r\n\r\n",
        POST + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n",
        POST + b"x: a\rb\r\ncontent-length: 0\r\n\r\n",
        POST + b"x: a\0b\r\ncontent-length: 0\r\n\r\n",
        POST + b": a\r\ncontent-length: 0\r\n\r\n",
        POST + CHUNKED + b"\r\n-1\r\n\r\n",
        POST + CHUNKED + b"\r\nffffffffffffffffff\r\n",
        POST + CHUNKED + b"\r\n3\nabc\n",
        POST + CHUNKED + b"\r\n3\r\nabcX",
    ],
)
def test_nothing_behind_a_head_that_can_be_read_in_two_ways_is_a_request(head: bytes) -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (_, port), client_of(port) as client:
            client.send(head + NO_CHUNKS + GET)
            status, headers, _ = await client.answer()
            assert (status, headers["connection"]) == (400, "close")
            assert await client.ended() == b""
            assert desk.seen == []

    run(main())


@pytest.mark.parametrize("connection", [b"xupgrade", b"upgrade", b"Upgrade, HTTP2-Settings", b"keep-alive"])
def test_a_wish_for_an_upgrade_never_mixes_two_requests(connection: bytes) -> None:
    """A connection that a proxy shares among its clients: the key of one must not travel with the body of another."""
    one = b"POST /one HTTP/1.1\r\nauthorization: Bearer alice\r\nupgrade: h2c\r\nconnection: " + connection + b"\r\n"
    two = b"POST /two HTTP/1.1\r\nauthorization: Bearer bob\r\ncontent-length: 3\r\n\r\nabc"

    async def main() -> None:
        for framing in (CHUNKED + b"\r\n" + NO_CHUNKS, b"content-length: 0\r\n\r\n", b"\r\n"):
            desk = Desk()
            async with edge_for(desk) as (_, port), client_of(port) as client:
                client.send(one + framing + two)
                assert [(await client.answer())[2] for _ in range(2)] == [b"POST /one  0", b"POST /two  3"]
                keys = [exchange.headers[b"authorization"] for exchange in desk.seen]
                assert keys == [b"Bearer alice", b"Bearer bob"]

    run(main())


def test_an_upgrade_that_also_asks_to_close_is_closed() -> None:
    async def main() -> None:
        async with edge_for(Desk()) as (_, port), client_of(port) as client:
            client.send(POST + b"upgrade: h2c\r\nconnection: Upgrade, Close\r\ncontent-length: 3\r\n\r\nabc")
            _, headers, body = await client.answer()
            assert (headers["connection"], body) == ("close", b"POST /p  3")
            assert await client.ended() == b""

    run(main())


@pytest.mark.parametrize("framing", [b"", b"content-length: 28\r\n", CHUNKED])
def test_what_follows_a_connect_is_no_request(framing: bytes) -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (_, port), client_of(port) as client:
            client.send(b"CONNECT a:1 HTTP/1.1\r\n" + framing + b"\r\n" + GET + GET)
            status, headers, body = await client.answer()
            assert (status, headers["connection"], body) == (200, "close", b"CONNECT a:1  0")
            assert await client.ended() == b""
            assert len(desk.seen) == 1

    run(main())


def test_a_large_head_behind_another_request_in_one_reading_is_431() -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk, EdgeLimits(max_head=2000)) as (_, port), client_of(port) as client:
            client.send(GET + b"GET /b HTTP/1.1\r\nx: " + b"v" * 3000 + b"\r\n\r\n")
            assert (await client.answer())[0] == 200
            assert (await client.answer())[0] == 431
            assert [exchange.path for exchange in desk.seen] == ["/a"]

    run(main())


def test_a_flood_of_one_repeated_header_is_431() -> None:
    async def main() -> None:
        async with edge_for(Desk()) as (_, port), client_of(port) as client:
            client.send(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 10_000 + b"\r\n")
            assert (await client.answer())[0] == 431

    run(main())


# -- clients that leave


def half_close(client: Client) -> None:
    client.writer.write_eof()


def reset(client: Client) -> None:
    raw = client.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.reset()


@pytest.mark.parametrize("leave", [half_close, reset])
def test_a_client_that_leaves_is_gone_also_while_its_next_request_waits(leave: Callable[[Client], None]) -> None:
    """F6: a silent provider must not be paid on because the client had pipelined."""
    watch = Watch()

    async def held(exchange: Exchange) -> None:
        exchange.watcher = watch
        exchange.begin(200, b"")
        exchange.write(b"first")
        await watch.gone.wait()

    async def main() -> None:
        desk = Desk(held)
        async with edge_for(desk) as (edge, port), client_of(port) as client:
            client.send(GET + GET)
            await client.reader.readuntil(b"first")
            leave(client)
            await until(watch.gone.is_set)
            await until(lambda: not edge.connections)
            assert len(desk.seen) == 1

    run(main())


def test_what_waits_behind_an_answer_is_bounded() -> None:
    """The next body is not read to its end in advance once something waits."""
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await release.wait()
        exchange.answer(200, b"", b"%d" % len(exchange.body))

    async def main() -> None:
        size = 12_000_000
        async with edge_for(Desk(held)) as (_, port), client_of(port) as client:
            client.send(GET + GET + POST + b"content-length: %d\r\n\r\n" % size)
            await asyncio.sleep(0.02)
            client.send(b"x" * size)
            await asyncio.sleep(0.2)
            assert client.writer.transport.get_write_buffer_size() > 0  # the kernel's buffers are full, and so it waits
            release.set()
            assert [(await client.answer())[2] for _ in range(3)] == [b"0", b"0", b"%d" % size]

    run(main())


# -- faults behind the edge


class Torn(Desk):
    """A server whose parts raise when they are told to."""

    def __init__(self, *torn: str) -> None:
        super().__init__()
        self._torn = torn

    def serve(self, exchange: Exchange) -> "CoroutineType[Any, Any, None]":
        if "serve" in self._torn:
            raise RuntimeError("secret")
        return super().serve(exchange)

    def refuse(self, exchange: Exchange, error: KenariError) -> None:
        if "refuse" in self._torn:
            raise RuntimeError("secret")
        if "silent" not in self._torn:
            super().refuse(exchange, error)


def test_a_server_that_raises_before_its_coroutine_exists_is_500(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with edge_for(Torn("serve")) as (edge, port), client_of(port) as client:
            client.send(GET + GET)
            assert [(await client.answer())[0] for _ in range(2)] == [500, 500]
            assert edge.in_flight == 0

    run(main())
    assert "RuntimeError at Torn.serve:" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", ["refuse", "silent"])
def test_a_refusal_that_fails_ends_the_connection_and_nothing_else(how: str) -> None:
    limits = EdgeLimits(head_seconds=0.05)

    async def main() -> None:
        async with edge_for(Torn("serve", how), limits) as (edge, port):
            # after a fault, of what is malformed, and from the ticker: twice, for the ticker goes on
            for data in (GET, b"nonsense\r\n\r\n", b"GET / HT", b"GET / HT"):
                async with client_of(port) as client:
                    client.send(data)
                    assert await client.ended() == b""
            await until(lambda: not edge.connections)

    run(main())


# -- sockets


def test_a_shared_address_has_a_socket_for_each() -> None:
    async def main() -> None:
        desks = [Desk(), Desk()]
        edges = [Edge(desk.serve, desk.refuse, EdgeLimits()) for desk in desks]
        shared = SharedAddress("localhost:0")
        for edge in edges:
            await listen_on(edge, shared.open())
        host, _, port = shared.address.rpartition(":")
        assert host == "localhost"
        for _ in range(3):
            async with client_of(int(port)) as client:
                client.send(GET)
                assert (await client.answer())[0] == 200
        assert sum(len(desk.seen) for desk in desks) == 3
        with pytest.raises(OSError, match="in use"):
            SharedAddress(shared.address).open()
        shared.close()
        for edge in edges:
            edge.close()
            assert await edge.wait_closed(PATIENCE)

    run(main())


# -- words on the wire


def test_status_lines_and_chunks() -> None:
    assert status_line(200) == b"HTTP/1.1 200 OK\r\n"
    assert status_line(529) == b"HTTP/1.1 529 Status\r\n"
    assert CHUNK % (27, b"x" * 27) == b"1b\r\n" + b"x" * 27 + b"\r\n"


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/v1/x", "/v1/x", ""),
        (b"/v1/x?a=%20#b", "/v1/x", "a=%20"),
        (b"/a%2Fb%FF", "/a/b\ufffd", ""),
        (b"//host/x?q", "//host/x", "q"),
        (b"http://host", "/", ""),
        (b"http://host:80/x?q=1", "/x", "q=1"),
        (b"*", "*", ""),
        (b"host:443", "host:443", ""),
        (b"", "", ""),
        (b"nonsense?x", "nonsense", "x"),
    ],
)
def test_targets(target: bytes, path: str, query: str) -> None:
    assert split_target(target) == (path, query)


def test_framing_by_the_head_alone() -> None:
    for headers in ({}, {b"content-length": b"0"}, {b"content-length": b"000 "}):
        assert not has_body(headers)
    assert has_body({b"content-length": b"10"})
    assert has_body({b"transfer-encoding": b"chunked"})
    assert is_plainly_framed({})
    assert is_plainly_framed({b"transfer-encoding": b"Chunked "})
    assert not is_plainly_framed({b"transfer-encoding": b"gzip, chunked"})


def test_a_head_without_its_wish_keeps_everything_else() -> None:
    headers = {b"host": b"x", b"connection": b"Upgrade", b"upgrade": b"h2c", b"expect": b"100-continue", b"a": b"1, 2"}
    assert without_upgrade(b"POST", b"/p", "1.1", headers) == b"POST /p HTTP/1.1\r\nhost: x\r\na: 1, 2\r\n\r\n"
    closing = without_upgrade(b"POST", b"/p", "1.1", headers | {b"connection": b"close,upgrade"})
    assert closing.endswith(b"connection: close\r\n\r\n")
