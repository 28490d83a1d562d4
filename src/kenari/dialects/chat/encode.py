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
    StopReason,
    Text,
)
from kenari.core.fold import Block, Reply
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Named, Proof, Speaker, literal
from kenari.dialects.chat.request import is_older
from kenari.dialects.envelope import envelope
from kenari.wire import jsonx

FINISH = {"stop": b"stop", "sequence": b"stop", "length": b"length", "call": b"tool_calls", "filter": b"content_filter"}
DONE = b"data: [DONE]\n\n"
_ENDS = (Start, Meter, Stop, Sources)
"""Events of which something is said at the end only."""

_NOTHING_USED = Usage()


class ChatEncoder:
    """One client stream: `data:` frames of chat.completion.chunk objects (S36-S54)."""

    __slots__ = (
        "_answer",
        "_hide",
        "_length",
        "_older",
        "_prefix",
        "_proofs",
        "_proven",
        "_sources",
        "_stop",
        "_suffix",
        "_text",
        "_text_end",
        "_thought",
        "_tools",
        "_usage",
        "started",
    )

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
        self._older = is_older(answer.request.fields)
        self._usage = _NOTHING_USED
        self._stop: Stop | None = None
        self._sources: Sources | None = None
        self._proofs: list[Proof] = []  # of all blocks so far
        self._thought: int | None = None  # the open reasoning block
        self._length = 0  # characters of its text that no proof covers yet
        self._proven = False

    def encode(self, events: list[Event]) -> bytes:
        """The chunks of these events."""
        if len(events) == 1 and self.started:  # nearly every call
            event = events[0]
            if type(event) is Text and event.delta and not event.logprobs:
                return self._text + event.delta + self._text_end
        out: list[bytes] = []
        texts: list[bytes] = []  # plain ones that follow each other: nearly all there is
        for event in events:
            if type(event) is Text and event.delta and not event.logprobs:
                texts.append(event.delta)
                continue
            if isinstance(event, _ENDS):
                self._note(event)
                continue
            if texts:
                out.append(self._run(texts))
                texts = []
            if isinstance(event, Close):
                piece = b"" if event.index != self._thought else self._prove()
            else:
                piece = b"" if type(event) is Open and event.kind == "text" else self._encode(event)
            if piece:
                out.append(piece)
        if texts:
            out.append(self._run(texts))
        if out and not self.started:
            out.insert(0, self._opening())
        return b"".join(out)

    def speaker(self, kind: type[Text] | type[Reason], index: int) -> Speaker | None:
        """Text goes between the same bytes each time."""
        if kind is not Text or not self.started:
            return None
        return Speaker(literal(self._text) + b"%b" + self._text_end, self._run)

    def _run(self, texts: list[bytes]) -> bytes:
        return self._text + (self._text_end + self._text).join(texts) + self._text_end

    def noop(self) -> bytes:
        """A chunk with an empty delta; the first one carries the role (D15)."""
        return self._chunk(b"{}") if self.started else self._opening()

    def finish(self) -> bytes:
        """The finish chunk with usage, then `[DONE]`."""
        opening = self._opening()
        reason = _finish(self._stop.reason, self._older) if self._stop else b"stop"
        end = b',"finish_reason":"' + reason + b'"}]'
        found = b""
        if self._sources is not None:  # S52: one more chunk, without usage (D3)
            found = self._chunk(jsonx.encode({"sources": source_list(self._sources.items)}))
        end += usage_member(self._usage)
        return opening + self._prefix + b"{}" + end + b"}\n\n" + found + DONE

    def fail(self, error: KenariError) -> bytes:
        """A chunk with an error and no choices, then `[DONE]` (S53)."""
        self.started = True
        return b"data: " + jsonx.encode(envelope(error)) + b"\n\n" + DONE

    def _opening(self) -> bytes:
        """The chunk with the role, once."""
        if self.started:
            return b""
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
            case Args() if self._older:
                return self._older_arguments(event)
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
            case Failure():
                return self.fail(event.error)
            case _:
                pass
        return b""

    def _note(self, event: Start | Meter | Stop | Sources) -> None:
        """What is said at the end only."""
        if isinstance(event, Stop):
            self._stop = event
        elif isinstance(event, Sources):
            self._sources = event
        else:
            self._usage = event.usage or self._usage

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
        if self._older:
            call = {"name": event.name, "arguments": ""}
            return self._chunk(jsonx.encode({"function_call": call})) if index == b"0" else b""
        function = {"name": event.name, "arguments": ""}
        call = {"index": Raw(index), "id": event.call_id, "type": "function", "function": function}
        return self._chunk(b'{"tool_calls":[' + jsonx.encode(call) + b"]}")

    def _older_arguments(self, event: Args) -> bytes:
        """A piece of the only call that the older format has a place for."""
        if not event.delta or self._tools[event.index] != b"0":
            return b""
        return self._chunk(b'{"function_call":{"arguments":"' + event.delta + b'"}}')

    def _prove(self) -> bytes:
        """When a reasoning block ends its proof goes out: in one envelope with those of the blocks before it, so that
        the last envelope covers all the reasoning text that a client has put together."""
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


_COUNTS = b',"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d'
_WHOLE = (
    b'{"id":"%b","object":"chat.completion","created":%d,"model":%b,'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":%b}%b}]%b}'
)
COUNTED = _WHOLE.removesuffix(b"%b}") + _COUNTS + b"}}"
"""The chat.completion object whose usage is two counts and their sum."""


def usage_member(usage: Usage) -> bytes:
    """The member `usage` with cached tokens inside the prompt's (U2), details only when there are any (S48); nothing
    when there is no usage."""
    prompt, output = usage.prompt, usage.output or 0
    if not prompt and not output:
        return b""
    out = _COUNTS % (prompt, output, prompt + output)
    if usage.cache_read:
        out += b',"prompt_tokens_details":{"cached_tokens":%d}' % usage.cache_read
    if usage.reasoning:
        out += b',"completion_tokens_details":{"reasoning_tokens":%d}' % usage.reasoning
    return out + b"}"


def encode_reply(reply: Reply, answer: Answer) -> bytes:
    """The chat.completion object."""
    text = thought = b""
    calls: list[dict[str, Any]] = []
    logprobs: list[bytes] = []
    for block in reply.blocks:
        if block.kind == "call":
            calls.append(_call(block))
        elif block.kind == "reasoning":
            thought += block.text
        elif block.kind != "opaque":
            text += block.text
        logprobs += block.logprobs
    message = b"null" if calls and not text else b'"' + text + b'"'
    if len(reply.blocks) > 1 or not text or reply.searches:
        message += _more(reply, answer, thought, calls)
    probs = b',"logprobs":' + _merged(logprobs) if logprobs else b""
    named = Named(answer.id, answer.created, jsonx.encode(answer.model))
    finish = _finish(reply.stop.reason, is_older(answer.request.fields))
    return whole(named, message, probs + b',"finish_reason":"' + finish + b'"', reply.usage)


def _finish(reason: StopReason, older: bool) -> bytes:
    return b"function_call" if older and reason == "call" else FINISH[reason]


def whole(named: Named, message: bytes, end: bytes, usage: Usage) -> bytes:
    """The chat.completion object. `message` is its content and what follows it, `end` what follows the message."""
    return _WHOLE % (named.id.encode(), named.created, named.model, message, end, usage_member(usage))


def _more(reply: Reply, answer: Answer, thought: bytes, calls: list[dict[str, Any]]) -> bytes:
    """The members of a message beside its text: the reasoning with its proofs, and the calls."""
    out = b""
    if answer.request.thinking is None or not answer.request.thinking.exclude:
        if thought:
            out += b',"reasoning":"' + thought + b'","reasoning_content":"' + thought + b'"'
        proofs = _proofs(reply)
        if proofs:
            out += b',"reasoning_details":' + jsonx.encode(reasoning_details(answer.seal(proofs)))
    if calls and is_older(answer.request.fields):
        out += b',"function_call":' + jsonx.encode(calls[0]["function"])
    elif calls:
        out += b',"tool_calls":' + jsonx.encode(calls)
    if reply.searches:
        out += b',"sources":' + jsonx.encode(source_list(reply.sources))
    return out


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
