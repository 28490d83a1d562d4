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


SLICE = 64 * 1024
MAX_MEMBERS = 1024
"""How many members one feed may hold. What follows a member is copied, so very many of them would cost seconds."""


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
        self._window = 31 if self._coding in (b"gzip", b"x-gzip") else 0
        self._held: bytes = b""  # of a deflate body whose kind is not known yet
        self._machine: _Machine | None = None
        self._begun = False

    def feed(self, data: bytes, limit: int = MAX_GROWTH) -> bytes:
        """The plain bytes of these coded ones. Raises TooLargeError above `limit`, CodingError for garbage."""
        if self._coding == b"deflate" and not self._window:
            data = self._held + data
            self._begun = self._begun or bool(data)
            if len(data) < 2:
                self._held = data
                return b""
            self._held, self._window = b"", _deflate_window(data)
        out: list[bytes] = []
        left, members = limit, 0
        for start in range(0, len(data), SLICE):
            coded = data[start : start + SLICE]
            while coded:
                if self._machine is None:  # another member may follow the first
                    members += 1
                    self._machine = self._make()
                machine = self._machine
                piece = self._step(machine, coded, left + 1)
                left -= len(piece)
                if left < 0:
                    raise TooLargeError
                out.append(piece)
                self._begun = not machine.eof
                if self._begun:
                    break
                if members > MAX_MEMBERS:
                    raise CodingError("a compressed body of very many members")
                coded, self._machine = machine.unused_data, None
        return b"".join(out)

    @property
    def complete(self) -> bool:
        """Nothing is missing at the end."""
        return not self._begun

    def _make(self) -> _Machine:
        return zstd.ZstdDecompressor() if self._coding == b"zstd" else zlib.decompressobj(self._window)

    def _step(self, machine: _Machine, data: bytes, most: int) -> bytes:
        try:
            return machine.decompress(data, most)
        except (zlib.error, zstd.ZstdError, EOFError) as error:
            raise CodingError("broken compressed body") from error


def _deflate_window(head: bytes) -> int:
    """Deflate comes with a zlib header, and from some senders without: its two bytes tell."""
    wrapped = head[0] & 0x0F == 8 and int.from_bytes(head[:2]) % 31 == 0
    return 15 if wrapped else -15


def inflate(coding: bytes, data: bytes, limit: int) -> bytes:
    """A whole body, plain."""
    inflater = Inflater(coding)
    plain = inflater.feed(data, limit)
    if not inflater.complete:
        raise CodingError("the compressed body is cut short")
    return plain
