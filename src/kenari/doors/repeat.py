"""A request whose head is that of the one before on its connection (wire/repeat.py)."""

from kenari.core.ports import Take
from kenari.doors.exchange import HttpExchange
from kenari.wire.repeat import KnownHead, known_head

_SPECIAL = frozenset((b"expect", b"upgrade", b"transfer-encoding", b"content-encoding"))


class Repeat:
    """The head of a request that was whole in one reading."""

    __slots__ = ("_exchange", "_head", "take")

    def __init__(self, head: KnownHead, exchange: HttpExchange) -> None:
        self._head, self._exchange = head, exchange
        self.take: Take | None = None
        """Who is asked first about such requests (`Exchange.lead`)."""

    def again(self, data: bytes, request_id: str, limit: int) -> HttpExchange | None:
        """The request with the same head, None when it is another head, or is not whole, or its body is larger than
        `limit`."""
        body = self._head.body_of(data)
        if body is None or len(body) > limit:
            return None
        known = self._exchange
        headers = known.headers.copy()
        headers[b"content-length"] = b"%d" % len(body)
        again = HttpExchange(known.wire, request_id, known.method, known.path, known.query, headers, body, known.peer)
        again.repeat = self
        return again


def repeat_of(data: bytes, exchange: HttpExchange) -> Repeat | None:
    """What of this request can be recognised, if `data` is this request and nothing else, None when it is special."""
    headers = exchange.headers
    if not exchange.keeps or exchange.http10 or b"content-length" not in headers or not _SPECIAL.isdisjoint(headers):
        return None
    head = known_head(data, len(exchange.body))
    if head is None:
        return None
    known = HttpExchange(exchange.wire, "", exchange.method, exchange.path, exchange.query, headers)
    known.peer = exchange.peer
    return Repeat(head, known)
