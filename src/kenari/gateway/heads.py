"""Header lines of answers, ready-made bytes (contract D9, D14, E1, E2, F13)."""

import re

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange
from kenari.core.request import Notice
from kenari.dialects.base import Dialect

JSON = b"content-type: application/json\r\n"
STREAM = b"content-type: text/event-stream\r\ncache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:/-]+")
MAX_IGNORED = 1024


def id_lines(request_id: str) -> bytes:
    """The one id under its two names (D14)."""
    value = request_id.encode()
    return b"x-request-id: " + value + b"\r\nrequest-id: " + value + b"\r\n"


def ignored_line(notices: list[Notice]) -> bytes:
    """What was dropped or ignored, by name (D9). Names come from the client and are sanitised (F13)."""
    if not notices:
        return b""
    names = list(dict.fromkeys(_UNSAFE.sub("_", notice.name)[:64] for notice in notices))
    if not names:
        return b""
    return b"x-kenari-ignored: " + ", ".join(names)[:MAX_IGNORED].encode() + b"\r\n"


def target_lines(target: str, attempts: int) -> bytes:
    """Which target answers, and after how many attempts, itself included."""
    return b"x-kenari-target: %b\r\nx-kenari-attempts: %d\r\n" % (
        _UNSAFE.sub("_", target)[:256].encode(),
        attempts,
    )


def error_lines(error: KenariError) -> bytes:
    """The headers that tell a client what to do about an error (E1, E2)."""
    lines = JSON
    if error.should_retry is not None:
        lines += b"x-should-retry: " + (b"true" if error.should_retry else b"false") + b"\r\n"
    wait = error.retry_after
    if wait is None and error.status in (429, 503):
        wait = 1.0
    if wait is not None:
        milliseconds = max(1, round(wait * 1000))
        lines += b"retry-after: %d\r\nretry-after-ms: %d\r\n" % (-(-milliseconds // 1000), milliseconds)
    return lines


def answer_error(exchange: Exchange, dialect: Dialect, error: KenariError, extra: bytes = b"") -> None:
    """An HTTP error in the client's own envelope."""
    lines = id_lines(exchange.id) + error_lines(error) + extra
    exchange.answer(error.status, lines, dialect.encode_error(error, exchange.id))
