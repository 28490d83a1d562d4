"""Request -> the body for a Messages provider.

What `fit` left alone is byte-equal to a Messages client's own (law L10). Of its other top-level fields only those go
out that need no beta and do not change the price (F4).
"""

from typing import Any

from msgspec import Raw

from kenari.core.profile import Profile
from kenari.core.request import Request, ResultPart, TextPart, Tool, Turn, leading_system
from kenari.dialects.fields import BETAS, Fields
from kenari.dialects.messages.blocks import NAME
from kenari.dialects.messages.content import Writer, is_blank, without_sources
from kenari.dialects.messages.options import read_tool_choice
from kenari.dialects.messages.thinking import Thoughts, ask_thinking, write_output_config
from kenari.wire import jsonx

DEFAULT_MAX_TOKENS = 4096
"""F12: only where `fit` has not named the model's cap."""

_ORDER = (
    "model",
    "max_tokens",
    "system",
    "messages",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "metadata",
    "cache_control",
    *BETAS,
    "stream",
)
_NOT_WITH_THINKING = ("temperature", "top_p", "top_k")
_NO_SCHEMA = Raw(b'{"type":"object","properties":{}}')
_KINDS = {"auto": "auto", "required": "any", "none": "none", "named": "tool"}


def encode_request(request: Request, profile: Profile) -> bytes:
    """The body that a Messages provider gets."""
    same = request.origin == NAME
    fields = Fields(request.fields if same else {})
    writer = Writer(profile.cache_control is not False)
    limit = request.max_output or DEFAULT_MAX_TOKENS
    thoughts = ask_thinking(request, profile, fields, limit)
    out: dict[str, Any] = {"model": request.model, "max_tokens": limit}
    out |= _conversation(request, writer, same)
    if request.tools:
        out["tools"] = [_tool(tool, writer, same) for tool in request.tools]
        choice = _choice(request, fields)
        if choice is not None:
            out["tool_choice"] = choice
    out |= request_settings(request, thoughts, fields)
    if same:
        out |= _passed(fields, profile)
    if request.stream or profile.stream_always:
        out["stream"] = True
    return jsonx.encode(_ordered(out, request.fields if same else {}))


def request_settings(request: Request, thoughts: Thoughts, fields: Fields) -> dict[str, Any]:
    """Thinking, answer format, sampling and stop sequences."""
    out: dict[str, Any] = {}
    if thoughts.thinking is not None:
        out["thinking"] = thoughts.thinking
    config = write_output_config(request, thoughts, fields)
    if config is not None:
        out["output_config"] = config
    hidden = _NOT_WITH_THINKING if thoughts.rules_sampling else ()
    for name in _NOT_WITH_THINKING:
        if name in request.sampling and name not in hidden:
            out[name] = request.sampling[name]
    own = fields.get("stop_sequences")
    stops = [jsonx.quoted_raw(text) for text in request.stop if not is_blank(text)]
    if own is not None and request.stop:
        out["stop_sequences"] = own
    elif stops:
        out["stop_sequences"] = stops
    return out


def _ordered(out: dict[str, Any], own: dict[str, Raw]) -> dict[str, Any]:
    """The members in the client's order, then the rest in ours."""
    names = [*(name for name in own if name in out), *(name for name in _ORDER if name in out and name not in own)]
    return {name: out[name] for name in names}


def _passed(fields: Fields, profile: Profile) -> dict[str, Any]:
    """The client's fields that travel as they are: metadata (D27), its automatic cache mark, and those of a beta
    that may be sent."""
    names = ["metadata"]
    if profile.cache_control is not False:
        names.append("cache_control")
    names += [name for name, beta in BETAS.items() if any(known.startswith(beta) for known in profile.betas)]
    return {name: raw for name in names if (raw := fields.get(name)) is not None}


def _conversation(request: Request, writer: Writer, same: bool) -> dict[str, Any]:
    turns = request.turns
    if not same:
        turns = [Turn(turn.role, without_sources(turn.parts)) for turn in turns]
        _trim_begun(turns)
    lead = leading_system(turns)
    out: dict[str, Any] = {}
    system = _system(turns[:lead], writer, same)
    if system is not None:
        out["system"] = system
    out["messages"] = _messages(turns[lead:], writer, same)
    return out


def _trim_begun(turns: list[Turn]) -> None:
    """An answer that the client has begun may not end with white space here."""
    last = turns[-1].parts[-1] if turns and turns[-1].role == "assistant" and turns[-1].parts else None
    if isinstance(last, TextPart):
        text = jsonx.unescape(last.text)
        if text != text.rstrip():
            turns[-1].parts[-1] = TextPart(jsonx.escape(text.rstrip()), cache=last.cache)


def _system(turns: list[Turn], writer: Writer, same: bool) -> Any:
    """The system prompt: as the client wrote it, else blocks where there are marks, else one text."""
    if same and len(turns) == 1:
        turn = turns[0]
        if turn.param == "system" and not turn.touched and turn.raw is not None and _is_whole(turn, writer):
            return turn.raw
    parts = [part for turn in turns for part in turn.parts]
    if same or any(isinstance(part, TextPart) and part.cache is not None for part in parts):
        return writer.blocks(parts) or None
    texts = [part.text for part in parts if isinstance(part, TextPart) and not is_blank(part.text)]
    return jsonx.quoted_raw(b"\\n\\n".join(texts)) if texts else None


def _is_whole(turn: Turn, writer: Writer) -> bool:
    return writer.is_clean(turn.parts) and writer.source(turn.raw) is not None


def _messages(turns: list[Turn], writer: Writer, same: bool) -> list[Any]:
    """One message a turn; user turns that hold results and follow each other are one message."""
    out: list[Any] = []
    position = 0
    while position < len(turns):
        turn = turns[position]
        position += 1
        if _has_results(turn):
            parts = list(turn.parts)
            while position < len(turns) and _has_results(turns[position]):
                parts += turns[position].parts
                position += 1
            if len(parts) > len(turn.parts):
                turn = Turn("user", parts)
        message = _message(turn, writer, same)
        if message is not None:
            out.append(message)
    return out


def _has_results(turn: Turn) -> bool:
    return turn.role == "user" and any(isinstance(part, ResultPart) for part in turn.parts)


def _message(turn: Turn, writer: Writer, same: bool) -> Any:
    if same and turn.raw is not None and _is_whole(turn, writer):
        if not turn.touched and turn.role != "system":
            return turn.raw
        if turn.touched <= {"role"} and turn.role != "assistant":
            return {"role": "user", "content": jsonx.members(turn.raw)["content"]}
    content = writer.content(turn.parts)
    if content is None:
        return None
    return {"role": "assistant" if turn.role == "assistant" else "user", "content": content}


def _tool(tool: Tool, writer: Writer, same: bool) -> Any:
    raw = writer.source(tool.raw) if same else None
    if raw is not None:
        return raw
    out: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        out["description"] = jsonx.quoted_raw(tool.description)
    out["input_schema"] = _schema(tool.schema)
    if tool.strict:
        out["strict"] = True
    return writer.marked(out, tool.cache)


def _schema(schema: Raw | None) -> Raw:
    """A schema is opaque, but it must say that it is an object's."""
    if schema is None:
        return _NO_SCHEMA
    members = jsonx.members(schema)
    if not members:
        return _NO_SCHEMA
    return schema if "type" in members else Raw(jsonx.encode({"type": "object"} | members))


def _choice(request: Request, fields: Fields) -> Any:
    """The choice among the tools with the switch for parallel calls, as the client wrote it when nothing changed."""
    if read_tool_choice(fields) == (request.tool_choice, request.parallel):
        return fields.get("tool_choice")
    choice = request.tool_choice
    if choice is None and request.parallel is not False:
        return None
    mode = "auto" if choice is None else choice.mode
    out: dict[str, Any] = {"type": _KINDS[mode]}
    if choice is not None and mode == "named":
        out["name"] = choice.name
    if request.parallel is False and mode != "none":
        out["disable_parallel_tool_use"] = True
    return out
