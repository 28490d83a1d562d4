"""A Responses provider's answer -> events."""

from msgspec import Raw

from kenari.core.events import Args, Close, Escaped, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.grammar import mend
from kenari.dialects.failures import failure_in_body, no_answer
from kenari.dialects.frames import read_frame
from kenari.dialects.responses.wire import EVENT, RESPONSE, Item, Part, Response, StreamEvent
from kenari.wire import jsonx
from kenari.wire.sse import Frame
from kenari.wire.surrogates import Halves

_TEXT_DELTAS = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}


class _Entry:
    """An output item under way. `block` is our index, None until it says something; `source` is the first kind of
    reasoning delta that came: a summary and the full text of one thought are not both told."""

    __slots__ = ("block", "closed", "item", "said", "source")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.block: int | None = None
        self.closed = False
        self.said = False
        self.source = ""


class ResponsesDecoder:
    """One stream of a Responses provider, with or without item ids, indexes and sequence numbers."""

    def __init__(self, answer_id: str) -> None:
        self.done = False
        self._answer_id = answer_id
        self._entries: list[_Entry] = []
        self._by_id: dict[str, _Entry] = {}
        self._by_index: dict[int, _Entry] = {}
        self._next = 0
        self._started = self._failed = self._stopped = self._called = False
        self._halves: Halves | None = None

    def feed(self, frame: Frame) -> list[Event]:
        """The events of one frame."""
        if self._failed or self.done:
            return []
        event, split = read_frame(EVENT, frame.data)
        if event is None:
            return []
        if split and self._halves is None:
            self._halves = Halves()
        out: list[Event] = []
        if not self._started:
            self._started = True
            out.append(Start())
        item_type = _TEXT_DELTAS.get(event.type)
        if item_type is not None:
            out += self._say(self._find(event, item_type), _inside(event.delta), event.type)
        else:
            self._take(event, frame.data, out)
        return out

    def finish(self) -> list[Event]:
        """The end of the bytes: fine after response.completed (D6)."""
        if self._failed or self._stopped:
            return []
        self._failed = True
        return mend(False)

    def _take(self, event: StreamEvent, data: bytes, out: list[Event]) -> None:
        item = event.item
        match event.type:
            case "response.output_item.added":
                out += self._add(item, event.output_index) if item is not None else []
            case "response.output_item.done":
                out += self._finish_item(self._find_item(event), item) if item is not None else []
            case "response.function_call_arguments.delta":
                out += self._arguments(self._find(event, "function_call"), _inside(event.delta))
            case "response.function_call_arguments.done":
                entry = self._find(event, "function_call")
                if entry is not None and not entry.said:
                    out += self._arguments(entry, _inside(event.arguments))
            case "response.reasoning_summary_part.added":
                entry = self._find(event, "reasoning")
                if entry is not None and entry.said and event.summary_index:
                    out += self._say(entry, b"\\n\\n", entry.source)
            case "response.completed" | "response.incomplete":
                self._complete(event.response or Response(), event.type, out)
            case _:
                if event.type in ("response.failed", "error") or jsonx.kind(event.error) not in ("", "null"):
                    self._failed = True
                    out.append(Failure(failure_in_body(data)))

    def _add(self, item: Item, index: int | None) -> list[Event]:
        entry = _Entry(item)
        self._entries.append(entry)
        if item.id:
            self._by_id[item.id] = entry
        if index is not None:
            self._by_index[index] = entry
        if item.type != "function_call":
            return []
        self._called = True
        return [*self._settle(entry), self._open(entry)]

    def _find(self, event: StreamEvent, item_type: str) -> _Entry | None:
        """The item that an event speaks of: by id, by index, else the last open one of its kind."""
        entry = self._by_id.get(event.item_id or "")
        if entry is None and event.output_index is not None:
            entry = self._by_index.get(event.output_index)
        if entry is None:
            open_ones = [one for one in self._entries if one.item.type == item_type and not one.closed]
            entry = open_ones[-1] if open_ones else None
        if entry is None and item_type != "function_call":
            entry = _Entry(Item(type=item_type))
            self._entries.append(entry)
            if event.item_id:
                self._by_id[event.item_id] = entry
        return entry

    def _find_item(self, event: StreamEvent) -> _Entry | None:
        item = event.item
        assert item is not None
        entry = self._by_id.get(item.id or "")
        if entry is None and event.output_index is not None:
            entry = self._by_index.get(event.output_index)
        if entry is None:
            same = [one for one in self._entries if one.item.type == item.type and not one.closed]
            entry = same[0] if same else None
        return entry

    def _open(self, entry: _Entry) -> Open:
        entry.block = index = self._next
        self._next += 1
        item = entry.item
        if item.type == "function_call":
            return Open(index, "call", item.call_id or f"call_{self._answer_id}{index}", item.name or "unnamed")
        return Open(index, "reasoning" if item.type == "reasoning" else "text")

    def _settle(self, entry: _Entry) -> list[Event]:
        """Another item begins to speak: text and reasoning before it are over, even where a server says so late."""
        out: list[Event] = []
        for other in self._entries:
            if (
                other is not entry
                and other.block is not None
                and not other.closed
                and other.item.type != "function_call"
            ):
                out += self._close(other)
        return out

    def _say(self, entry: _Entry | None, text: Escaped, source: str) -> list[Event]:
        if entry is None or entry.closed:
            return []
        if entry.item.type == "reasoning":
            if entry.source and entry.source != source:
                return []
            entry.source = source
        if self._halves is not None:
            text = self._halves.mend(text)
        if not text:
            return []
        out: list[Event] = []
        if entry.block is None:
            out += [*self._settle(entry), self._open(entry)]
        assert entry.block is not None
        entry.said = True
        out.append(Reason(entry.block, text) if entry.item.type == "reasoning" else Text(entry.block, text))
        return out

    def _arguments(self, entry: _Entry | None, text: Escaped) -> list[Event]:
        if entry is None or entry.block is None or entry.closed or not text:
            return []
        entry.said = True
        return [Args(entry.block, text)]

    def _finish_item(self, entry: _Entry | None, item: Item) -> list[Event]:
        """output_item.done: what was not told in deltas is told now, the proof is taken, the block closes."""
        out: list[Event] = []
        if entry is None:
            out += self._add(item, None)
            entry = self._entries[-1]
        if entry.closed:
            return out
        match item.type:
            case "function_call":
                if not entry.said:
                    out += self._arguments(entry, _inside(item.arguments) or b"{}")
            case "reasoning":
                if not entry.said:
                    out += self._say(entry, _joined(item.summary) or _joined(item.content), entry.source or "done")
                if item.encrypted_content:
                    if entry.block is None:
                        out += [*self._settle(entry), self._open(entry)]
                    assert entry.block is not None
                    out.append(Seal(entry.block, "encrypted", item.encrypted_content))
            case "message":
                if not entry.said:
                    out += self._say(entry, _joined(item.content), "done")
            case _:
                pass
        return out + self._close(entry)

    def _close(self, entry: _Entry) -> list[Event]:
        out: list[Event] = []
        if self._halves is not None and entry.item.type != "function_call":
            rest = self._halves.flush()
            out += self._say(entry, rest, entry.source) if rest else []
        if entry.block is not None and entry.item.type == "function_call" and not entry.said:
            out.append(Args(entry.block, b"{}"))
        entry.closed = True
        if entry.block is not None:
            out.append(Close(entry.block))
        return out

    def _complete(self, response: Response, word: str, out: list[Event]) -> None:
        """The last event: items that it alone tells of, the usage, the stop."""
        if not self._entries:
            for item in response.output or ():
                out += self._finish_item(None, item)
        for entry in self._entries:
            if not entry.closed:
                out += self._close(entry)
        usage = response.usage.usage() if response.usage else None
        if usage is not None:
            out.append(Meter(usage))
        out.append(stop_of(response, word, self._called))
        self._stopped = self.done = True

    def whole(self, response: Response) -> list[Event]:
        """The events of a plain answer."""
        self._started = True
        out: list[Event] = [Start()]
        self._complete(response, response.status or "completed", out)
        return out


def stop_of(response: Response, word: str, called: bool) -> Stop:
    """How a response ended (F1). Calls win over everything but length."""
    if response.status == "incomplete" or word in ("response.incomplete", "incomplete"):
        why = response.incomplete_details.reason if response.incomplete_details else None
        if why == "content_filter":
            return Stop("call" if called else "filter", why)
        return Stop("length", why or "incomplete")
    return Stop("call" if called else "stop", response.status or "completed")


def decode_reply(body: bytes, answer_id: str) -> list[Event]:
    """A plain answer."""
    response, _ = read_frame(RESPONSE, body)
    if response is None:
        return [Failure(no_answer())]
    if response.output is None or response.status == "failed":
        return [Failure(failure_in_body(body) if jsonx.kind(response.error) not in ("", "null") else no_answer())]
    return ResponsesDecoder(answer_id).whole(response)


def _joined(parts: list[Part] | None) -> Escaped:
    return b"".join(_inside(part.text) or _inside(part.refusal) for part in parts or ())


def _inside(raw: Raw) -> Escaped:
    data = bytes(raw)
    return data[1:-1] if data[:1] == b'"' else b""
