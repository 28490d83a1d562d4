"""Tool deltas of chat-like providers, put together by the rules of the event model.

A new call begins if the index is unseen, or if id and name both come and the id differs; a differing id without a name
is a continuation; without an index the last call goes on unless a new id comes with a name. Servers that send whole
calls with neither index nor id begin a new one with a name after arguments that are complete. The first non-empty id
wins. A name fragment equal to the name so far is a repeat, any other is appended. The block opens when arguments start
or the next call begins, so that blocks stand in the order of the calls. It closes when something else begins and the
arguments are a whole object, to which nothing can be added: formats that show one block at a time would hold the next
call back otherwise.
"""

from msgspec import Raw

from kenari.core.events import Args, Close, Event, Open
from kenari.dialects.chat.wire import ToolDelta
from kenari.wire import jsonx
from kenari.wire.surrogates import Halves


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.block: int | None = None
        self.over = False
        self.pieces: list[bytes] = []
        self.halves: Halves | None = None

    @property
    def complete(self) -> bool:
        """The arguments so far are a whole JSON value."""
        try:
            jsonx.value(jsonx.unescape(b"".join(self.pieces)).encode("utf-8", "replace"))
        except (jsonx.Malformed, ValueError):
            return False
        return True


class Calls:
    """The calls of one answer. `answer_id` makes ids for calls that come without one of their own.

    `next_block` arguments and results: the index that the next block gets.
    """

    def __init__(self, answer_id: str) -> None:
        self._answer_id = answer_id
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None
        self._all: list[_Call] = []
        self._ids: set[str] = set()

    @property
    def named(self) -> bool:
        """One of them has a name."""
        return any(call.name for call in self._all)

    @property
    def last_id(self) -> str:
        """The id of the call that the last delta belonged to."""
        return self._last.id if self._last is not None else ""

    def add(self, delta: ToolDelta, next_block: int, split: bool) -> tuple[list[Event], int]:
        """The events of one delta. `split` says that texts may hold hidden surrogate halves."""
        function = delta.function
        name = (function.name if function else None) or ""
        piece = _piece(function.arguments) if function else b""
        events: list[Event] = []
        call = self._find(delta, name, piece)
        if call is None:
            if self._last is not None and self._last.block is None and self._last.name:
                events.append(self._open(self._last, next_block))
                next_block += 1
            self.settle(events)
            call = _Call()
            self._all.append(call)
        if delta.index is not None:
            self._by_index[delta.index] = call
        self._last = call
        call.id = call.id or _identity(delta)
        if call.block is None and name and name != call.name:
            call.name += name
        if not piece or call.over:
            return events, next_block
        early, before = call.block is None, len(call.pieces)
        call.pieces.append(piece)
        if early and call.name:
            events.append(self._open(call, next_block))
            next_block += 1
            before = 0
        if call.block is not None:
            for one in call.pieces[before:]:
                self._say(call, one, split, events)
        return events, next_block

    def settle(self, events: list[Event]) -> None:
        """Something else begins: calls whose arguments are whole are over. Those of others may still be going on."""
        for call in self._all:
            if call.block is not None and not call.over and jsonx.is_object(b"".join(call.pieces)):
                call.over = True
                events.append(Close(call.block))

    def close(self, next_block: int) -> tuple[list[Event], int]:
        """The end of all calls: unopened ones open, empty arguments become `{}`."""
        events: list[Event] = []
        for call in self._all:
            if not call.name or call.over:
                continue
            if call.block is None:
                events.append(self._open(call, next_block))
                next_block += 1
            assert call.block is not None
            rest = call.halves.flush() if call.halves is not None else b""
            if rest or not call.pieces:
                events.append(Args(call.block, rest or b"{}"))
            events.append(Close(call.block))
        return events, next_block

    def _find(self, delta: ToolDelta, name: str, piece: bytes) -> _Call | None:
        """The call that a delta goes on with, None when it begins a new one."""
        call = self._last if delta.index is None else self._by_index.get(delta.index)
        if call is None or not name or not call.name:
            return call
        identity = _identity(delta)
        if identity:
            return call if not call.id or identity == call.id else None
        return None if piece.strip() and call.pieces and call.complete else call

    def _say(self, call: _Call, piece: bytes, split: bool, events: list[Event]) -> None:
        assert call.block is not None
        if split and call.halves is None:
            call.halves = Halves()
        text = piece if call.halves is None else call.halves.mend(piece)
        if text:
            events.append(Args(call.block, text))

    def _open(self, call: _Call, block: int) -> Open:
        call.block = block
        if not call.id or call.id in self._ids:
            call.id = f"call_{self._answer_id}{block}"
        self._ids.add(call.id)
        return Open(block, "call", call.id, call.name)


def _identity(delta: ToolDelta) -> str:
    return "" if delta.id is None else str(delta.id)


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
