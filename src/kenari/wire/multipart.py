"""A `multipart/form-data` body as its parts, and put together again with one of them changed (RFC 7578). No I/O.

Parts that nobody has to understand are copied as they came.
"""

import re

import msgspec

_BOUNDARY = re.compile(rb'boundary=(?:"([^"\r\n]{1,70})"|([^;\s"]{1,70}))', re.I)
_NAME = re.compile(rb'content-disposition:[^\r\n]*?[; ]name=(?:"([^"\r\n]*)"|([^;\s\r\n"]+))', re.I)
_FILENAME = re.compile(rb"content-disposition:[^\r\n]*?[; ]filename\*?=", re.I)
MAX_PARTS = 100


class BadForm(ValueError):
    """The body is not the form that its content-type says."""


class Part(msgspec.Struct, frozen=True):
    """A part: its head without the empty line behind it, and its content."""

    head: bytes
    content: bytes

    @property
    def name(self) -> str:
        """The field's name, "" when it has none."""
        found = _NAME.search(self.head)
        return (found.group(1) or found.group(2) or b"").decode("utf-8", "replace") if found else ""

    @property
    def is_file(self) -> bool:
        """It carries a file."""
        return _FILENAME.search(self.head) is not None


def boundary_of(content_type: bytes) -> bytes:
    """The boundary that a content-type names. Raises BadForm."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise BadForm("the content-type names no boundary")
    return found.group(1) or found.group(2)


def split(body: bytes, boundary: bytes) -> list[Part]:
    """The parts of a body. Raises BadForm when it is cut off, has none, or too many."""
    mark = b"\r\n--" + boundary
    pieces = (b"\r\n" + body).split(mark, MAX_PARTS + 2)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise BadForm(
            "the form is incomplete: its last boundary is missing" if len(pieces) <= MAX_PARTS else "too many parts"
        )
    parts: list[Part] = []
    for piece in pieces[1:-1]:
        line, _, rest = piece.partition(b"\r\n")
        if line.strip(b" \t"):
            raise BadForm("a line of the form is longer than its boundary")
        rest = b"\r\n" + rest  # a part without a head begins with its empty line
        head, empty, content = rest.partition(b"\r\n\r\n")
        if not empty:
            raise BadForm("a part of the form has no end of its head")
        parts.append(Part(head.removeprefix(b"\r\n"), content))
    return parts


def join(parts: list[Part], boundary: bytes) -> bytes:
    """The body of these parts."""
    out = [b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, part.head, part.content) for part in parts]
    return b"".join(out) + b"--%b--\r\n" % boundary
