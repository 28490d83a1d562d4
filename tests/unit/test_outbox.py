"""Writes of one turn of the loop follow each other (wire/outbox.py)."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from edge_kit import Client, Desk, client_of, edge_for, run
from hypothesis import given, settings
from hypothesis import strategies as st
from test_edge_connections import secured

from kenari.core.ports import Exchange
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import listen
from kenari.wire.outbox import ALONE, MOST, MOST_BYTES, TRUSTED, Outbox, Transport


class Wire:
    """A transport that notes what is written to it, in the list of all."""

    def __init__(self, name: str, log: list[tuple[str, bytes]]) -> None:
        self.name, self.log, self.closing = name, log, False

    def write(self, data: bytes) -> None:
        self.log.append((self.name, data))

    def is_closing(self) -> bool:
        return self.closing


async def busy(outbox: Outbox) -> None:
    """Make it wait: turns are shared."""
    log: list[tuple[str, bytes]] = []
    wire = Wire("", log)
    for _ in range(TRUSTED):
        outbox.put(wire, b"")
    for _ in range(2):
        outbox.put(wire, b"1")
        outbox.put(wire, b"2")
        await asyncio.sleep(0)


async def shared(*names: str) -> tuple[Outbox, list[tuple[str, bytes]], list[Wire]]:
    """An outbox whose turns are shared, and transports of it with what is written to them."""
    outbox, log = Outbox(asyncio.get_running_loop().call_soon), list[tuple[str, bytes]]()
    await busy(outbox)
    return outbox, log, [Wire(name, log) for name in names]


def test_writes_of_a_turn_that_is_shared_come_at_its_end_in_their_order() -> None:
    async def main() -> None:
        outbox, log, (one, two) = await shared("one", "two")
        outbox.put(one, b"a")
        outbox.put(two, b"b")
        outbox.put(one, b"c")
        assert log == []
        await asyncio.sleep(0)
        assert log == [("one", b"a"), ("two", b"b"), ("one", b"c")]

    run(main())


def test_who_is_alone_does_not_wait_and_looks_again_from_time_to_time() -> None:
    async def main() -> None:
        outbox, log = Outbox(asyncio.get_running_loop().call_soon), list[tuple[str, bytes]]()
        wire = Wire("one", log)
        outbox.put(wire, b"a")  # at first too
        assert len(log) == 1
        await busy(outbox)
        waited = 0
        for number in range(3 * (ALONE + TRUSTED)):
            before = len(log)
            outbox.put(wire, b"%d" % number)
            waited += len(log) == before
            await asyncio.sleep(0)
            assert len(log) == before + 1
        assert ALONE < waited < 3 * ALONE

    run(main())


def test_nobody_waits_for_very_many_others() -> None:
    async def main() -> None:
        outbox, log = Outbox(asyncio.get_running_loop().call_soon), list[tuple[str, bytes]]()
        await busy(outbox)
        for number in range(MOST + 3):
            outbox.put(Wire(str(number), log), b"x")
        assert [name for name, _ in log] == [str(number) for number in range(MOST)]
        await asyncio.sleep(0)
        assert len(log) == MOST + 3

    run(main())


def test_few_bytes_wait() -> None:
    """Back-pressure: a transport tells that its reader is slow when it has the bytes, and a flood is read in one turn."""

    async def main() -> None:
        outbox, log = Outbox(asyncio.get_running_loop().call_soon), list[tuple[str, bytes]]()
        await busy(outbox)
        slow = Wire("slow", log)
        piece = b"x" * (MOST_BYTES // 4)
        for number in range(1, 13):
            outbox.put(slow, piece)
            assert number - len(log) < 4
        outbox.put(slow, b"y")
        outbox.put(slow, MOST_BYTES * b"z")
        assert [data[:1] for _, data in log] == [b"x"] * 12 + [b"y", b"z"]
        outbox.put(slow, MOST_BYTES * b"z")
        assert len(log) == 15

    run(main())


def test_what_is_for_a_connection_that_was_broken_off_is_dropped() -> None:
    async def main() -> None:
        outbox, log, (gone, there) = await shared("gone", "there")
        outbox.put(gone, b"a")
        outbox.put(there, b"b")
        gone.closing = True
        outbox.flush()
        assert log == [("there", b"b")]
        await asyncio.sleep(0)
        assert log == [("there", b"b")]

    run(main())


@given(turns=st.lists(st.lists(st.sampled_from("abc"), max_size=MOST + 5), max_size=30))
@settings(max_examples=50, deadline=None)
def test_each_connection_gets_its_bytes_in_order_whatever_the_turns(turns: list[list[str]]) -> None:
    async def main() -> None:
        outbox, log = Outbox(asyncio.get_running_loop().call_soon), list[tuple[str, bytes]]()
        wires = {name: Wire(name, log) for name in "abc"}
        sent: list[tuple[str, bytes]] = []
        for turn in turns:
            for name in turn:
                data = b"%d" % len(sent)
                sent.append((name, data))
                outbox.put(wires[name], data)
            await asyncio.sleep(0)
        assert log == sent

    run(main())


class Waiting(Outbox):
    """Everything waits for the end of its turn."""

    def put(self, transport: Transport, data: bytes) -> None:
        self._alone = 0
        super().put(transport, data)


@pytest.mark.parametrize("ending", [b"connection: close\r\n", b""])
def test_what_waits_is_written_before_a_connection_is_closed(ending: bytes) -> None:
    """Over real sockets: many clients in one turn, whose connections end with their answers or live on."""

    async def main() -> None:
        async with edge_for(Desk()) as (edge, port):
            edge.outbox = Waiting(edge.loop.call_soon)
            pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _ in range(1 if ending else 3):
                for _, writer in pairs:
                    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n" + ending + b"\r\n")
                for reader, _ in pairs:
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
                    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                    await asyncio.wait_for(reader.readexactly(length), 5)
            for reader, writer in pairs:
                if ending:
                    assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()

    run(main())


async def said_at_once(client: Client, trust: ssl.SSLContext, words: bytes) -> bytes:
    """What comes back for words that come with the goodbye of TLS, in one piece."""
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    secret = trust.wrap_bio(came, goes, server_hostname="localhost")
    while True:
        try:
            secret.do_handshake()
            break
        except ssl.SSLWantReadError:
            client.send(goes.read())
            came.write(await asyncio.wait_for(client.reader.read(65536), 5))
    secret.write(words)
    with pytest.raises(ssl.SSLWantReadError):
        secret.unwrap()
    client.send(goes.read())
    came.write(await client.ended())
    got = b""
    with contextlib.suppress(ssl.SSLZeroReturnError):
        while data := secret.read(65536):
            got += data
    return got


def test_what_waits_is_written_before_a_client_that_says_goodbye_is_gone(tmp_path: Path) -> None:
    """Its request, which is answered at once, and its goodbye come in one reading."""

    def begin(exchange: Exchange) -> None:
        exchange.answer(400, b"", b"no")

    async def main() -> None:
        context, trust = secured(tmp_path)
        desk = Desk()
        edge = Edge(desk.serve, desk.refuse, EdgeLimits())
        edge.begin, edge.outbox = begin, Waiting(edge.loop.call_soon)
        address = await listen(edge, "127.0.0.1:0", context)
        try:
            async with client_of(int(address.rpartition(":")[2])) as client:
                got = await said_at_once(client, trust, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        finally:
            edge.close()
        assert await edge.wait_closed(5)
        assert got.endswith(b"no")

    run(main())
