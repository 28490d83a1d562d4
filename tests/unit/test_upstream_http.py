"""The outbound end on real sockets: connections, their reuse and their failures (M2, E7, U6)."""

import asyncio
import socket
import struct
from pathlib import Path

import pytest
from edge_kit import PATIENCE, run, until
from upstream_kit import OK, Authority, Ear, Provider, Wire, ask, provider_for

from kenari.core.outbound import Outgoing
from kenari.upstream.connection import HttpCall
from kenari.upstream.http import HttpUpstream
from kenari.upstream.origin import origin_of


async def obliging(wire: Wire) -> None:
    """Answers every request."""
    while True:
        await wire.request()
        wire.send(OK)


# -- the pool


def test_two_calls_share_one_connection_and_say_what_is_needed() -> None:
    heads: list[bytes] = []

    async def play(wire: Wire) -> None:
        while True:
            heads.append(b"%b%b" % await wire.request())
            wire.send(OK)

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            for _ in range(3):
                ear = await ask(upstream, provider.asks())
                assert (ear.heard, ear.status, ear.body) == (["head", "body", "end"], 200, b"ok")
            assert len(provider.wires) == 1
            lines = heads[0].split(b"\r\n")
            assert lines[0] == b"POST /v1/chat/completions?a=b HTTP/1.1"
            assert b"host: 127.0.0.1:%d" % provider.port in lines
            assert lines[-1] == b'{"q":1}'
            await asyncio.gather(*(ask(upstream, provider.asks()) for _ in range(4)))
            assert len(provider.wires) == 4
            upstream.close()

    run(main())


def test_a_call_begun_in_on_end_takes_the_same_connection() -> None:
    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(obliging) as provider:
            second = Ear()

            def act(what: str) -> None:
                if what == "end":
                    upstream.start(provider.asks(), second)

            first = Ear(act)
            upstream.start(provider.asks(), first)
            await second.told()
            assert second.heard == ["head", "body", "end"]
            assert len(provider.wires) == 1

    run(main())


@pytest.mark.parametrize("fate", ["closed", "reset", "silent"])
def test_a_pooled_connection_that_died_is_reopened_once_and_only_once(fate: str) -> None:
    """M2: a pooled connection that dies before a byte of answer is reopened once."""

    async def play(wire: Wire) -> None:
        await wire.request()
        if wire.number == 1 and fate == "silent":
            return  # the reopened one dies as well
        wire.send(OK)
        if wire.number == 0:
            await wire.request()
            if fate == "reset":
                wire.reset()
            return
        await wire.request()

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            assert (await ask(upstream, provider.asks())).heard[-1] == "end"
            ear = await ask(upstream, provider.asks())
            assert len(provider.wires) == 2
            if fate == "silent":
                assert ear.heard == ["lost"]
                assert ear.code == "upstream_error"
            else:
                assert ear.heard == ["head", "body", "end"]

    run(main())


def test_a_fresh_connection_that_dies_is_never_reopened_and_neither_is_one_that_began_to_answer() -> None:
    """M2."""

    async def play(wire: Wire) -> None:
        await wire.request()
        if wire.number:
            return
        wire.send(OK)
        await wire.request()
        wire.send(b"HTTP/1.1 2")

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            assert (await ask(upstream, provider.asks())).heard[-1] == "end"
            assert (await ask(upstream, provider.asks())).code == "upstream_error"
            assert len(provider.wires) == 1
            assert (await ask(upstream, provider.asks())).code == "upstream_error"
            assert len(provider.wires) == 2

    run(main())


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", True),
        (b"HTTP/1.0 408 Request Time-out\r\nConnection: close\r\n\r\n<html>", True),
        (b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", False),
    ],
)
def test_a_goodbye_that_crosses_the_request_is_no_answer(answer: bytes, again: bool) -> None:
    """M2: some servers say 408 when they end an idle connection; a fresh one is given a chance, and its 408 is one."""

    async def play(wire: Wire) -> None:
        await wire.request()
        if wire.number == 0:
            wire.send(OK)
            await wire.request()
        wire.send(answer)
        await wire.writer.drain()

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            assert (await ask(upstream, provider.asks())).heard[-1] == "end"
            ear = await ask(upstream, provider.asks())
            assert ear.status == int(answer[9:12])
            assert len(provider.wires) == 1 + again

    run(main())


def test_a_connection_that_was_closed_while_it_was_idle_is_not_taken() -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        wire.send(OK)

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            for _ in range(3):
                assert (await ask(upstream, provider.asks())).heard[-1] == "end"
                await asyncio.sleep(0.02)
            assert len(provider.wires) == 3

    run(main())


@pytest.mark.parametrize(
    "more",
    [
        b"x",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwr",
        b"HTTP/1.1 200 OK\r\nhalf: ",
        b"HT",
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_bytes_behind_an_answer_never_reach_the_next_call(more: bytes, together: bool) -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        if wire.number == 0:
            if together:
                wire.send(OK + more)
            else:
                wire.send(OK)
                await asyncio.sleep(0.02)
                wire.send(more)
            await wire.request()
        wire.send(OK)

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            second = Ear()

            def act(what: str) -> None:
                if what == "end" and together:  # at once, inside of on_end
                    upstream.start(provider.asks(), second)

            first = Ear(act)
            upstream.start(provider.asks(), first)
            await first.told()
            assert (first.heard, first.body) == (["head", "body", "end"], b"ok")
            if not together:
                await until(lambda: upstream.idle == 0)  # they have come, and the connection is given up
                upstream.start(provider.asks(), second)
            await second.told()
            assert (second.heard, second.body) == (["head", "body", "end"], b"ok")
            assert len(provider.wires) == 2

    run(main())


def test_line_ends_behind_an_answer_do_no_harm() -> None:
    async def play(wire: Wire) -> None:
        while True:
            await wire.request()
            wire.send(OK + b"\r\n")

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            for _ in range(2):
                assert (await ask(upstream, provider.asks())).body == b"ok"

    run(main())


def test_an_answer_before_the_request_is_taken_ends_the_connection() -> None:
    async def play(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        wire.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await asyncio.sleep(5)

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            for _ in range(2):
                ear = await ask(upstream, provider.asks(body=b"x" * 30_000_000))
                assert (ear.status, ear.heard) == (413, ["head", "end"])
                assert upstream.idle == 0  # half a request is still to go out on it
            assert len(provider.wires) == 2

    run(main())


def test_the_pool_keeps_few_and_not_for_long() -> None:
    async def main() -> None:
        async with provider_for(obliging) as provider:
            upstream = HttpUpstream(idle_seconds=0.05, max_idle=2)
            await asyncio.gather(*(ask(upstream, provider.asks()) for _ in range(5)))
            assert upstream.idle == 2
            await until(lambda: upstream.open == 2)
            await until(lambda: upstream.idle == 0)
            await ask(upstream, provider.asks())
            assert len(provider.wires) == 6
            upstream.close()
            assert upstream.idle == 0

    run(main())


# -- connecting


def test_a_refused_connection_is_unavailable_with_a_hint() -> None:
    """E2: every 503 has a hint when to come back."""

    async def main() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            ear = await ask(HttpUpstream(), Outgoing(url=f"http://127.0.0.1:{port}/v1", headers=b"", body=b""))
            assert ear.code == "upstream_unavailable"
            assert ear.error is not None
            assert ear.error.retry_after is not None
            assert ear.error.retry_after >= 1
        for url in ("http://does-not-exist.invalid/v1", "http://a..b/v1"):
            assert (await ask(HttpUpstream(), Outgoing(url=url, headers=b"", body=b""))).code == "upstream_unavailable"

    run(main())


async def silent(wire: Wire) -> None:
    """Takes the connection and says nothing, not even a word of TLS."""
    await wire.reader.read()


@pytest.mark.parametrize("way", ["tls", "proxy"])
def test_a_connection_that_does_not_stand_in_time_is_a_timeout(way: str) -> None:
    async def main() -> None:
        async with provider_for(silent) as provider:
            provider.scheme = "https"
            proxy = f"http://127.0.0.1:{provider.port}" if way == "proxy" else ""
            ear = await ask(HttpUpstream(), provider.asks(connect_timeout=0.1, proxy=proxy))
            assert ear.code == "upstream_timeout"
            await until(lambda: bool(provider.wires) and provider.wires[0].reader.at_eof())

    run(main())


def test_a_full_backlog_is_a_timeout() -> None:
    async def main() -> None:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = full.getsockname()
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            url = f"http://127.0.0.1:{address[1]}/v1"
            ear = await ask(HttpUpstream(), Outgoing(url=url, headers=b"", body=b"", connect_timeout=0.1))
            assert ear.code == "upstream_timeout"
            for filler in fillers:
                filler.close()

    run(main())


def test_a_connection_that_closes_as_soon_as_it_stands_is_told() -> None:
    async def play(wire: Wire) -> None:
        raw = wire.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.reset()

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            for ear in await asyncio.gather(*(ask(upstream, provider.asks()) for _ in range(20))):
                assert ear.heard == ["lost"]
                assert ear.code in ("upstream_error", "upstream_unavailable")

    run(main())


def test_tls_with_an_own_authority_and_never_without_or_for_another_host(tmp_path: Path) -> None:
    async def main() -> None:
        upstream = HttpUpstream()
        own = Authority(tmp_path, "localhost")
        async with provider_for(obliging, own.context) as provider:
            for _ in range(2):
                assert (await ask(upstream, provider.asks(host="localhost", ca=own.file))).body == b"ok"
            assert len(provider.wires) == 1
            assert (await ask(upstream, provider.asks(ca=own.file))).code == "upstream_unavailable"
            assert (await ask(upstream, provider.asks(host="localhost"))).code == "upstream_unavailable"
            missing = str(tmp_path / "missing.pem")
            assert (await ask(upstream, provider.asks(host="localhost", ca=missing))).code == "upstream_unavailable"
            upstream.close()

    run(main())


# -- egress proxies


class Proxy:
    """A proxy that tunnels to one provider."""

    def __init__(self, provider: Provider) -> None:
        self.heads: list[bytes] = []
        self._provider = provider

    async def __call__(self, wire: Wire) -> None:
        self.heads.append(await wire.reader.readuntil(b"\r\n\r\n"))
        reader, writer = await asyncio.open_connection("127.0.0.1", self._provider.port)
        wire.send(b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n")
        other = asyncio.create_task(pump(reader, wire.writer))
        try:
            await pump(wire.reader, writer)
        finally:
            other.cancel()
            writer.transport.abort()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


def test_tls_goes_through_a_proxy_by_connect(tmp_path: Path) -> None:
    async def main() -> None:
        upstream = HttpUpstream()
        own = Authority(tmp_path, "localhost")
        async with provider_for(obliging, own.context) as provider:
            proxy = Proxy(provider)
            async with provider_for(proxy) as door:
                through = f"http://me:pa%20ss@127.0.0.1:{door.port}"
                for _ in range(2):
                    ear = await ask(upstream, provider.asks(host="localhost", ca=own.file, proxy=through))
                    assert ear.body == b"ok"
                assert len(proxy.heads) == 1
                assert proxy.heads[0].startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % provider.port)
                assert b"proxy-authorization: Basic bWU6cGEgc3M=\r\n" in proxy.heads[0]
                assert b"Bearer" not in proxy.heads[0]
                ear = await ask(upstream, provider.asks(ca=own.file, proxy=through))  # the name counts here too
                assert ear.code == "upstream_unavailable"
                upstream.close()

    run(main())


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 407 Who are you\r\n\r\n", b"", b"HTTP/1.1 2", b"\r\n\r\n", b"x" * 200_000],
)
def test_a_proxy_that_refuses_or_babbles_makes_the_provider_unavailable(answer: bytes) -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        wire.send(answer)

    async def main() -> None:
        async with provider_for(play) as door:
            url = "https://localhost:1/v1"
            for proxy in (f"http://127.0.0.1:{door.port}", f"127.0.0.1:{door.port}", "https://127.0.0.1:1"):
                ear = await ask(HttpUpstream(), Outgoing(url=url, headers=b"", body=b"", proxy=proxy))
                assert ear.code == "upstream_unavailable"

    run(main())


def test_plain_calls_go_to_a_proxy_with_the_whole_address() -> None:
    heads: list[bytes] = []

    async def play(wire: Wire) -> None:
        heads.append((await wire.request())[0])
        wire.send(OK)

    async def main() -> None:
        async with provider_for(play) as door:
            proxy = f"http://me:x@127.0.0.1:{door.port}"
            url = "http://provider.invalid/v1?q=1"
            assert (await ask(HttpUpstream(), Outgoing(url=url, headers=b"", body=b"", proxy=proxy))).body == b"ok"
            assert heads[0].startswith(b"POST http://provider.invalid/v1?q=1 HTTP/1.1\r\nhost: provider.invalid\r\n")
            assert b"proxy-authorization: Basic bWU6eA==\r\n" in heads[0]

    run(main())


# -- abort


@pytest.mark.parametrize("phase", ["connecting", "silent", "streaming", "tls silent", "tls streaming"])
def test_abort_is_seen_by_the_provider_and_nothing_more_is_heard(phase: str, tmp_path: Path) -> None:
    """U6: the client goes away, and the provider's stream is cancelled."""
    seen: list[asyncio.Event] = []

    async def play(wire: Wire) -> None:
        if phase != "connecting":
            await wire.request()
        if "streaming" in phase:
            wire.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        try:
            while await wire.reader.read(1000):
                pass
        finally:
            seen[0].set()

    async def main() -> None:
        seen.append(asyncio.Event())
        upstream = HttpUpstream()
        own = Authority(tmp_path, "localhost")
        async with provider_for(play, own.context if "tls" in phase else None) as provider:
            if phase == "connecting":
                provider.scheme = "https"  # a server that never answers the handshake
            ear = Ear()
            call = upstream.start(provider.asks(host="localhost", ca=own.file), ear)
            await until(lambda: bool(provider.wires))
            if "streaming" in phase:
                await ear.first.wait()
            await asyncio.sleep(0.02)
            before = list(ear.heard)
            call.abort()
            call.abort()
            call.pause()
            call.resume()
            async with asyncio.timeout(PATIENCE):
                await seen[0].wait()
            await asyncio.sleep(0.02)
            assert ear.heard == before
            assert "end" not in before

    run(main())


def test_abort_at_any_callback_stops_the_rest_of_the_bytes() -> None:
    async def main() -> None:
        async def play(wire: Wire) -> None:
            await wire.request()
            wire.send(OK)
            await wire.reader.read()

        async with provider_for(play) as provider:
            for moment in ("head", "body", "end"):
                upstream = HttpUpstream()
                calls: list[HttpCall] = []

                def act(what: str, moment: str = moment, calls: list[HttpCall] = calls) -> None:
                    if what == moment:
                        calls[0].abort()

                ear = Ear(act)
                calls.append(upstream.start(provider.asks(), ear))
                await until(lambda ear=ear, moment=moment: moment in ear.heard)
                await asyncio.sleep(0.01)
                assert ear.heard[-1] == moment
                assert upstream.idle == (1 if moment == "end" else 0)
            ear = Ear()
            HttpUpstream().start(provider.asks(), ear).abort()  # before anything was tried
            await asyncio.sleep(0.02)
            assert ear.heard == []

    run(main())


def test_pause_holds_the_provider_and_resume_lets_it_go_on() -> None:
    """Back-pressure: what a slow client does not read is not read from the provider."""
    size = 40_000_000
    sent = 0

    async def play(wire: Wire) -> None:
        nonlocal sent
        await wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent < size:
            wire.send(b"x" * 100_000)
            sent += 100_000
            await wire.writer.drain()
        await wire.request()
        wire.send(OK)

    async def main() -> None:
        upstream = HttpUpstream()
        async with provider_for(play) as provider:
            got = 0

            class Counter(Ear):
                def on_body(self, data: bytes) -> None:
                    nonlocal got
                    got += len(data)

            ear = Counter()
            call = upstream.start(provider.asks(), ear)
            call.pause()  # also before there is a connection
            await asyncio.sleep(0.15)
            assert (got, ear.heard) == (0, [])
            assert sent < size
            call.resume()
            await until(lambda: got > 1_000_000)
            call.pause()
            held = got
            stuck = 0
            while stuck != sent:
                stuck = sent
                await asyncio.sleep(0.1)
            assert got - held <= 300_000
            assert sent < size
            call.resume()
            await ear.told()
            assert got == size
            assert (await ask(upstream, provider.asks())).body == b"ok"  # it reads on in the next call
            assert len(provider.wires) == 1

    run(main())


def test_origins_of_all_kinds_of_addresses() -> None:
    def seen(url: str, proxy: str = "") -> tuple[str, int, str, str]:
        origin = origin_of(url, proxy)
        return origin.host, origin.port, origin.authority, origin.place

    assert seen("https://a.test/v1") == ("a.test", 443, "a.test", "a.test:443")
    assert seen("http://a.test:81/v1") == ("a.test", 81, "a.test:81", "a.test:81")
    assert seen("https://[::1]/v1", "http://p:1") == ("::1", 443, "[::1]", "[::1]:443")
