"""Runs of frames that differ in their text only, cut out of a provider's bytes at once (pure)."""

from operator import itemgetter

from kenari.core.events import Escaped
from kenari.dialects.base import Steady
from kenari.wire.jsonx import are_texts, is_text

TOGETHER = 2048
"""Bytes of one reading that are worth looking for a run in."""


def text_of(steady: Steady, data: bytes) -> Escaped:
    """The text of bytes that are one such frame and nothing else; b"" when they have to be read."""
    before, after = steady.before, steady.after
    if not data.startswith(before) or not data.endswith(after):
        return b""
    text = data[len(before) : -len(after)]
    return text if is_text(text) else b""


def run_of(steady: Steady, data: bytes) -> tuple[list[Escaped], int]:
    """The texts of the frames that `data` begins with, if they are such frames up to the last one of this form; and how
    many bytes they are: what comes behind them has to be read.

    They are cut at these places and put together again: if that gives the same bytes, they were all of that form, for
    none of the texts holds a bare quote or the end of a line. (Lines are split, not frames: one byte is found faster.)
    """
    before, after = steady.before, steady.after
    end = data.rfind(after) + len(after)
    if not data.startswith(before) or end < len(before) + len(after):
        return [], 0
    each = before.count(b"\n") + 2  # lines of a frame: its text is in the last but one
    lines = data.split(b"\n")
    del lines[-2 - data.count(b"\n", end) :]
    own = slice(len(before) - before.rfind(b"\n") - 1, 2 - len(after))
    texts = list(map(itemgetter(own), lines[each - 2 :: each]))
    if b"" in texts or not are_texts(texts):
        return [], 0
    again = texts.copy()  # put together in one step, for the bytes are many
    again[0] = before + again[0]
    again[-1] += after
    run = (after + before).join(again)  # shorter than `end` where the last frame has other lines and the same end
    return (texts, len(run)) if data.startswith(run) else ([], 0)


def opening_of(data: bytes) -> int:
    """How many bytes the first two frames are, all where there are fewer: after them a decoder mostly knows how the
    others look."""
    end = 0
    for _ in range(2):
        end = data.find(b"\n\n", end) + 2
        if end < 2:
            return len(data)
    return end
