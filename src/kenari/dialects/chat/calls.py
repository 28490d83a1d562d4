"""Tool deltas of chat-like providers, put together by the rules of the event model.

A new call begins if the index is unseen, or if id and name both come and the id differs; a differing id without a name
is a continuation; without an index the last call goes on unless a new id comes with a name. The first non-empty id wins.
A name fragment equal to the name so far is a repeat, any other is appended. The block opens when arguments start.
"""

from msgspec import Raw

from kenari.core.events import Args, Close, Event, Open
from kenari.dialects.chat.wire import ToolDelta
from kenari.wire import jsonx


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.block: int | None = None
        self.empty = True


class Calls:
    """The calls of one answer. `answer_id` makes ids for calls that come without one."""

    def __init__(self, answer_id: str) -> None:
        self._answer_id = answer_id
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self._all: list[_Call] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, delta: ToolDelta, next_block: int) -> list[Event]:
        """The events of one delta; `next_block` is the index that a block opened now gets."""
        function = delta.function
        name = (function.name if function else None) or ""
        identity = delta.id or ""
        call = self._last if delta.index is None else self._by_index.get(delta.index)
        if call is None or (identity and name and call.id and call.name and identity != call.id):
            call = _Call()
            self._all.append(call)
        if delta.index is not None:
            self._by_index[delta.index] = call
        self._last = call
        call.id = call.id or identity
        if call.block is None and name and name != call.name:
            call.name += name
        piece = _piece(function.arguments) if function else b""
        if not piece or not call.name:
            return []
        events: list[Event] = []
        if call.block is None:
            events.append(self._open(call, next_block))
        call.empty = False
        assert call.block is not None
        events.append(Args(call.block, piece))
        return events

    def close(self, next_block: int) -> list[Event]:
        """The end of all calls: unopened ones open, empty arguments become `{}`."""
        events: list[Event] = []
        for call in self._all:
            if not call.name:
                continue
            if call.block is None:
                events.append(self._open(call, next_block))
                next_block += 1
            assert call.block is not None
            if call.empty:
                events.append(Args(call.block, b"{}"))
            events.append(Close(call.block))
        return events

    def _open(self, call: _Call, block: int) -> Open:
        call.block = block
        if not call.id:
            call.id = f"call_{self._answer_id}{block}"
        return Open(block, "call", call.id, call.name)


def _piece(raw: Raw) -> bytes:
    """The escaped fragment of an arguments member: a string, or an object as some servers send it."""
    data = bytes(raw)
    match data[:1]:
        case b'"':
            return data[1:-1]
        case b"{":
            return jsonx.embed(data)
        case _:
            return b""
