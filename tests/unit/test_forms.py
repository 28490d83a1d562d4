"""Transcriptions over real sockets: a form is passed on while it comes, slow sides slow the other, and failover sends it again."""

import asyncio
import os
import random
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from edge_kit import client_of, quick, run, until
from gateway_kit import KEY, Rig, Script
from money_kit import FREE, PAYER, PaidBooks, pricing_of
from test_kinds import join, split, wave
from upstream_kit import Play, Wire, provider_for

from kenari.catalog.models import Price
from kenari.core.caller import Caller
from kenari.core.ports import Admission
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import listen
from kenari.doors.public import STREAMED_PATHS
from kenari.gateway.kinds import spool as spool_module
from kenari.keys.bootstrap import BootstrapKeys
from kenari.keys.memory import MemoryLimits
from kenari.upstream.http import HttpUpstream

PATH = "/v1/audio/transcriptions"
TEXT = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 17\r\n\r\n{"text": "hello"}'
BUSY = b"HTTP/1.1 503 X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
AUDIO = random.Random(1).randbytes(3 << 20)
__all__ = ["quick"]


class House:
    """A whole way: an inbound end, the gateway, the outbound end, and a provider for each play."""

    def __init__(self, rig: Rig, port: int) -> None:
        self.rig, self.port = rig, port

    @property
    def line(self) -> Any:
        """The only line."""
        [line] = self.rig.books.lines
        return line


@asynccontextmanager
async def house(*plays: Play, limits: EdgeLimits | None = None, **more: Any) -> AsyncGenerator[House]:
    none: list[list[Script]] = [[] for _ in plays]
    rig = Rig(*none, kind="transcription", price=Price(second="0.001"))
    rig.timing |= more.pop("timing", {})
    books: PaidBooks | None = more.pop("books", None)
    limits_of_use: MemoryLimits | None = more.pop("limits_of_use", None)
    if books is not None:
        rig.books, rig.keys = books, BootstrapKeys({KEY: PAYER})
        rig.services |= {"pricing": pricing_of(FREE), "limits": limits_of_use}
    rig.services |= more
    upstream = HttpUpstream()
    door = rig.build()
    services: Any = door._gateway._services  # pyright: ignore[reportPrivateUsage]
    services.upstreams = {"http": upstream}
    edge = Edge(door.serve, door.refuse, limits or EdgeLimits(), STREAMED_PATHS)
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        for number, play in enumerate(plays, 1):
            provider = await stack.enter_async_context(provider_for(play))
            old = services.providers[f"p{number}"]
            fields = {field: getattr(old, field) for field in old.__struct_fields__}
            services.providers[f"p{number}"] = type(old)(
                **fields | {"base_url": f"http://127.0.0.1:{provider.port}/v1"}
            )
        port = int((await listen(edge, "127.0.0.1:0")).rpartition(":")[2])
        try:
            yield House(rig, port)
        finally:
            edge.close()
            await edge.wait_closed(5)
            await edge.wait_answered(5)
            upstream.close()
            services.ticker.close()


def head(length: int | None, more: str = "", key: str = KEY) -> bytes:
    framing = f"content-length: {length}" if length is not None else "transfer-encoding: chunked"
    return (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: multipart/form-data; boundary=xyz\r\n{framing}\r\n{more}\r\n"
    ).encode()


def form_of(file_first: bool = False, file: bytes = AUDIO, **more: bytes) -> bytes:
    fields = [("model", b"m"), *more.items()]
    return join([("file", file), *fields] if file_first else [*fields, ("file", file)])


def hears(forms: list[bytes], answer: bytes = TEXT) -> Play:
    async def play(wire: Wire) -> None:
        while True:
            forms.append((await wire.request())[1])
            wire.send(answer)

    return play


def test_a_form_is_passed_on_before_it_is_whole() -> None:
    async def main() -> None:
        body, half = form_of(), 1 << 20
        came = bytearray()

        async def play(wire: Wire) -> None:
            came.extend((await wire.reader.readuntil(b"\r\n\r\n"))[-4:])
            while len(came) < len(body) + len("vendor-model") - 1 + 4:
                came.extend(await wire.reader.read(65536))
            wire.send(TEXT)

        async with house(play) as rig, client_of(rig.port) as client:
            client.send(head(len(body)) + body[:half])
            await until(lambda: len(came) > half - 65536)  # the provider has it, the rest was not even sent
            client.send(body[half:])
            status, _, answer = await client.answer()
            assert (status, answer) == (200, b'{"text":"hello"}')
            assert split(bytes(came[4:])) == [("model", b"vendor-model"), ("file", AUDIO)]
            # the connection is whole: it takes the next request
            client.send(head(len(body)) + body)
            await asyncio.sleep(0.1)
            client.reset()
            assert rig.rig.books.lines[0].legs[0].fee == -(-len(body) * 10**6 // 16000)

    run(main())


@pytest.mark.parametrize("file_first", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_fields_may_come_behind_the_file(file_first: bool, chunked: bool) -> None:
    async def main() -> None:
        forms: list[bytes] = []
        body = form_of(file_first, language=b"id")
        async with house(hears(forms)) as rig, client_of(rig.port) as client:
            for _ in range(2):
                client.send(head(None if chunked else len(body)))
                for at in range(0, len(body), 300_000):
                    piece = body[at : at + 300_000]
                    client.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    await asyncio.sleep(0)
                client.send(b"0\r\n\r\n" if chunked else b"")
                assert (await client.answer())[0] == 200
            fields = [("model", b"vendor-model"), ("language", b"id")]
            both = [("file", AUDIO), *fields] if file_first else [*fields, ("file", AUDIO)]
            assert [split(form) for form in forms] == [both, both]

    run(main())


def test_the_next_candidate_gets_the_form_again_from_its_beginning_d7() -> None:
    """The first one fails in the middle of it, the second before it answers, the third has all of it; one line."""

    async def main() -> None:
        forms: list[bytes] = []
        body = form_of()

        async def breaks(wire: Wire) -> None:
            await wire.reader.readexactly(1 << 20)
            wire.reset()

        async def early(wire: Wire) -> None:
            await wire.reader.readuntil(b"\r\n\r\n")
            wire.send(BUSY)  # and reads nothing of the form

        async with house(breaks, early, hears(forms, BUSY), hears(forms)) as rig, client_of(rig.port) as client:
            client.send(head(len(body)) + body[: 2 << 20])
            await asyncio.sleep(0.2)
            client.send(body[2 << 20 :])
            status, headers, _ = await client.answer()
            assert (status, headers["x-kenari-target"], headers["x-kenari-attempts"]) == (200, "p4/vendor-model", "4")
            assert forms[0] == forms[1]
            assert split(forms[1])[1] == ("file", AUDIO)
            await until(lambda: bool(rig.rig.books.lines))
            assert [leg.billed for leg in rig.line.legs] == [False, False, False, True]

    run(main())


def test_memory_is_bounded_and_a_slow_provider_is_not_flooded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """40 MB through a provider that reads slowly: memory stays small, and the file on disk has no name."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spools: list[spool_module.Spool] = []
    make = spool_module.Spool.__init__

    def made(self: spool_module.Spool, flow: Callable[[bool], None], memory: int = spool_module.MEMORY) -> None:
        spools.append(self)
        make(self, flow, memory)

    monkeypatch.setattr(spool_module.Spool, "__init__", made)

    async def main() -> None:
        size, got, most = 40 << 20, 0, 0
        fields = join([("model", b"m")])[: -len(b"--xyz--\r\n")]
        start = fields + b'--xyz\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        end = b"\r\n--xyz--\r\n"
        whole = asyncio.Event()

        async def play(wire: Wire) -> None:
            nonlocal got
            await wire.reader.readuntil(b"\r\n\r\n")
            while got < len(start) + size + len(end) + len("vendor-model") - 1:
                got += len(await wire.reader.read(1 << 20))
                if not whole.is_set():
                    await asyncio.sleep(0.02)
            wire.send(TEXT)

        limits = EdgeLimits(max_body=64 << 20)
        async with house(play, limits=limits) as rig, client_of(rig.port) as client:
            client.send(head(len(start) + size + len(end)) + start)
            block = bytes(1 << 20)
            tracemalloc.start()
            for _ in range(size >> 20):
                client.send(block)
                await client.writer.drain()
                most = max(most, len(spools[0]._tail) if spools else 0)  # pyright: ignore[reportPrivateUsage]
                assert os.listdir(tmp_path) == []
            client.send(end)
            await client.writer.drain()
            await until(lambda: spools[0].size > size)
            assert got < size  # the provider is behind; what came waits on disk
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            whole.set()
            assert (await client.answer())[0] == 200
            assert most < 2 << 20
            assert peak < 12 << 20

    run(main())


def test_a_client_that_goes_ends_the_call_u6() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def play(wire: Wire) -> None:
            await wire.reader.readuntil(b"\r\n\r\n")
            try:
                while await wire.reader.read(65536):
                    pass
            finally:
                gone.set()

        async with house(play) as rig:
            async with client_of(rig.port) as client:
                client.send(head(4 << 20) + form_of()[: 1 << 20])
                await asyncio.sleep(0.2)
            await asyncio.wait_for(gone.wait(), 1)
            await until(lambda: bool(rig.rig.books.lines))
            assert (rig.line.ending, rig.rig.books.open) == ("client_closed", 0)

    run(main())


def test_a_client_that_goes_before_the_model_is_known_leaves_a_line_and_no_bill() -> None:
    async def main() -> None:
        async with house(hears([])) as rig:
            async with client_of(rig.port) as client:
                client.send(head(4 << 20) + form_of(True)[: 1 << 20])
                await asyncio.sleep(0.1)
            await until(lambda: bool(rig.rig.books.lines))
            assert (rig.line.ending, rig.line.status, rig.line.legs) == ("client_closed", 499, [])

    run(main())


@pytest.mark.parametrize(
    ("key", "body", "more", "status", "word"),
    [
        ("kn-wrong", form_of(), "", 401, "key"),
        (KEY, form_of()[:-4] + b"xx\r\n", "", 400, "line of the form"),
        (KEY, form_of() + b"more", "", 400, "behind its last"),
        (KEY, join([("model", b"m"), ("file", AUDIO), ("model", b"n")]), "", 400, "model stands twice"),
        (KEY, join([("model", b"m"), ("language", b"id")]), "", 400, "file is required"),
        (KEY, join([("model", b"m"), ("file", b"")]), "", 400, "file is required"),
        (KEY, join([("file", AUDIO)]), "", 400, "model is required"),
        (KEY, join([("model", b"nothing"), ("file", AUDIO)]), "", 404, "nothing"),
        (KEY, form_of(), "expect: 100-continue\r\n", 200, "hello"),
    ],
)
def test_what_is_wrong_with_a_form_is_told_whenever_it_is_seen(
    key: str, body: bytes, more: str, status: int, word: str
) -> None:
    """Though the provider may have most of it by then; it has not failed, and is not asked for an answer."""

    async def main() -> None:
        forms: list[bytes] = []
        async with house(hears(forms), hears(forms)) as rig, client_of(rig.port) as client:
            client.send(head(len(body), more, key))
            if more:
                assert (await client.answer())[0] == 100
            client.send(body)
            got, headers, answer = await client.answer()
            assert (got, word in answer.decode()) == (status, True), answer
            assert len(forms) == (status == 200)
            if status == 401:
                assert headers["connection"] == "close"
                assert await client.ended() == b""
            await until(lambda: bool(rig.rig.books.lines))
            assert not any(leg.billed for leg in rig.line.legs) or status == 200
            assert rig.rig.books.open == 0

    run(main())


def test_a_wrong_key_is_told_before_the_form_comes() -> None:
    async def main() -> None:
        async with house(hears([])) as rig, client_of(rig.port) as client:
            client.send(head(10 << 20, "expect: 100-continue\r\n", "kn-wrong"))
            status, headers, _ = await client.answer()
            assert (status, headers["connection"]) == (401, "close")

    run(main())


def test_a_form_that_grows_too_large_is_413() -> None:
    async def main() -> None:
        async with house(hears([]), limits=EdgeLimits(max_body=1 << 20)) as rig, client_of(rig.port) as client:
            client.send(head(None) + b"200000\r\n" + form_of()[: 2 << 20])
            status, headers, _ = await client.answer()
            assert (status, headers["connection"]) == (413, "close")
        async with house(hears([]), limits=EdgeLimits(max_body=1 << 20)) as rig, client_of(rig.port) as client:
            client.send(head(2 << 20))
            assert (await client.answer())[0] == 413
            assert rig.rig.books.lines == []

    run(main())


@pytest.mark.usefixtures("quick")
def test_a_client_that_stops_sending_is_told_and_its_provider_is_not_blamed() -> None:
    async def main() -> None:
        limits = EdgeLimits(body_idle_seconds=0.3)
        async with house(hears([]), hears([]), limits=limits) as rig, client_of(rig.port) as client:
            client.send(head(4 << 20) + form_of()[: 1 << 20])
            status, _, answer = await client.answer()
            assert (status, b"too slowly" in answer) == (408, True)
            await until(lambda: bool(rig.rig.books.lines))
            assert [leg.outcome for leg in rig.line.legs] == ["request_timeout"]

    run(main())


def test_a_slow_client_is_not_the_providers_delay() -> None:
    """The time-out for the head and the deadline of the request begin when the form is there."""

    async def main() -> None:
        forms: list[bytes] = []
        body = form_of(file=AUDIO[: 1 << 19])
        timing = {"header_timeout": 0.25}
        async with (
            house(hears(forms), hears(forms), timing=timing, deadline=0.4) as rig,
            client_of(rig.port) as client,
        ):
            client.send(head(len(body)))
            for at in range(0, len(body), 100_000):
                client.send(body[at : at + 100_000])
                await asyncio.sleep(0.15)
            status, headers, _ = await client.answer()
            assert (status, headers["x-kenari-attempts"]) == (200, "1")

    run(main())


def test_a_silent_provider_is_left_in_time_and_the_next_one_has_the_form() -> None:
    async def main() -> None:
        forms: list[bytes] = []

        async def silent(wire: Wire) -> None:
            await wire.reader.read(1 << 16)
            await asyncio.sleep(9)

        async with (
            house(silent, hears(forms), timing={"header_timeout": 0.2}) as rig,
            client_of(rig.port) as client,
        ):
            client.send(head(len(form_of())) + form_of())
            assert (await client.answer())[0] == 200
            assert split(forms[0])[1] == ("file", AUDIO)
            await until(lambda: bool(rig.rig.books.lines))
            assert [leg.outcome for leg in rig.line.legs] == ["upstream_timeout", "ok"]

    run(main())


def test_a_pipelined_form_is_passed_on_too_when_its_turn_comes() -> None:
    async def main() -> None:
        forms: list[bytes] = []
        body = form_of()
        async with house(hears(forms)) as rig, client_of(rig.port) as client:
            client.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" + head(len(body)) + body + head(len(body)) + body)
            assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 200]
            assert [split(form)[1][1] for form in forms] == [AUDIO, AUDIO]

    run(main())


def test_a_full_disk_is_ours_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kenari.gateway.kinds.spool._append", full)

    async def main() -> None:
        async with house(hears([]), hears([])) as rig, client_of(rig.port) as client:
            client.send(head(len(form_of(True))) + form_of(True))
            status, _, answer = await client.answer()
            assert (status, b"no room" in answer) == (500, True)

    run(main())


class Watched(MemoryLimits):
    """Limits that keep the digests of bodies."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.bodies: list[bytes] = []

    async def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Admission:
        self.bodies.append(body)
        return await super().admit(caller, request_id, tokens, body)


def test_who_pays_is_admitted_by_the_beginning_and_the_length_of_a_form_f8_d25() -> None:
    """Limits and money are asked before the provider, though the form is not there yet; a form that is sent again is known
    by what is in it, whatever boundary its client made."""

    async def main() -> None:
        forms: list[bytes] = []
        body = form_of(file=wave(20.0))  # 160 kB
        limits, books = Watched(), PaidBooks(20 * 10**6)
        async with house(hears(forms), books=books, limits_of_use=limits) as rig:
            for number, (boundary, status) in enumerate(((b"xyz", 200), (b"abc", 402), (b"xyz", 402)), 1):
                said = head(len(body)).replace(b"xyz", boundary) + body.replace(b"xyz", boundary)
                async with client_of(rig.port) as client:
                    client.send(said[:100_000])
                    await until(lambda: len(books.reservations) == number)  # noqa: B023 - waited for here
                    client.send(said[100_000:] if status == 200 else b"")
                    assert (await client.answer())[0] == status
                await until(lambda: len(books.lines) == number)  # noqa: B023 - as above
            assert books.reservations[0].amount == 20 * 10**6
            assert (books.lines[0].legs[0].fee, books.balance, len(forms)) == (20 * 10**6, 0, 1)
            assert len({*limits.bodies}) == 1

    run(main())
