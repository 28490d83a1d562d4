"""Events -> a chat client's stream, and a reply -> its JSON object."""

from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.events import (
    Args,
    Close,
    Event,
    Failure,
    Meter,
    Open,
    Reason,
    Seal,
    Source,
    Sources,
    Start,
    Stop,
    Text,
)
from kenari.core.fold import Block, Reply
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Proof
from kenari.dialects.envelope import envelope
from kenari.wire import jsonx

FINISH = {"stop": b"stop", "sequence": b"stop", "length": b"length", "call": b"tool_calls", "filter": b"content_filter"}
DONE = b"data: [DONE]\n\n"


class ChatEncoder:
    """One client stream: `data:` frames of chat.completion.chunk objects (S36-S54)."""

    def __init__(self, answer: Answer) -> None:
        self.started = False
        self._answer = answer
        self._hide = answer.request.thinking is not None and answer.request.thinking.exclude
        self._prefix = (
            b'data: {"id":"%b","object":"chat.completion.chunk","created":%d,"model":%b,"choices":[{"index":0,"delta":'
            % (answer.id.encode(), answer.created, jsonx.encode(answer.model))
        )
        self._suffix = b',"finish_reason":null}]}\n\n'
        self._text = self._prefix + b'{"content":"'
        self._text_end = b'"}' + self._suffix
        self._tools: dict[int, bytes] = {}  # block index -> tool index
        self._usage = Usage()
        self._stop: Stop | None = None
        self._sources: Sources | None = None
        self._proofs: list[Proof] = []  # of all blocks so far
        self._thought: int | None = None  # the open reasoning block
        self._length = 0  # characters of its text that no proof covers yet
        self._proven = False

    def encode(self, events: list[Event]) -> bytes:
        """The chunks of these events."""
        if len(events) == 1 and self.started:
            event = events[0]
            if type(event) is Text and not event.logprobs:
                return self._text + event.delta + self._text_end
        out: list[bytes] = []
        for event in events:
            if type(event) is Text and event.delta and not event.logprobs:
                out.append(self._text + event.delta + self._text_end)
                continue
            piece = self._encode(event)
            if piece:
                out.append(piece)
        if not out:
            return b""
        if not self.started:
            out.insert(0, self._role())
        return b"".join(out)

    def noop(self) -> bytes:
        """A chunk with an empty delta; the first one carries the role (D15)."""
        return self._chunk(b"{}") if self.started else self._role()

    def finish(self) -> bytes:
        """The finish chunk with usage, then `[DONE]`."""
        opening = b"" if self.started else self._role()
        reason = FINISH[self._stop.reason] if self._stop else b"stop"
        end = b',"finish_reason":"' + reason + b'"}]'
        if self._usage.total:
            end += b',"usage":' + jsonx.encode(usage_object(self._usage))
        found = b""
        if self._sources is not None:  # S52: one more chunk, without usage (D3)
            found = self._chunk(jsonx.encode({"sources": source_list(self._sources.items)}))
        return opening + self._prefix + b"{}" + end + b"}\n\n" + found + DONE

    def fail(self, error: KenariError) -> bytes:
        """A chunk with an error and no choices, then `[DONE]` (S53)."""
        self.started = True
        return b"data: " + jsonx.encode(envelope(error)) + b"\n\n" + DONE

    def _role(self) -> bytes:
        self.started = True
        return self._chunk(b'{"role":"assistant","content":""}')

    def _chunk(self, delta: bytes) -> bytes:
        return self._prefix + delta + self._suffix

    def _encode(self, event: Event) -> bytes:
        match event:
            case Text():
                delta = b'{"content":"' + event.delta + b'"}'
                if event.logprobs:
                    return self._prefix + delta + b',"logprobs":' + event.logprobs + self._suffix
                return self._chunk(delta) if event.delta else b""
            case Reason():
                return self._reason(event)
            case Args():
                head = b'{"tool_calls":[{"index":' + self._tools[event.index] + b',"function":{"arguments":"'
                return self._chunk(head + event.delta + b'"}}]}') if event.delta else b""
            case Open():
                return self._open(event)
            case Seal():
                if event.kind != "mark":
                    self._proofs.append(Proof(event.kind, event.value, self._length))
                    self._length = 0
                    self._proven = True
            case Close():
                return self._close(event.index)
            case Failure():
                return self.fail(event.error)
            case _:
                self._note(event)
        return b""

    def _note(self, event: Event) -> None:
        """What is said at the end only."""
        match event:
            case Start() | Meter():
                self._usage = event.usage or self._usage
            case Stop():
                self._stop = event
            case Sources():
                self._sources = event
            case _:
                pass

    def _reason(self, event: Reason) -> bytes:
        if self._hide or not event.delta:
            return b""
        self._length += len(jsonx.unescape(event.delta))
        text = event.delta
        return self._chunk(b'{"reasoning":"' + text + b'","reasoning_content":"' + text + b'"}')

    def _open(self, event: Open) -> bytes:
        if event.kind == "reasoning":
            self._thought = event.index
        if event.kind != "call":
            return b""
        index = self._tools[event.index] = b"%d" % len(self._tools)
        function = {"name": event.name, "arguments": ""}
        call = {"index": Raw(index), "id": event.call_id, "type": "function", "function": function}
        return self._chunk(b'{"tool_calls":[' + jsonx.encode(call) + b"]}")

    def _close(self, index: int) -> bytes:
        """When a reasoning block ends its proof goes out: in one envelope with those of the blocks before it, so that
        the last envelope covers all the reasoning text that a client has put together."""
        if index != self._thought:
            return b""
        self._thought = None
        out = b""
        if self._proven and not self._hide:
            sealed = self._answer.seal(list(self._proofs))
            out = self._chunk(jsonx.encode({"reasoning_details": reasoning_details(sealed)}))
        self._proven = False
        if self._length:
            self._proofs.append(Proof("mark", "", self._length))
            self._length = 0
        return out


def reasoning_details(envelope: str) -> list[dict[str, str]]:
    """How an envelope travels on chat: a field that clients which know it give back."""
    return [{"type": "reasoning.encrypted", "data": envelope}]


def source_list(sources: tuple[Source, ...]) -> list[dict[str, str]]:
    """What a search found, as clients see it (D13)."""
    return [{"url": source.url, "title": source.title} for source in sources]


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage with cached tokens inside the prompt's (U2), details only when there are any (S48)."""
    out: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output or 0,
        "total_tokens": usage.total,
    }
    if usage.cache_read:
        out["prompt_tokens_details"] = {"cached_tokens": usage.cache_read}
    if usage.reasoning:
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return out


def encode_reply(reply: Reply, answer: Answer) -> bytes:
    """The chat.completion object."""
    hide = answer.request.thinking is not None and answer.request.thinking.exclude
    message: dict[str, Any] = {"role": "assistant", "content": None}
    text = _joined(reply, "text", "refusal")
    calls = [_call(block) for block in reply.blocks if block.kind == "call"]
    if text or not calls:
        message["content"] = jsonx.quoted_raw(text)
    thought = _joined(reply, "reasoning")
    if thought and not hide:
        message["reasoning"] = message["reasoning_content"] = jsonx.quoted_raw(thought)
    proofs = _proofs(reply)
    if proofs and not hide:
        message["reasoning_details"] = reasoning_details(answer.seal(proofs))
    if calls:
        message["tool_calls"] = calls
    if reply.searches:
        message["sources"] = source_list(reply.sources)
    choice: dict[str, Any] = {"index": 0, "message": message}
    logprobs = [one for block in reply.blocks for one in block.logprobs]
    if logprobs:
        choice["logprobs"] = Raw(_merged(logprobs))
    choice["finish_reason"] = FINISH[reply.stop.reason].decode()
    out: dict[str, Any] = {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [choice],
    }
    if reply.usage.total:
        out["usage"] = usage_object(reply.usage)
    return jsonx.encode(out)


def _joined(reply: Reply, *kinds: str) -> bytes:
    return b"".join(block.text for block in reply.blocks if block.kind in kinds)


def _call(block: Block) -> dict[str, Any]:
    function = {"name": block.name, "arguments": jsonx.quoted_raw(block.text or b"{}")}
    return {"id": block.call_id, "type": "function", "function": function}


def _proofs(reply: Reply) -> list[Proof]:
    """The proofs of all reasoning blocks in order; a text without one is marked, so that lengths add up."""
    out: list[Proof] = []
    for block in reply.blocks:
        if block.kind != "reasoning":
            continue
        length = len(jsonx.unescape(block.text))
        for seal in block.seals:
            if seal.kind != "mark":
                out.append(Proof(seal.kind, seal.value, length))
                length = 0
        if length:
            out.append(Proof("mark", "", length))
    while out and out[-1].kind == "mark":
        out.pop()
    return out


def _merged(logprobs: list[bytes]) -> bytes:
    """Log probabilities of several pieces as those of the whole: their lists joined, member by member."""
    if len(logprobs) == 1:
        return logprobs[0]
    lists: dict[str, list[Raw]] = {}
    for one in logprobs:
        if jsonx.kind(one) == "object":
            for name, raw in jsonx.members(one).items():
                if jsonx.kind(raw) == "array":
                    lists.setdefault(name, []).extend(jsonx.elements(raw))
    return jsonx.encode(lists)
