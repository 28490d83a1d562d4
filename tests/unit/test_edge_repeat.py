"""A head that a client sends again is recognised, and means what llhttp made of it the first time (doors/repeat.py)."""

import asyncio
import gc
import tracemalloc
from collections.abc import Coroutine
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange, Take
from kenari.doors.connection import Connection
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.repeat import Repeat
from kenari.wire.repeat import LONGEST, known_head

Seen = tuple[str, str, str, dict[bytes, bytes], bytes, str]


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 5) if name == "peername" else default


async def heard(reads: list[bytes], remembers: bool) -> tuple[list[Seen], list[str], list[int], int]:
    """The requests that a connection made of these reads, its refusals, the sizes of its answers, and how many heads
    were recognised."""
    seen: list[Seen] = []
    refused: list[str] = []

    async def serve(one: Exchange) -> None:
        seen.append((one.method, one.path, one.query, one.headers, one.body, one.peer))
        one.answer(200, b"", b"ok")

    def refuse(one: Exchange, error: KenariError) -> None:
        refused.append(error.code)
        one.answer(error.status, b"", b"no")

    edge = Edge(serve, refuse, EdgeLimits(max_body=40, max_head=400))
    connection, wire, again = edge(), Wire(), 0
    connection.connection_made(wire)
    for data in reads:
        if wire.closing:
            break
        if not remembers:
            connection._known = None  # pyright: ignore[reportPrivateUsage]
        known = connection._known  # pyright: ignore[reportPrivateUsage]
        if known is not None and known.again(data, "x", 40) is not None:
            again += 1
        connection.data_received(data)
        for _ in range(6):
            await asyncio.sleep(0)
    edge.close()
    connection.connection_lost(None)
    return seen, refused, [len(data) for data in wire.written], again


def head(method: str, extra: bytes, spelling: bytes) -> bytes:
    """A request up to its length."""
    return method.encode() + b" /v1/x?a=%20b HTTP/1.1\r\nHost: h\r\n" + extra + spelling


HEADS = st.builds(
    head,
    st.sampled_from(["POST", "PUT"]),
    st.sampled_from(
        [
            b"",
            b"Connection: keep-alive\r\n",
            b"Connection: close\r\n",
            b"X-A: 1\r\nx-a: 2\r\n",
            b"Expect: 100-continue\r\n",
            b"Upgrade: h2c\r\nConnection: upgrade\r\n",
            b"X-Note: content-length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
        ]
    ),
    st.sampled_from([b"Content-Length: ", b"content-length:", b"CONTENT-LENGTH:  "]),
)
LENGTHS = st.sampled_from([b"%d", b"0%d", b"%d ", b"+%d", b"%d\r\nX-B: c", b"%d\r\nContent-Length: 1"])
BODIES = st.binary(max_size=44)
REQUESTS = st.lists(st.tuples(st.integers(0, 1), LENGTHS | st.just(b"%d"), BODIES, st.integers(-2, 2)), max_size=6)


@given(heads=st.tuples(HEADS, HEADS), requests=REQUESTS)
@settings(max_examples=300, deadline=None)
@example(
    (head("POST", b"", b"content-length: "), b""), [(0, b"%d", b"abc", 0), (0, b"%d", b"defg", 0), (0, b"%d", b"", 0)]
)
@example(
    (head("POST", b"", b"content-length: "), b""), [(0, b"%d", b"abc", 0), (0, b"%d", b"defg", 2), (0, b"%d", b"", 0)]
)
@example(
    (head("POST", b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"content-length: "), b""),
    [(0, b"%d", b"a", 0), (0, b"%d", b"", 0)],
)
def test_a_head_that_comes_again_means_the_same(
    heads: tuple[bytes, bytes], requests: list[tuple[int, bytes, bytes, int]]
) -> None:
    """F13: whatever comes on a connection, what is recognised is what would have been parsed."""
    reads = [
        heads[which] + (spelling % max(0, len(body) + off)) + b"\r\n\r\n" + body
        for which, spelling, body, off in requests
    ]
    fast, slow = asyncio.run(heard(reads, remembers=True)), asyncio.run(heard(reads, remembers=False))
    assert fast[:3] == slow[:3]


def test_a_head_that_is_cut_is_none() -> None:
    """Whatever else is in the bytes, and however its length may be read."""
    whole = b"POST / HTTP/1.1\r\ncontent-length: 5\r\nx: y\r\n\r\nhello"
    head = known_head(whole, 5)
    assert head is not None
    assert head.body_of(whole) == b"hello"
    assert head.body_of(whole.replace(b": 5", b": 11") + b" world") == b"hello world"
    assert head.body_of(whole.replace(b": 5", b": 05")) is None
    for end in range(len(whole)):
        assert head.body_of(whole[:end]) is None
    for size in range(len(head.after) + 12):  # as if nothing stood behind a length
        assert head.body_of(head.before + b"%d" % size + b"x" * 1) is None
        assert (
            head.body_of(head.before + b"%d" % (size + 1) + b"x" * (size + len(head.after) - len(head.before))) is None
        )


def test_it_is_recognised() -> None:
    """The short way is taken, with another length too, and gives each request its own body and length."""
    first = head("POST", b"Authorization: Bearer k\r\nConnection: keep-alive\r\n", b"Content-Length: ")
    reads = [first + b"%d\r\n\r\n%b" % (len(body), body) for body in (b"a", b"bb", b"ccc" * 5)]
    seen, refused, _, again = asyncio.run(heard(reads, remembers=True))
    assert again == 2
    assert refused == []
    assert [one[4] for one in seen] == [b"a", b"bb", b"ccc" * 5]
    assert [one[3][b"content-length"] for one in seen] == [b"1", b"2", b"15"]


def test_every_request_has_an_id_of_its_own() -> None:
    """D14: also one whose head was recognised."""
    ids: list[str] = []

    async def run() -> None:
        async def serve(one: Exchange) -> None:
            ids.append(one.id)
            one.answer(200, b"", b"")

        edge = Edge(serve, lambda one, error: None, EdgeLimits())
        connection: Connection = edge()
        connection.connection_made(Wire())
        for _ in range(600):
            connection.data_received(b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\nx")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert isinstance(connection._known, Repeat)  # pyright: ignore[reportPrivateUsage]
        edge.close()
        connection.connection_lost(None)

    asyncio.run(run())
    assert len(set(ids)) == 600
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in ids)


def test_who_leads_is_asked_about_the_same_head_only() -> None:
    """A1: until the head is another, or others serve; a fault of theirs is answered like any."""

    async def play() -> list[str]:
        taken: list[str] = []
        waiting: list[Exchange] = []

        def leader(name: str) -> Take:
            def take(one: Exchange) -> bool:
                if one.body == b"fail":
                    raise ValueError
                if one.body == b"no":
                    return False
                taken.append(name)
                one.answer(200, b"", b"ok")
                return True

            return take

        def begin(one: Exchange) -> None:
            taken.append("begun")
            one.lead(leader(one.headers[b"x-key"].decode()))
            waiting.append(one)

        async def serve(one: Exchange) -> None:
            one.answer(200, b"", b"ok")

        def refuse(one: Exchange, error: KenariError) -> None:
            taken.append(error.code)
            one.answer(error.status, b"", b"no")

        edge = Edge(serve, refuse, EdgeLimits(max_body=40, max_head=400))
        edge.begin = begin
        connection, wire = edge(), Wire()
        connection.connection_made(wire)

        def send(key: str, *bodies: str) -> None:
            head = f"POST /x HTTP/1.1\r\nhost: h\r\nx-key: {key}\r\ncontent-length: "
            connection.data_received("".join(f"{head}{len(body)}\r\n\r\n{body}" for body in bodies).encode())
            while waiting:
                waiting.pop().answer(200, b"", b"ok")

        for key, body in (("a", "1"), ("a", "2"), ("a", "3"), ("a", "no"), ("a", "fail"), ("a", "4")):
            send(key, body)
        for key, body in (("b", "1"), ("a", "1"), ("a", "2"), ("a", "3")):
            send(key, body)
        send("b", "1", "2")  # two at once are not remembered: the head before them still is, and they do not lead it
        send("a", "4")
        taken.append("reload")
        edge.hand_to(serve, begin, refuse, edge.screen)
        for _ in range(3):
            send("a", "1")
        assert len(wire.written) == sum(name != "reload" for name in taken)
        return taken

    assert asyncio.run(play()) == [
        *("begun", "begun", "a", "begun", "internal_error", "a"),
        *("begun", "begun", "begun", "a"),
        *("begun", "begun", "a"),
        *("reload", "begun", "begun", "a"),
    ]


def test_what_stands_before_a_head_is_not_part_of_it() -> None:
    """F13: the end of the request before may come in the same reading, and that request be answered at once."""
    asked = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n"

    async def play() -> list[bytes]:
        wire = Wire()

        async def serve(one: Exchange) -> None:
            one.answer(200, b"", one.body)

        def begin(one: Exchange) -> Coroutine[Any, Any, None] | None:
            return one.answer(200, b"", one.body) if one.body == b"end" else serve(one)

        edge = Edge(serve, lambda one, error: one.answer(error.status, b"", b"no"), EdgeLimits())
        edge.begin = begin
        connection = edge()
        connection.connection_made(wire)
        for data in (asked + "e", "nd" + asked + "abc", "nd" + asked + "def"):
            connection.data_received(data.encode())
            for _ in range(4):
                await asyncio.sleep(0)
        edge.close()
        connection.connection_lost(None)
        return [data[9:12] + data.partition(b"\r\n\r\n")[2] for data in wire.written]

    assert asyncio.run(play()) == [b"200end", b"200abc", b"400no"]


def test_what_a_connection_was_told_goes_with_it() -> None:
    """F13: heads are up to 64 KiB, and clients come faster than the collector."""

    async def play() -> int:
        async def serve(one: Exchange) -> None:
            one.answer(200, b"", b"ok")

        edge = Edge(serve, lambda one, error: None, EdgeLimits())
        before = 0
        for number in range(40):
            connection = edge()
            connection.connection_made(Wire())
            told = b"POST / HTTP/1.1\r\nx-number: %d\r\nx-long: %b\r\ncontent-length: 1\r\n\r\nx"
            for _ in range(2):
                connection.data_received(told % (number, b"y" * 7_000))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            connection.connection_lost(None)
            if number == 10:
                before = tracemalloc.get_traced_memory()[0]
        edge.close()
        return tracemalloc.get_traced_memory()[0] - before

    gc.disable()
    tracemalloc.start()
    try:
        assert asyncio.run(play()) < 29 * 4_000
    finally:
        tracemalloc.stop()
        gc.enable()


def test_a_long_head_is_not_kept_while_its_connection_is_idle() -> None:
    """A client that has sent 64 KiB once would have twice that kept for it, for as long as it likes."""
    for size in (LONGEST - 60, LONGEST):
        data = b"POST / HTTP/1.1\r\nx-long: %b\r\ncontent-length: 1\r\n\r\nx" % (b"y" * size)
        assert (known_head(data, 1) is None) is (size == LONGEST)
