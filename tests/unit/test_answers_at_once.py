"""An answer whose head came before on its connection is heard at once: as it would have been parsed (upstream/connection.py)."""

import asyncio
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from upstream_kit import Dummy

from kenari.core.errors import KenariError
from kenari.core.outbound import Hearer
from kenari.upstream.connection import Connection, HttpCall
from kenari.upstream.origin import origin_of
from kenari.upstream.pool import Pool

ORIGIN = origin_of("http://provider.test/v1")


class Ear:
    """Hears of a call, at once or piece by piece."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.end = ""
        self.at_once = False

    def on_whole(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """All of it."""
        assert not self.status
        self.status, self.headers, self.body, self.end, self.at_once = 200, headers, body, "end", True

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Its head."""
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        """More of it."""
        self.body += data

    def on_end(self) -> None:
        """Its end."""
        self.end = "end"

    def on_lost(self, error: KenariError) -> None:
        """Its loss."""
        self.end = error.code


async def heard(answers: list[list[bytes]], hears: bool) -> tuple[list[tuple[Any, ...]], int]:
    """What calls one after the other on one connection hear, each in these reads; how many of them at once."""
    pool: Pool[Connection] = Pool(asyncio.get_running_loop(), 60.0, 8)
    connection, wire = Connection(pool, ORIGIN), Dummy()
    connection.connection_made(wire)
    pool.put(connection)
    out: list[tuple[Any, ...]] = []
    at_once = 0
    for reads in answers:
        ear = Ear()
        hearer: Hearer | None = ear if hears else None
        call = HttpCall(Refuses(), ORIGIN, b"POST", 1.0, ear, hearer)
        idle = pool.idle_to(ORIGIN)
        if not idle or not idle.pop().send(call):
            out.append(("gone",))
            break
        for data in reads:
            if not wire.closed:
                connection.data_received(data)
        if not call.over:
            connection.connection_lost(None)
        headers = {name: value for name, value in ear.headers.items() if name != b"content-length"}
        out.append((ear.status, headers, ear.body, ear.end, pool.idle, call.over, call.connection is None))
        at_once += ear.at_once
    pool.close()
    return out, at_once


class Refuses:
    """Nothing is opened here."""

    def open_for(self, call: HttpCall) -> None:
        """The call is lost."""
        call.lose(KenariError("upstream_unavailable", "no"))


HEADS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nx-id: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-encoding: gzip\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n",
        b"HTTP/1.1 500 No\r\ncontent-length: %d\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ncontent-length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-note: content-length: 3\r\ncontent-length: 0%d\r\n\r\n",
    ]
)
ANSWERS = st.lists(
    st.tuples(st.integers(0, 1), st.binary(max_size=20), st.integers(-2, 2), st.integers(0, 80)), max_size=5
)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@given(heads=st.tuples(HEADS, HEADS), answers=ANSWERS)
@settings(max_examples=300, deadline=None)
@example((PLAIN, PLAIN), [(0, b"abc", 0, 0), (0, b"defg", 0, 0), (0, b"", 0, 0), (0, b"h", 1, 0)])
@example((PLAIN, PLAIN), [(0, b"abc", 0, 0), (0, b"defg", -1, 0), (0, b"x", 0, 0)])
@example((PLAIN, PLAIN), [(0, b"abc", 0, 0), (0, b"defg", 0, 70), (0, b"x", 0, 0)])
def test_at_once_is_as_parsed(heads: tuple[bytes, bytes], answers: list[tuple[int, bytes, int, int]]) -> None:
    """F4, M2: whatever a provider sends, each call hears the same, and the connection is kept or closed alike."""
    reads: list[list[bytes]] = []
    for which, body, off, cut in answers:
        data = heads[which] % max(0, len(body) + off) + body
        reads.append([piece for piece in (data[:cut], data[cut:]) if piece] if cut else [data])
    fast, slow = asyncio.run(heard(reads, hears=True)), asyncio.run(heard(reads, hears=False))
    assert fast[0] == slow[0]


def test_it_is_heard_at_once() -> None:
    """The short way is taken from the second answer on, with another length too."""
    reads = [[PLAIN % len(body) + body] for body in (b"a", b"bb", b"ccc" * 9)]
    out, at_once = asyncio.run(heard(reads, hears=True))
    assert [one[2] for one in out] == [b"a", b"bb", b"ccc" * 9]
    assert at_once == 2


def test_a_connection_that_cannot_be_used_again_is_not_kept() -> None:
    """The provider did not read all of the request, or closes: the answer is heard, the connection ends."""

    async def play(what: str) -> tuple[str, int, bool]:
        pool: Pool[Connection] = Pool(asyncio.get_running_loop(), 60.0, 8)
        connection, wire = Connection(pool, ORIGIN), Dummy()
        connection.connection_made(wire)
        for turn in range(2):
            ear = Ear()
            assert connection.send(HttpCall(Refuses(), ORIGIN, b"POST", 1.0, ear, ear))
            if turn:
                wire.closed, wire.waits = what == "closes", 5 if what == "waits" else 0
            connection.data_received(PLAIN % 1 + b"x")
            if not turn:
                assert pool.idle_to(ORIGIN).pop() is connection
        idle, closing = pool.idle, wire.closed
        pool.close()
        return ear.end, idle, closing  # pyright: ignore[reportPossiblyUnboundVariable]

    for what in ("closes", "waits"):
        assert asyncio.run(play(what)) == ("end", 0, True)
