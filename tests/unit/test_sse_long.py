"""Frames that are long and come in very many pieces: pictures and the arguments of tools in one event."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kenari.core.errors import KenariError
from kenari.wire import sse
from kenari.wire.sse import Frame, Frames


def test_a_long_frame_in_many_pieces_is_looked_through_once() -> None:
    """Every piece of a segment's size: the time grows with the frame, not with its square."""
    data = b"data: " + b"a" * (4 << 20) + b"\n\n"
    frames, got = Frames(), list[Frame]()
    began = time.process_time()
    for start in range(0, len(data), 1400):
        got += frames.feed(data[start : start + 1400])
    assert [len(frame.data) for frame in got] == [4 << 20]
    assert time.process_time() - began < 1.5


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    whole=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_long_frames_are_the_same_at_any_cut(end: bytes, sizes: list[int], cuts: list[int], whole: bool) -> None:
    """L1. Frames beyond the bound and below it, in turns, and one without its blank line."""
    lines = [b"event: e%dLdata: %bLdata: ,LL" % (number, b"x" * size) for number, size in enumerate(sizes)]
    data = b"".join(lines).replace(b"L", end)
    if not whole:
        data = data[: -len(end)]
    before = sse.LONG
    sse.LONG = 16
    try:
        frames, got, at, turn = Frames(), list[Frame](), 0, 0
        while at < len(data):
            size = cuts[turn % len(cuts)]
            got += frames.feed(data[at : at + size])
            at, turn = at + size, turn + 1
        got += frames.flush()
    finally:
        sse.LONG = before
    assert got == [Frame(b"e%d" % number, b"x" * size + b"\n,") for number, size in enumerate(sizes)]


def test_a_frame_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small its pieces are; and what waits says that the next bytes begin no frame."""
    monkeypatch.setattr(sse, "MAX_FRAME", 3 * sse.LONG)
    frames = Frames()

    def flood() -> None:
        for _ in range(sse.LONG):
            frames.feed(b"xx")

    assert not frames.feed(b"data: x\n\n")[1:]
    assert frames.level
    assert not frames.feed(b"data: " + b"x" * 2 * sse.LONG)
    assert not frames.level
    with pytest.raises(KenariError, match="too large"):
        flood()
