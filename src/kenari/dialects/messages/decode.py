"""A Messages provider's answer -> events."""

from msgspec import Raw

from kenari.core.events import (
    Args,
    Close,
    Escaped,
    Event,
    Failure,
    Foreign,
    Meter,
    Open,
    Ping,
    Reason,
    Seal,
    Start,
    Stop,
    StopReason,
    Text,
)
from kenari.core.grammar import mend
from kenari.core.usage import Usage
from kenari.dialects.failures import failure_in_body, no_answer
from kenari.dialects.frames import read_frame
from kenari.dialects.messages.wire import BLOCK, EVENT, MESSAGE, RAW_DELTA, Block, Delta, StreamEvent, UsageWire
from kenari.wire import jsonx
from kenari.wire.sse import Frame
from kenari.wire.surrogates import Halves

STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "call",
    "refusal": "filter",
}
_TEXTS = ("text", "thinking")


class _Open:
    """A block of the provider that is not closed. `index` is ours, None until it says something."""

    __slots__ = ("block", "index", "said", "signature")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.index: int | None = None
        self.signature = block.signature or ""
        self.said = False


class MessagesDecoder:
    """One stream of a Messages provider. Text and thinking blocks that never say anything do not open (S33)."""

    def __init__(self, answer_id: str) -> None:
        self.done = False
        self._answer_id = answer_id
        self._blocks: dict[int, _Open] = {}
        self._next = 0
        self._usage = Usage()
        self._reported = False
        self._started = self._stopped = self._failed = self._called = False
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
        kind = event.type
        if kind == "content_block_delta":
            if event.delta is not None and not self._stopped:
                return self._delta(event.index, event.delta, frame.data)
            return []
        return self._other(kind, event, frame.data)

    def begin(self) -> None:
        """The message has begun; its Start was written by the caller."""
        self._started = True

    def finish(self) -> list[Event]:
        """The end of the bytes: fine once a stop reason was seen (D6)."""
        if self._failed or self._stopped:
            return []
        self._failed = True
        return mend(False)

    def _other(self, kind: str, event: StreamEvent, data: bytes) -> list[Event]:
        match kind:
            case "content_block_start":
                block, _ = read_frame(BLOCK, bytes(event.content_block))
                return (
                    [] if block is None or self._stopped else self.open(event.index, block, bytes(event.content_block))
                )
            case "content_block_stop":
                return [] if self._stopped else self.close(event.index)
            case "message_start":
                usage = event.message.usage if event.message else None
                return self._start(usage)
            case "message_delta":
                return self._message_delta(event)
            case "message_stop":
                self.done = True
                return []
            case "ping":
                return [Ping()] if self._started and not self._stopped else []
            case _:
                if kind == "error" or jsonx.kind(event.error) not in ("", "null"):
                    self._failed = True
                    return [Failure(failure_in_body(data))]
                return []

    def _start(self, usage: UsageWire | None) -> list[Event]:
        if self._started:
            return []
        self._started = True
        if usage is not None:
            self._usage = self._usage.merged(usage.usage())
        return [Start(self._usage if self._usage.prompt or self._usage.output else None)]

    def _message_delta(self, event: StreamEvent) -> list[Event]:
        out: list[Event] = [] if self._started else self._start(None)
        if event.usage is not None:
            self._usage = self._usage.merged(event.usage.usage())
        delta = event.delta
        stops = delta is not None and delta.stop_reason and not self._stopped
        if stops:
            for index in list(self._blocks):
                out += self.close(index)
        if self._usage.total:
            out.append(Meter(self._usage))
        if stops and delta is not None:
            self._stopped = True
            out.append(stop_of(delta.stop_reason or "", delta.stop_sequence, self._called))
        return out

    def open(self, index: int, block: Block, raw: bytes) -> list[Event]:
        """A block begins."""
        out: list[Event] = [] if self._started else self._start(None)
        if index in self._blocks:
            out += self.close(index)
        entry = self._blocks[index] = _Open(block)
        match block.type:
            case "text" | "thinking":
                out += self._say(entry, _inside(block.text if block.type == "text" else block.thinking))
            case "redacted_thinking":
                out += [self._announce(entry), Seal(self._next - 1, "redacted", block.data or "")]
            case "tool_use":
                self._called = True
                out.append(self._announce(entry))
            case _:
                entry.index = self._next
                self._next += 1
                out.append(Open(entry.index, "opaque", raw=raw))
        return out

    def _announce(self, entry: _Open) -> Open:
        """Give a block its index and open it."""
        entry.index = index = self._next
        self._next += 1
        block = entry.block
        match block.type:
            case "tool_use":
                return Open(index, "call", block.id or f"call_{self._answer_id}{index}", block.name or "unnamed")
            case "thinking" | "redacted_thinking":
                return Open(index, "reasoning")
            case _:
                return Open(index, "text")

    def _delta(self, index: int, delta: Delta, data: bytes) -> list[Event]:
        entry = self._blocks.get(index)
        if entry is None:  # a server that does not announce its blocks
            kind = {"thinking_delta": "thinking", "text_delta": "text"}.get(delta.type)
            if kind is None:
                return []
            out = self.open(index, Block(kind), b"")
            return out + self._delta(index, delta, data)
        match delta.type:
            case "text_delta":
                return self._say(entry, _inside(delta.text))
            case "thinking_delta":
                return self._say(entry, _inside(delta.thinking))
            case "input_json_delta":
                piece = _inside(delta.partial_json)
                if not piece or entry.index is None:
                    return []
                if entry.block.type != "tool_use":
                    return self._foreign(entry, data)
                entry.said = True
                return [Args(entry.index, piece)]
            case "signature_delta":
                entry.signature += delta.signature or ""
                return []
            case _:
                return self._foreign(entry, data)

    def _foreign(self, entry: _Open, data: bytes) -> list[Event]:
        """A delta that only this format knows (citations and the like), to be relayed with our index."""
        raw, _ = read_frame(RAW_DELTA, data)
        out: list[Event] = []
        if entry.index is None:
            out.append(self._announce(entry))
        if raw is not None and entry.index is not None:
            out.append(Foreign("messages", "content_block_delta", bytes(raw.delta), entry.index))
        return out

    def _say(self, entry: _Open, text: Escaped) -> list[Event]:
        if self._halves is not None:
            text = self._halves.mend(text)
        if not text:
            return []
        out: list[Event] = []
        if entry.index is None:
            out.append(self._announce(entry))
        index = entry.index
        assert index is not None
        out.append(Reason(index, text) if entry.block.type == "thinking" else Text(index, text))
        return out

    def close(self, index: int) -> list[Event]:
        """A block ends; a signature that came with it is its proof, even of a thought without text (B016)."""
        entry = self._blocks.pop(index, None)
        if entry is None:
            return []
        out: list[Event] = []
        if self._halves is not None and entry.block.type in _TEXTS:
            rest = self._halves.flush()
            out += self._say(entry, rest) if rest else []
        if entry.block.type == "thinking" and entry.signature:
            if entry.index is None:
                out.append(self._announce(entry))
            assert entry.index is not None
            out.append(Seal(entry.index, "signature", entry.signature))
        if entry.index is None:
            return out
        if entry.block.type == "tool_use" and not entry.said:
            whole = bytes(entry.block.input)
            out.append(Args(entry.index, jsonx.embed(whole) if whole[:1] == b"{" else b"{}"))
        out.append(Close(entry.index))
        return out


def stop_of(word: str, sequence: str | None, called: bool) -> Stop:
    """How a message ended (F1): calls win over everything but length."""
    reason = STOPS.get(word, "stop")
    if reason == "call" and not called:
        reason = "stop"
    if called and reason != "length":
        reason = "call"
    return Stop(reason, word, sequence if reason == "sequence" else None)


def decode_reply(body: bytes, answer_id: str) -> list[Event]:
    """A plain answer: each block opens, says everything and closes."""
    message, _ = read_frame(MESSAGE, body)
    if message is None or message.content is None:
        readable = message is not None and b'"error"' in body
        return [Failure(failure_in_body(body) if readable else no_answer())]
    decoder = MessagesDecoder(answer_id)
    usage = message.usage.usage() if message.usage else None
    events: list[Event] = [Start(usage)]
    decoder.begin()
    called = False
    for index, raw in enumerate(message.content):
        block, _ = read_frame(BLOCK, bytes(raw))
        if block is None:
            continue
        called = called or block.type == "tool_use"
        events += decoder.open(index, block, bytes(raw))
        events += decoder.close(index)
    if usage is not None and usage.total:
        events.append(Meter(usage))
    events.append(stop_of(message.stop_reason or "end_turn", message.stop_sequence, called))
    return events


def _inside(raw: Raw) -> Escaped:
    data = bytes(raw)
    return data[1:-1] if data[:1] == b'"' else b""
