"""Events -> a Messages client's stream, and a reply -> its JSON object."""

from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.events import Args, Close, Event, Failure, Foreign, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.fold import Block, Reply
from kenari.core.grammar import Serial
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Proof, RelayRule
from kenari.wire import jsonx
from kenari.wire.sse import KEEPALIVE, event_frame

STOPS = {
    "stop": "end_turn",
    "sequence": "stop_sequence",
    "length": "max_tokens",
    "call": "tool_use",
    "filter": "refusal",
}
RELAY: dict[str, RelayRule] = {"content_block_delta": "patch"}
PING = event_frame(b"ping", b'{"type":"ping"}')
_TOO_LONG = "prompt is too long"
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":'


class MessagesEncoder:
    """One client stream: named events, one block at a time, indexes dense from 0 (S60-S77)."""

    def __init__(self, answer: Answer) -> None:
        self.started = False
        self._answer = answer
        self._serial = Serial()
        self._usage = Usage()
        self._stop: Stop | None = None
        self._next = 0
        self._kind = ""
        self._pending = False  # a reasoning block whose type is not known yet
        self._head = b""  # of a delta of the open block
        self._proofs: list[Proof] = []
        self._length = 0

    def encode(self, events: list[Event]) -> bytes:
        """The frames of these events."""
        out: list[bytes] = []
        for event in self._serial.order(events):
            kind = type(event)
            if kind is Text and event.delta:  # type: ignore[union-attr]
                out.append(self._head + b'"text_delta","text":"' + event.delta + b'"}}\n\n')  # type: ignore[union-attr]
            else:
                piece = self._encode(event)
                if piece:
                    out.append(piece)
        if not out:
            return b""
        if not self.started:
            out.insert(0, self._message_start())
        return b"".join(out)

    def noop(self) -> bytes:
        """A ping once the message has begun, a comment before (D15)."""
        return PING if self.started else KEEPALIVE

    def finish(self) -> bytes:
        """message_delta with the stop reason and the final usage, then message_stop."""
        opening = b"" if self.started else self._message_start()
        stop = self._stop or Stop("stop")
        delta = {"stop_reason": STOPS[stop.reason], "stop_sequence": stop.sequence}
        event = {"type": "message_delta", "delta": delta, "usage": usage_object(self._usage)}
        return opening + _frame("message_delta", event) + _frame("message_stop", {"type": "message_stop"})

    def fail(self, error: KenariError) -> bytes:
        """The error event; nothing comes after it (S68)."""
        self.started = True
        inner = {"type": error.in_stream_anthropic_type, "message": message_of(error)}
        return _frame("error", {"type": "error", "error": inner})

    def _message_start(self) -> bytes:
        self.started = True
        usage = usage_object(self._usage)
        usage["output_tokens"] = 0
        message: dict[str, Any] = {
            "id": self._answer.id,
            "type": "message",
            "role": "assistant",
            "model": self._answer.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return _frame("message_start", {"type": "message_start", "message": message})

    def _encode(self, event: Event) -> bytes:
        match event:
            case Reason():
                return self._reason(event)
            case Args():
                return (
                    self._head + b'"input_json_delta","partial_json":"' + event.delta + b'"}}\n\n'
                    if event.delta
                    else b""
                )
            case Open():
                return self._open(event)
            case Close():
                return self._close()
            case Seal():
                return self._seal(event)
            case Start() | Meter():
                self._usage = event.usage or self._usage
            case Stop():
                self._stop = event
            case Failure():
                return self.fail(event.error)
            case Foreign():
                if event.dialect == "messages" and event.name in RELAY:
                    data = b'{"type":"content_block_delta","index":%d,"delta":' % (self._next - 1)
                    return event_frame(b"content_block_delta", data + event.data + b"}")
            case _:
                pass
        return b""

    def _open(self, event: Open) -> bytes:
        self._kind = event.kind
        if event.kind == "reasoning":
            self._pending, self._length = True, 0
            return b""
        if event.kind == "call":
            return self._block({"type": "tool_use", "id": event.call_id, "name": event.name, "input": {}})
        if event.kind == "opaque":
            return self._block(Raw(event.raw))
        return self._block({"type": "text", "text": ""})

    def _block(self, block: Any) -> bytes:
        """content_block_start of the next index."""
        index = self._next
        self._next += 1
        self._head = _DELTA % index
        return _frame("content_block_start", {"type": "content_block_start", "index": index, "content_block": block})

    def _reason(self, event: Reason) -> bytes:
        if not event.delta:
            return b""
        start = self._thinking()
        self._length += len(jsonx.unescape(event.delta))
        return start + self._head + b'"thinking_delta","thinking":"' + event.delta + b'"}}\n\n'

    def _thinking(self) -> bytes:
        if not self._pending:
            return b""
        self._pending = False
        return self._block({"type": "thinking", "thinking": "", "signature": ""})

    def _seal(self, event: Seal) -> bytes:
        proof = Proof(event.kind, event.value, self._length)
        if event.kind == "redacted" and self._pending:
            self._pending, self._kind = False, "redacted"
            data = event.value if self._answer.raw_signatures else self._answer.seal([proof])
            return self._block({"type": "redacted_thinking", "data": data})
        self._proofs.append(proof)
        self._length = 0
        return b""

    def _close(self) -> bytes:
        """content_block_stop, for a thought after its one signature (S69)."""
        out = b""
        if self._kind == "reasoning":
            out = self._thinking()
            signature = signature_of(self._answer, self._proofs, self._length)
            self._proofs = []
            out += self._head + b'"signature_delta","signature":' + jsonx.encode(signature) + b"}}\n\n"
        index = self._next - 1
        return out + _frame("content_block_stop", {"type": "content_block_stop", "index": index})


def signature_of(answer: Answer, proofs: list[Proof], length: int) -> str:
    """The signature that a Messages client sees: its maker's own (D5), an envelope, or our opaque mark (D20)."""
    real = [proof for proof in proofs if proof.kind != "mark"]
    if answer.raw_signatures and real and all(proof.kind == "signature" for proof in real):
        return "".join(proof.value for proof in real)
    return answer.seal(real or [Proof("mark", "", length)])


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage without cached tokens in the input, which are named when there are any (U2). Always integers."""
    out: dict[str, Any] = {"input_tokens": usage.fresh or 0, "output_tokens": usage.output or 0}
    if usage.cache_read:
        out["cache_read_input_tokens"] = usage.cache_read
    if usage.cache_write:
        out["cache_creation_input_tokens"] = usage.cache_write
        if usage.cache_write_1h:
            out["cache_creation"] = {
                "ephemeral_5m_input_tokens": usage.cache_write_5m or 0,
                "ephemeral_1h_input_tokens": usage.cache_write_1h,
            }
    return out


def message_of(error: KenariError) -> str:
    """The words of an error; a context overflow begins as clients of this format expect (E5)."""
    if error.code == "context_length_exceeded" and not error.message.startswith(_TOO_LONG):
        return f"{_TOO_LONG}: {error.message}"
    return error.message


def error_body(error: KenariError, request_id: str) -> bytes:
    """The Anthropic envelope with the request's id (E6)."""
    inner = {"type": error.kind.anthropic_type, "message": message_of(error)}
    return jsonx.encode({"type": "error", "error": inner, "request_id": request_id})


def encode_reply(reply: Reply, answer: Answer) -> bytes:
    """The message object."""
    content = [block for one in reply.blocks for block in _content(one, answer)]
    return jsonx.encode(
        {
            "id": answer.id,
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content,
            "stop_reason": STOPS[reply.stop.reason],
            "stop_sequence": reply.stop.sequence,
            "usage": usage_object(reply.usage),
        }
    )


def _content(block: Block, answer: Answer) -> list[Any]:
    match block.kind:
        case "reasoning":
            return _thought(block, answer)
        case "call":
            return [{"type": "tool_use", "id": block.call_id, "name": block.name, "input": input_object(block.text)}]
        case "opaque":
            return [Raw(block.raw)]
        case _:
            return [{"type": "text", "text": jsonx.quoted_raw(block.text)}] if block.text else []


def _thought(block: Block, answer: Answer) -> list[Any]:
    redacted = [seal for seal in block.seals if seal.kind == "redacted"]
    if redacted and not block.text:
        data = [s.value if answer.raw_signatures else answer.seal([Proof("redacted", s.value, 0)]) for s in redacted]
        return [{"type": "redacted_thinking", "data": one} for one in data]
    length = len(jsonx.unescape(block.text))
    proofs: list[Proof] = []
    for position, seal in enumerate(block.seals):
        proofs.append(Proof(seal.kind, seal.value, length if position == 0 else 0))
    signature = signature_of(answer, proofs, length)
    return [{"type": "thinking", "thinking": jsonx.quoted_raw(block.text), "signature": signature}]


def input_object(text: bytes) -> Raw:
    """Escaped JSON arguments as an object; what is no object (cut short, or a bare value) is kept as text."""
    raw = jsonx.unescape(text).encode("utf-8", "replace").strip() or b"{}"
    try:
        jsonx.members(raw)
    except jsonx.Malformed:
        return Raw(b'{"arguments":"' + text + b'"}')
    return Raw(raw)


def _frame(name: str, event: dict[str, Any]) -> bytes:
    return event_frame(name.encode(), jsonx.encode(event))
