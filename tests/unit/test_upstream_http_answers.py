"""The outbound end on real sockets: answers of all kinds, however their bytes are cut (E4, E8)."""

import asyncio
import gzip
import random
import socket
import struct
import zlib

import pytest
from edge_kit import run
from upstream_kit import OK, Ear, Wire, ask, provider_for

from kenari.upstream.http import HttpUpstream
from kenari.wire.inflate import zstd

HEAD = b"HTTP/1.1 200 OK\r\n"
PLAIN = b"".join(b"data: %d\n\n" % number for number in range(2000))


def sized(body: bytes, lines: bytes = b"") -> bytes:
    return HEAD + lines + b"content-length: %d\r\n\r\n" % len(body) + body


def chunked(body: bytes, lines: bytes = b"", size: int = 700) -> bytes:
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    framed = b"".join(b"%x;e=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return HEAD + lines + b"transfer-encoding: chunked\r\n\r\n" + framed + b"0\r\ncontent-type: evil\r\n\r\n"


def raw_deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(data) + machine.flush()


def answers(data: bytes, step: int = 0, end: str = "hold") -> "Script":
    return Script(data, step, end)


class Script:
    """Sends given bytes in pieces, then waits, closes or resets."""

    def __init__(self, data: bytes, step: int, end: str) -> None:
        self._data, self._step, self._end = data, step or max(1, len(data)), end

    async def __call__(self, wire: Wire) -> None:
        await wire.request()
        for start in range(0, len(self._data), self._step):
            wire.send(self._data[start : start + self._step])
            await asyncio.sleep(0)
        if self._end == "hold":
            await wire.reader.read()
        elif self._end == "reset":
            await wire.writer.drain()
            await asyncio.sleep(0.02)
            raw = wire.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.reset()


async def heard(data: bytes, step: int = 0, end: str = "hold") -> Ear:
    async with provider_for(answers(data, step, end)) as provider:
        upstream = HttpUpstream()
        ear = await ask(upstream, provider.asks())
        upstream.close()
        return ear


@pytest.mark.parametrize(
    ("coding", "coded"),
    [
        (b"gzip", gzip.compress(PLAIN)),
        (b"GZIP", gzip.compress(PLAIN[:50]) + gzip.compress(PLAIN[50:])),
        (b"deflate", zlib.compress(PLAIN)),
        (b"deflate", raw_deflate(PLAIN)),
        (b"zstd", zstd.compress(PLAIN)),
        (b"identity", PLAIN),
    ],
)
def test_any_cut_of_an_answer_gives_the_same_callbacks(coding: bytes, coded: bytes) -> None:
    async def main() -> None:
        line = b"content-encoding: " + coding + b"\r\n"
        for data in (sized(coded, line), chunked(coded, line), HEAD + line + b"\r\n" + coded):
            end = "hold" if b"transfer-encoding" in data or b"content-length" in data else "close"
            for step in (1, 3, 701, 10_000_000):
                if step == 1 and len(data) > 15_000:
                    continue
                ear = await heard(data, step, end)
                assert ear.heard == ["head", "body", "end"], (step, ear.error and ear.error.code)
                assert ear.body == PLAIN
                assert ear.headers.get(b"content-type") is None  # a trailer is no header

    run(main())


def test_interim_answers_are_skipped_and_their_headers_with_them() -> None:
    async def main() -> None:
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        for step in (0, 1, 30):
            ear = await heard(interim + OK, step)
            assert (ear.heard, ear.body) == (["head", "body", "end"], b"ok")
            assert ear.headers == {b"content-length": b"2"}
        assert (await heard(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000)).code == "upstream_error"
        switching = b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
        assert (await heard(switching + OK)).code == "upstream_error"

    run(main())


@pytest.mark.parametrize("status", [301, 302, 307, 308, 204, 304, 404, 500, 529])
def test_statuses_are_given_as_they_are_and_redirects_are_not_followed(status: int) -> None:
    async def main() -> None:
        ear = await heard(b"HTTP/1.1 %d X\r\nLocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n" % status)
        assert (ear.heard, ear.status) == (["head", "end"], status)
        assert ear.headers[b"location"] == b"http://127.0.0.1:1/"

    run(main())


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize(
    "data",
    [
        sized(PLAIN)[:-1],
        sized(PLAIN)[:200],
        chunked(PLAIN)[:-40],
        HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        HEAD + b"content-length: 5\r\n\r\n",
    ],
)
def test_a_body_that_is_cut_is_stream_interrupted(data: bytes, end: str) -> None:
    """E8: a call whose provider broke off."""

    async def main() -> None:
        ear = await heard(data, 0, end)
        assert ear.code == "stream_interrupted"
        assert ear.heard[0] == "head"
        assert "end" not in ear.heard

    run(main())


def test_a_reset_of_a_body_without_length_and_a_compressed_one_cut_short_are_interrupted_too() -> None:
    """E8: the end of the connection is the end of the body only when it is a clean one."""

    async def main() -> None:
        assert (await heard(HEAD + b"\r\nabc", 0, "reset")).code == "stream_interrupted"
        whole = await heard(HEAD + b"\r\nabc", 0, "close")
        assert (whole.heard, whole.body) == (["head", "body", "end"], b"abc")
        cut = gzip.compress(PLAIN)[:-5]
        line = b"content-encoding: gzip\r\n"
        for data, end in (
            (sized(cut, line), "hold"),
            (chunked(cut, line), "hold"),
            (HEAD + line + b"\r\n" + cut, "close"),
        ):
            assert (await heard(data, 0, end)).code == "stream_interrupted"
        assert (await heard(sized(b"", line))).heard == ["head", "end"]

    run(main())


@pytest.mark.parametrize(
    ("data", "first"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "lost"),
        (b"<html>hello</html>", "lost"),
        (b"\x15\x03\x01\x00\x02\x02\x50", "lost"),
        (HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", "lost"),
        (HEAD + b"content-length: x\r\n\r\n", "lost"),
        (HEAD + b"".join(b"h%d: %b\r\n" % (number, b"v" * 50) for number in range(5000)), "lost"),
        (HEAD + b"h: " + b"v" * 400_000, "lost"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nnot hex\r\n", "head"),
        (sized(b"nonsense that is no gzip", b"content-encoding: gzip\r\n"), "head"),
        (sized(b"abc", b"content-encoding: br\r\n"), "lost"),
    ],
)
def test_garbage_floods_and_unknown_codings_are_a_broken_answer(data: bytes, first: str) -> None:
    """E4: what is no answer is an upstream error."""

    async def main() -> None:
        for step in (0, 1000):
            ear = await heard(data, step)
            assert (ear.heard[0], ear.heard[-1]) == (first, "lost")
            assert ear.code == "upstream_error"

    run(main())


def test_a_bomb_is_a_broken_answer() -> None:
    """E4: what one reading grows to is bounded."""

    async def main() -> None:
        ear = await heard(sized(gzip.compress(b"0" * 60_000_000), b"content-encoding: gzip\r\n"))
        assert ear.code == "upstream_error"
        assert len(ear.body) < 20_000_000

    run(main())


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 20", HEAD + b"content-"])
def test_a_connection_that_ends_before_the_head_is_an_upstream_error(data: bytes, end: str) -> None:
    async def main() -> None:
        ear = await heard(data, 0, end)
        assert ear.heard == ["lost"]
        assert ear.code == "upstream_error"

    run(main())


def test_a_fault_in_the_receiver_ends_the_call_and_is_logged_without_words(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with provider_for(answers(OK)) as provider:

            def act(what: str) -> None:
                if what == "body":
                    raise RuntimeError("secret prompt")

            ear = Ear(act)
            HttpUpstream().start(provider.asks(), ear)
            await ear.told()
            assert ear.code == "upstream_error"

    run(main())
    assert "RuntimeError" in caplog.text
    assert "secret prompt" not in caplog.text


def test_mutated_answers_always_end_in_one_way_and_never_poison_the_pool(caplog: pytest.LogCaptureFixture) -> None:
    dice = random.Random(7)
    gz = gzip.compress(b"x" * 300)
    seeds = [OK, sized(gz, b"content-encoding: gzip\r\n"), chunked(b"abc" * 50, size=20), HEAD + b"\r\nabc"]

    def mutated() -> bytes:
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randint(1, 5)):
            place = dice.randrange(len(data) + 1)
            match dice.randrange(3):
                case 0:
                    data[place : place + 1] = dice.randbytes(1)
                case 1:
                    del data[place : place + dice.randint(1, 9)]
                case _:
                    data[place:place] = dice.choice([b"\r\n", b"\0", OK, b"0\r\n\r\n", HEAD])
        return bytes(data)

    async def play(wire: Wire) -> None:
        head, _ = await wire.request()
        if b"x-good" not in head:
            wire.send(mutated())
            await asyncio.sleep(0.01)
            return
        wire.send(sized(b"good"))

    async def main() -> None:
        async with provider_for(play) as provider:
            upstream = HttpUpstream()
            evil = provider.asks()
            good = type(evil)(url=evil.url, headers=b"x-good: 1\r\n", body=b"")
            for _ in range(15):
                for ear in await asyncio.gather(*(ask(upstream, evil) for _ in range(20))):
                    assert sum(word in ("end", "lost") for word in ear.heard) == 1
                    assert ear.heard.count("head") <= 1
                    if ear.error is not None:
                        assert ear.code in ("upstream_error", "stream_interrupted")
                assert (await ask(upstream, good)).body == b"good"
            upstream.close()

    run(main())
    assert caplog.text == ""
