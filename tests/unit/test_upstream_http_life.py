"""The outbound end on real sockets: what it says, what it holds, what it ends, and why no connection came about."""

import asyncio
import gc
import gzip
import socket
import ssl
from pathlib import Path

import pytest
from edge_kit import run, until
from upstream_kit import OK, Authority, Dummy, Ear, Wire, ask, provider_for

from kenari.core.outbound import Outgoing
from kenari.upstream.connection import Connection, HttpCall
from kenari.upstream.http import HttpUpstream
from kenari.upstream.origin import origin_of
from kenari.upstream.pool import Pool

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def obliging(wire: Wire) -> None:
    """Answers every request."""
    while True:
        await wire.request()
        wire.send(OK)


async def listening(wire: Wire) -> None:
    """Takes a request and never answers."""
    await wire.request()
    await wire.reader.read()


class Sending:
    """Takes a request, sends pieces, then waits."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.sent = 0

    async def __call__(self, wire: Wire) -> None:
        await wire.request()
        for piece in self._pieces:
            wire.send(piece)
            await wire.writer.drain()
            self.sent += len(piece)
        await wire.reader.read()


# -- what it says


@pytest.mark.parametrize(
    ("given", "said"),
    [(b"", [b"identity"]), (b"Accept-Encoding: gzip\r\n", [b"gzip"]), (b"x: accept-encoding\r\n", [b"identity"])],
)
def test_a_request_asks_for_no_compression_unless_it_is_told_to(given: bytes, said: list[bytes]) -> None:
    heads: list[bytes] = []

    async def play(wire: Wire) -> None:
        heads.append((await wire.request())[0])
        wire.send(OK)

    async def main() -> None:
        async with provider_for(play) as provider:
            url = provider.asks().url
            assert (await ask(HttpUpstream(), Outgoing(url=url, headers=given, body=b"{}"))).body == b"ok"

    run(main())
    lines = heads[0].split(b"\r\n")
    assert [line[17:] for line in lines if line.lower().startswith(b"accept-encoding: ")] == said
    assert b"connection: keep-alive" in lines
    assert b"content-length: 2" in lines


def test_a_large_request_goes_out_whole_and_does_not_block_the_loop() -> None:
    got: list[bytes] = []

    async def play(wire: Wire) -> None:
        got.append((await wire.request())[1])
        wire.send(OK)

    async def main() -> None:
        body = bytes(range(256)) * (32 * 4096)
        async with provider_for(play) as provider:
            ear = Ear()
            HttpUpstream().start(provider.asks(body=body), ear)
            turns = 0
            while not ear.over.is_set():
                await asyncio.sleep(0)
                turns += 1
            assert turns > 10
            assert (ear.body, got[0] == body) == (b"ok", True)

    run(main())


# -- what it holds


def test_the_request_is_let_go_when_it_cannot_be_needed_again() -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        wire.send(OK)
        await wire.request()
        await asked.wait()
        wire.send(CHUNKED + b"1\r\na\r\n")
        await wire.reader.read()

    asked = asyncio.Event()

    async def main() -> None:
        async with provider_for(play) as provider:
            upstream = HttpUpstream()
            first = upstream.start(provider.asks(), one := Ear())
            assert first.request
            await one.told()
            assert first.request == b""
            second = upstream.start(provider.asks(), other := Ear())  # on a pooled connection: it may be sent again
            await asyncio.sleep(0.02)
            assert second.request
            asked.set()
            await other.first.wait()
            assert second.request == b""
            second.abort()
        async with provider_for(listening) as provider:
            fresh = upstream.start(provider.asks(), Ear())
            await until(lambda: upstream.open == 1)
            assert fresh.request == b""
            fresh.abort()

    run(main())


def test_closed_connections_are_freed_without_the_collector() -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\n\r\nok")

    def alive() -> int:
        return sum(isinstance(one, Connection) for one in gc.get_objects())

    async def main() -> None:
        async with provider_for(play) as provider:
            upstream = HttpUpstream()
            await ask(upstream, provider.asks())
            gc.collect()
            gc.disable()
            try:
                before = alive()
                for _ in range(5):
                    assert (await ask(upstream, provider.asks())).body == b"ok"
                await asyncio.sleep(0.02)
                assert alive() <= before
            finally:
                gc.enable()

    run(main())


def test_open_and_idle_connections_are_counted() -> None:
    async def main() -> None:
        async with provider_for(obliging) as provider:
            upstream = HttpUpstream()
            assert (upstream.open, upstream.idle) == (0, 0)
            await asyncio.gather(*(ask(upstream, provider.asks()) for _ in range(3)))
            assert (upstream.open, upstream.idle) == (3, 3)
            ear = Ear()
            upstream.start(provider.asks(), ear)
            assert (upstream.open, upstream.idle) == (3, 2)
            await ear.told()
            assert (upstream.open, upstream.idle) == (3, 3)
        await until(lambda: (upstream.open, upstream.idle) == (0, 0))  # what the provider closes is noticed

    run(main())


# -- what it ends


@pytest.mark.parametrize("phase", ["connecting", "silent", "streaming"])
def test_close_ends_every_call_and_no_other_can_begin(phase: str) -> None:
    codes = {"connecting": "upstream_unavailable", "silent": "upstream_error", "streaming": "stream_interrupted"}

    async def play(wire: Wire) -> None:
        if phase == "streaming":
            wire.send(CHUNKED + b"1\r\na\r\n")
        await wire.reader.read()
        await wire.reader.read()

    async def main() -> None:
        async with provider_for(play) as provider:
            if phase == "connecting":
                provider.scheme = "https"
            upstream = HttpUpstream()
            upstream.start(provider.asks(), ear := Ear())
            await until(lambda: bool(provider.wires))
            await until(lambda: ear.heard[-1:] == ["body"] if phase == "streaming" else True)
            upstream.start(provider.asks(), unbegun := Ear())
            upstream.close()
            assert "lost" not in ear.heard + unbegun.heard  # never in the stack of another
            await ear.told()
            await unbegun.told()
            assert ear.error is not None
            assert ear.error.code == codes[phase]
            assert unbegun.error is not None
            assert unbegun.error.code == "upstream_unavailable"
            await until(lambda: provider.wires[0].reader.at_eof() or bool(provider.wires[0].reader.exception()))
            assert upstream.open == 0
            upstream.start(provider.asks(), late := Ear())
            assert late.heard == []
            await late.told()
            assert late.error is not None
            assert not late.error.elsewhere  # nobody else can be asked either
            assert late.error.retry_after

    run(main())


def test_a_call_on_a_pooled_connection_is_not_reopened_by_close() -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        wire.send(OK)
        await wire.reader.read()

    async def main() -> None:
        async with provider_for(play) as provider:
            upstream = HttpUpstream()
            await ask(upstream, provider.asks())
            upstream.start(provider.asks(), ear := Ear())
            await asyncio.sleep(0.02)
            upstream.close()
            await ear.told()
            await asyncio.sleep(0.02)
            assert (ear.heard, len(provider.wires), upstream.open) == (["lost"], 1, 0)

    run(main())


def test_a_call_is_sent_when_a_connection_has_it() -> None:
    """Not while it is opened: until then nothing can have been made (U5)."""

    async def main() -> None:
        async with provider_for(listening) as provider:
            http = HttpUpstream()
            call = http.start(provider.asks(), Ear())
            assert not call.sent
            await until(lambda: bool(provider.wires))
            await until(lambda: call.sent)
            call.abort()
            http.close()

    run(main())


def test_an_abort_while_connecting_leaves_no_connection() -> None:
    """U6, at every turn of the loop between the start and the standing connection."""

    async def main() -> None:
        async with provider_for(listening) as provider:
            for turns in range(12):
                upstream = HttpUpstream()
                call = upstream.start(provider.asks(), ear := Ear())
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.abort()
                await asyncio.sleep(0.01)
                assert (upstream.open, ear.heard) == (0, [])
            await until(lambda: all(wire.reader.at_eof() or wire.reader.exception() for wire in provider.wires))

    run(main())


def test_a_connection_that_was_paused_to_the_end_of_its_answer_reads_the_next_one() -> None:
    async def main() -> None:
        async with provider_for(obliging) as provider:
            upstream = HttpUpstream()
            calls: list[HttpCall] = []
            first = Ear(lambda what: calls[0].pause() if what == "body" else None)
            calls.append(upstream.start(provider.asks(), first))
            await first.told()
            assert (await ask(upstream, provider.asks())).body == b"ok"
            calls[0].pause()  # it is over: this is nobody's connection
            assert (await ask(upstream, provider.asks())).body == b"ok"
            assert len(provider.wires) == 1

    run(main())


# -- limits


@pytest.mark.parametrize("kind", ["one long trailer", "many trailers", "chunk extension"])
def test_a_flood_that_holds_no_body_ends_the_call(kind: str) -> None:
    """E4: an answer that goes on without a byte of content is no answer."""
    piece = b"a" * 50_000
    flood = {
        "one long trailer": (b"0\r\nx: ", *[piece] * 200),
        "many trailers": (b"0\r\n", *[b"x: %b\r\n" % piece[:500] * 100] * 200),
        "chunk extension": (b"5;e=", *[piece] * 200),
    }[kind]

    async def main() -> None:
        play = Sending(CHUNKED + b"1\r\na\r\n", *flood)
        async with provider_for(play) as provider:
            ear = await ask(HttpUpstream(), provider.asks())
            assert (ear.code, ear.body) == ("upstream_error", b"a")
            assert play.sent < 200 * len(piece)

    run(main())


def test_the_limit_of_a_head_holds_when_it_comes_in_one_piece_with_its_body() -> None:
    async def main() -> None:
        for size, code in ((60_000, ""), (70_000, "upstream_error")):
            head = b"HTTP/1.1 200 OK\r\nx: " + b"a" * size + b"\r\ncontent-length: 100000\r\n\r\n"
            feeds = fed([head + b"b" * 100_000])
            assert (feeds.error.code if feeds.error else "") == code

    run(main())


def test_many_small_bombs_in_one_reading_are_one_bomb() -> None:
    """E4: what one reading grows to is bounded, however it is framed."""
    bomb = gzip.compress(b"0" * 3_000_000)

    async def main() -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n"
        ear = fed([head + b"%x\r\n%b\r\n" % (len(bomb), bomb) * 20])
        assert ear.code == "upstream_error"
        assert len(ear.body) <= 16 * 1024 * 1024

    run(main())


# -- any cut, without a socket


class Nobody:
    """Opens nothing."""

    def open_for(self, call: object) -> None:
        raise AssertionError


def fed(pieces: list[bytes]) -> Ear:
    """What a receiver hears when an answer comes in these pieces. Needs a running loop."""
    origin = origin_of("http://a.test/")
    connection = Connection(Pool(asyncio.get_running_loop(), 60, 1), origin)
    connection.connection_made(Dummy())
    ear = Ear()
    connection.send(HttpCall(Nobody(), origin, b"x", 1.0, ear))
    for piece in pieces:
        connection.data_received(piece)
    return ear


def test_an_answer_cut_anywhere_says_the_same() -> None:
    """L1 for the outbound end: every cut into two, and into bytes, of a compressed, chunked answer after a 103."""
    plain = b"data: hello\n\n" * 3
    coded = gzip.compress(plain, mtime=0)
    framed = b"".join(b"%x;n=v\r\n%b\r\n" % (len(part), part) for part in (coded[:7], coded[7:8], coded[8:]))
    data = (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
        b"transfer-encoding: chunked\r\nset-cookie: a\r\nset-cookie: b\r\n\r\n" + framed + b"0\r\nx-t: y\r\n\r\n"
    )

    async def main() -> None:
        cuts = [[data[:place], data[place:]] for place in range(1, len(data))]
        for pieces in [[data], [bytes([byte]) for byte in data], *cuts]:
            ear = fed(pieces)
            assert (ear.heard, ear.body) == (["head", "body", "end"], plain)
            assert ear.headers[b"set-cookie"] == b"a, b"
            assert b"link" not in ear.headers
            assert b"x-t" not in ear.headers
        for place in range(len(data)):  # and what is not whole never ends
            assert "end" not in fed([data[:place]]).heard

    run(main())


# -- why there is no connection


@pytest.mark.parametrize(
    "url", ["http://h:99999/v1", "http://[::1/v1", "http:///v1", "nonsense", "ftp://a.test/v1", "https://"]
)
def test_an_address_that_is_none_is_told_and_not_raised(url: str) -> None:
    async def main() -> None:
        assert (await ask(HttpUpstream(), Outgoing(url=url, headers=b"", body=b""))).code == "upstream_unavailable"

    run(main())


def test_each_reason_has_its_own_words_and_none_names_a_place(tmp_path: Path) -> None:
    async def main() -> None:
        words: dict[str, str] = {}

        async def note(reason: str, request: Outgoing) -> None:
            ear = await ask(HttpUpstream(), request)
            assert ear.code == "upstream_unavailable"
            assert ear.error is not None
            assert ear.error.message[0].islower()
            assert ear.error.retry_after is not None
            words[reason] = ear.error.message

        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            closed = f"127.0.0.1:{nobody.getsockname()[1]}"
            await note("refused", Outgoing(url=f"http://{closed}/v1", headers=b"", body=b""))
            proxied = Outgoing(url="https://a.test/v1", headers=b"", body=b"", proxy=f"http://{closed}")
            await note("proxy", proxied)
        await note("name", Outgoing(url="http://does-not-exist.invalid/v1", headers=b"", body=b""))
        own = Authority(tmp_path, "localhost")
        async with provider_for(obliging, own.context) as provider:
            await note("certificate", provider.asks(host="localhost"))
            await note("certificate of another host", provider.asks(ca=own.file))

        async def plain(wire: Wire) -> None:
            wire.send(OK)

        async with provider_for(plain) as provider:
            provider.scheme = "https"
            await note("no tls", provider.asks())
        assert words.pop("certificate of another host") == words["certificate"]
        assert len(set(words.values())) == len(words)
        assert "name" in words["name"]
        assert "refused" in words["refused"]
        assert "certificate" in words["certificate"]
        assert "proxy" in words["proxy"]

    run(main())


@pytest.mark.parametrize("behind", [b"", b"junk behind the head", b"\x15\x03\x03\x00\x02\x02\x28"])
@pytest.mark.parametrize("status", [b"200 OK", b"204 No Content", b"20", b"2000 OK", b"100 Continue"])
def test_a_proxy_that_opens_and_then_closes_or_babbles_is_told(status: bytes, behind: bytes) -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        wire.send(b"HTTP/1.1 " + status + b"\r\n\r\n" + behind)
        if behind or status[:4] not in (b"200 ", b"204 "):  # refused at once, not by the end of the connection
            await wire.reader.read()

    async def main() -> None:
        async with provider_for(play) as door:
            proxy = f"http://127.0.0.1:{door.port}"
            upstream = HttpUpstream()
            ear = await ask(upstream, Outgoing(url="https://localhost:1/v1", headers=b"", body=b"", proxy=proxy))
            assert ear.code == "upstream_unavailable"
            assert upstream.open == 0

    run(main())


# -- TLS and version six


def test_an_address_of_version_six_is_served_in_the_clear_and_with_tls(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def play(wire: Wire) -> None:
        heads.append((await wire.request())[0])
        wire.send(OK)

    async def main() -> None:
        own = Authority(tmp_path, "::1")
        for context in (None, own.context):
            try:
                async with provider_for(play, context, "::1") as provider:
                    ear = await ask(HttpUpstream(), provider.asks(host="[::1]", ca=own.file))
                    assert ear.body == b"ok"
                    assert b"host: [::1]:%d\r\n" % provider.port in heads[-1]
            except OSError:
                pytest.skip("no IPv6 on the loopback")

    run(main())


def test_the_name_is_sent_and_the_authorities_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str | None] = []
    names: list[str | None] = []
    make = ssl.create_default_context

    def counted(*, cafile: str | None = None) -> ssl.SSLContext:
        made.append(cafile)
        return make(cafile=cafile)

    def named(_socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        names.append(name)

    async def main() -> None:
        own = Authority(tmp_path, "localhost")
        own.context.sni_callback = named
        monkeypatch.setattr(ssl, "create_default_context", counted)
        async with provider_for(obliging, own.context) as provider:
            upstream = HttpUpstream()
            asked = provider.asks(host="localhost", ca=own.file)
            await asyncio.gather(*(ask(upstream, asked) for _ in range(3)))
            assert made == [own.file]
            new = Authority(tmp_path, "localhost")  # in the same file
        async with provider_for(obliging, new.context) as provider:
            asked = provider.asks(host="localhost", ca=new.file)
            assert (await ask(upstream, asked)).heard == ["lost"]
            upstream.renew()
            assert (await ask(upstream, asked)).heard[-1] == "end"
            upstream.close()

    run(main())
    assert names == ["localhost"] * 3
    assert made == [str(tmp_path / "ca.pem")] * 2


def test_pause_holds_a_provider_with_tls_and_loses_nothing_when_it_closes_meanwhile(tmp_path: Path) -> None:
    size = 300_000
    sent = 0

    async def endless(wire: Wire) -> None:
        nonlocal sent
        await wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            wire.send(b"x" * 50_000)
            sent += 50_000
            await wire.writer.drain()

    async def short(wire: Wire) -> None:
        await wire.request()
        wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % size + b"x" * size)

    async def main() -> None:
        own = Authority(tmp_path, "localhost")
        async with provider_for(endless, own.context) as provider:
            call = HttpUpstream().start(provider.asks(host="localhost", ca=own.file), ear := Ear())
            await ear.first.wait()
            call.pause()
            held, stuck = len(ear.body), -1
            while stuck != sent:
                stuck = sent
                await asyncio.sleep(0.1)
            assert len(ear.body) - held <= 300_000
            call.abort()  # a paused one is closed at once as well
            await until(provider.wires[0].writer.is_closing)
        async with provider_for(short, own.context) as provider:
            call = HttpUpstream().start(provider.asks(host="localhost", ca=own.file), ear := Ear())
            call.pause()
            await asyncio.sleep(0.1)
            assert ear.heard == []
            call.resume()
            await ear.told()
            assert (ear.heard, len(ear.body)) == (["head", "body", "end"], size)

    run(main())
