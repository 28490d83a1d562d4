"""A chat provider's answer -> events."""

from typing import Any, cast

from msgspec import Raw

from kenari.core.events import Close, Escaped, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, StopReason, Text
from kenari.core.grammar import mend
from kenari.core.profile import Profile
from kenari.dialects.base import Steady
from kenari.dialects.chat.calls import Calls
from kenari.dialects.chat.details import Details
from kenari.dialects.chat.opening import plain_chunk
from kenari.dialects.chat.plain import plain_answer
from kenari.dialects.chat.splice import Splice
from kenari.dialects.chat.think import ThinkTags
from kenari.dialects.chat.wire import CHUNK, NULL, PART, Choice, Chunk, Delta, ToolDelta, UsageSeen
from kenari.dialects.failures import failure_in_body, no_answer
from kenari.dialects.frames import read_frame
from kenari.dialects.signed import Signed, write
from kenari.wire import jsonx
from kenari.wire.sse import Frame
from kenari.wire.surrogates import Halves, drop_hidden

FINISH: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "call",
    "function_call": "call",
    "content_filter": "filter",
    "refusal": "filter",
}
"""Providers' words for F1; others are a plain stop."""

_NOTHING = Raw()
_OPENING = frozenset((Start, Open, Close))
"""What a frame brings beside its piece when it is the first of a block; those that follow look the same."""


class ChatDecoder:
    """One stream of a chat provider."""

    __slots__ = (
        "_answer_id",
        "_block",
        "_calls",
        "_detailed",
        "_details",
        "_failed",
        "_halves",
        "_older",
        "_open",
        "_reasoning",
        "_splice",
        "_spliced",
        "_started",
        "_stopped",
        "_tags",
        "_usage",
        "done",
    )

    def __init__(self, profile: Profile, answer_id: str) -> None:
        self.done = False
        self._answer_id = answer_id
        self._calls: Calls | None = None  # once there is one
        self._usage = UsageSeen()
        self._tags = ThinkTags() if profile.think_tags else None
        self._halves: Halves | None = None
        self._started = False
        self._stopped = False
        self._failed = False
        self._block = 0  # the index of the next block
        self._open: int | None = None  # the open text or reasoning block
        self._reasoning = False  # it is reasoning
        self._detailed = True  # reasoning was told in details at most
        self._older = True  # calls were told in the older form at most
        self._details: Details | None = None  # of which nothing was made yet
        self._splice = Splice()
        self._spliced = False  # what `_splice` knows is a delta of the open block

    def feed(self, frame: Frame) -> list[Event]:
        """The events of one frame."""
        data, block = frame.data, self._open
        if self._spliced and block is not None and not self._failed and not self.done:
            text = self._splice.one(data)
            if text:
                return [Reason(block, text) if self._reasoning else Text(block, text)]
        return self._parse(data)

    def feed_all(self, frames: list[Frame]) -> list[Event]:
        """The events of frames that came together; runs of plain deltas are cut out without being parsed."""
        events: list[Event] = []
        at, cuts = 0, 0
        while at < len(frames):
            if self._spliced and self._open is not None and not self._failed and not self.done:
                block, kind = self._open, Reason if self._reasoning else Text
                texts = self._splice.cut(frames, at, cuts < 4)  # however many odd ones are between them
                cuts += 1
                if texts:
                    events += [kind(block, text) for text in texts]
                    at += len(texts)
                if at == len(frames):
                    break
            events += self._parse(frames[at].data)
            at += 1
        return events

    def steady(self) -> Steady | None:
        """The form of the last frame, if it was nothing but a piece of the open block."""
        prefix, suffix = self._splice.around
        if not prefix or not self._spliced or self._open is None or self._failed or self.done:
            return None
        kind = Reason if self._reasoning else Text
        return Steady(b"data: " + prefix, suffix + b"\n\n", kind, self._open)

    def _parse(self, data: bytes) -> list[Event]:
        """The events of one frame, parsed."""
        if self._failed or self.done:
            return []
        if data[:1] != b"{" and data.strip() == b"[DONE]":
            self.done = True
            return [] if self._stopped else self.finish()
        # (where a block is open, a frame that has to be parsed is hardly ever one of these)
        if self._open is None and not (self._stopped or self._calls or self._tags or self._halves):
            text = plain_chunk(data)
            if text is not None:
                return self._begin(text, data)
        chunk, split = read_frame(CHUNK, data)
        if chunk is None:
            return self._unreadable(data)
        if split and self._halves is None:
            self._halves = Halves()
        events = self.take(chunk, data)
        self._spliced = False
        if events and isinstance(events[-1], Text | Reason):
            self._learn(events, events[-1], data)
        return events

    def _begin(self, text: Escaped, data: bytes) -> list[Event]:
        """The events of a chunk with this text and nothing else, when no block is open and no call was told: what `take` and `_learn` make of it."""
        events: list[Event] = []
        if not self._started:
            self._started = True
            events.append(Start())
        self._spliced = text != b""
        if text:
            block = self._open = self._block
            self._block, self._reasoning = block + 1, False
            events += (Open(block, "text"), Text(block, text))
            self._splice.learn(data, text)
        return events

    def _learn(self, events: list[Event], event: Text | Reason, data: bytes) -> None:
        """Remember the form of a frame that was nothing but one piece of the open block, be it the one that opened it. `event` is its last one."""
        if isinstance(event, Text) and event.logprobs:
            return
        if self._halves is not None or self._details is not None or (self._tags is not None and not self._tags.settled):
            return
        if len(events) == 1 or _OPENING.issuperset(map(type, events[:-1])):
            self._splice.learn(data, event.delta)
            self._spliced = self._open is not None

    def take(self, chunk: Chunk, data: bytes) -> list[Event]:
        """The events of one chunk; `data` are its bytes, for errors."""
        choices = chunk.choices
        choice = choices[0] if choices else None
        if choice is not None and choice.index:  # another one may stand in front of ours
            choice = next((one for one in choices or () if not one.index), choice)
        if len(chunk.error) > NULL or (choice is not None and choice.finish_reason == "error"):
            return self._fail(data)
        events: list[Event] = []
        if not self._started:
            self._started = True
            events.append(Start())
        if choice is not None and (choice.index or self._stopped):  # another choice (D8), or words after the finish
            choice = None
        if choice is not None:
            self._choose(choice, events)
        if len(chunk.usage) > NULL or chunk.x_groq is not None or (choices and len(choices[0].usage) > NULL):
            usage = self._usage.read(chunk)
            if usage is not None:
                events.append(Meter(usage))
        if choice is not None and choice.finish_reason:
            self._stop(choice, events)
        return events

    def finish(self) -> list[Event]:
        """The end of the bytes: fine after a finish (D6)."""
        if self._failed or self._stopped:
            return []
        self._failed = True
        return mend(False)

    def _fail(self, data: bytes) -> list[Event]:
        """The provider reports an error. After a finish it is no longer ours."""
        if self._stopped:
            return []
        self._failed = True
        return [Failure(failure_in_body(data))]

    def _unreadable(self, data: bytes) -> list[Event]:
        """A frame that is no chunk: an error in some other shape, or noise that is skipped."""
        try:
            value: Any = jsonx.value(data)
        except jsonx.Malformed:
            return []
        if isinstance(value, list) and value:
            value = cast("list[Any]", value)[0]
        if isinstance(value, dict) and cast("dict[str, Any]", value).get("error"):
            return self._fail(data)
        return []

    def _choose(self, choice: Choice, events: list[Event]) -> None:
        delta = choice.delta or choice.message
        if delta is None:
            return
        if len(delta.reasoning_content) > 2 or len(delta.reasoning) > 2 or len(delta.reasoning_details) > 2:
            self._think(delta, events)
        content = _text(delta.content) if len(delta.content) > 2 else b""
        refusal = _text(delta.refusal) if len(delta.refusal) > 2 else b""
        if content and self._tags is None and len(choice.logprobs) <= NULL:
            self._say(False, content, events)
        elif content:
            self._write(content, choice.logprobs, events)
        elif jsonx.kind(delta.content) == "array":
            for reasoning, piece in parts_of(delta.content):
                self._say(reasoning, piece, events)
        elif not refusal and len(choice.logprobs) > NULL and self._hears(delta):
            self._write(b"", choice.logprobs, events)
        if refusal:  # in place of words, or behind them
            self._write(refusal, _NOTHING if content else choice.logprobs, events)
        if delta.tool_calls:
            self._older = False
            self._call(delta.tool_calls, events)
        elif delta.function_call is not None and self._older:
            self._call([ToolDelta(0, None, delta.function_call)], events)

    def _hears(self, delta: Delta) -> bool:
        """Whether a token that shows no text, and has a log probability, belongs to the answer's text."""
        return not (self._reasoning or delta.tool_calls or self._calls or self._tags)

    def _think(self, delta: Delta, events: list[Event]) -> None:
        """Reasoning under any of its names; the same text under two counts once."""
        if jsonx.kind(delta.reasoning_details) == "array":
            self._details = self._details or Details()
            self._details.add(delta.reasoning_details)
        thought = _text(delta.reasoning_content) or _text(delta.reasoning)
        if thought:
            self._detailed = False
            self._say(True, thought, events)
        elif self._detailed:
            for piece in details_of(delta.reasoning_details):
                self._say(True, piece, events)

    def _call(self, tools: list[ToolDelta], events: list[Event]) -> None:
        self._flush_tags(events)
        self._close_text(events)
        self._vouch(events)
        calls = self._calls = self._calls or Calls(self._answer_id)
        for tool in tools:
            if len(tool.extra_content) > NULL:
                self._call_signed(tool, calls, events)
                continue
            new, self._block = calls.add(tool, self._block, self._halves is not None)
            events += new

    def _call_signed(self, tool: ToolDelta, calls: Calls, events: list[Event]) -> None:
        """A call that its maker signed: a thought without words in front of it carries the proof (D5)."""
        proof = self._block
        new, self._block = calls.add(tool, proof + 1, self._halves is not None)
        value = write(Signed(calls.last_id, Raw(jsonx.one_line(bytes(tool.extra_content)))))
        events += (Open(proof, "reasoning"), Seal(proof, "encrypted", value), Close(proof), *new)

    def _write(self, content: Escaped, logprobs: Raw, events: list[Event]) -> None:
        """Text of the answer, which may hold a leading pair of think tags."""
        if self._tags is not None and not self._tags.settled:
            self._tagged(self._tags.feed(jsonx.unescape(content)), events)
            return
        raw = jsonx.one_line(logprobs) if len(logprobs) > NULL else b""
        if raw and self._halves is not None:
            raw = drop_hidden(raw)
        self._say(False, content, events, raw)

    def _tagged(self, pieces: list[tuple[bool, str]], events: list[Event]) -> None:
        for reasoning, text in pieces:
            self._say(reasoning, jsonx.escape(text), events)

    def _flush_tags(self, events: list[Event]) -> None:
        if self._tags is not None and not self._tags.settled:
            self._tagged(self._tags.flush(), events)

    def _say(self, reasoning: bool, text: Escaped, events: list[Event], logprobs: bytes = b"") -> None:
        if self._open is None or self._reasoning is not reasoning:
            if self._open is not None:
                self._close_text(events)
            if self._calls is not None:
                self._calls.settle(events)
            if not reasoning:
                self._vouch(events)
            self._open, self._reasoning = self._block, reasoning
            self._block += 1
            events.append(Open(self._open, "reasoning" if reasoning else "text"))
        if self._halves is not None:
            text = self._halves.mend(text)
        if reasoning:
            if text:
                events.append(Reason(self._open, text))
        elif text or logprobs:
            events.append(Text(self._open, text, logprobs))

    def _vouch(self, events: list[Event]) -> None:
        """The proof of the details so far: on the open thought, else on one without words (D5)."""
        details, self._details = self._details, None
        if details is None or not details.signed or self._halves is not None:
            return
        value = write(Signed(details=details.whole()))
        if self._open is not None:
            events.append(Seal(self._open, "encrypted", value))
            return
        proof = self._block
        self._block += 1
        events += (Open(proof, "reasoning"), Seal(proof, "encrypted", value), Close(proof))

    def _close_text(self, events: list[Event]) -> None:
        if self._open is not None:
            rest = self._halves.flush() if self._halves is not None else b""
            if rest:
                events.append(Reason(self._open, rest) if self._reasoning else Text(self._open, rest))
            if self._reasoning:
                self._vouch(events)
            events.append(Close(self._open))
            self._open = None

    def _stop(self, choice: Choice, events: list[Event]) -> None:
        called = False
        if self._tags is not None:
            self._flush_tags(events)
        self._close_text(events)
        self._vouch(events)
        if self._calls is not None:
            closing, self._block = self._calls.close(self._block)
            events += closing
            called = self._calls.named
        self._stopped = True
        events.append(stop_of(choice, called))


def stop_of(choice: Choice, called: bool) -> Stop:
    """How a choice ended (F1): calls win over everything but length."""
    word = choice.finish_reason or "stop"
    reason = FINISH.get(word, "stop")
    sequence = None
    if reason == "stop" and jsonx.kind(choice.stop_reason) == "string":  # vLLM names the sequence it met
        reason, sequence = "sequence", jsonx.unescape(jsonx.unquoted(choice.stop_reason))
    if reason == "call" and not called:
        reason = "stop"
    if called and reason != "length":
        reason, sequence = "call", None
    return Stop(reason, word, sequence)


def decode_reply(body: bytes, profile: Profile, answer_id: str) -> list[Event]:
    """A plain answer is a stream of one chunk whose message is whole."""
    said = None if profile.think_tags else plain_answer(body)
    if said is not None:
        metered: list[Event] = [] if said.usage is None else [Meter(said.usage)]
        return [Start(), Open(0, "text"), Text(0, said.text), *metered, Close(0), Stop(FINISH[said.word], said.word)]
    chunk, _ = read_frame(CHUNK, body)
    decoder = ChatDecoder(profile, answer_id)
    choice = chunk.choices[0] if chunk is not None and chunk.choices else None
    if chunk is None or choice is None:  # an error in some shape, or nothing that answers (E4)
        return [event for event in decoder.feed(Frame(b"", body)) if isinstance(event, Failure)] or [
            Failure(no_answer())
        ]
    message = choice.message or choice.delta
    if message is None and len(chunk.error) <= NULL:
        return [Failure(no_answer())]
    if not choice.finish_reason:
        choice.finish_reason = "stop"
    for position, tool in enumerate((message or Delta()).tool_calls or ()):
        tool.index = position
    return decoder.take(chunk, body)


def parts_of(content: Raw) -> list[tuple[bool, Escaped]]:
    """Content that comes as parts (Mistral): text, and thinking as an array of texts."""
    out: list[tuple[bool, Escaped]] = []
    for raw in jsonx.elements(content):
        part, _ = read_frame(PART, bytes(raw))
        if part is None:
            continue
        if part.type == "text":
            out.append((False, _text(part.text)))
        elif part.type == "thinking" and jsonx.kind(part.thinking) == "array":
            out += [(True, piece) for _, piece in parts_of(part.thinking)]
        elif part.type == "thinking":
            out.append((True, _text(part.thinking)))
    return [(reasoning, piece) for reasoning, piece in out if piece]


def details_of(details: Raw) -> list[Escaped]:
    """The texts of `reasoning_details`, for providers that tell reasoning nowhere else."""
    if jsonx.kind(details) != "array":
        return []
    parts = [read_frame(PART, bytes(raw))[0] for raw in jsonx.elements(details)]
    return [text for part in parts if part is not None and (text := _text(part.text) or _text(part.summary))]


def _text(raw: Raw) -> Escaped:
    data = bytes(raw)
    return data[1:-1] if data[:1] == b'"' else b""
