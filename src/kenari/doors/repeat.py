"""A request whose head is that of the one before on its connection (wire/repeat.py)."""

from kenari.core.ports import Take
from kenari.doors.exchange import HttpExchange
from kenari.wire.repeat import KnownHead, known_head

_SPECIAL = frozenset((b"expect", b"upgrade", b"transfer-encoding", b"content-encoding"))


class Repeat:
    """The head of a request that was whole in one reading."""

    __slots__ = ("_head", "_headers", "_method", "_path", "_peer", "_query", "_wire", "take")

    def __init__(self, head: KnownHead, exchange: HttpExchange) -> None:
        self._head, self._headers = head, exchange.headers
        self._wire, self._peer = exchange.wire, exchange.peer
        self._method, self._path, self._query = exchange.method, exchange.path, exchange.query
        self.take: Take | None = None
        """Who is asked first about such requests (`Exchange.lead`)."""

    def again(self, data: bytes, request_id: str, limit: int) -> HttpExchange | None:
        """The request with the same head, None when it is another head, or is not whole, or its body is larger than
        `limit`."""
        body = self._head.body_of(data)
        if body is None or len(body) > limit:
            return None
        headers = self._headers.copy()
        headers[b"content-length"] = b"%d" % len(body)
        again = HttpExchange(self._wire, request_id, self._method, self._path, self._query, headers, body, self._peer)
        again.repeat = self
        return again


def repeat_of(data: bytes, exchange: HttpExchange) -> Repeat | None:
    """What of this request can be recognised, if `data` is this request and nothing else, None when it is special."""
    headers = exchange.headers
    if not exchange.keeps or exchange.http10 or b"content-length" not in headers or not _SPECIAL.isdisjoint(headers):
        return None
    head = known_head(data, len(exchange.body))
    return None if head is None else Repeat(head, exchange)
