"""An answer as it came, and what it says in words that no format owns. Nothing here trusts the gateway."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kenari.conformance.scenario import Format
from kenari.wire import jsonx

Json = dict[str, Any]


class Frame(NamedTuple):
    """One event of a stream: its lines' names in order, its event name, its data, and when it came (seconds)."""

    lines: tuple[str, ...]
    event: str
    data: str
    at: float


class Answer(NamedTuple):
    """What came over the wire. `arrivals` are the moments of all reads, `cut` is why the transfer broke off."""

    form: Format
    stream: bool
    status: int
    headers: dict[str, str]
    body: bytes
    arrivals: list[tuple[float, int]]
    seconds: float
    cut: str = ""
    next_seconds: float = 0.0
    """How long the next small request took, after clients had gone away."""

    def frames(self) -> list[Frame]:
        """The events of a stream, comments left out."""
        out: list[Frame] = []
        end = 0
        for block in self.body.decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n"):
            end += len(block.encode()) + 2
            fields = [line.partition(":")[::2] for line in block.split("\n") if line and not line.startswith(":")]
            data = "\n".join(value.removeprefix(" ") for name, value in fields if name == "data")
            if not fields:
                continue
            event = next((value.strip() for name, value in fields if name == "event"), "")
            out.append(Frame(tuple(name for name, _ in fields), event, data, self._when(end)))
        return out

    def events(self) -> list[tuple[Frame, Json]]:
        """The frames whose data is a JSON object."""
        return [(frame, event) for frame in self.frames() if (event := _object(frame.data.encode())) is not None]

    def json(self) -> Json:
        """The body as a JSON object, empty when it is none."""
        return _object(self.body) or {}

    def _when(self, size: int) -> float:
        got = 0
        for at, count in self.arrivals:
            got += count
            if got >= size - 2:
                return at
        return self.seconds


class Call(NamedTuple):
    """A function call."""

    id: str
    name: str
    arguments: str


class Said(NamedTuple):
    """What an answer says. `finish` is one of stop, call, length, error, or the format's own other word; `first` is when
    the first word came, `pieces` how many came."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = ""
    used: tuple[int, int] = (0, 0)
    models: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    first: float = -1.0
    pieces: int = 0
    thought_first: bool = True


_FINISH = {
    "stop": "stop",
    "end_turn": "stop",
    "tool_calls": "call",
    "tool_use": "call",
    "length": "length",
    "max_tokens": "length",
}


def said(answer: Answer) -> Said:
    """What the answer says; what cannot be read is left out, for the checks to miss."""
    read = {"chat": _chat, "messages": _messages, "responses": _responses}[answer.form]
    try:
        return read(answer)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError):
        return Said(finish="unreadable")


def _object(data: bytes) -> Json | None:
    try:
        value = jsonx.value(data)
    except jsonx.Malformed:
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


class _Notes:
    """Collects what a stream says, in order."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[Any, list[str]] = {}
        self.first = -1.0
        self.thought_first = True
        self.ids: dict[str, None] = {}
        self.models: dict[str, None] = {}

    def word(self, at: float, text: str) -> None:
        if text:
            self.text.append(text)
            self.first = at if self.first < 0 else self.first

    def thought(self, text: str) -> None:
        if text:
            self.thought_first = self.thought_first and not self.text
            self.reasoning.append(text)

    def who(self, whole: Json) -> None:
        for member, kept in (("id", self.ids), ("model", self.models)):
            if whole.get(member):
                kept[str(whole[member])] = None

    def said(self, finish: str, used: tuple[int, int]) -> Said:
        return Said(
            "".join(self.text),
            "".join(self.reasoning),
            tuple(Call(parts[0], parts[1], "".join(parts[2:])) for parts in self.calls.values()),
            finish,
            used,
            tuple(self.models),
            tuple(self.ids),
            self.first,
            len(self.text),
            self.thought_first,
        )


# -- chat


def _chat(answer: Answer) -> Said:
    notes, finish, used = _Notes(), "", (0, 0)
    whole = [(0.0, answer.json())] if not answer.stream else [(frame.at, chunk) for frame, chunk in answer.events()]
    for at, chunk in whole:
        notes.who(chunk)
        usage: Json = chunk.get("usage") or {}
        used = (usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)) if usage else used
        for choice in chunk.get("choices") or ():
            delta: Json = choice.get("delta") or choice.get("message") or {}
            notes.thought(delta.get("reasoning_content") or delta.get("reasoning") or "")
            notes.word(at, delta.get("content") or "")
            for position, call in enumerate(delta.get("tool_calls") or ()):
                function: Json = call.get("function") or {}
                parts = notes.calls.setdefault(call.get("index", position), ["", ""])
                parts[0], parts[1] = parts[0] or call.get("id", ""), parts[1] or function.get("name", "")
                parts.append(function.get("arguments") or "")
            finish = choice.get("finish_reason") or finish
    return notes.said(_FINISH.get(finish, finish), used)


# -- messages


def _messages(answer: Answer) -> Said:
    notes = _Notes()
    if not answer.stream:
        whole = answer.json()
        notes.who(whole)
        for index, block in enumerate(whole["content"]):
            _block(notes, index, block, 0.0)
            if block["type"] == "tool_use":
                notes.calls[index].append(jsonx.encode(block["input"]).decode())
        return notes.said(_FINISH.get(whole["stop_reason"], str(whole["stop_reason"])), _used(whole.get("usage")))
    finish = ""
    usage: Json = {}
    for frame, event in answer.events():
        match event["type"]:
            case "message_start":
                notes.who(event["message"])
                usage |= event["message"].get("usage") or {}
            case "content_block_start":
                _block(notes, event["index"], event["content_block"], frame.at)
            case "content_block_delta":
                _delta(notes, event["index"], event["delta"], frame.at)
            case "message_delta":
                finish = event["delta"].get("stop_reason") or finish
                usage |= event.get("usage") or {}
            case _:
                pass
    return notes.said(_FINISH.get(finish, finish), _used(usage))


def _block(notes: _Notes, index: int, block: Json, at: float) -> None:
    match block["type"]:
        case "text":
            notes.word(at, block.get("text", ""))
        case "thinking":
            notes.thought(block.get("thinking", ""))
        case "tool_use":
            notes.calls[index] = [block["id"], block["name"]]
        case _:
            pass


def _delta(notes: _Notes, index: int, delta: Json, at: float) -> None:
    match delta["type"]:
        case "text_delta":
            notes.word(at, delta["text"])
        case "thinking_delta":
            notes.thought(delta["thinking"])
        case "input_json_delta":
            notes.calls[index].append(delta["partial_json"])
        case _:
            pass


def _used(usage: Json | None) -> tuple[int, int]:
    usage = usage or {}
    return usage.get("input_tokens") or 0, usage.get("output_tokens") or 0


# -- responses


def _responses(answer: Answer) -> Said:
    if not answer.stream:
        whole = answer.json()
        notes = _Notes()
        _items(notes, whole)
        return notes.said(_finish(whole, notes), _used(whole.get("usage")))
    notes, last = _Notes(), dict[str, Any]()
    for frame, event in answer.events():
        kind = event["type"]
        if isinstance(event.get("response"), dict):
            last = event["response"]
            notes.who(last)
        if kind == "response.output_text.delta":
            notes.word(frame.at, event["delta"])
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            notes.thought(event["delta"])
        elif kind == "response.function_call_arguments.delta":
            notes.calls.setdefault(event["output_index"], ["", ""]).append(event["delta"])
        elif kind == "response.output_item.done" and event["item"]["type"] == "function_call":
            parts = notes.calls.setdefault(event["output_index"], ["", ""])
            parts[:2] = [event["item"]["call_id"], event["item"]["name"]]
            parts[2:] = parts[2:] or [event["item"]["arguments"]]
    return notes.said(_finish(last, notes), _used(last.get("usage")))


def _items(notes: _Notes, whole: Json) -> None:
    notes.who(whole)
    for index, item in enumerate(whole["output"]):
        if item["type"] == "function_call":
            notes.calls[index] = [item["call_id"], item["name"], item["arguments"]]
        for part in _parts(item):
            if item["type"] == "reasoning":
                notes.thought(part.get("text", ""))
            elif item["type"] == "message":
                notes.word(0.0, part.get("text", ""))


def _parts(item: Json) -> Iterator[Json]:
    yield from item.get("content") or ()
    yield from item.get("summary") or ()


def _finish(whole: Json, notes: _Notes) -> str:
    if whole["status"] == "completed":
        return "call" if notes.calls else "stop"
    details: Json = whole.get("incomplete_details") or {}
    reason = details.get("reason")
    return "length" if reason == "max_output_tokens" else str(reason or whole["status"])
