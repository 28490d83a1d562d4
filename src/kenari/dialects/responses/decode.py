"""A Responses provider's answer -> events.

Servers differ in almost everything but the names of events: with or without indexes and sequence numbers, reasoning as
a summary or as text, what closes an item at its end or all at the end of the answer, arguments in pieces or at once.
"""

from collections.abc import Callable

from kenari.core.events import Args, Close, Escaped, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.grammar import mend
from kenari.dialects.base import Steady
from kenari.dialects.failures import failure_in_body, no_answer
from kenari.dialects.frames import read_frame
from kenari.dialects.responses.wire import (
    EVENT,
    ITEM,
    NULL,
    RESPONSE,
    Item,
    Response,
    StreamEvent,
    arguments_of,
    inside,
    read_member,
    texts_of,
)
from kenari.wire import jsonx
from kenari.wire.sse import Frame
from kenari.wire.surrogates import Halves, drop_hidden

_TEXT_DELTAS = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
_FAILED = frozenset({"response.failed", "response.cancelled", "error"})
_ENDED = frozenset({None, "completed", "incomplete"})
_BETWEEN = b"\\n\\n"
"""What stands between two summary parts, which all other formats show as one text."""


class _Entry:
    """An output item under way. `block` is the index of its open block, None while it has none; `make` makes its deltas.

    `source` is the event that brought its last piece: a summary and the full text of one thought are not both told, so
    reasoning stays with the first. `pieces` are of a call's arguments. `part` is the summary part under way. `over` is set by the item's end; nothing more
    is heard of it.
    """

    __slots__ = ("block", "halves", "index", "item", "make", "over", "part", "pieces", "said", "source")

    def __init__(self, item: Item, index: int | None) -> None:
        self.item = item
        self.index = index
        self.make: Callable[[int, Escaped], Event] = Reason if item.type == "reasoning" else Text
        self.block: int | None = None
        self.halves: Halves | None = None
        self.over = False
        self.part = 0
        self.pieces: list[bytes] = []
        self.said = False
        self.source = ""


class ResponsesDecoder:
    """One answer of a Responses provider, streamed or whole."""

    def __init__(self, answer_id: str) -> None:
        self.done = False
        self._answer_id = answer_id
        self._entries: list[_Entry] = []  # those that are not over
        self._by_id: dict[str, _Entry] = {}
        self._by_index: dict[int, _Entry] = {}
        self._speaking: _Entry | None = None  # the one text or reasoning item whose block is open
        self._call_ids: set[str] = set()
        self._kinds: set[str] = set()  # of the items seen
        self._next = 0
        self._started = self._failed = self._split = False

    def feed(self, frame: Frame) -> list[Event]:
        """The events of one frame."""
        if self._failed or self.done:
            return []
        event, split = read_frame(EVENT, frame.data)
        if event is None:
            return []
        self._split = self._split or split
        entry = self._speaking
        if entry is not None and event.type == entry.source and entry.item.id == event.item_id and not self._split:
            delta, block = bytes(event.delta), entry.block
            if len(delta) > 2 and delta[:1] == b'"' and (event.summary_index or 0) == entry.part and block is not None:
                return [entry.make(block, delta[1:-1])]  # nearly always
        out: list[Event] = []
        if not self._started:
            self._started = True
            out.append(Start())
        item_type = _TEXT_DELTAS.get(event.type)
        if item_type is not None:
            entry = self._find(event, item_type) or self._add(Item(item_type, event.item_id), event.output_index)
            self._say(entry, inside(event.delta), event.type, event.summary_index or 0, out)
        else:
            self._take(event, frame.data, out)
        return out

    def whole(self, response: Response, split: bool) -> list[Event]:
        """The events of a plain answer. `split` says that its texts may hold hidden surrogate halves."""
        self._started, self._split = True, split
        out: list[Event] = [Start()]
        self._complete(response, response.status or "completed", out)
        return out

    def feed_all(self, frames: list[Frame]) -> list[Event]:
        """The events of frames that came together."""
        events: list[Event] = []
        for frame in frames:
            events += self.feed(frame)
        return events

    def steady(self) -> Steady | None:
        """Frames of this format are always read."""
        return None

    def finish(self) -> list[Event]:
        """The end of the bytes: fine after response.completed (D6)."""
        if self._failed or self.done:
            return []
        self._failed = True
        return mend(False)

    def _take(self, event: StreamEvent, data: bytes, out: list[Event]) -> None:
        match event.type:
            case "response.output_item.added":
                item = read_member(ITEM, event.item)
                if item is not None:
                    self._begin(self._add(item, event.output_index), out)
            case "response.output_item.done":
                item = read_member(ITEM, event.item)
                if item is not None:
                    self._finish_item(self._find_item(item, event.output_index), item, event.output_index, out)
            case "response.function_call_arguments.delta":
                self._argue(self._find(event, "function_call"), inside(event.delta), out)
            case "response.function_call_arguments.done":
                entry = self._find(event, "function_call")
                if entry is not None and not entry.said:
                    self._argue(entry, arguments_of(event.arguments), out)
            case "response.completed" | "response.incomplete":
                response = read_member(RESPONSE, event.response) or Response()
                if response.status not in _ENDED or len(response.error) > NULL:
                    self._fail(data, out)
                else:
                    self._complete(response, event.type, out)
            case _:
                if event.type in _FAILED or len(event.error) > NULL:
                    self._fail(data, out)

    def _fail(self, data: bytes, out: list[Event]) -> None:
        self._failed = True
        out.append(Failure(failure_in_body(data)))

    # -- which item

    def _add(self, item: Item, index: int | None) -> _Entry:
        """A new item."""
        entry = _Entry(item, index)
        self._kinds.add(item.type)
        self._entries.append(entry)
        if item.id:
            self._by_id[item.id] = entry
        if index is not None:
            self._by_index[index] = entry
        return entry

    def _find(self, event: StreamEvent, item_type: str) -> _Entry | None:
        """The item that an event speaks of: by id, by index, else the last of its kind that is not over."""
        return self._known(event.item_id, event.output_index, item_type) or next(
            (one for one in reversed(self._entries) if one.item.type == item_type), None
        )

    def _find_item(self, item: Item, index: int | None) -> _Entry | None:
        """The item that is done: by id, by index, else the first of its kind that is not over."""
        return self._known(item.id, index, item.type) or next(
            (one for one in self._entries if one.item.type == item.type), None
        )

    def _known(self, identity: str | None, index: int | None, item_type: str) -> _Entry | None:
        """Some servers give one id to several items, others one index: an item that is over is meant only where neither
        speaks against it."""
        for entry in (self._by_id.get(identity or ""), None if index is None else self._by_index.get(index)):
            if entry is None or entry.item.type != item_type:
                continue
            if not entry.over or (_agree(entry.item.id, identity) and _agree(entry.index, index)):
                return entry
        return None

    # -- what it says

    def _begin(self, entry: _Entry, out: list[Event]) -> None:
        """A call shows itself at once; other items only when they say something (S33)."""
        if entry.item.type == "function_call":
            self._settle(out)
            self._open(entry, out)

    def _open(self, entry: _Entry, out: list[Event]) -> None:
        entry.block = index = self._next
        self._next += 1
        item = entry.item
        if item.type != "function_call":
            self._speaking = entry
            out.append(Open(index, "reasoning" if item.type == "reasoning" else "text"))
            return
        identity, name = item.call_id or "", item.name or "unnamed"
        if self._split:
            identity, name = _shown(identity), _shown(name)
        if not identity or identity in self._call_ids:
            identity = f"call_{self._answer_id}{index}"
        self._call_ids.add(identity)
        out.append(Open(index, "call", identity, name))

    def _settle(self, out: list[Event]) -> None:
        """Another item begins to speak: text or reasoning before it is over, even where a server says so late, and calls
        whose arguments are a whole object."""
        if self._speaking is not None:
            self._close(self._speaking, out)
        for entry in self._entries:
            if entry.block is not None and jsonx.is_object(b"".join(entry.pieces)):
                self._close(entry, out)

    def _say(self, entry: _Entry, text: Escaped, source: str, part: int, out: list[Event]) -> None:
        """A piece of text or reasoning."""
        if entry.over:
            return
        if entry.source != source:
            if entry.source and entry.make is Reason:
                return
            entry.source = source
        if self._split:
            entry.halves = entry.halves or Halves()
            text = entry.halves.mend(text)
        if not text:
            return
        if entry.block is None:
            self._settle(out)
            self._open(entry, out)
        assert entry.block is not None
        if part != entry.part:
            entry.part = part
            text = _BETWEEN + text if entry.said else text
        entry.said = True
        out.append(entry.make(entry.block, text))

    def _argue(self, entry: _Entry | None, text: Escaped, out: list[Event]) -> None:
        """A piece of a call's arguments."""
        if entry is None or entry.block is None:
            return
        if self._split:
            entry.halves = entry.halves or Halves()
            text = entry.halves.mend(text)
        if text:
            entry.said = True
            entry.pieces.append(text)
            out.append(Args(entry.block, text))

    def _finish_item(self, entry: _Entry | None, item: Item, index: int | None, out: list[Event]) -> None:
        """An item is done: what was not told in pieces is told now, its proof is taken, its block closes."""
        if entry is None:
            entry = self._add(item, index)
            self._begin(entry, out)
        if entry.over:
            return
        match item.type:
            case "function_call":
                if not entry.said:
                    self._argue(entry, arguments_of(item.arguments), out)
            case "reasoning":
                if not entry.said:
                    text = texts_of(item.summary, _BETWEEN) or texts_of(item.content, b"")
                    self._say(entry, text, entry.source or "done", 0, out)
                self._seal(entry, inside(item.encrypted_content), out)
            case "message":
                if not entry.said:
                    self._say(entry, texts_of(item.content, b""), "done", 0, out)
            case _:
                pass
        self._close(entry, out)
        self._entries.remove(entry)
        entry.over = True

    def _seal(self, entry: _Entry, proof: Escaped, out: list[Event]) -> None:
        if not proof or (entry.said and entry.block is None):  # other items have spoken since: its place is past
            return
        if entry.block is None:
            self._settle(out)
            self._open(entry, out)
        assert entry.block is not None
        out.append(Seal(entry.block, "encrypted", _shown(jsonx.unescape(proof))))

    def _close(self, entry: _Entry, out: list[Event]) -> None:
        if entry.block is None:
            return
        rest = entry.halves.flush() if entry.halves is not None else b""
        if entry.item.type == "function_call":
            if rest or not entry.said:
                out.append(Args(entry.block, rest or b"{}"))
        elif rest:
            out.append(entry.make(entry.block, rest))
        out.append(Close(entry.block))
        entry.block = None
        if self._speaking is entry:
            self._speaking = None

    def _complete(self, response: Response, word: str, out: list[Event]) -> None:
        """The last event: items that it alone tells of or completes, the usage, the stop. What was heard of under other
        names is not told again, and a thought that others have spoken since comes too late."""
        heard, spoken = frozenset(self._kinds), self._next > 0
        for position, item in enumerate(response.items()):
            entry = self._find_item(item, position) if heard else None
            if entry is not None or not (item.type in heard or (spoken and item.type == "reasoning")):
                self._finish_item(entry, item, position, out)
        for entry in self._entries:
            self._close(entry, out)
        usage = response.read_usage()
        if usage is not None:
            out.append(Meter(usage))
        out.append(stop_of(response, word, bool(self._call_ids)))
        self.done = True


def stop_of(response: Response, word: str, called: bool) -> Stop:
    """How a response ended (F1). Calls win over everything but length."""
    why = response.why()
    if why or response.status == "incomplete" or word in ("response.incomplete", "incomplete"):
        if why != "content_filter":
            return Stop("length", why or "incomplete")
        return Stop("call" if called else "filter", why)
    return Stop("call" if called else "stop", response.status or "completed")


def decode_reply(body: bytes, answer_id: str) -> list[Event]:
    """A plain answer. An error body, something unfinished or no output at all is a failure (E4)."""
    response, split = read_frame(RESPONSE, body)
    if response is None:
        return [Failure(no_answer())]
    if len(response.error) > NULL:
        return [Failure(failure_in_body(body))]
    if bytes(response.output)[:1] != b"[" or response.status not in _ENDED:
        return [Failure(no_answer())]
    return ResponsesDecoder(answer_id).whole(response, split)


def _shown(text: str) -> str:
    """A text without hidden surrogate halves."""
    return drop_hidden(text.encode()).decode()


def _agree(one: str | int | None, other: str | int | None) -> bool:
    """Whether two ids or indexes may be of one item: no more is said where one is missing."""
    return one in (None, "") or other in (None, "") or one == other
