"""Halves of a surrogate pair that a provider has split over two deltas (each delta alone is not legal Unicode).

Frames with an escaped lone half cannot be decoded as they are. `hide` replaces each lone half by a private character;
`Halves` puts two halves that follow each other in one text together again, and makes U+FFFD of one that stays alone.
"""

import re

_FIRST = 0x10F800  # the end of plane 16, for private use and used by no icon font; + (half - U+D800) is that half
_LONE = re.compile(
    rb"\\u([dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.S
)
_HIDDEN = re.compile(rb"\xf4\x8f[\xa0-\xbf][\x80-\xbf]")
_REPLACED = "\ufffd".encode()


def hide(data: bytes) -> bytes:
    """The JSON with each lone escaped half as a private character."""

    def replace(match: re.Match[bytes]) -> bytes:
        half = match.group(2)
        return match.group() if half is None else chr(_FIRST + int(half, 16) - 0xD800).encode()

    return _LONE.sub(replace, data)


def drop_hidden(data: bytes) -> bytes:
    """The JSON with each hidden half as U+FFFD, for values that nobody joins."""
    return _HIDDEN.sub(_REPLACED, data)


class Halves:
    """Mends the texts of one block; `flush` at its end."""

    def __init__(self) -> None:
        self._pending = b""

    def mend(self, text: bytes) -> bytes:
        """The text with its halves joined. A high half at the end is kept for the next text, which may leave b""."""
        text = self._pending + text
        self._pending = b""
        if not _HIDDEN.search(text):
            return text
        if _HIDDEN.fullmatch(text[-4:]) and _code(text[-4:]) < 0xDC00:
            text, self._pending = text[:-4], text[-4:]
        out: list[bytes] = []
        position = 0
        high = 0
        for match in _HIDDEN.finditer(text):
            between, code = text[position : match.start()], _code(match.group())
            position = match.end()
            if high and (between or code < 0xDC00):
                out.append(_REPLACED)
                high = 0
            out.append(between)
            if code < 0xDC00:
                high = code
            else:
                pair = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)
                out.append(chr(pair).encode() if high else _REPLACED)
                high = 0
        if high:
            out.append(_REPLACED)
        out.append(text[position:])
        return b"".join(out)

    def flush(self) -> bytes:
        """What a half that never met its mate becomes."""
        pending, self._pending = self._pending, b""
        return _REPLACED if pending else b""


def _code(hidden: bytes) -> int:
    return ord(hidden.decode()) - _FIRST + 0xD800
