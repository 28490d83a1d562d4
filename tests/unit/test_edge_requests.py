"""The inbound end: requests in, answers out, on real sockets (F13, S3, S17)."""

import asyncio
import gzip
import random
import zlib

import pytest
from edge_kit import Client, Desk, client_of, echo, edge_for, run, until

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.wire import inflate as inflate_module

GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"


def post(body: bytes, *lines: str) -> bytes:
    extra = "".join(line + "\r\n" for line in lines)
    return f"POST /v1/messages HTTP/1.1\r\nhost: x\r\n{extra}content-length: {len(body)}\r\n\r\n".encode() + body


def test_keep_alive_and_pipelined_requests_are_answered_in_order() -> None:
    async def slow_first(exchange: Exchange) -> None:
        await asyncio.sleep(0.05 if exchange.path == "/0" else 0)
        exchange.answer(200, b"", exchange.path.encode())

    async def main() -> None:
        async with edge_for(Desk(slow_first)) as (_, port), client_of(port) as client:
            client.send(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(20)))
            for number in range(20):
                assert (await client.answer())[2] == b"/%d" % number
            client.send(GET)
            status, headers, body = await client.answer()
            assert (status, body) == (200, b"/a")
            assert "connection" not in headers
            assert "date" in headers

    run(main())


def test_a_flood_of_pipelined_requests_gets_its_answers_and_then_400() -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (_, port), client_of(port) as client:
            client.send(GET * 500)
            statuses = [(await client.answer())[0]]
            while statuses[-1] == 200:
                statuses.append((await client.answer())[0])
            assert statuses[-1] == 400
            assert len(statuses) < 60
            assert await client.ended() == b""
            assert desk.refused == ["bad_request"]

    run(main())


def test_expect_100_continue_asks_for_the_body_also_when_it_is_pipelined() -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.03)
        await echo(exchange)

    async def main() -> None:
        async with edge_for(Desk(slow)) as (_, port), client_of(port) as client:
            head = b"POST /b HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
            client.send(GET + head)
            assert (await client.answer())[0] == 200
            assert (await client.answer())[0] == 100
            client.send(b"abc")
            assert (await client.answer())[2] == b"POST /b  3"
            client.send(head)
            assert (await client.answer())[0] == 100
            client.send(b"abc")
            assert (await client.answer())[2] == b"POST /b  3"

    run(main())


def test_too_large_a_body_is_refused_at_once_from_its_length_or_when_it_grows() -> None:
    """F13: max_body; S17: an ordinary status."""

    async def main() -> None:
        async with edge_for(Desk(), EdgeLimits(max_body=1000)) as (_, port):
            async with client_of(port) as client:
                client.send(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n")
                status, headers, _ = await client.answer()
                assert (status, headers["connection"]) == (413, "close")
            async with client_of(port) as client:
                client.send(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
                for _ in range(11):
                    client.send(b"64\r\n" + b"x" * 100 + b"\r\n")
                assert (await client.answer())[0] == 413
                assert await client.ended() == b""
            async with client_of(port) as client:
                client.send(post(b"x" * 1000))
                assert (await client.answer())[0] == 200

    run(main())


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (b"content-length: 65537", True),
        (b"content-length: 65537\r\nexpect: 100-continue", True),
        (b"transfer-encoding: chunked", True),
        (b"content-length: 10\r\ncontent-encoding: gzip", True),
        (b"content-length: 10", False),
    ],
)
def test_a_large_body_is_taken_only_from_who_may_send_it(lines: bytes, refused: bool) -> None:
    """S17: what is wrong with a request by its head is said before its body fills the memory."""
    asked: list[str] = []

    def screen(path: str, headers: dict[bytes, bytes]) -> KenariError | None:
        asked.append(path)
        return None if b"x-key" in headers else KenariError("invalid_api_key", "send a key")

    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (edge, port):
            edge.screen = screen
            async with client_of(port) as client:
                client.send(b"POST /%61?b HTTP/1.1\r\n" + lines + b"\r\n\r\n")
                if not refused:
                    client.send(b"0123456789")
                assert (await client.answer())[0] == (401 if refused else 200)
            async with client_of(port) as client:
                client.send(post(b"x" * 65537, "x-key: 1"))
                assert (await client.answer())[0] == 200
        assert desk.refused == ["invalid_api_key"] * refused
        assert asked == ["/a"] * refused + ["/v1/messages"]

    run(main())


def test_a_client_that_sends_on_after_413_still_reads_the_answer() -> None:
    async def main() -> None:
        async with edge_for(Desk(), EdgeLimits(max_body=1000)) as (_, port), client_of(port) as client:
            client.send(b"POST / HTTP/1.1\r\ncontent-length: 4000000\r\n\r\n")
            for _ in range(40):
                client.send(b"x" * 100_000)
                await asyncio.sleep(0)
            assert (await client.answer())[0] == 413

    run(main())


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50, 10_000])
def test_sized_and_chunked_bodies_come_whole_however_they_are_cut(step: int) -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (_, port), client_of(port) as client:
            chunked = b"POST /c?q=1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n4\r\ndefg\r\n0\r\n"
            data = post(b"hello") + chunked + b"authorization: evil\r\n\r\n" + GET
            for start in range(0, len(data), step):
                client.send(data[start : start + step])
                await asyncio.sleep(0)
            assert [(await client.answer())[2] for _ in range(3)] == [
                b"POST /v1/messages  5",
                b"POST /c q=1 7",
                b"GET /a  0",
            ]
            assert [one.body for one in desk.seen] == [b"hello", b"abcdefg", b""]
            assert b"authorization" not in desk.seen[1].headers  # a trailer is no header

    run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\nabc",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"GET / HTTP/1.1\r\na : b\r\n\r\n",
        b"GET / HTTP/1.1\na: b\n\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_ambiguous_and_malformed_requests_are_refused_and_the_connection_ends(data: bytes) -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (_, port), client_of(port) as client:
            client.send(data)
            status, headers, _ = await client.answer(head_only=True)
            assert status in (400, 413)
            assert headers["connection"] == "close"
            await client.ended()
            assert desk.seen == []

    run(main())


def test_a_malformed_request_behind_a_good_one_does_not_break_its_answer() -> None:
    async def slow(exchange: Exchange) -> None:
        exchange.begin(200, b"")
        for _ in range(3):
            await asyncio.sleep(0.02)
            exchange.write(b"part")
        exchange.end()

    async def main() -> None:
        async with edge_for(Desk(slow)) as (_, port), client_of(port) as client:
            client.send(GET + b"garbage garbage\r\n\r\n" + GET)
            assert (await client.answer())[2] == b"partpartpart"
            assert (await client.answer())[0] == 400
            assert await client.ended() == b""
        async with edge_for(Desk(slow)) as (_, port), client_of(port) as client:
            client.send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\nmore")
            assert (await client.answer())[2] == b"partpartpart"
            assert await client.ended() == b""

    run(main())


def coded(kind: str, data: bytes) -> bytes:
    if kind in ("gzip", "x-gzip", "GZIP"):
        return gzip.compress(data)
    if kind == "deflate":
        return zlib.compress(data)
    return inflate_module.zstd.compress(data)


@pytest.mark.parametrize("kind", ["gzip", "x-gzip", "GZIP", "deflate", "zstd"])
def test_compressed_bodies_are_plain_and_limited_after_decompression(kind: str) -> None:
    """F13: max_body holds after decompression; above 1 MiB the work is done in a thread."""

    async def main() -> None:
        desk = Desk()
        limits = EdgeLimits(max_body=4_000_000)
        async with edge_for(desk, limits) as (_, port), client_of(port) as client:
            noise = random.Random(1).randbytes(1_500_000)
            for plain in (b"{}", b"a" * 900_000, b"b" * 4_000_000, noise):
                client.send(post(coded(kind, plain), f"content-encoding: {kind}"))
                assert (await client.answer())[0] == 200
                assert desk.seen[-1].body == plain
            for bomb in (b"c" * 4_000_001, b"c" * 100_000_000):
                client.send(post(coded(kind, bomb), f"content-encoding: {kind}"))
                assert (await client.answer())[0] == 413
            whole = coded(kind, b"d" * 1000)
            for broken in (b"nonsense here", whole[:-3], whole + b"tail"):
                client.send(post(broken, f"content-encoding: {kind}"))
                assert (await client.answer())[0] == 400
            client.send(GET)
            assert (await client.answer())[0] == 200
            assert len(desk.seen) == 5

    run(main())


def test_an_unknown_coding_is_415_before_its_body_comes() -> None:
    async def main() -> None:
        async with edge_for(Desk()) as (_, port):
            for coding in (b"br", b"gzip, gzip"):
                async with client_of(port) as client:
                    client.send(b"POST / HTTP/1.1\r\ncontent-encoding: %b\r\ncontent-length: 500\r\n\r\n" % coding)
                    assert (await client.answer())[0] == 415
            async with client_of(port) as client:
                client.send(post(b"abc", "content-encoding: identity"))
                assert (await client.answer())[0] == 200

    run(main())


def test_a_client_that_leaves_while_its_body_is_inflated_is_not_served() -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (edge, port):
            async with client_of(port) as client:
                client.send(post(gzip.compress(b"a" * 30_000_000), "content-encoding: gzip"))
                await until(lambda: edge.in_flight == 1)
                client.reset()
                await until(lambda: not edge.connections)
            await asyncio.sleep(0.3)
            assert desk.seen == []

    run(main())


def flood(lines: int, value: int) -> bytes:
    return b"".join(b"h%d: %b\r\n" % (number, b"v" * value) for number in range(lines))


def test_header_floods_are_431_however_they_come() -> None:
    small = EdgeLimits(max_head=4096, max_headers=20)
    chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
    floods = [
        b"GET / HTTP/1.1\r\n" + flood(21, 5) + b"\r\n",
        b"GET / HTTP/1.1\r\n" + flood(2, 3000) + b"\r\n",
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nendless: " + b"x" * 100_000,
        chunked + b"0\r\nendless: " + b"x" * 400_000,
        chunked + b"0\r\n" + flood(30, 5),
        chunked + b"1;" + b"e" * 400_000,
    ]

    async def main() -> None:
        async with edge_for(Desk(), small) as (_, port):
            for data in floods:
                async with client_of(port) as client:
                    for start in range(0, len(data), 2000):
                        client.send(data[start : start + 2000])
                        await asyncio.sleep(0)
                    assert (await client.answer())[0] == 431, data[:60]
            async with client_of(port) as client:  # just below the limit, slowly
                data = b"GET / HTTP/1.1\r\n" + flood(3, 1200) + b"\r\n"
                for start in range(0, len(data), 500):
                    client.send(data[start : start + 500])
                    await asyncio.sleep(0.002)
                assert (await client.answer())[0] == 200

    run(main())


def test_the_start_of_a_request_behind_a_large_body_is_no_header_flood() -> None:
    async def main() -> None:
        async with edge_for(Desk(), EdgeLimits(max_head=2048)) as (_, port), client_of(port) as client:
            client.send(post(b"x" * 60_000) + GET[:10])
            assert (await client.answer())[0] == 200
            client.send(GET[10:])
            assert (await client.answer())[2] == b"GET /a  0"

    run(main())


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/v1/models/a%2Fb%3Afree?x=%20&y", "/v1/models/a/b:free", "x=%20&y"),
        ("http://host:80/v1/x?q=1", "/v1/x", "q=1"),
        ("http://host", "/", ""),
        ("/%C3%A9%zz%FF", "/é%zz\ufffd", ""),
        ("/a#b", "/a", ""),
        ("*", "*", ""),
    ],
)
def test_targets_in_all_their_forms(target: str, path: str, query: str) -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (_, port), client_of(port) as client:
            client.send(f"OPTIONS {target} HTTP/1.1\r\n\r\n".encode())
            assert (await client.answer())[0] == 200
            assert (desk.seen[0].path, desk.seen[0].query) == (path, query)

    run(main())


def test_a_repeated_header_is_joined_and_names_are_lower_case() -> None:
    async def main() -> None:
        desk = Desk()
        async with edge_for(desk) as (_, port), client_of(port) as client:
            client.send(b"GET / HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
            await client.answer()
            assert desk.seen[0].headers == {b"x-a": b"1, 2"}

    run(main())


async def stream(exchange: Exchange) -> None:
    exchange.begin(200, b"content-type: text/event-stream\r\n")
    exchange.write(b"one")
    exchange.write(b"")
    exchange.write(b"two")
    exchange.end()
    exchange.write(b"late")
    exchange.end()
    exchange.answer(500, b"", b"late")
    exchange.abort()  # an answer that is complete stays complete


def test_http_10_clients_get_streams_delimited_by_close() -> None:
    """F13: old reverse proxies speak HTTP/1.0."""

    async def main() -> None:
        async with edge_for(Desk(stream)) as (_, port):
            async with client_of(port) as client:
                client.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
                _, headers, body = await client.answer()
                assert body == b"onetwo"
                assert "transfer-encoding" not in headers
                assert headers["connection"] == "close"
            async with client_of(port) as client:
                client.send(GET + GET)
                for _ in range(2):
                    _, headers, body = await client.answer()
                    assert body == b"onetwo"
                    assert headers["transfer-encoding"] == "chunked"

    run(main())


def test_head_is_answered_without_a_body_and_the_connection_goes_on() -> None:
    async def main() -> None:
        for act in (echo, stream):
            async with edge_for(Desk(act)) as (_, port), client_of(port) as client:
                client.send(b"HEAD / HTTP/1.1\r\n\r\n" + GET)
                status, _, _ = await client.answer(head_only=True)
                assert status == 200
                assert (await client.answer())[0] == 200

    run(main())


def test_204_has_no_length_and_unknown_statuses_are_sent() -> None:
    async def act(exchange: Exchange) -> None:
        exchange.extra_headers = b"x-more: 1\r\n"
        exchange.answer(int(exchange.path[1:]), b"", b"")

    async def main() -> None:
        async with edge_for(Desk(act)) as (_, port), client_of(port) as client:
            client.send(b"GET /204 HTTP/1.1\r\n\r\nGET /529 HTTP/1.1\r\n\r\n")
            status, headers, _ = await client.answer(head_only=True)
            assert (status, headers["x-more"]) == (204, "1")
            assert "content-length" not in headers
            assert (await client.answer())[0] == 529

    run(main())


def test_upgrade_requests_are_requests_like_any_other_with_their_bodies() -> None:
    """A Java client asks for h2c with every POST; a WebSocket client gets its 426 from the door."""

    async def main() -> None:
        desk = Desk()
        wish = "upgrade: h2c\r\nconnection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAAA"
        async with edge_for(desk) as (_, port), client_of(port) as client:
            client.send(post(b"hello", wish, "x-a: 1") + post(b"", wish) + GET)
            assert [(await client.answer())[2] for _ in range(3)] == [
                b"POST /v1/messages  5",
                b"POST /v1/messages  0",
                b"GET /a  0",
            ]
            assert desk.seen[0].body == b"hello"
            assert desk.seen[0].headers[b"x-a"] == b"1"
            assert desk.seen[1].headers[b"upgrade"] == b"h2c"
            head = post(b"hello", wish)
            for byte in head:
                client.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.answer())[2] == b"POST /v1/messages  5"
            client.send(b"POST /c HTTP/1.1\r\n" + wish.encode() + b"\r\ntransfer-encoding: chunked\r\n\r\n2\r\n")
            client.send(b"ab\r\n0\r\n\r\n" + GET)
            assert (await client.answer())[2] == b"POST /c  2"
            assert (await client.answer())[2] == b"GET /a  0"

    run(main())


def test_a_task_that_raises_is_500_before_the_head_and_a_broken_connection_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """D16: a cut answer is never taken for a whole one."""

    async def act(exchange: Exchange) -> None:
        match exchange.path:
            case "/before":
                raise RuntimeError("secret")
            case "/after":
                exchange.begin(200, b"")
                exchange.write(b"x")
                raise RuntimeError("secret")
            case "/answered":
                exchange.answer(200, b"", b"fine")
                await asyncio.sleep(0.02)
                raise RuntimeError("secret")
            case "/cancelled":
                raise asyncio.CancelledError
            case "/slow":
                await asyncio.sleep(0.1)
                exchange.answer(200, b"", b"slow")
            case _:
                pass  # no answer at all

    async def main() -> None:
        desk = Desk(act)
        async with edge_for(desk) as (_, port):
            async with client_of(port) as client:
                client.send(b"GET /before HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\n\r\n")
                assert (await client.answer())[0] == 500
                assert (await client.answer())[0] == 500
                # the fault of a request whose answer is out does not fall on the one behind it
                client.send(b"GET /answered HTTP/1.1\r\n\r\nGET /slow HTTP/1.1\r\n\r\n")
                assert (await client.answer())[2] == b"fine"
                assert (await client.answer())[2] == b"slow"
                client.send(b"GET /after HTTP/1.1\r\n\r\n")
                assert not (await client.ended()).endswith(b"0\r\n\r\n")
            async with client_of(port) as client:
                client.send(b"GET /cancelled HTTP/1.1\r\n\r\n")
                assert await client.ended() == b""

    run(main())
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def good(port: int) -> None:
    async with client_of(port) as client:
        client.send(GET)
        assert (await client.answer())[0] == 200


async def throw(client: Client, dice: random.Random, data: bytes) -> None:
    try:
        for piece in pieces(dice, data):
            client.send(piece)
            await asyncio.sleep(0)
        client.writer.write_eof()
    except (ConnectionError, RuntimeError):
        return
    await client.ended()


def pieces(dice: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(dice.sample(range(len(data) + 1), min(len(data), dice.randint(0, 4))))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def mutated(dice: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(b"".join(dice.choices(seeds, k=dice.randint(1, 3))))
    for _ in range(dice.randint(0, 6)):
        place = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0:
                data[place : place + 1] = dice.randbytes(1)
            case 1:
                del data[place : place + dice.randint(1, 20)]
            case 2:
                data[place:place] = dice.choice([b"\r\n", b"\0", b" ", b":", b"chunked", b"0\r\n\r\n", b"\xff" * 5])
            case _:
                data += data[place : place + 30]
    return bytes(data)


def test_random_and_mutated_bytes_never_hang_or_kill_it(caplog: pytest.LogCaptureFixture) -> None:
    dice = random.Random(20240607)
    gz = gzip.compress(b"x" * 500)
    seeds = [
        GET,
        post(b'{"model":"m"}'),
        post(gz, "content-encoding: gzip"),
        b"POST /c HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nt: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        post(b"hello", "upgrade: h2c", "connection: upgrade"),
        b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nab",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
        b"HEAD / HTTP/1.0\r\n\r\n",
    ]

    async def attack(edge: Edge, port: int, number: int) -> None:
        async with client_of(port) as client:
            data = dice.randbytes(dice.randint(1, 300)) if number % 5 == 0 else mutated(dice, seeds)
            await throw(client, dice, data)

    async def main() -> None:
        small = EdgeLimits(max_head=2048, max_body=10_000)
        async with edge_for(Desk(), small) as (edge, port):
            for round_ in range(20):
                await asyncio.gather(*(attack(edge, port, round_ * 25 + number) for number in range(25)))
                await good(port)
            await until(lambda: not edge.connections)

    run(main())
    assert caplog.text == ""
