"""Content codings undone, never beyond a limit: gzip, deflate and zstd, for both HTTP ends."""

import sys
import zlib
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODINGS = (b"gzip", b"x-gzip", b"deflate", b"zstd")
MAX_GROWTH = 16 * 1024 * 1024
"""How much one piece of a provider's answer may grow to; more is a bomb, not an answer."""


class CodingError(Exception):
    """The body is not what its content-encoding says."""


class TooLargeError(Exception):
    """The plain body is larger than the limit."""


class _Machine(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Inflater:
    """Undoes one coding piece by piece."""

    def __init__(self, coding: bytes) -> None:
        self._coding = coding.strip().lower()
        if self._coding not in CODINGS:
            raise CodingError(self._coding.decode("latin-1")[:40])
        self._raw = False
        self._machine = self._make()
        self._begun = False

    def feed(self, data: bytes, limit: int = MAX_GROWTH) -> bytes:
        """The plain bytes of these coded ones. Raises TooLargeError above `limit`, CodingError for garbage."""
        out: list[bytes] = []
        left = limit
        while data:
            piece = self._step(data, left + 1)
            left -= len(piece)
            if left < 0:
                raise TooLargeError
            out.append(piece)
            machine: _Machine = self._machine
            if not machine.eof:
                break
            data = machine.unused_data  # another member may follow
            self._machine = self._make()
        return b"".join(out)

    @property
    def complete(self) -> bool:
        """Nothing is missing at the end."""
        return not self._begun

    def _make(self) -> _Machine:
        self._begun = False
        if self._coding == b"zstd":
            return zstd.ZstdDecompressor()
        return zlib.decompressobj(-15 if self._raw else 15 if self._coding == b"deflate" else 31)

    def _step(self, data: bytes, most: int) -> bytes:
        first, self._begun = not self._begun, True
        machine = self._machine
        try:
            piece = machine.decompress(data, most)
        except (zlib.error, zstd.ZstdError, EOFError) as error:
            if first and self._coding == b"deflate" and not self._raw:  # raw deflate under that name
                self._raw = True
                self._machine = self._make()
                return self._step(data, most)
            raise CodingError("broken compressed body") from error
        self._begun = not machine.eof
        return piece


def inflate(coding: bytes, data: bytes, limit: int) -> bytes:
    """A whole body, plain."""
    inflater = Inflater(coding)
    plain = inflater.feed(data, limit)
    if not inflater.complete:
        raise CodingError("the compressed body is cut short")
    return plain
