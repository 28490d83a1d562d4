"""A Messages provider's answer -> events.

Text and reasoning blocks open with their first words, so that empty ones never show. Blocks that only this format
knows (a vendor's own tools) are passed on whole when they end.
"""

from msgspec import Raw

from kenari.core.events import (
    Args,
    BlockKind,
    Close,
    Escaped,
    Event,
    Failure,
    Foreign,
    Meter,
    Open,
    Ping,
    ProofKind,
    Reason,
    Seal,
    Start,
    Stop,
    StopReason,
    Text,
)
from kenari.core.grammar import mend
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.dialects.base import Steady, around
from kenari.dialects.failures import failure_in_body, no_answer
from kenari.dialects.frames import read_frame
from kenari.dialects.messages import wire
from kenari.dialects.messages.blocks import NAME
from kenari.wire import jsonx
from kenari.wire.sse import Frame
from kenari.wire.surrogates import Halves

_EVENTS = frozenset(
    b"message_start content_block_start content_block_delta content_block_stop message_delta message_stop".split()
)
_DELTA = b"event: content_block_delta\ndata: "
_TEXTS: dict[str, BlockKind] = {"text_delta": "text", "thinking_delta": "reasoning"}
_KINDS: dict[str, BlockKind] = {
    "text": "text",
    "thinking": "reasoning",
    "redacted_thinking": "reasoning",
    "tool_use": "call",
}


class _Block:
    """A block under way. `index` is ours, -1 until it opens; `pieces` are of a signature or of foreign input."""

    __slots__ = ("block", "index", "kind", "pieces", "raw", "said")

    def __init__(self, kind: BlockKind, block: wire.Block, raw: bytes) -> None:
        self.kind: BlockKind = kind
        self.block = block
        self.raw = raw
        self.index = -1
        self.said = False
        self.pieces: list[bytes] = []


class MessagesDecoder:
    """One stream of a Messages provider. `answer_id` makes ids for calls that come without one."""

    def __init__(self, answer_id: str) -> None:
        self.done = False
        self._answer_id = answer_id
        self._halves: Halves | None = None
        self._usage: Usage | None = None
        self._blocks: dict[int, _Block] = {}
        self._next = 0
        self._calls = 0
        self._ids: set[str] = set()
        self._started = False
        self._stopped = False
        self._failed = False
        self._last: tuple[bytes, Event] | None = None  # the last frame, if it was a delta of one event

    def feed(self, frame: Frame) -> list[Event]:
        """The events of one frame."""
        self._last = None
        if self._failed or self.done:
            return []
        name = frame.event
        if name == b"content_block_delta":
            events = self._grow(frame.data)
            if len(events) == 1:
                self._last = frame.data, events[0]
            return events
        if name not in _EVENTS:
            return self._other(name, frame.data)
        return self._known(name, frame.data)

    def feed_all(self, frames: list[Frame]) -> list[Event]:
        """The events of frames that came together."""
        events: list[Event] = []
        for frame in frames:
            events += self.feed(frame)
        return events

    def steady(self) -> Steady | None:
        """The form of the last frame, if it was nothing but a piece of an open block."""
        if self._last is None or self._halves is not None or self._failed or self.done:
            return None
        data, event = self._last
        if not isinstance(event, Text | Reason):
            return None
        prefix, suffix = around(data, event.delta)
        return Steady(_DELTA + prefix, suffix + b"\n\n", type(event), event.index) if prefix else None

    def finish(self) -> list[Event]:
        """The end of the bytes: fine once a stop reason was seen, with or without `message_stop` (D6)."""
        if self._failed or self._stopped:
            return []
        self._failed = True
        return mend(False)

    def _known(self, name: bytes, data: bytes) -> list[Event]:
        match name:
            case b"content_block_delta":
                return self._grow(data)
            case b"content_block_start":
                return self._open(data)
            case b"content_block_stop":
                stop, _ = read_frame(wire.BLOCK_STOP, data)
                events: list[Event] = []
                if stop is not None and not self._stopped:
                    self._close(stop.index, events)
                return events
            case b"message_start":
                return self._begin(data)
            case b"message_delta":
                return self._end(data)
            case _:
                self.done = True
                return self.finish()

    def _other(self, name: bytes, data: bytes) -> list[Event]:
        """Frames without a name that says all: pings, errors, and servers that leave the `event:` line out."""
        if name == b"ping":
            return [Ping()] if self._started and not self._stopped else []
        named, _ = read_frame(wire.NAMED, data)
        if name == b"error" or (named is not None and (named.type == "error" or not jsonx.is_null(named.error))):
            return self._fail(data)
        if named is None:
            if data.strip() == b"[DONE]":
                self.done = True
                return self.finish()
            return []
        kind = named.type.encode("utf-8", "replace")
        if kind in _EVENTS:
            return self._known(kind, data)
        if not self._started or self._stopped:
            return []
        return [Ping()] if kind == b"ping" else [Foreign(NAME, named.type, data)]

    def _fail(self, data: bytes) -> list[Event]:
        if self._stopped:  # the answer was complete
            return []
        self._failed = True
        return [Failure(failure_in_body(data))]

    def _unreadable(self) -> list[Event]:
        """A frame of ours that cannot be read would tear a hole into the answer."""
        if self._stopped:
            return []
        self._failed = True
        return [Failure(no_answer())] if not self._started else mend(False)

    def _begin(self, data: bytes) -> list[Event]:
        start, _ = read_frame(wire.MESSAGE_START, data)
        if start is None:
            return self._unreadable()
        if self._started:
            return []
        self._started = True
        if start.message is not None:
            self._usage = wire.read_usage(start.message.usage, None)
        return [Start(self._usage)]

    def _ready(self) -> list[Event]:
        """Nothing, or a Start where the provider sent none."""
        if self._started:
            return []
        self._started = True
        return [Start()]

    def _open(self, data: bytes) -> list[Event]:
        start, split = read_frame(wire.BLOCK_START, data)
        block = None
        if start is not None:
            block, _ = read_frame(wire.BLOCK, bytes(start.content_block))
        if start is None or block is None:
            return self._unreadable()
        if self._stopped:
            return []
        self._note_halves(split)
        events = self._ready()
        self._close(start.index, events)
        self._begin_block(start.index, block, bytes(start.content_block), events)
        return events

    def _begin_block(self, position: int, block: wire.Block, raw: bytes, events: list[Event]) -> None:
        kind = _KINDS.get(block.type, "opaque")
        told = _Block(kind, block, raw)
        if kind == "call" and not wire.piece(block.name):
            return  # a call of nothing
        self._blocks[position] = told
        if kind == "call":
            self._calls += 1
            self._open_block(told, events, self._identity(wire.word(block.id)), wire.word(block.name))
        elif kind == "text":
            self._say(told, wire.piece(block.text), events)
            self._cite(told, block.citations, events)
        elif kind == "reasoning":
            self._say(told, wire.piece(block.thinking), events)

    def _identity(self, given: str) -> str:
        """A call's id: the provider's own, or one of ours where it has none or says the same one twice."""
        if not given or given in self._ids:
            given = f"toolu_{self._answer_id}{self._calls:02d}"
        self._ids.add(given)
        return given

    def _open_block(self, block: _Block, events: list[Event], call_id: str = "", name: str = "") -> None:
        block.index = self._next
        self._next += 1
        raw = block.raw if block.kind == "opaque" else b""
        events.append(Open(block.index, block.kind, call_id, name, raw=raw))

    def _say(self, block: _Block, text: Escaped, events: list[Event]) -> None:
        if self._halves is not None and text:
            text = self._halves.mend(text)
        if not text:
            return
        if block.index < 0:
            self._open_block(block, events)
        events.append(Text(block.index, text) if block.kind == "text" else Reason(block.index, text))

    def _cite(self, block: _Block, citations: Raw, events: list[Event]) -> None:
        """The citations of a whole text block, as the deltas that a stream would bring."""
        if block.index < 0 or jsonx.kind(citations) != "array":
            return
        for citation in jsonx.elements(citations):
            delta = jsonx.encode({"type": "citations_delta", "citation": Raw(jsonx.one_line(bytes(citation)))})
            events.append(Foreign(NAME, "citations_delta", delta, block.index))

    def _grow(self, data: bytes) -> list[Event]:
        told, split = read_frame(wire.BLOCK_DELTA, data)
        if told is None:
            return self._unreadable()
        if split:
            self._note_halves(split)
        block = self._blocks.get(told.index)
        delta = told.delta
        if block is not None and self._halves is None and block.index >= 0:  # nearly every call
            if delta.type == "text_delta" and block.kind == "text":
                text = wire.piece(delta.text)
                return [Text(block.index, text)] if text else []
            if delta.type == "thinking_delta" and block.kind == "reasoning":
                text = wire.piece(delta.thinking)
                return [Reason(block.index, text)] if text else []
        if self._stopped:
            return []
        return self._grow_slowly(told.index, block, delta, data)

    def _grow_slowly(self, position: int, block: _Block | None, delta: wire.Delta, data: bytes) -> list[Event]:
        events = self._ready()
        wanted = _TEXTS.get(delta.type)
        if wanted is not None:
            if block is None or block.kind != wanted:  # a server that opens no blocks, or too few
                self._close(position, events)
                block = _Block("text" if wanted == "text" else "reasoning", wire.Block(), b"")
                self._blocks[position] = block
            self._say(block, wire.piece(delta.text if wanted == "text" else delta.thinking), events)
        elif block is None:
            pass
        elif delta.type == "input_json_delta":
            self._grow_input(block, wire.piece(delta.partial_json), events)
        elif delta.type == "signature_delta":
            if block.kind == "reasoning":
                block.pieces.append(wire.piece(delta.signature))
        elif block.kind == "text":
            if block.index < 0:
                self._open_block(block, events)
            events.append(Foreign(NAME, delta.type, _member(data, "delta"), block.index))
        return events

    def _grow_input(self, block: _Block, text: Escaped, events: list[Event]) -> None:
        if block.kind == "opaque":
            block.pieces.append(text)
        elif block.kind == "call":
            if self._halves is not None:
                text = self._halves.mend(text)
            if text:
                block.said = True
                events.append(Args(block.index, text))

    def _close(self, position: int, events: list[Event]) -> None:
        block = self._blocks.pop(position, None)
        if block is None:
            return
        if self._halves is not None:
            self._close_half(block, events)
        if block.kind == "call":
            if not block.said:
                given = bytes(block.block.input)
                whole = jsonx.embed(jsonx.one_line(given)) if given[:1] == b"{" else b"{}"
                events.append(Args(block.index, whole))
        elif block.kind == "reasoning":
            self._close_thought(block, events)
        elif block.kind == "opaque":
            block.raw = _with_input(block.raw, b"".join(block.pieces))
            self._open_block(block, events)
        if block.index >= 0:
            events.append(Close(block.index))

    def _close_half(self, block: _Block, events: list[Event]) -> None:
        """A half that never met its mate becomes U+FFFD in the block that it stood in."""
        rest = self._halves.flush() if self._halves is not None else b""
        if not rest:
            return
        if block.kind == "call":
            block.said = True
            events.append(Args(block.index, rest))
        elif block.kind != "opaque":
            if block.index < 0:
                self._open_block(block, events)
            events.append(Text(block.index, rest) if block.kind == "text" else Reason(block.index, rest))

    def _close_thought(self, block: _Block, events: list[Event]) -> None:
        """The proof of a thought stands at its end; a proof without words is a thought as well (B016)."""
        kind: ProofKind = "signature"
        value = jsonx.unescape(b"".join(block.pieces)) or wire.word(block.block.signature)
        if block.block.type == "redacted_thinking":
            kind, value = "redacted", wire.word(block.block.data)
        if value:
            if block.index < 0:
                self._open_block(block, events)
            events.append(Seal(block.index, kind, value))

    def _end(self, data: bytes) -> list[Event]:
        """Usage, and the stop reason when it is known."""
        told, _ = read_frame(wire.MESSAGE_END, data)
        if told is None:
            return self._unreadable()
        events = self._ready()
        stop = told.delta
        ends = stop is not None and not jsonx.is_null(stop.stop_reason) and not self._stopped
        if ends:
            for position in list(self._blocks):
                self._close(position, events)
        if not jsonx.is_null(told.usage):
            self._usage = wire.read_usage(told.usage, self._usage)
            if self._usage is not None:
                events.append(Meter(self._usage))
        if ends and stop is not None:
            self._stopped = True
            events.append(stop_of(stop, self._calls > 0))
        return events

    def _note_halves(self, split: bool) -> None:
        if split and self._halves is None:
            self._halves = Halves()

    def take(self, message: wire.Message) -> list[Event]:
        """The events of a whole message."""
        self._started = True
        self._usage = wire.read_usage(message.usage, None)
        events: list[Event] = [Start(self._usage)]
        for position, raw in enumerate(jsonx.elements(message.content)):
            block, _ = read_frame(wire.BLOCK, bytes(raw))
            if block is not None:
                self._begin_block(position, block, bytes(raw), events)
                self._close(position, events)
        if self._usage is not None:
            events.append(Meter(self._usage))
        events.append(stop_of(message, self._calls > 0))
        return events


def stop_of(message: wire.Message, called: bool) -> Stop:
    """How a message ended (F1): calls win over everything but length."""
    word = wire.word(message.stop_reason) or "end_turn"
    reason: StopReason = wire.STOPS.get(word, "stop")
    if called and reason != "length":
        return Stop("call", word)
    if reason == "call":
        reason = "stop"
    sequence = wire.word(message.stop_sequence) if reason == "sequence" else ""
    return Stop(reason, word, sequence or None)


def decode_reply(body: bytes, profile: Profile, answer_id: str) -> list[Event]:
    """The events of a plain answer. A body that is no message is a Failure (E4)."""
    message, _ = read_frame(wire.MESSAGE, body)
    if message is None:
        return [Failure(no_answer())]
    if wire.word(message.type) == "error" or not jsonx.is_null(message.error):
        return [Failure(failure_in_body(body))]
    if jsonx.kind(message.content) != "array":
        return [Failure(no_answer())]
    return MessagesDecoder(answer_id).take(message)


def _member(data: bytes, name: str) -> bytes:
    raw: Raw | None = jsonx.members(data).get(name)
    return jsonx.one_line(bytes(raw)) if raw is not None else b"{}"


def _with_input(raw: bytes, pieces: Escaped) -> bytes:
    """A foreign block with the input that came in pieces; as it opened where those are no JSON."""
    raw = jsonx.one_line(raw)
    if not pieces:
        return raw
    try:
        whole = jsonx.unescape(pieces).encode("utf-8", "replace")
        jsonx.members(whole)
        return jsonx.encode(jsonx.members(raw) | {"input": Raw(whole)})
    except jsonx.Malformed:
        return raw
