"""A `multipart/form-data` body, scanned as it comes (RFC 7578): where each part stands, and how it begins. No I/O.

The bytes are never held: a form travels as it came, and only the place of a field that is to be changed has to be known.
What two readers of forms could take for different fields (a bare boundary inside a part, two names, folded lines) is
refused: the provider's reader must find the fields that were found here.
"""

import re

_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{1,70}(?<! )")
_DISPOSITION = re.compile(rb"content-disposition[ \t]*:(.*)", re.I | re.S)
_PARAMETER = re.compile(
    rb';[ \t]*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)[ \t]*=[ \t]*(?:"((?:[^"\\\r\n]|\\.)*)"|([^\s;"]*))[ \t]*'
)
_NAME = re.compile(rb"[A-Za-z0-9_.\-\[\]]{1,128}")
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*:[^\r\n\0]*")
MAX_PARTS = 100
MAX_HEAD = 8 * 1024
"""Bytes of one part's head."""
KEPT = 64 * 1024
"""Bytes of each part's content that are kept, from its beginning: all of a field, of a file what its header is in."""
_PADDING = 256
"""Bytes of white space that may stand behind a boundary, and around the form."""


class BadForm(ValueError):
    """The body is not the form that its content-type says."""


class Part:
    """A part: its field's `name` ("" when it has none), and where its content stands in the body: from `start` to `end`, which
    is None while it comes. `kept` is how it begins."""

    __slots__ = ("end", "is_file", "kept", "name", "start")

    def __init__(self, name: str, is_file: bool, start: int) -> None:
        self.name, self.is_file, self.start = name, is_file, start
        self.end: int | None = None
        self.kept = bytearray()


def boundary_of(content_type: bytes) -> bytes:
    """The boundary that a content-type names. Raises BadForm."""
    _, semicolon, rest = content_type.rstrip(b"; \t").partition(b";")
    boundary = _parameters(semicolon + rest).get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary):
        raise BadForm("the content-type has to name a boundary")
    return boundary


def content_type_of(boundary: bytes) -> bytes:
    """The content-type of a form with this boundary."""
    plain = re.fullmatch(rb"[0-9A-Za-z'+_.-]+", boundary) is not None
    return b"multipart/form-data; boundary=" + (boundary if plain else b'"' + boundary + b'"')


class FormScanner:
    """Reads a form piece by piece. `parts` are those whose heads have come; `whole` says that the last boundary has."""

    def __init__(self, boundary: bytes) -> None:
        self.parts: list[Part] = []
        self.whole = False
        self._dash = b"--" + boundary
        self._held = bytearray(b"\r\n")  # what is not understood yet; the first boundary needs no line before it
        self._at = -2  # where it stands in the body
        self._step = self._content
        self._outside = 0

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises BadForm."""
        self._held += data
        while self._step():
            pass

    def close(self) -> None:
        """The body has ended. Raises BadForm when the form has not."""
        if not self.whole:
            raise BadForm("the form is incomplete: its last boundary is missing")

    def _content(self) -> bool:
        """Up to the next boundary: a part's content, or what stands before the first one."""
        held, dash = self._held, self._dash
        found = held.find(dash)
        if found < 0:
            ready = len(held) - len(dash) - 1  # a boundary may have begun, and the line end before it
            if ready > 0:
                self._take(ready)
            return False
        if found < 2 or not held.startswith(b"\r\n", found - 2):
            raise BadForm("the boundary stands inside a part. choose another one")
        self._take(found - 2)
        if self.parts:
            self.parts[-1].end = self._at
        self._drop(2 + len(dash))
        self._step = self._line
        return True

    def _take(self, size: int) -> None:
        """Bytes of the part that comes."""
        if self.parts:
            kept = self.parts[-1].kept
            if len(kept) < KEPT:
                kept += self._held[: min(size, KEPT - len(kept))]
        elif self._held[:size].strip(b"\r\n"):
            raise BadForm("something stands before its first boundary")
        self._drop(size)

    def _line(self) -> bool:
        """The rest of a boundary's line: two dashes after the last part."""
        held = self._held
        if len(held) < 2:
            return False
        if held.startswith(b"--"):
            self.whole = True
            self._drop(2)
            self._step = self._after
            return True
        end = held.find(b"\r\n")
        line = held[:end] if end >= 0 else held.removesuffix(b"\r")
        if line.strip(b" \t") or len(line) > _PADDING:
            raise BadForm("a line of the form is longer than its boundary")
        if end < 0:
            return False
        if len(self.parts) == MAX_PARTS:
            raise BadForm(f"a form may have {MAX_PARTS} parts")
        self._drop(end)
        self._step = self._head
        return True

    def _head(self) -> bool:
        """A part's head, from the line end before it to the empty line."""
        held = self._held
        end = held.find(b"\r\n\r\n")
        if end > MAX_HEAD or (end < 0 and len(held) > MAX_HEAD):
            raise BadForm("a part's head is too long")
        if end < 0:
            return False
        lines = bytes(held[2:end]).split(b"\r\n") if end else []
        name, is_file = _field_of(lines)
        self._drop(end + 4)
        self.parts.append(Part(name, is_file, self._at))
        self._step = self._content
        return True

    def _after(self) -> bool:
        """Behind the last boundary."""
        self._outside += len(self._held)
        if self._held.strip(b" \t\r\n") or self._outside > _PADDING:
            raise BadForm("something stands behind its last boundary")
        self._drop(len(self._held))
        return False

    def _drop(self, size: int) -> None:
        del self._held[:size]
        self._at += size


def _field_of(lines: list[bytes]) -> tuple[str, bool]:
    """The field's name and whether it is a file, by the lines of a part's head."""
    found: list[bytes] = []
    for line in lines:
        if not _HEADER.fullmatch(line):
            raise BadForm("a part's head is malformed")
        disposition = _DISPOSITION.fullmatch(line)
        if disposition is not None:
            found.append(disposition.group(1))
    if not found:
        return "", False
    if len(found) > 1:
        raise BadForm("a part has two names")
    kind, semicolon, rest = found[0].partition(b";")
    names = _parameters(semicolon + rest)
    name = names.get(b"name", b"")
    if kind.strip().lower() != b"form-data" or b"name*" in names or not _NAME.fullmatch(name):
        raise BadForm("each part needs a content-disposition: form-data with a plain name")
    return name.decode(), b"filename" in names or b"filename*" in names


def _parameters(rest: bytes) -> dict[bytes, bytes]:
    """The parameters of a header's value, by their names in lower case; each once. Raises BadForm."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(rest):
        one = _PARAMETER.match(rest, at)
        if one is None or one.group(1).lower() in found:
            raise BadForm("the parameters of a content-type or content-disposition are malformed")
        found[one.group(1).lower()] = one.group(3) if one.group(2) is None else one.group(2)
        at = one.end()
    return found
