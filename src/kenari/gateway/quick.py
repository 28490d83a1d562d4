"""The way of more of a steady stream's text: out of frames of a known form, into frames of a known form.

Many streams take turns, and each finds its code and its objects cold: what an event costs is how much different code and
how many different objects it walks through. Here it is one object, and one function for a piece that goes from the bytes of the
provider's connection to those of the client's. Whatever is not exactly more of that form is left to the ordinary way, which
gives the same (tests/unit/test_quick.py, test_runs.py).
"""

from collections.abc import Callable

from kenari.dialects.base import Speaker, Steady
from kenari.gateway.runs import run_of, text_of
from kenari.gateway.tally import Tally
from kenari.wire.http1 import CHUNK
from kenari.wire.jsonx import is_text

_THREE_DIGITS = 256 + 6
"""Bytes of the shortest chunk whose length has three digits, were they two; those of four are left to the parser."""


class Quick:
    """Takes frames of one form. `write` takes frames for the client, `tally` counts along. `last` is the loop's time of the
    last piece, `said` how many bytes of text came since that was noted. `chunked` is true once `hasten` was asked."""

    __slots__ = (
        "_around",
        "_clock",
        "_end",
        "_form",
        "_frame",
        "_keep",
        "_many",
        "_numbers",
        "_raw",
        "_start",
        "_steady",
        "_tally",
        "_told",
        "_write",
        "chunked",
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
        self._steady, self._write = steady, write
        self._frame, self._many, self._numbers, self._keep = speaker.frame, speaker.many, speaker.numbers, speaker.keep
        self._clock, self._tally = clock, tally
        self.chunked = False
        self.last = clock()
        self.said = 0

    def one(self, data: bytes, now: float) -> bool:
        """Whether these bytes were one more frame and nothing else. `now` is the loop's time."""
        text, tally = text_of(self._steady, data), self._tally
        if not text or (tally is not None and not tally.add_text(text)):
            return False
        self.last = now
        self.said += len(text)
        if self._keep is not None:
            self._keep(text)
        self._write(self._frame % (text if self._numbers is None else (text, next(self._numbers))))
        return True

    def many(self, data: bytes, now: float) -> int:
        """How many of these bytes were more frames; what follows them has to be read."""
        texts, end = run_of(self._steady, data)
        tally = self._tally
        if not texts or (tally is not None and not tally.add_texts(texts)):
            return 0
        self.last = now
        self.said += sum(map(len, texts))
        self._write(self._many(texts))
        return end

    def hasten(self, raw: Callable[[bytes], None] | None) -> Callable[[bytes], bool] | None:
        """What takes whole chunks of the provider's and writes whole chunks; None where `raw`, which takes those, is not
        there."""
        self.chunked = True
        if raw is None:
            return None
        before, after = self._steady.before, self._steady.after
        self._raw = raw
        self._form = b"%%x\r\n%b%%b%b\r\n" % (before.replace(b"%", b"%%"), after.replace(b"%", b"%%"))
        self._start, self._end = 4 + len(before), -2 - len(after)
        self._told = b"%x\r\n" + self._frame + b"\r\n"
        self._around = 0 if self._numbers is not None else len(self._frame % b"")
        return self.take

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
        self.last = self._clock()
        self.said += len(text)
        keep, numbers, raw = self._keep, self._numbers, self._raw
        if keep is not None:
            keep(text)
        if numbers is None:
            raw(self._told % (self._around + len(text), text))
        else:
            out = self._frame % (text, next(numbers))
            raw(CHUNK % (len(out), out))
        return True

    def _in_capitals(self, data: bytes) -> bool:
        """Whether this provider writes lengths in capitals: then look again."""
        if self._form.startswith(b"%X") or not data[:3].isupper():
            return False
        self._form = b"%X" + self._form[2:]
        return True
