"""The inbound end: clients that are slow, leave, or do not read; sockets of all kinds; the end of a process."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest
import trustme
from edge_kit import PATIENCE, Client, Desk, Watch, client_of, echo, edge_for, quick, run, until

from kenari.core.ports import Exchange
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits, client_address
from kenari.doors.listeners import listen, server_context

__all__ = ["quick"]  # a fixture

GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"


class Held:
    """Begins a stream and holds it; the test goes on with it."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.exchanges: list[Exchange] = []
        self.release = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        exchange.watcher = self.watch
        self.exchanges.append(exchange)
        exchange.begin(200, b"")
        exchange.write(b"first")
        await self.release.wait()
        exchange.end()


# -- slow clients


@pytest.mark.usefixtures("quick")
def test_slow_heads_and_slow_bodies_are_408() -> None:
    limits = EdgeLimits(head_seconds=0.1, body_idle_seconds=0.1, body_rate=1000)

    async def main() -> None:
        desk = Desk()
        async with edge_for(desk, limits) as (_, port):
            starts = [b"G", b"GET / HTTP/1.1\r\nhost: x\r\n", b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc"]
            for start in starts:
                async with client_of(port) as client:
                    client.send(start)
                    status, headers, _ = await client.answer(head_only=True)
                    assert (status, headers["connection"]) == (408, "close")
                    await client.ended()
            async with client_of(port) as client:  # never silent, but it crawls
                client.send(b"POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n")
                answer = asyncio.create_task(client.answer())
                while not answer.done():
                    client.send(b"x")
                    await asyncio.sleep(0.01)
                assert (await answer)[0] == 408
            assert desk.seen == []

    run(main())


@pytest.mark.usefixtures("quick")
def test_an_idle_connection_is_closed_without_a_word_and_stray_line_ends_are_idle_too() -> None:
    limits = EdgeLimits(idle_seconds=0.15, head_seconds=0.05)

    async def main() -> None:
        async with edge_for(Desk(), limits) as (_, port):
            for data in (b"", b"\r\n", GET):
                async with client_of(port) as client:
                    client.send(data)
                    if data == GET:
                        client.send(b"\r\n")
                        assert (await client.answer())[0] == 200
                    assert await client.ended() == b""

    run(main())


@pytest.mark.usefixtures("quick")
def test_a_stream_is_not_broken_by_the_next_request_being_slow_behind_it() -> None:
    limits = EdgeLimits(head_seconds=0.05, body_idle_seconds=0.05, idle_seconds=0.05)

    async def main() -> None:
        for start in (GET + GET[:9], b"POST /b HTTP/1.1\r\ncontent-length: 3\r\n\r\n"):
            held = Held()
            async with edge_for(Desk(held), limits) as (_, port), client_of(port) as client:
                client.send(GET + start)
                await asyncio.sleep(0.25)
                held.release.set()
                assert (await client.answer())[2] == b"first"
                if start.startswith(GET):
                    assert (await client.answer())[2] == b"first"
                assert (await client.answer())[0] == 408  # now it is its turn, and it does not come

    run(main())


# -- clients that leave


def secured(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of a server with a certificate of its own, and of a client that trusts it."""
    authority = trustme.CA()
    own = authority.issue_cert("localhost")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))
    key.write_bytes(own.private_key_pem.bytes())
    return server_context(str(cert), str(key)), ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())


def test_a_half_closed_client_is_gone() -> None:
    """F6: a client that ends its side of the connection after the request is gone."""

    async def main() -> None:
        held = Held()
        async with edge_for(Desk(held)) as (edge, port), client_of(port) as client:
            client.send(GET)
            await client.reader.readuntil(b"first")
            client.writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                await held.watch.gone.wait()
            assert held.exchanges[0].gone
            held.exchanges[0].write(b"into the void")
            held.exchanges[0].answer(200, b"", b"void")
            held.exchanges[0].abort()
            held.release.set()
            await until(lambda: not edge.connections)
            assert held.watch.heard == ["gone"]

    run(main())


def test_a_client_that_half_closes_with_its_request_is_not_served_at_all() -> None:
    """F6: both come in one reading, before the request's task has run."""

    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (edge, port):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(GET)
                client.shutdown(socket.SHUT_WR)  # nothing of the loop ran in between
                await until(lambda: bool(desk.seen) or not edge.connections)
                await until(lambda: not edge.connections)
                assert all(one.gone for one in desk.seen)
                assert len(desk.seen) <= 1

    run(main())


def test_a_reset_while_streaming_is_heard_once_and_waiting_requests_are_dropped() -> None:
    """F6."""

    async def main() -> None:
        held = Held()
        async with edge_for(Desk(held)) as (edge, port), client_of(port) as client:
            client.send(GET)
            await client.reader.readuntil(b"first")
            raw = client.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.reset()
            async with asyncio.timeout(PATIENCE):
                await held.watch.gone.wait()
            await until(lambda: not edge.connections)
            assert held.watch.heard == ["gone"]
            assert len(held.exchanges) == 1

    run(main())


# -- clients that do not read


def test_a_slow_reader_pauses_the_answer_and_memory_stays_bounded() -> None:
    async def main() -> None:
        watch, sent, biggest = Watch(), 0, 0
        go = asyncio.Event()
        go.set()

        async def act(exchange: Exchange) -> None:
            nonlocal sent
            exchange.watcher = watch
            exchange.begin(200, b"")
            for _ in range(400):
                if watch.paused.is_set() and not watch.resumed.is_set():
                    await watch.resumed.wait()
                exchange.write(b"x" * 50_000)
                sent += 50_000
                await asyncio.sleep(0)
            exchange.end()

        async with edge_for(Desk(act)) as (_, port), client_of(port, limit=1000) as client:
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.send(GET)
            async with asyncio.timeout(PATIENCE):
                await watch.paused.wait()
            biggest = sent
            await asyncio.sleep(0.1)
            assert sent - biggest <= 50_000
            assert sent < 20_000_000
            assert (await client.reader.readexactly(15)).startswith(b"HTTP/1.1 200")
            rest = await drained(client)
            assert rest.endswith(b"0\r\n\r\n")
            assert watch.heard[:2] == ["pause", "resume"]

    run(main())


def test_memory_is_given_back_once_when_clients_stop_to_read(quick: None) -> None:
    """What was read for them before they stopped lies free between other things; other requests give no cause."""

    async def main() -> None:
        given: list[None] = []
        watch = Watch()

        async def act(exchange: Exchange) -> None:
            if exchange.path == "/v1/models":
                exchange.answer(200, b"", b"{}")
                return
            exchange.watcher = watch
            exchange.begin(200, b"")
            while not watch.paused.is_set():
                exchange.write(b"x" * 50_000)
                await asyncio.sleep(0)

        async with edge_for(Desk(act)) as (edge, port), client_of(port, limit=1000) as client:
            edge.give_back = lambda: given.append(None)
            client.send(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
            await client.answer()
            await asyncio.sleep(0.1)
            assert not given
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.send(GET)
            async with asyncio.timeout(PATIENCE):
                await watch.paused.wait()
            await until(lambda: bool(given))
            edge.slowed()
            await asyncio.sleep(0.1)
            assert len(given) == 1

    run(main())


async def drained(client: Client) -> bytes:
    got = b""
    async with asyncio.timeout(PATIENCE):
        while not got.endswith(b"\r\n0\r\n\r\n"):
            data = await client.reader.read(1 << 20)
            assert data
            got = (got + data)[-20:]
    return got


def test_answers_are_not_piled_up_for_a_client_that_sends_and_does_not_read() -> None:
    async def big(exchange: Exchange) -> None:
        exchange.answer(200, b"", b"y" * 8_000_000)

    async def main() -> None:
        desk = Desk(big)
        async with edge_for(desk) as (edge, port), client_of(port, limit=1000) as client:
            client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            for _ in range(5):
                client.send(GET)
                await asyncio.sleep(0.03)
            assert len(desk.seen) == 1
            assert edge.in_flight == 0
            for _ in range(5):
                assert len((await client.answer())[2]) == 8_000_000

    run(main())


@pytest.mark.usefixtures("quick")
def test_a_client_that_never_reads_its_answer_is_cut_off_in_the_end() -> None:
    async def big(exchange: Exchange) -> None:
        exchange.answer(200, b"", b"y" * 8_000_000)

    async def main() -> None:
        for line in (b"", b"connection: close\r\n"):
            async with edge_for(Desk(big), EdgeLimits(idle_seconds=0.1)) as (edge, port):
                async with client_of(port, limit=1000) as client:
                    client.send(b"GET / HTTP/1.1\r\n" + line + b"\r\n")
                    await until(lambda edge=edge: bool(edge.connections))
                    await until(lambda edge=edge: not edge.connections)

    run(main())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("reads", [False, True])
def test_who_reads_nothing_of_a_stream_has_gone_and_who_reads_slowly_has_not(reads: bool) -> None:
    """U6: a provider waits for such a client, and has nothing to do with it."""

    async def main() -> None:
        watch = Watch()

        async def act(exchange: Exchange) -> None:
            exchange.watcher = watch
            exchange.begin(200, b"")
            for _ in range(200):
                exchange.write(b"x" * 50_000)
            await watch.gone.wait()

        async with edge_for(Desk(act), EdgeLimits(unread_seconds=0.4)) as (edge, port):
            async with client_of(port, limit=1000) as client:
                client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                client.send(GET)
                async with asyncio.timeout(PATIENCE):
                    await watch.paused.wait()
                for _ in range(20):
                    if reads:
                        await client.reader.readexactly(300_000)
                    await asyncio.sleep(0.05)
                assert watch.gone.is_set() is not reads
                assert bool(edge.connections) is reads

    run(main())


def test_abort_is_a_transport_error_for_the_client() -> None:
    """D16: never a clean end of the chunked body."""

    async def act(exchange: Exchange) -> None:
        if exchange.path == "/begun":
            exchange.begin(200, b"")
            exchange.write(b"x")
            await asyncio.sleep(0.01)
        exchange.abort()
        exchange.abort()
        exchange.answer(200, b"", b"late")
        exchange.begin(200, b"")

    async def main() -> None:
        async with edge_for(Desk(act)) as (_, port):
            for path in (b"/begun", b"/new"):
                async with client_of(port) as client:
                    client.send(b"GET " + path + b" HTTP/1.1\r\n\r\n" + GET)
                    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                        await client.answer()

    run(main())


# -- sockets


def test_tls_by_certificate_files(tmp_path: Path) -> None:
    async def act(exchange: Exchange) -> None:
        if exchange.path == "/abort":
            exchange.begin(200, b"")
            exchange.write(b"x")
            await asyncio.sleep(0.01)
            exchange.abort()
        else:
            await echo(exchange)

    async def main() -> None:
        context, trust = secured(tmp_path)
        desk = Desk(act)
        edge = Edge(desk.serve, desk.refuse, EdgeLimits(max_body=100))
        address = await listen(edge, "127.0.0.1:0", context)
        port = int(address.rpartition(":")[2])
        trust.set_alpn_protocols(["h2", "http/1.1"])
        async with client_of(port, ssl=trust, server_hostname="localhost") as client:
            assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
            client.send(GET + GET)
            assert (await client.answer())[0] == (await client.answer())[0] == 200
            client.send(b"POST / HTTP/1.1\r\ncontent-length: 101\r\n\r\n")
            assert (await client.answer())[0] == 413
        async with client_of(port, ssl=trust, server_hostname="localhost") as client:
            client.send(b"GET /abort HTTP/1.1\r\n\r\n")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.answer()
        async with client_of(port) as client:  # plain words to a TLS socket
            client.send(GET)
            assert b"200" not in await client.ended()
        edge.close()
        await edge.wait_closed(PATIENCE)

    run(main())


def test_a_tls_client_that_does_not_say_goodbye_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pooled clients look at an idle connection only when they use it again: a drain does not wait for them. What a slow
    one has still to read is not cut off."""
    monkeypatch.setattr("kenari.doors.connection.GOODBYE_SECONDS", 0.2)
    big = 4 * 1024 * 1024

    async def act(exchange: Exchange) -> None:
        exchange.answer(200, b"", b"x" * (big if exchange.path == "/big" else 2))

    def dial(port: int, path: bytes, trust: ssl.SSLContext) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        client = trust.wrap_socket(plain, server_hostname="localhost")
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        return client

    def read_slowly(client: ssl.SSLSocket) -> int:
        size = 0
        while size < big:
            piece = client.recv(65536)
            if not piece:
                break
            size += len(piece)
            time.sleep(0.02 if size < big // 2 else 0)
        return size

    async def main() -> None:
        context, trust = secured(tmp_path)
        desk = Desk(act)
        edge = Edge(desk.serve, desk.refuse, EdgeLimits())
        port = int((await listen(edge, "127.0.0.1:0", context)).rpartition(":")[2])
        idle = await asyncio.to_thread(dial, port, b"/", trust)
        assert (await asyncio.to_thread(idle.recv, 100)).startswith(b"HTTP/1.1 200")
        slow = await asyncio.to_thread(dial, port, b"/big", trust)
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        edge.drain()
        assert await asyncio.to_thread(read_slowly, slow) >= big
        slow.close()
        assert await edge.wait_closed(PATIENCE)
        assert asyncio.get_running_loop().time() - began < 10
        idle.close()
        edge.close()

    run(main())


def test_ipv6_and_the_address_that_comes_back() -> None:
    async def main() -> None:
        desk = Desk()
        edge = Edge(desk.serve, desk.refuse, EdgeLimits())
        try:
            address = await listen(edge, "[::1]:0")
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            pytest.skip("no IPv6 here")
        assert address.startswith("[::1]:")
        async with client_of(int(address.rpartition(":")[2]), host="::1") as client:
            client.send(GET)
            assert (await client.answer())[0] == 200
            assert desk.seen[0].peer == "::1"
        edge.close()

    run(main())


def test_a_stale_unix_socket_is_replaced_and_a_live_one_or_a_file_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "kenari.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)

    async def main() -> None:
        desk = Desk()
        edge = Edge(desk.serve, desk.refuse, EdgeLimits())
        assert await listen(edge, f"unix:{path}") == f"unix:{path}"
        with pytest.raises(OSError, match="in use"):
            await listen(edge, f"unix:{path}")
        reader, writer = await asyncio.open_unix_connection(path)
        client = Client(reader, writer)
        client.send(GET)
        assert (await client.answer())[0] == 200
        assert desk.seen[0].peer == ""
        writer.close()
        edge.close()
        plain = tmp_path / "file"
        plain.write_text("precious")
        with pytest.raises(OSError, match="no socket"):
            await listen(edge, f"unix:{plain}")
        assert plain.read_text() == "precious"

    run(main())


def test_a_unix_socket_that_is_too_busy_to_answer_is_alive(tmp_path: Path) -> None:
    path = str(tmp_path / "busy.sock")

    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
            busy.bind(path)
            busy.listen(0)
            first.connect(path)
            desk = Desk()
            with pytest.raises(OSError, match="in use"):
                await listen(Edge(desk.serve, desk.refuse, EdgeLimits()), f"unix:{path}")

    run(main())
    assert Path(path).exists()


def test_an_address_that_is_taken_is_an_os_error() -> None:
    async def main() -> None:
        async with edge_for(Desk()) as (edge, port):
            with pytest.raises(OSError, match=r".+"):
                await listen(edge, f"127.0.0.1:{port}")

    run(main())


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.9", "1.2.3.4"),
        ("10.0.0.1", "10.0.0.7, 10.0.0.9", "10.0.0.7"),
        ("10.0.0.1", "1.2.3.4, nonsense", "10.0.0.1"),
        ("10.0.0.1", "[2001:db8::1]", "2001:db8::1"),
        ("::ffff:10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("9.9.9.9", "1.2.3.4", "9.9.9.9"),
        ("", "1.2.3.4", ""),
    ],
)
def test_forwarded_addresses_count_only_from_trusted_proxies(peer: str, forwarded: str, expected: str) -> None:
    """F13."""
    trusted = (ipaddress.ip_network("10.0.0.0/8"),)
    assert client_address(peer, forwarded.encode(), trusted) == expected
    assert client_address(peer, forwarded.encode(), ()) == peer


def test_a_trusted_proxy_on_the_wire() -> None:
    """F13."""

    async def main() -> None:
        data = b"GET / HTTP/1.1\r\nx-forwarded-for: 6.6.6.6\r\nx-forwarded-for: 1.2.3.4\r\n\r\n"
        trusted = EdgeLimits(trusted_proxies=(ipaddress.ip_network("127.0.0.0/8"),))
        for limits, expected in ((trusted, "1.2.3.4"), (EdgeLimits(), "127.0.0.1")):
            desk = Desk()
            async with edge_for(desk, limits) as (_, port), client_of(port) as client:
                client.send(data)
                await client.answer()
                assert desk.seen[0].peer == expected

    run(main())


# -- the end of a process


def test_drain_ends_what_is_idle_refuses_what_is_new_and_lets_the_rest_finish() -> None:
    async def main() -> None:
        held = Held()
        async with edge_for(Desk(held)) as (edge, port):
            async with client_of(port) as idle, client_of(port) as busy, client_of(port) as sending:
                busy.send(GET)
                sending.send(b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab")
                await busy.reader.readuntil(b"first")
                await until(lambda: len(edge.connections) == 3)
                edge.drain()
                assert await idle.ended() == b""
                with contextlib.suppress(ConnectionRefusedError):  # or taken from the backlog, and closed
                    async with client_of(port) as late:
                        late.send(GET)
                        assert await late.ended() == b""
                assert not await edge.wait_closed(0.05)
                sending.send(b"cd")  # was under way already
                await sending.reader.readuntil(b"first")
                held.release.set()
                assert (await busy.ended()).endswith(b"\r\n0\r\n\r\n")
                assert (await sending.ended()).endswith(b"\r\n0\r\n\r\n")
                assert await edge.wait_closed(PATIENCE)

    run(main())


def test_close_breaks_what_is_left_so_that_it_is_not_taken_for_whole() -> None:
    """D16."""

    async def main() -> None:
        held = Held()
        async with edge_for(Desk(held)) as (edge, port), client_of(port) as client:
            client.send(GET)
            await client.reader.readuntil(b"first")
            assert edge.in_flight == 1
            edge.close()
            assert not (await client.ended()).endswith(b"0\r\n\r\n")
            assert await edge.wait_closed(PATIENCE)
            assert held.watch.heard == ["gone"]
            held.release.set()

    run(main())
