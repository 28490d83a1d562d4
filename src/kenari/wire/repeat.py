"""A head that comes again: who sends messages on a kept-alive connection repeats its heads byte for byte, but for the length.

llhttp is a function of the bytes it is given and of where it stands. Between two messages it stands at its start, so a
head that it has taken once it would take again, with another length as another length. Such a message, when all of it is
there, need not be given to it.
"""

from typing import NamedTuple

_LENGTH = b"\r\ncontent-length:"
_DIGITS = 9
LONGEST = 8 * 1024
"""Bytes of a head that is remembered: heads of clients and providers have hundreds, and may have 64 KiB, while their
connections are idle too."""


class KnownHead(NamedTuple):
    """What stands before the digits of a head's length, and behind them, the blank line included; where what is behind them
    ends at the latest."""

    before: bytes
    after: bytes
    last: int

    def body_of(self, data: bytes) -> bytes | None:
        """The body of a message that is all of `data` and begins with this head; None for any other (and for one whose length is
        not written in the fewest digits)."""
        before, after, last = self
        start = len(before)
        end = data.find(after, start, last)
        if end < 0:
            return None
        body = data[end + len(after) :]
        return body if data[start:end] == b"%d" % len(body) and data.startswith(before) else None


def known_head(data: bytes, size: int) -> KnownHead | None:
    """What of a message can be recognised, if it is all of `data` and its body is `size` bytes."""
    end = data.find(b"\r\n\r\n", 0, LONGEST)
    if end < 0 or end + 4 + size != len(data):
        return None
    start = data.lower().find(_LENGTH, 0, end)
    if start < 0:
        return None
    start += len(_LENGTH)
    while data[start : start + 1] == b" ":
        start += 1
    stop = start
    while data[stop : stop + 1].isdigit():
        stop += 1
    if data[stop : stop + 2] != b"\r\n" or not 0 < stop - start <= _DIGITS:
        return None
    after = data[stop : end + 4]
    return KnownHead(data[:start], after, start + _DIGITS + len(after))
