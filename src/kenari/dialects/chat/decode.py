"""A chat provider's answer -> events."""

from msgspec import Raw

from kenari.core.events import Close, Escaped, Event, Failure, Meter, Open, Reason, Start, Stop, StopReason, Text
from kenari.core.grammar import mend
from kenari.core.profile import Profile
from kenari.dialects.chat.calls import Calls
from kenari.dialects.chat.think import ThinkTags
from kenari.dialects.chat.wire import CHUNK, PART, Choice, Chunk, Delta, UsageSeen
from kenari.dialects.failures import failure_in_body, no_answer
from kenari.dialects.frames import read_frame
from kenari.wire import jsonx
from kenari.wire.sse import Frame
from kenari.wire.surrogates import Halves

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


class ChatDecoder:
    """One stream of a chat provider."""

    def __init__(self, profile: Profile, answer_id: str) -> None:
        self.done = False
        self._calls = Calls(answer_id)
        self._usage = UsageSeen()
        self._tags = ThinkTags() if profile.think_tags else None
        self._halves: Halves | None = None
        self._started = False
        self._stopped = False
        self._failed = False
        self._block = 0  # the index of the next block
        self._open: int | None = None  # the open text or reasoning block
        self._reasoning = False  # it is reasoning

    def feed(self, frame: Frame) -> list[Event]:
        """The events of one frame."""
        data = frame.data
        if self._failed or self.done:
            return []
        if data[:6] == b"[DONE]" or data.strip() == b"[DONE]":
            self.done = True
            return []
        chunk, split = read_frame(CHUNK, data)
        if chunk is None:
            return self._unreadable(data)
        if split and self._halves is None:
            self._halves = Halves()
        return self.take(chunk, data)

    def take(self, chunk: Chunk, data: bytes) -> list[Event]:
        """The events of one chunk; `data` are its bytes, for errors."""
        events: list[Event] = []
        if not self._started:
            self._started = True
            events.append(Start())
        choices = chunk.choices
        if choices:
            choice = choices[0]
            if not self._stopped and not choice.index:
                self._choose(choice, events)
        elif jsonx.kind(chunk.error) not in ("", "null"):
            self._failed = True
            events.append(Failure(failure_in_body(data)))
            return events
        usage = chunk.usage or (chunk.x_groq.usage if chunk.x_groq else None)
        if usage is not None:
            self._usage.add(usage)
            snapshot = self._usage.snapshot()
            if snapshot is not None:
                events.append(Meter(snapshot))
        if choices and choices[0].finish_reason and not self._stopped:
            self._stop(choices[0], events)
        return events

    def finish(self) -> list[Event]:
        """The end of the bytes: fine after a finish (D6)."""
        if self._failed or self._stopped:
            return []
        self._failed = True
        return mend(False)

    def _unreadable(self, data: bytes) -> list[Event]:
        """A frame that is no chunk: an error in some other shape, or noise that is skipped."""
        try:
            value = jsonx.value(data)
        except jsonx.Malformed:
            return []
        if isinstance(value, dict) and "error" in value:
            self._failed = True
            return [Failure(failure_in_body(data))]
        return []

    def _choose(self, choice: Choice, events: list[Event]) -> None:
        delta = choice.delta or choice.message
        if delta is None:
            return
        thought = reasoning_of(delta)
        if thought:
            self._say(True, thought, events)
        content = _text(delta.content) or _text(delta.refusal)
        if content:
            if self._tags is not None:
                self._tagged(self._tags.feed(jsonx.unescape(content)), events)
            else:
                self._say(False, content, events, _raw_or_empty(choice.logprobs))
        elif jsonx.kind(delta.content) == "array":
            for reasoning, piece in parts_of(delta.content):
                self._say(reasoning, piece, events)
        for tool in delta.tool_calls or ():
            self._close_text(events)
            new = self._calls.add(tool, self._block)
            if new and isinstance(new[0], Open):
                self._block += 1
            events += new

    def _tagged(self, pieces: list[tuple[bool, str]], events: list[Event]) -> None:
        for reasoning, text in pieces:
            self._say(reasoning, jsonx.escape(text), events)

    def _say(self, reasoning: bool, text: Escaped, events: list[Event], logprobs: bytes = b"") -> None:
        if self._halves is not None:
            text = self._halves.mend(text)
            if not text:
                return
        if self._open is None or self._reasoning is not reasoning:
            self._close_text(events)
            self._open, self._reasoning = self._block, reasoning
            self._block += 1
            events.append(Open(self._open, "reasoning" if reasoning else "text"))
        events.append(Reason(self._open, text) if reasoning else Text(self._open, text, logprobs))

    def _close_text(self, events: list[Event]) -> None:
        if self._open is not None:
            rest = self._halves.flush() if self._halves is not None else b""
            if rest:
                events.append(Reason(self._open, rest) if self._reasoning else Text(self._open, rest))
            events.append(Close(self._open))
            self._open = None

    def _stop(self, choice: Choice, events: list[Event]) -> None:
        if self._tags is not None:
            self._tagged(self._tags.flush(), events)
        self._close_text(events)
        events += self._calls.close(self._block)
        self._stopped = True
        events.append(stop_of(choice, bool(self._calls)))


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
    chunk, _ = read_frame(CHUNK, body)
    if chunk is None or not chunk.choices:
        readable = chunk is not None and jsonx.kind(chunk.error) not in ("", "null")
        return [Failure(failure_in_body(body) if readable else no_answer())]
    choice = chunk.choices[0]
    if choice.message is None and choice.delta is None:
        return [Failure(no_answer())]
    if not choice.finish_reason:
        choice.finish_reason = "stop"
    decoder = ChatDecoder(profile, answer_id)
    for position, tool in enumerate((choice.message or choice.delta or Delta()).tool_calls or ()):
        tool.index = position
    return decoder.take(chunk, body)


def reasoning_of(delta: Delta) -> Escaped:
    """The reasoning of a delta under either name; the same text under both counts once."""
    return _text(delta.reasoning_content) or _text(delta.reasoning)


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
    return [(reasoning, piece) for reasoning, piece in out if piece]


def _text(raw: Raw) -> Escaped:
    data = memoryview(raw)
    return bytes(data[1:-1]) if data.nbytes > 2 and data[0] == 0x22 else b""


def _raw_or_empty(raw: Raw) -> bytes:
    return b"" if jsonx.kind(raw) in ("", "null") else bytes(raw)
