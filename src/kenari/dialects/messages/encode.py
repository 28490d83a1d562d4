"""Events -> a Messages client's stream, and a reply -> its JSON object."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.events import (
    Args,
    Close,
    Event,
    Failure,
    Foreign,
    Meter,
    Open,
    Ping,
    Reason,
    Seal,
    Source,
    Sources,
    Start,
    Stop,
    Text,
)
from kenari.core.fold import Block, Reply
from kenari.core.grammar import Serial
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Proof, RelayRule, Speaker, literal
from kenari.dialects.messages.blocks import NAME
from kenari.dialects.messages.content import as_object, begins_object, is_blank
from kenari.wire import jsonx
from kenari.wire.sse import KEEPALIVE, event_frame

FINISH = {
    "stop": "end_turn",
    "sequence": "stop_sequence",
    "length": "max_tokens",
    "call": "tool_use",
    "filter": "refusal",
}
"""F1, towards a client."""

RELAY: Mapping[str, RelayRule] = {
    "citations_delta": "patch",
    "server_tool_use": "patch",
    "web_search_tool_result": "patch",
    "web_fetch_tool_result": "patch",
    "code_execution_tool_result": "patch",
    "bash_code_execution_tool_result": "patch",
    "text_editor_code_execution_tool_result": "patch",
    "tool_search_tool_result": "patch",
    "mcp_tool_use": "patch",
    "mcp_tool_result": "patch",
    "container_upload": "patch",
}
"""Deltas and blocks that only this format knows and its SDKs read, by their type. Others would break strict clients."""

PING = event_frame(b"ping", b'{"type":"ping"}')
_STOP = event_frame(b"message_stop", b'{"type":"message_stop"}')
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":'
_TEXT_START = event_frame(
    b"content_block_start", b'{"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}'
)
_THINKING_START = b'{"type":"thinking","thinking":"","signature":""}'
_TEXT_DELTA = b'{"type":"text_delta","text":"'
_THINKING_DELTA = b'{"type":"thinking_delta","thinking":"'
_ARGS_DELTA = b'{"type":"input_json_delta","partial_json":"'
_DELTA_END = b'"}}\n\n'
_NOTHING = Usage()


class MessagesEncoder:
    """One client stream: blocks one after the other, indexes dense from 0 (S77)."""

    def __init__(self, answer: Answer) -> None:
        self.started = False
        self._answer = answer
        self._serial = Serial()
        self._usage = _NOTHING
        self._stop: Stop | None = None
        self._sources: Sources | None = None
        self._index = 0  # of the block that is open, or that opens next
        self._block: Open | None = None
        self._prefix = b""  # of the open block's deltas, "" until it has been written
        self._held: list[bytes] | None = None  # arguments of the open call, unless they have begun as an object
        self._odd = False  # they have begun as something else
        self._seals: list[Seal] = []
        self._thought: list[bytes] = []
        self._opening = self._message_start(_NOTHING)  # what a stream begins with whose provider says no usage yet

    def encode(self, events: list[Event]) -> bytes:
        """The frames of these events."""
        out: list[bytes] = []
        for event in self._serial.order(events):
            if isinstance(event, Text | Args):
                if event.delta and self._held is not None:
                    self._hold(event.delta, self._held, out)
                elif event.delta:
                    out.append((self._prefix or self._begin(out)) + event.delta + _DELTA_END)
            elif isinstance(event, Reason):
                if event.delta:
                    self._thought.append(event.delta)
                    out.append((self._prefix or self._begin(out)) + event.delta + _DELTA_END)
            else:
                self._take(event, out)
        return b"".join(out)

    def speaker(self, kind: type[Text] | type[Reason], index: int) -> Speaker | None:
        """Text of the open block goes between the same bytes each time."""
        if kind is not Text or not self._prefix or not self._serial.only(index):
            return None
        return Speaker(literal(self._prefix) + b"%b" + _DELTA_END, self._run)

    def _run(self, texts: list[bytes]) -> bytes:
        return self._prefix + (_DELTA_END + self._prefix).join(texts) + _DELTA_END

    def noop(self) -> bytes:
        """`ping` once message_start is out, a comment before (D15)."""
        return PING if self.started else KEEPALIVE

    def finish(self) -> bytes:
        """The stop reason with the final usage, then `message_stop` (S65, S66)."""
        opening = b"" if self.started else self._begin_message()
        stop = self._stop or Stop("stop")
        found = self._sources
        end = jsonx.encode(
            {
                "type": "message_delta",
                "delta": {"stop_reason": FINISH[stop.reason], "stop_sequence": stop.sequence},
                "usage": usage_object(self._usage, found.searches if found is not None else 0),
            }
            | ({"sources": source_list(found.items)} if found is not None else {})
        )
        return opening + event_frame(b"message_delta", end) + _STOP

    def fail(self, error: KenariError) -> bytes:
        """The error event; nothing comes after it (S68)."""
        self.started = True
        body = {
            "type": "error",
            "error": {"type": error.in_stream_anthropic_type, "message": error_message(error)},
        }
        return event_frame(b"error", jsonx.encode(body))

    def _take(self, event: Event, out: list[bytes]) -> None:
        match event:
            case Open():
                self._block = event
                self._prefix = b""
                self._seals, self._thought = [], []
                if event.kind in ("call", "opaque"):
                    self._open(event, out)
            case Close():
                self._close(out)
            case Seal():
                self._seals.append(event)
            case Start():
                self._usage = event.usage or self._usage
                if not self.started:
                    out.append(self._begin_message())
            case Ping():
                if self.started:
                    out.append(PING)
            case Foreign():
                self._relay(event, out)
            case Failure():
                out.append(self.fail(event.error))
            case _:
                self._note(event)

    def _note(self, event: Event) -> None:
        """What is said at the end only."""
        match event:
            case Meter():
                self._usage = event.usage
            case Stop():
                self._stop = event
            case Sources():
                self._sources = event
            case _:
                pass

    def _begin_message(self) -> bytes:
        self.started = True
        return self._opening if self._usage is _NOTHING else self._message_start(self._usage)

    def _message_start(self, so_far: Usage) -> bytes:
        usage = usage_object(so_far) | {"output_tokens": 0}
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
        return event_frame(b"message_start", jsonx.encode({"type": "message_start", "message": message}))

    def _open(self, event: Open, out: list[bytes]) -> None:
        """Calls and foreign blocks open at once, text and thoughts with their first words."""
        if event.kind == "call":
            call: dict[str, Any] = {"type": "tool_use", "id": event.call_id, "name": event.name, "input": {}}
            out.append(self._block_start(jsonx.encode(call)))
            self._prefix = _DELTA % self._index + _ARGS_DELTA
            self._held, self._odd = [], False
        else:
            self._open_foreign(event.raw, out)

    def _hold(self, delta: bytes, held: list[bytes], out: list[bytes]) -> None:
        """`input` is an object (S71): arguments that begin as something else wait for their end."""
        held.append(delta)
        if not self._odd and begins_object(delta):
            out.append(self._prefix + b"".join(held) + _DELTA_END)
            self._held = None
        elif not is_blank(delta):
            self._odd = True

    def _open_foreign(self, raw: bytes, out: list[bytes]) -> None:
        """A vendor's own block. Its input comes in a delta, as the vendor sends it."""
        block, given = _foreign(raw)
        if block is None:
            self._block = None
            return
        out.append(self._block_start(block))
        self._prefix = _DELTA % self._index
        if given:
            out.append(self._prefix + _ARGS_DELTA + given + _DELTA_END)

    def _begin(self, out: list[bytes]) -> bytes:
        """Write the start of the open text or thinking block; the prefix of its deltas."""
        thinks = self._block is not None and self._block.kind == "reasoning"
        out.append(self._block_start(_THINKING_START) if thinks else _TEXT_START % self._index)
        self._prefix = _DELTA % self._index + (_THINKING_DELTA if thinks else _TEXT_DELTA)
        return self._prefix

    def _close(self, out: list[bytes]) -> None:
        if self._block is not None and self._block.kind == "reasoning":
            self._close_thought(out)
        elif self._held:
            out.append(self._prefix + jsonx.embed(as_object(b"".join(self._held))) + _DELTA_END)
        self._block = self._held = None
        if not self._prefix:  # it said nothing: no empty block (S33)
            return
        out.append(event_frame(b"content_block_stop", b'{"type":"content_block_stop","index":%d}' % self._index))
        self._index += 1
        self._prefix = b""

    def _close_thought(self, out: list[bytes]) -> None:
        if not self._thought and not self._seals:
            return
        thought = thinking_block(b"".join(self._thought), self._seals, self._answer)
        if thought["type"] == "redacted_thinking":
            out.append(self._block_start(jsonx.encode(thought)))
            self._prefix = _DELTA % self._index
            return
        if not self._prefix:
            self._begin(out)
        signature = {"type": "signature_delta", "signature": thought["signature"]}
        out.append(_DELTA % self._index + jsonx.encode(signature) + b"}\n\n")

    def _block_start(self, block: bytes) -> bytes:
        body = b'{"type":"content_block_start","index":%d,"content_block":%b}' % (self._index, block)
        return event_frame(b"content_block_start", body)

    def _relay(self, event: Foreign, out: list[bytes]) -> None:
        """A foreign delta of the open text block, with our index."""
        if event.dialect != NAME or event.name not in RELAY or self._block is None or self._block.kind != "text":
            return
        if event.index == self._block.index:
            if not self._prefix:
                self._begin(out)
            out.append(_DELTA % self._index + event.data + b"}\n\n")


def thinking_block(text: bytes, seals: list[Seal], answer: Answer) -> dict[str, Any]:
    """A thought with its signature: the maker's own where the client may have it, else one of ours (D5, D20)."""
    length = len(jsonx.unescape(text))
    one = seals[0] if len(seals) == 1 else None
    if one is not None and one.kind == "redacted" and not text:
        data = one.value if answer.raw_signatures else answer.seal([Proof("redacted", one.value, 0)])
        return {"type": "redacted_thinking", "data": data}
    if one is not None and one.kind == "signature" and answer.raw_signatures:
        signature = one.value
    else:
        proofs = [Proof(seal.kind, seal.value, 0 if position else length) for position, seal in enumerate(seals)]
        signature = answer.seal(proofs or [Proof("mark", "", length)])
    return {"type": "thinking", "thinking": jsonx.quoted_raw(text), "signature": signature}


def source_list(sources: tuple[Source, ...]) -> list[dict[str, str]]:
    """What a search found, as clients see it (D13)."""
    return [{"url": source.url, "title": source.title} for source in sources]


def usage_object(usage: Usage, searches: int = 0) -> dict[str, Any]:
    """Usage without cached tokens in the input, which are named only when there are any (U2). Unknown is 0 (F12).
    `searches` is how often kenari searched the web for this answer (D13)."""
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
    if searches:
        out["server_tool_use"] = {"web_search_requests": searches}
    return out


def error_message(error: KenariError) -> str:
    """The words of an error; those of a context overflow begin as every client of this format looks for (E5)."""
    start = "prompt is too long"
    if error.code == "context_length_exceeded" and not error.message.startswith(start):
        return f"{start}: {error.message}"
    return error.message


def encode_error(error: KenariError, request_id: str) -> bytes:
    """The Anthropic envelope with `request_id` (E6)."""
    inner = {"type": error.kind.anthropic_type, "message": error_message(error)}
    return jsonx.encode({"type": "error", "error": inner, "request_id": request_id})


def encode_reply(reply: Reply, answer: Answer) -> bytes:
    """The message object."""
    return jsonx.encode(
        {
            "id": answer.id,
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": [block for one in reply.blocks if (block := _block(one, answer)) is not None],
            "stop_reason": FINISH[reply.stop.reason],
            "stop_sequence": reply.stop.sequence,
            "usage": usage_object(reply.usage, reply.searches),
        }
        | ({"sources": source_list(reply.sources)} if reply.searches else {})
    )


def _block(block: Block, answer: Answer) -> Any:
    match block.kind:
        case "text" | "refusal":
            return _text_block(block) if block.text else None
        case "reasoning":
            return thinking_block(block.text, block.seals, answer) if block.text or block.seals else None
        case "call":
            given = as_object(block.text)
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": given}
        case "opaque":
            return Raw(block.raw) if _foreign(block.raw)[0] is not None else None


def _text_block(block: Block) -> dict[str, Any]:
    """A text with the citations that its provider gave."""
    out: dict[str, Any] = {"type": "text", "text": jsonx.quoted_raw(block.text)}
    deltas = (jsonx.members(one.data) for one in block.foreign if one.name == "citations_delta" and one.dialect == NAME)
    cited = [delta["citation"] for delta in deltas if "citation" in delta]
    return out | {"citations": cited} if cited else out


def _foreign(raw: bytes) -> tuple[bytes | None, bytes]:
    """A foreign block as it opens in a stream, None when it may not be relayed, and its input escaped."""
    try:
        members = jsonx.members(raw)
    except jsonx.Malformed:
        return None, b""
    kind = members.get("type")
    if kind is None or jsonx.unescape(jsonx.unquoted(kind)) not in RELAY:
        return None, b""
    given = bytes(members.get("input", Raw(b"")))
    if given[:1] != b"{" or given == b"{}":
        return raw, b""
    return jsonx.encode(members | {"input": Raw(b"{}")}), jsonx.embed(given)
