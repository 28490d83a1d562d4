"""Events -> a Responses client's stream, and a reply -> its JSON object."""

from collections.abc import Callable
from itertools import count, islice
from typing import Self

import msgspec

from kenari.core.errors import KenariError
from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Reason, Seal, Sources, Start, Stop, Text
from kenari.core.fold import Reply, unfold
from kenari.core.grammar import Serial
from kenari.core.request import CallPart
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Proof, Speaker, literal
from kenari.dialects.responses.citations import annotations
from kenari.dialects.responses.items import call_item, freeform_input, message_item, new_id, reasoning_item
from kenari.dialects.responses.resource import Resource, error_object, status_of
from kenari.wire import jsonx

_IN_TEXT = b',"content_index":0'
_PART = b'{"type":"summary_text","text":"'
_END = b'","sequence_number":%d}\n\n'
_ENDS = tuple(_END % number for number in range(1024))
"""What delta frames end with, ready for nearly all streams: a run of them is put together from these."""


class _Item:
    """The output item under way. `place` are the members that name it in its events, `close` writes its closing events,
    `covered` counts the pieces of reasoning that have their proof."""

    __slots__ = ("call", "close", "covered", "id", "pieces", "place", "proofs")

    def __init__(self, index: int, identity: str, close: Callable[["ResponsesEncoder", "_Item"], bytes]) -> None:
        self.id = identity
        self.place = b',"item_id":"%b","output_index":%d' % (identity.encode(), index)
        self.close = close
        self.pieces: list[bytes] = []
        self.proofs: list[Proof] = []
        self.covered = 0
        self.call = CallPart("", "", b"")

    def uncovered(self) -> int:
        """The length in characters of the reasoning since the last proof, which a new one covers."""
        text = b"".join(self.pieces[self.covered :])
        self.covered = len(self.pieces)
        return len(jsonx.unescape(text))


class ResponsesEncoder:
    """One client stream: exactly the events of the page (S80-S92), sequence numbers from 0.

    An item is announced when it first says something, so none is empty. Reasoning blocks that follow each other are one
    item (S94, D4), so such an item stays open until another one begins.
    """

    def __init__(self, answer: Answer) -> None:
        self.started = False
        self._answer = answer
        self._resource = Resource(answer)
        self._serial = Serial()
        self._numbers = count()  # of the frames
        self._items: list[bytes] = []  # the finished ones, as they stand in `output`
        self._item: _Item | None = None
        self._reasoning = False  # the item under way is reasoning
        self._takes: type[Event] | None = None  # the delta that the item under way takes as it comes
        self._block = -1  # the index of their block
        self._head = b""  # of its delta events, b"" for a freeform call, whose text is known at its end
        self._usage = Usage()
        self._stop: Stop | None = None
        self._sources: Sources | None = None
        self._opening = b""  # the first frame, if it was foreseen
        # likewise the frame of a first message, the head of its deltas, and its item
        self._first: tuple[bytes, bytes, _Item] | None = None

    def foresee(self) -> Self:
        """Write the first frames of a stream while there is nothing to say yet: most answers are a text. What is said
        otherwise than by `_say` is what it would have been."""
        self._opening = self._created()
        frame = self._begin("message", ResponsesEncoder._close_message)
        self._expect(0, Text, "response.output_text.delta", _IN_TEXT)
        item = self._item
        assert item is not None
        self._first = frame, self._head, item
        self.started, self._item, self._takes, self._numbers = False, None, None, count()
        return self

    def encode(self, events: list[Event]) -> bytes:
        """The frames of these events."""
        if len(events) == 1:  # nearly always one more piece of what is under way
            event = events[0]
            if type(event) is self._takes and event.index == self._block and event.delta:  # type: ignore[union-attr]
                return self._delta(event.delta)  # type: ignore[union-attr]
        out: list[bytes] = []
        at = self._more(events, out) if self._takes is not None else 0
        if at == len(events):  # nearly always
            return b"".join(out)
        pieces: list[bytes] = []
        for event in self._serial.order(events[at:] if at else events):
            if type(event) is self._takes:
                if event.index == self._block and event.delta:  # type: ignore[union-attr]
                    pieces.append(event.delta)  # type: ignore[union-attr]
                continue
            if type(event) is Start or type(event) is Meter:
                self._usage = event.usage or self._usage
                continue
            if pieces:
                out.append(self._deltas(pieces))
                pieces = []
            out.append(self._encode(event))
        if pieces:
            out.append(self._deltas(pieces))
        return b"".join(out)

    def speaker(self, kind: type[Text] | type[Reason], index: int) -> Speaker | None:
        """The deltas of the item under way."""
        item = self._item
        if kind is not self._takes or index != self._block or item is None or not self._head:
            return None
        frame = literal(self._head) + b"%b" + _END
        return Speaker(frame, self._deltas, self._numbers, item.pieces.append)

    def noop(self) -> bytes:
        """A `keepalive` event, which Codex counts as life (D15), after response.created."""
        return self._created() + self._frame("keepalive", b"")

    def finish(self) -> bytes:
        """response.completed with the whole output and the usage; a cut answer is incomplete there (S93)."""
        opening = b"" if self.started and self._item is None else self._created() + self._end_item()
        return opening + self._frame("response.completed", b',"response":' + self._finished())

    def fail(self, error: KenariError) -> bytes:
        """response.failed; nothing comes after it (S98)."""
        response = self._resource.write("failed", self._output(), error=error_object(error))
        return self._created() + self._frame("response.failed", b',"response":' + response)

    def whole(self, reply: Reply) -> bytes:
        """The response object of a plain answer: what the stream's last event would carry (S160)."""
        self.started = True
        self.encode(unfold(reply))
        self._end_item()
        return self._finished()

    def _finished(self) -> bytes:
        stop = self._stop or Stop("stop")
        sources = self._sources.items if self._sources is not None else None
        return self._resource.write(status_of(stop), self._output(), self._usage, stop, sources=sources)

    def _output(self) -> bytes:
        return b"[" + b",".join(self._items) + b"]"

    def _created(self) -> bytes:
        """The first event, once (S80)."""
        if self.started:
            return b""
        self.started = True
        opening, self._opening, self._first = self._opening, b"", None  # it names all tools, and streams are long
        if opening:
            next(self._numbers)
            return opening
        return self._frame("response.created", b',"response":' + self._resource.write("in_progress", b"[]"))

    def _frame(self, name: str, members: bytes) -> bytes:
        kind = name.encode()
        return b'event: %b\ndata: {"type":"%b"%b,"sequence_number":%d}\n\n' % (kind, kind, members, next(self._numbers))

    def _encode(self, event: Event) -> bytes:
        match event:
            case Text() | Reason():
                return self._say(event) if event.delta else b""
            case Open():
                return self._begin_call(event) if event.kind == "call" else b""
            case Seal():
                return self._prove(event)
            case Close():
                self._takes = None
                return b"" if self._reasoning else self._end_item()
            case Start() | Meter():
                self._usage = event.usage or self._usage
            case Stop():
                self._stop = event
            case Sources():
                self._sources = event
            case Failure():
                return self.fail(event.error)
            case _:
                pass
        return b""

    # -- items

    def _say(self, event: Text | Reason) -> bytes:
        """The first piece of a block: its item begins, or goes on where reasoning follows reasoning."""
        out = b""
        if self._first is not None and isinstance(event, Text):
            frame, self._head, self._item = self._first
            out = self._created() + frame
            next(self._numbers)
            self._takes, self._block = Text, event.index
        elif isinstance(event, Text):
            out = self._begin("message", ResponsesEncoder._close_message)
            self._expect(event.index, Text, "response.output_text.delta", _IN_TEXT)
        else:
            if not self._reasoning:
                out = self._begin("reasoning", ResponsesEncoder._close_reasoning)
            if self._item is not None and not self._item.pieces:
                out += self._about(
                    "response.reasoning_summary_part.added", b',"summary_index":0,"part":' + _PART + b'"}'
                )
            self._expect(event.index, Reason, "response.reasoning_summary_text.delta", b',"summary_index":0')
        return out + self._delta(event.delta)

    def _prove(self, event: Seal) -> bytes:
        """A maker's proof, which may be all that there is of a thought (redacted, or encrypted without a summary)."""
        if event.kind == "mark":
            return b""
        out = b"" if self._reasoning else self._begin("reasoning", ResponsesEncoder._close_reasoning)
        item = self._item
        assert item is not None
        item.proofs.append(Proof(event.kind, event.value, item.uncovered()))
        return out

    def _begin_call(self, event: Open) -> bytes:
        call = CallPart(event.call_id, event.name, b"", namespace=event.namespace, custom=event.custom)
        kind = "custom_tool_call" if event.custom else "function_call"
        out = self._begin(kind, ResponsesEncoder._close_call, call)
        self._expect(event.index, Args, "" if event.custom else "response.function_call_arguments.delta", b"")
        return out

    def _begin(
        self, kind: str, close: Callable[["ResponsesEncoder", _Item], bytes], call: CallPart | None = None
    ) -> bytes:
        """The item before is closed, a new one is announced."""
        out = self._created() + self._end_item()
        item = self._item = _Item(len(self._items), new_id(kind, self._answer.id, len(self._items)), close)
        self._reasoning = kind == "reasoning"
        if call is not None:
            item.call = call
            added = jsonx.encode(call_item(item.id, call, "in_progress"))
        elif kind == "reasoning":
            added = jsonx.encode(reasoning_item(item.id, b"", None, "in_progress"))
        else:
            added = message_item(item.id, b"", b"in_progress")
        return out + self._frame("response.output_item.added", item.place + b',"item":' + added)

    def _expect(self, block: int, delta: type[Event], name: str, members: bytes) -> None:
        """From now on such deltas of this block go out as they come, under this event name."""
        item = self._item
        assert item is not None
        self._takes, self._block, self._head = delta, block, b""
        if name:
            kind = name.encode()
            self._head = b'event: %b\ndata: {"type":"%b"%b%b,"delta":"' % (kind, kind, item.place, members)

    def _more(self, events: list[Event], out: list[bytes]) -> int:
        """Append the frames of the events at the start that are pieces of what is under way; how many there were."""
        takes, block = self._takes, self._block
        pieces: list[bytes] = []
        for event in events:
            if type(event) is not takes or event.index != block or not event.delta:  # type: ignore[union-attr]
                break
            pieces.append(event.delta)  # type: ignore[union-attr]
        if pieces:
            out.append(self._deltas(pieces))
        return len(pieces)

    def _deltas(self, pieces: list[bytes]) -> bytes:
        """The frames of pieces of what is under way, all in one go."""
        self._item.pieces += pieces  # type: ignore[union-attr]
        if not self._head:
            return b""
        told = [self._head] * (3 * len(pieces))
        told[1::3] = pieces
        numbers = list(islice(self._numbers, len(pieces)))
        known = numbers[-1] < len(_ENDS)
        told[2::3] = _ENDS[numbers[0] : numbers[-1] + 1] if known else map(_END.__mod__, numbers)
        return b"".join(told)

    def _delta(self, delta: bytes) -> bytes:
        self._item.pieces.append(delta)  # type: ignore[union-attr]
        if not self._head:
            return b""
        return self._head + delta + _END % next(self._numbers)

    def _about(self, name: str, members: bytes) -> bytes:
        """An event of the item under way."""
        item = self._item
        assert item is not None
        return self._frame(name, item.place + members)

    def _end_item(self) -> bytes:
        """The closing events of the item under way, which then stands in the output."""
        item = self._item
        if item is None:
            return b""
        out = item.close(self, item)
        self._item, self._reasoning, self._takes = None, False, None
        return out

    def _done(self, item: _Item, data: bytes) -> bytes:
        self._items.append(data)
        return self._frame("response.output_item.done", item.place + b',"item":' + data)

    def _close_message(self, item: _Item) -> bytes:
        text = b"".join(item.pieces)
        found = self._sources
        cited = jsonx.encode(annotations(text, found.items)) if found is not None else b"[]"
        return self._done(item, message_item(item.id, text, b"completed", cited))

    def _close_reasoning(self, item: _Item) -> bytes:
        text = b"".join(item.pieces)
        out = b""
        if text:
            done = b',"summary_index":0,"text":"' + text + b'"'
            out = self._about("response.reasoning_summary_text.done", done)
            part = b',"summary_index":0,"part":' + _PART + text + b'"}'
            out += self._about("response.reasoning_summary_part.done", part)
        envelope = self._answer.seal(item.proofs or [Proof("mark", "", item.uncovered())])
        return out + self._done(item, jsonx.encode(reasoning_item(item.id, text, envelope, "completed")))

    def _close_call(self, item: _Item) -> bytes:
        arguments = b"".join(item.pieces) or b"{}"
        if item.call.custom:
            text = freeform_input(arguments)
            call = msgspec.structs.replace(item.call, arguments=text)
            out = self._about("response.custom_tool_call_input.delta", b',"delta":"' + text + b'"')
            out += self._about("response.custom_tool_call_input.done", b',"input":"' + text + b'"')
        else:
            call = msgspec.structs.replace(item.call, arguments=arguments)
            out = self._about("response.function_call_arguments.done", b',"arguments":"' + arguments + b'"')
        return out + self._done(item, jsonx.encode(call_item(item.id, call, "completed")))
