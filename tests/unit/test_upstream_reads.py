"""What one reading of a provider's answer brings is handed over at once (upstream/connection.py), without sockets."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kenari.core.errors import KenariError
from kenari.core.ports import Receiver
from kenari.upstream.connection import Connection, HttpCall
from kenari.upstream.origin import Origin
from kenari.upstream.pool import Pool

ORIGIN = Origin(tls=False, host="h", port=1, authority="h:1", place="")
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
END = b"0\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        """Nobody reads."""

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


class Ear:
    """A receiver that remembers each thing it hears; `act` does something with it."""

    def __init__(self, act: Callable[[str], None] | None = None) -> None:
        self.heard: list[bytes | str] = []
        self._act = act

    def _note(self, what: bytes | str, kind: str) -> None:
        self.heard.append(what)
        if self._act is not None:
            self._act(kind)

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._note("head", "head")

    def on_body(self, data: bytes) -> None:
        self._note(data, "body")

    def on_end(self) -> None:
        self._note("end", "end")

    def on_lost(self, error: KenariError) -> None:
        self._note(error.code, "lost")

    @property
    def bodies(self) -> list[bytes]:
        return [what for what in self.heard if isinstance(what, bytes)]


class Opener:
    """Opens nothing."""

    def open_for(self, call: HttpCall) -> None:
        raise AssertionError


class Line:
    """A connection with one call on it."""

    def __init__(self, receiver: Receiver) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool: Pool[Connection] = Pool(self.loop, 60.0, 10)
        self.connection = Connection(self.pool, ORIGIN)
        self.connection.connection_made(Wire())
        self.call = HttpCall(Opener(), ORIGIN, b"", 1.0, receiver)
        self.connection.send(self.call)

    def read(self, *reads: bytes) -> None:
        for data in reads:
            self.connection.data_received(data)

    def close(self) -> None:
        self.pool.close()
        self.loop.close()


def chunks(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def heard(*reads: bytes, act: Callable[[str], None] | None = None) -> list[bytes | str]:
    ear = Ear(act)
    line = Line(ear)
    line.read(*reads)
    line.close()
    return ear.heard


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 1500), max_size=6),
    coded=st.booleans(),
)
@settings(max_examples=200, deadline=None)
@example([b"a", b"b", b"c"], [], True)
def test_a_reading_is_handed_over_once_and_in_order(pieces: list[bytes], cuts: list[int], coded: bool) -> None:
    """However many chunks came with it."""
    plain = b"".join(pieces)
    line = b"content-encoding: gzip\r\n" if coded else b""
    told = [gzip.compress(piece) for piece in pieces] if coded else pieces
    data = HEAD + line + b"\r\n" + chunks(*told) + END
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    reads = [data[at:to] for at, to in zip(places, places[1:], strict=False) if to > at]
    ear = Ear()
    line_ = Line(ear)
    for number, read in enumerate(reads, 1):
        line_.read(read)
        assert len(ear.bodies) <= number
    assert ear.heard == ["head", *ear.bodies, "end"]
    assert b"".join(ear.bodies) == plain
    assert line_.pool.idle == 1
    line_.close()


def test_many_chunks_of_one_reading_are_one_piece() -> None:
    assert heard(HEAD + b"\r\n" + chunks(b"a", b"b"), chunks(b"c", b"d", b"e") + END) == ["head", b"ab", b"cde", "end"]


def test_what_came_before_a_fault_is_heard_before_it() -> None:
    """The chunks of a reading, then the loss; a coding that breaks in its middle too."""
    assert heard(HEAD + b"\r\n" + chunks(b"a", b"b") + b"zz\r\n") == ["head", b"ab", "upstream_error"]
    coded = chunks(gzip.compress(b"one"), b"no gzip at all")
    assert heard(HEAD + b"content-encoding: gzip\r\n\r\n" + coded) == ["head", b"one", "upstream_error"]


def test_a_call_that_is_broken_off_in_its_callback_hears_no_more() -> None:
    """At the head before the chunks of the same reading, and at these before the end of the answer."""
    for moment in ("head", "body"):
        lines: list[Line] = []

        def act(kind: str, moment: str = moment, lines: list[Line] = lines) -> None:
            if kind == moment:
                lines[0].call.abort()

        ear = Ear(act)
        lines.append(Line(ear))
        lines[0].read(HEAD + b"\r\n" + chunks(b"a", b"b") + END)
        assert ear.heard == (["head"] if moment == "head" else ["head", b"ab"])
        assert lines[0].pool.idle == 0
        lines[0].close()


def test_a_fault_of_ours_at_a_whole_answer_is_no_end() -> None:
    """The receiver fails over the last bytes: it hears that the call failed, and the connection is not used again."""
    lines: list[Line] = []

    def act(kind: str) -> None:
        if kind == "body":
            raise RuntimeError("a secret")

    ear = Ear(act)
    lines.append(Line(ear))
    lines[0].read(HEAD + b"\r\n" + chunks(b"a", b"b") + END)
    assert ear.heard == ["head", b"ab", "upstream_error"]
    assert lines[0].pool.idle == 0
    lines[0].close()


def test_a_pause_in_the_callback_of_a_whole_answer_does_not_last() -> None:
    """The connection reads on for the next call."""
    lines: list[Line] = []
    ear = Ear(lambda kind: lines[0].call.pause() if kind == "body" else None)
    lines.append(Line(ear))
    wire = lines[0].connection
    reading: list[bool] = []
    transport: Any = wire._transport  # pyright: ignore[reportPrivateUsage]
    transport.pause_reading, transport.resume_reading = lambda: reading.append(False), lambda: reading.append(True)
    lines[0].read(HEAD + b"\r\n" + chunks(b"a") + END)
    assert ear.heard == ["head", b"a", "end"]
    assert reading == [False, True]
    lines[0].close()
