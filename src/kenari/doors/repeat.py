"""A head that a client sends again: clients on a kept-alive connection repeat theirs byte for byte but for the length.

llhttp is a function of the bytes it is given and of where it stands. Between two requests it stands at its start, so a
head that it has taken once it would take again, with another length as another length. Such a request, when all of it is
there, need not be given to it.
"""

from kenari.doors.exchange import HttpExchange

_LENGTH = b"\r\ncontent-length:"
_DIGITS = 9
_SPECIAL = frozenset((b"expect", b"upgrade", b"transfer-encoding", b"content-encoding"))


class Repeat:
    """The head of a request that was whole in one reading."""

    __slots__ = ("_after", "_before", "_exchange")

    def __init__(self, before: bytes, after: bytes, exchange: HttpExchange) -> None:
        self._before, self._after = before, after
        self._exchange = exchange

    def again(self, data: bytes, request_id: str, limit: int) -> HttpExchange | None:
        """The request with the same head, None when it is another head, or is not whole, or its body is larger than
        `limit`."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(after, start, start + _DIGITS + len(after))
        if end < 0:
            return None
        digits = data[start:end]
        body = data[end + len(after) :]
        if not digits.isdigit() or int(digits) != len(body) or len(body) > limit:
            return None
        known = self._exchange
        headers = known.headers.copy()
        headers[b"content-length"] = digits
        exchange = HttpExchange(known.wire, request_id, known.method, known.path, known.query, headers)
        exchange.body, exchange.peer = body, known.peer
        return exchange


def repeat_of(data: bytes, exchange: HttpExchange) -> Repeat | None:
    """What of this request can be recognised, if `data` is this request and nothing else, None when it is special."""
    headers = exchange.headers
    if not exchange.keeps or exchange.http10 or b"content-length" not in headers or not _SPECIAL.isdisjoint(headers):
        return None
    end = data.find(b"\r\n\r\n")
    if end < 0 or end + 4 + len(exchange.body) != len(data):
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
    known = HttpExchange(exchange.wire, "", exchange.method, exchange.path, exchange.query, headers)
    known.peer = exchange.peer
    return Repeat(data[:start], data[stop : end + 4], known)
