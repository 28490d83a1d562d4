"""The way of one more piece of a steady stream: from the bytes of the provider's connection to those of the client's.

Many streams take turns, and each finds its code and its objects cold: what an event costs is how much different code and
how many different objects it walks through. Here it is one function and one object. Whatever is not exactly one more
piece in a chunk of its own is left to the ordinary way, which gives the same (tests/unit/test_quick.py).
"""

from collections.abc import Callable

from kenari.dialects.base import Speaker, Steady, literal
from kenari.gateway.tally import Tally
from kenari.wire.http1 import CHUNK
from kenari.wire.jsonx import is_text

_THREE_DIGITS = 256 + 6
"""Bytes of the shortest chunk whose length has three digits, were they two; those of four are left to the parser."""


class Quick:
    """Takes chunks of one form. `write` takes chunks for the client, `tally` counts along. `last` is the loop's time of the
    last piece, `said` how many bytes of text came since that was noted."""

    __slots__ = (
        "_around",
        "_clock",
        "_end",
        "_form",
        "_frame",
        "_keep",
        "_numbers",
        "_start",
        "_tally",
        "_told",
        "_write",
        "last",
        "said",
    )

    def __init__(
        self,
        steady: Steady,
        speaker: Speaker,
        write: Callable[[bytes], None],
        clock: Callable[[], float],
        tally: Tally | None,
    ) -> None:
        self._form = b"%x\r\n" + literal(steady.before) + b"%b" + literal(steady.after) + b"\r\n"
        self._start, self._end = 4 + len(steady.before), -2 - len(steady.after)
        self._frame, self._numbers, self._keep = speaker.frame, speaker.numbers, speaker.keep
        self._told = b"%x\r\n" + self._frame + b"\r\n"
        self._around = 0 if self._numbers is not None else len(self._frame % b"")
        self._write = write
        self._clock, self._tally = clock, tally
        self.last = clock()
        self.said = 0

    def take(self, data: bytes) -> bool:
        """Whether these bytes, which begin at the border of two chunks, were one more piece and nothing else."""
        size = len(data)
        if size < _THREE_DIGITS:
            text = data[self._start : self._end]
            size -= 6
        else:
            text = data[self._start + 1 : self._end]
            size -= 7
        if self._form % (size, text) != data:
            return self._in_capitals(data) and self.take(data)
        if not text or not is_text(text):
            return False
        tally = self._tally
        if tally is not None and not tally.add_text(text):
            return False
        clock, write, numbers, keep = self._clock, self._write, self._numbers, self._keep
        self.last = clock()
        self.said += len(text)
        if keep is not None:
            keep(text)
        if numbers is None:
            write(self._told % (self._around + len(text), text))
        else:
            out = self._frame % (text, next(numbers))
            write(CHUNK % (len(out), out))
        return True

    def _in_capitals(self, data: bytes) -> bool:
        """Whether this provider writes lengths in capitals: then look again."""
        if self._form.startswith(b"%X") or not data[:3].isupper():
            return False
        self._form = b"%X" + self._form[2:]
        return True
