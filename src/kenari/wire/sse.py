"""Server-sent events on bytes, after the WHATWG event-stream rules, at any cut of the input."""

import re

import msgspec

from kenari.core.errors import KenariError

KEEPALIVE = b": keepalive\n\n"
MAX_FRAME = 32 * 1024 * 1024
LONG = 16 * 1024
"""Bytes of a frame that has not ended, beyond which the pieces that follow are gathered: looked through once each."""
_MARKED = (b"", b"\xef")
"""What input with a byte order mark may begin with, as far as it is known."""
_NEXT = b"\n\ndata: "
"""Where a frame of one data line ends and the next one begins."""
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event: its name (b"" when there is no `event:` line) and its data, several data lines joined by LF."""

    event: bytes
    data: bytes


class Frames:
    """Cuts a provider's bytes into frames. `comments` counts comment lines, which are a sign of life (S14)."""

    __slots__ = ("_after_cr", "_long", "_loose", "_start", "_tail", "comments")

    def __init__(self) -> None:
        self.comments = 0
        self._tail = b""
        self._long: bytearray | None = None  # in the place of a tail that is long
        self._start = True
        self._loose = False  # a carriage return was seen: lines may end in three ways
        self._after_cr = False

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with these bytes."""
        if self._start:
            if data[:1] in _MARKED or self._tail:
                data = self._skip_bom(data)
                if self._start:
                    return []
            self._start = False
        if self._loose or b"\r" in data:
            data = self._to_lf(data)
        long = self._long
        if long is None:
            buffer = self._tail + data if self._tail else data
        else:
            seen = len(long)
            long += data
            if long.find(b"\n\n", seen - 1) < 0:
                _check_size(len(long))
                return []
            buffer, self._long = bytes(long), None
        cut = buffer.rfind(b"\n\n")
        if cut < 0:
            self._keep(buffer)
            return []
        if cut + 2 == len(buffer):  # nearly always a read ends with a frame
            self._tail = b""
        else:
            self._keep(buffer[cut + 2 :])
        if buffer.startswith(b"data: "):  # chat: nothing but data lines
            datas = buffer[6:cut].split(_NEXT)
            if buffer.count(b"\n", 0, cut) == 2 * (len(datas) - 1):
                return [Frame(b"", data) for data in datas]
        return self._blocks(buffer[:cut])

    @property
    def level(self) -> bool:
        """Whole frames end where the bytes so far end, and their lines end in LF: what comes next begins a frame."""
        return not (self._tail or self._long or self._start or self._loose)

    def _blocks(self, buffer: bytes) -> list[Frame]:
        """The frames of whole blocks of any form."""
        out: list[Frame] = []
        for block in buffer.split(b"\n\n"):
            if block[:7] == b"event: ":  # the other two: a name and one line of data
                name, _, rest = block.partition(b"\n")
                if rest[:6] == b"data: " and b"\n" not in rest:
                    out.append(Frame(name[7:], rest[6:]))
                    continue
            frame = self._parse(block)
            if frame is not None:
                out.append(frame)
        return out

    def flush(self) -> list[Frame]:
        """What stands at the end of the input without its blank line."""
        rest, self._tail, self._long = self._tail or bytes(self._long or b""), b"", None
        frame = self._parse(rest) if rest else None
        return [frame] if frame is not None else []

    def _keep(self, tail: bytes) -> None:
        if len(tail) <= LONG:
            self._tail = tail
            return
        _check_size(len(tail))
        self._tail, self._long = b"", bytearray(tail)

    def _skip_bom(self, data: bytes) -> bytes:
        data = self._tail + data
        if len(data) < 3 and b"\xef\xbb\xbf".startswith(data):
            self._tail = data
            return b""
        self._start, self._tail = False, b""
        return data[3:] if data.startswith(b"\xef\xbb\xbf") else data

    def _to_lf(self, data: bytes) -> bytes:
        """Its line ends as LF; a CR at the cut is a line end, and the LF that may follow it is not a second one."""
        self._loose = True
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return _LINE_END.sub(b"\n", data)

    def _parse(self, block: bytes) -> Frame | None:
        event, seen = b"", False
        data: list[bytes] = []
        for line in block.split(b"\n"):
            name, colon, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                data.append(value)
                seen = True
            elif name == b"event":
                event = value
            elif colon and not name:
                self.comments += 1
        return Frame(event, b"\n".join(data)) if seen else None


def _check_size(size: int) -> None:
    if size > MAX_FRAME:
        raise KenariError("upstream_error", "the model's provider sent an event that is too large", elsewhere=True)


def data_frame(data: bytes) -> bytes:
    """A frame of one `data:` line (S6)."""
    return b"data: " + data + b"\n\n"


def event_frame(name: bytes, data: bytes) -> bytes:
    """A frame of an `event:` line and a `data:` line (S7, S8)."""
    return b"event: " + name + b"\ndata: " + data + b"\n\n"
