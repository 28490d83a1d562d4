"""HTTP/1.1 in bytes, on top of httptools: status lines, chunks, targets, and what a head says of its body's framing."""

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import unquote

import httptools

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n"
"""One chunk with its frame, of (length, data). Data is not empty: an empty chunk would end the body."""
LAST_CHUNK = b"0\r\n\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_HOP_HEADERS = frozenset((b"connection", b"upgrade", b"http2-settings", b"expect"))


class _Names(dict[bytes, bytes]):
    """Names of headers in lower case. Those that nearly every message has are the same object in all of them: thousands of
    open streams keep their heads."""

    def __missing__(self, name: bytes) -> bytes:
        return name.lower()


_COMMON = (
    b"accept",
    b"accept-encoding",
    b"accept-language",
    b"anthropic-version",
    b"authorization",
    b"cache-control",
    b"connection",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"date",
    b"host",
    b"server",
    b"transfer-encoding",
    b"user-agent",
    b"x-api-key",
    b"x-request-id",
)
LOWER: Mapping[bytes, bytes] = _Names((spelt, name) for name in _COMMON for spelt in (name, name.title()))
"""The lower-case form of any header's name."""


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status


def split_target(target: bytes) -> tuple[str, str]:
    """A request's path, percent-decoded (invalid UTF-8 is replaced), and its query, raw.

    Takes every form: origin, absolute, authority (CONNECT) and asterisk; of what is none of them, what stands before a
    question mark is the path.
    """
    path, query = target.decode("latin-1"), ""
    if path[:1] != "/":
        path = _origin_form(target)
    if "#" in path:
        path = path.partition("#")[0]
    if "?" in path:
        path, _, query = path.partition("?")
    return (unquote(path, errors="replace") if "%" in path else path), query


def _origin_form(target: bytes) -> str:
    """What an absolute target asks of its origin; any other stays as it is."""
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        return target.decode("latin-1")
    if not parsed.schema:
        return target.decode("latin-1")
    return ((parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")).decode("latin-1")


def has_body(headers: dict[bytes, bytes]) -> bool:
    """Whether a body follows this head, by its framing alone."""
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b" 0") != b""


def is_plainly_framed(headers: dict[bytes, bytes]) -> bool:
    """Whether nobody on the way can have read this head's framing differently.

    llhttp refuses lengths that are repeated or stand beside a transfer coding; codings before `chunked` it lets pass,
    and those would be left in the body.
    """
    coding = headers.get(b"transfer-encoding")
    return coding is None or coding.strip().lower() == b"chunked"


def without_upgrade(method: bytes, target: bytes, version: str, headers: dict[bytes, bytes]) -> bytes:
    """A head again, without its wish to speak another protocol."""
    lines = [b"%b: %b\r\n" % pair for pair in headers.items() if pair[0] not in _HOP_HEADERS]
    options = headers.get(b"connection", b"").lower().split(b",")
    if b"close" in [option.strip() for option in options]:
        lines.append(b"connection: close\r\n")
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version.encode(), b"".join(lines))


def content_coding(headers: dict[bytes, bytes]) -> bytes:
    """The body's content coding, empty when it has none."""
    coding = headers[b"content-encoding"].strip().lower()
    return b"" if coding == b"identity" else coding


def head_size(target: bytes, lines: list[tuple[bytes, bytes]]) -> int:
    """About how many bytes a request's head has."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in lines)


def joined_headers(lines: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers of which some are repeated: lower-case names, the values of one joined by ", "."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in lines:
        values.setdefault(name.lower(), []).append(value)
    return {name: b", ".join(several) for name, several in values.items()}
