"""What one reading of a provider's answer brings is handed over at once (upstream/connection.py), without sockets."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from upstream_kit import Dummy

from kenari.core.errors import KenariError
from kenari.core.outbound import Receiver
from kenari.upstream.connection import Connection, HttpCall
from kenari.upstream.origin import Origin
from kenari.upstream.pool import Pool

ORIGIN = Origin(tls=False, host="h", port=1, authority="h:1", place="")
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
END = b"0\r\n\r\n"


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
        self.connection.connection_made(Dummy())
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


def test_a_fault_of_ours_at_the_end_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody waits for it: nothing else would come of the call."""

    def act(kind: str) -> None:
        if kind == "end":
            raise RuntimeError("a secret")

    ear = Ear(act)
    line = Line(ear)
    line.read(HEAD + b"\r\n" + chunks(b"a") + END)
    assert ear.heard == ["head", b"a", "end", "upstream_error"]
    assert "RuntimeError while reading an answer" in caplog.text
    assert "a secret" not in caplog.text
    line.close()


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


class Quick:
    """Takes chunks of one form as they come."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.taken: list[bytes] = []

    def take(self, data: bytes) -> bool:
        self.asked.append(data)
        one = data.endswith(b"\n\n\r\n") and data == chunks(data[data.index(b"\r\n") + 2 : -2])
        if one:
            self.taken.append(data[data.index(b"\r\n") + 2 : -2])
        return one


@given(
    frames=st.lists(st.sampled_from([b"a", b"b" * 300, b"\n\nc", b"d\n\n0"]), min_size=1, max_size=10),
    together=st.lists(st.integers(1, 3), min_size=1, max_size=10),
    cuts=st.lists(st.integers(0, 1500), max_size=6),
    cut_frames=st.booleans(),
)
@settings(max_examples=300, deadline=None)
@example([b"a", b"b", b"c"], [1], [], False)
def test_bytes_that_are_taken_unread_are_whole_chunks(
    frames: list[bytes], together: list[int], cuts: list[int], cut_frames: bool
) -> None:
    """L1: wherever readings and chunks are cut, all bytes are heard once: those that the call took, and the others."""
    body = b"".join(frame + b"\n\n" for frame in frames)
    pieces: list[bytes] = []
    left = [frame + b"\n\n" for frame in frames]
    while left:
        many = together[len(pieces) % len(together)]
        pieces.append(b"".join(left[:many]))
        left = left[many:]
    if cut_frames:
        pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    said = [chunks(piece) for piece in pieces]
    data = b"".join(said)
    places = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    reads = said if not cuts else [data[at:to] for at, to in zip(places, places[1:], strict=False) if to > at]
    quick = Quick()
    whole = b""

    def act(kind: str) -> None:  # as an attempt does it: only while all that was said is whole
        nonlocal whole
        if kind == "body":
            whole = b"".join(ear.bodies) if not quick.taken else whole + ear.bodies[-1]
            line.call.hasten(quick.take if whole.endswith(b"\n\n") else None)

    ear = Ear(act)
    line = Line(ear)
    line.read(HEAD + b"\r\n")
    order: list[bytes] = []
    for read in reads:
        before = len(quick.taken), len(ear.bodies)
        line.read(read)
        order += [*quick.taken[before[0] :], *ear.bodies[before[1] :]]
    line.read(END)
    assert b"".join(order) == body
    assert ear.heard[-1] == "end"
    assert line.pool.idle == 1
    if not cuts and not cut_frames:
        assert len(quick.taken) == len(pieces) - 1  # all but the first one
    line.close()


def test_nothing_is_offered_that_is_no_chunk_of_a_plain_body() -> None:
    """A body with a length, a compressed one, one whose events end in CRLF (by the receiver's leave), and after an end or
    a break."""
    plain = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n"
    frame = b"data: x\n\n"
    stored = b"\x00\x09\x00\xf6\xff" + frame  # a block of deflate that is not compressed
    for head, first in (
        (plain, frame),
        (HEAD + b"content-encoding: gzip\r\n\r\n", chunks(gzip.compress(b"")[:10] + stored)),
        (HEAD + b"\r\n", b"6\r\ndata: "),
    ):
        quick, lines = Quick(), list[Line]()
        lines.append(Line(Ear(lambda _, quick=quick, lines=lines: lines[0].call.hasten(quick.take))))
        lines[0].read(head + first)
        lines[0].read(chunks(stored) if b"gzip" in head else frame)
        assert lines[0].call.quick is not None
        assert not quick.asked
        lines[0].close()
    for moment in ("abort", "hasten", "lost", "end"):
        quick, lines = Quick(), list[Line]()
        lines.append(Line(Ear(lambda _, quick=quick, lines=lines: lines[0].call.hasten(quick.take))))
        line = lines[0]
        line.read(HEAD + b"\r\n" + chunks(frame), chunks(frame))
        assert quick.taken == [frame]
        if moment == "abort":
            line.call.abort()
        elif moment == "hasten":
            line.call.hasten(None)
        elif moment == "lost":
            line.connection.connection_lost(None)
        else:
            line.read(END)
        assert line.connection.quick is None
        asked = len(quick.asked)
        line.connection.data_received(chunks(frame))
        assert len(quick.asked) == asked
        line.close()
