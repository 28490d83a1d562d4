"""Request -> the body for a chat provider. What `fit` left alone is byte-equal to a chat client's own (law L10)."""

from typing import Any

import msgspec
from msgspec import Raw

from kenari.core.profile import Profile
from kenari.core.request import (
    AudioPart,
    CallPart,
    FilePart,
    Format,
    ImagePart,
    OpaquePart,
    Part,
    ReasoningPart,
    Request,
    ResultPart,
    TextPart,
    Tool,
    Turn,
    leading_system,
)
from kenari.dialects.chat.request import IGNORED, SIMPLE
from kenari.wire import jsonx

_OWN = frozenset(
    [
        "model",
        "messages",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "reasoning",
        "reasoning_effort",
        "prompt_cache_key",
        "functions",
        "function_call",
        "logprobs",
        "top_logprobs",
        "session_id",
    ]
)
"""Members that are always written anew; all others of a chat client travel raw."""


def encode_request(request: Request, profile: Profile) -> bytes:
    """The body that a chat provider gets. Members that a chat client sent stand in the client's order."""
    same = request.origin == "chat"
    if same and request.plain and request.fields.keys() <= SIMPLE:
        return _plain(request, profile)
    texts = same and request.plain
    messages = request.fields["messages"] if texts else _messages(request, same, profile)
    out: dict[str, Any] = {"model": request.model, "messages": messages}
    if same:
        hidden = _OWN | IGNORED
        if not profile.extra_fields:
            hidden |= set(request.extra)
        out |= {name: raw for name, raw in request.fields.items() if name not in hidden and not jsonx.is_null(raw)}
        if profile.logprobs:
            probs = ("logprobs", "top_logprobs")
            out |= {name: request.fields[name] for name in probs if not jsonx.is_null(request.fields.get(name))}
    else:
        if request.stop:
            out["stop"] = [jsonx.quoted_raw(text) for text in request.stop]
        if request.format is not None:
            out["response_format"] = _format(request.format)
    out |= request.sampling
    _add_tools(out, request, same, profile)
    _add_limits(out, request, profile)
    if request.cache_key is not None:
        out["prompt_cache_key"] = request.cache_key
    _add_stream(out, request, profile)
    if same:
        out = {name: out[name] for name in request.fields if name in out} | out
    return jsonx.encode(out)


def _plain(request: Request, profile: Profile) -> bytes:
    """The same for a chat client's request that is nothing but texts, which are as they came."""
    out: dict[str, Any] = {}
    for name in request.fields:
        if name == "model":
            out["model"] = request.model
        elif name == "messages":
            out["messages"] = request.fields["messages"]
        elif request.stream and (name == "stream" or profile.stream_usage):
            out[name] = None  # its place
    if request.max_output is not None:
        _add_limits(out, request, profile)
    if request.stream:
        _add_stream(out, request, profile)
    return jsonx.encode(out)


def _add_stream(out: dict[str, Any], request: Request, profile: Profile) -> None:
    if request.stream:
        out["stream"] = True
        if profile.stream_usage:
            out["stream_options"] = {"include_usage": True}


def _add_limits(out: dict[str, Any], request: Request, profile: Profile) -> None:
    if request.max_output is not None and profile.max_tokens_field != "none":
        out[profile.max_tokens_field] = request.max_output
    thinking = request.thinking
    if thinking is None:
        return
    if profile.effort == "reasoning":
        wish: dict[str, Any] = {}
        if thinking.effort is not None:
            wish["effort"] = thinking.effort
        elif thinking.budget is not None:
            wish["max_tokens"] = thinking.budget
        if wish:
            out["reasoning"] = wish
    elif thinking.effort is not None:
        out["reasoning_effort"] = thinking.effort


def _add_tools(out: dict[str, Any], request: Request, same: bool, profile: Profile) -> None:
    if not request.tools:
        return
    out["tools"] = [tool.raw if same and tool.raw is not None else _tool(tool) for tool in request.tools]
    choice = request.tool_choice
    if choice is not None:
        own = request.fields.get("tool_choice") if same else None
        seen = request.names.get(choice.name)
        if choice.mode != "named":
            out["tool_choice"] = choice.mode
        elif not jsonx.is_null(own) and (seen is None or seen.name == choice.name):
            out["tool_choice"] = own
        else:
            out["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    if request.parallel is not None and profile.parallel_tool_calls:
        out["parallel_tool_calls"] = request.parallel


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = jsonx.quoted_raw(tool.description)
    if tool.schema is not None:
        function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _format(wanted: Format) -> dict[str, Any]:
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    inner: dict[str, Any] = {"name": wanted.name, "schema": wanted.schema}
    if wanted.strict is not None:
        inner["strict"] = wanted.strict
    if wanted.description is not None:
        inner["description"] = jsonx.quoted_raw(wanted.description)
    return {"type": "json_schema", "json_schema": inner}


def _messages(request: Request, same: bool, profile: Profile) -> list[Any]:
    if same:
        out: list[Any] = []
        for turn in request.turns:
            if turn.raw is not None:
                touched = turn.touched | _misnamed(turn, turn.raw, profile) | _sourced(turn, turn.raw)
                out.append(_patched(turn, turn.raw, touched, profile) if touched else turn.raw)
            else:
                out += _turn(turn, profile, True)
        return out
    lead = leading_system(request.turns)
    out = []
    texts = [part.text for turn in request.turns[:lead] for part in turn.parts if isinstance(part, TextPart)]
    if texts:
        out.append({"role": "system", "content": _system(request.turns[:lead], texts, profile)})
    for turn in request.turns[lead:]:
        out += _turn(turn, profile, False)
    return out


def _system(turns: list[Turn], texts: list[bytes], profile: Profile) -> Any:
    """One system text, blocks joined by a blank line; as parts where cache marks have to be kept."""
    parts = [part for turn in turns for part in turn.parts]
    if profile.cache_control and any(isinstance(part, TextPart) and part.cache is not None for part in parts):
        return [_part(part, profile, False) for part in parts]
    return jsonx.quoted_raw(b"\\n\\n".join(texts))


def _misnamed(turn: Turn, raw: Raw, profile: Profile) -> set[str]:
    """`reasoning` when a message carries its reasoning under another name than this provider reads."""
    if not any(isinstance(part, ReasoningPart) and part.text and part.details is None for part in turn.parts):
        return set()
    return {"reasoning"} if jsonx.is_null(jsonx.members(raw).get(profile.reasoning_field)) else set()


def _sourced(turn: Turn, raw: Raw) -> set[str]:
    """`sources` when a message carries what our own search had found (S52): strict servers refuse what they do not know."""
    named = turn.role == "assistant" and b'"sources"' in bytes(raw)
    return {"sources"} if named and "sources" in jsonx.members(raw) else set()


def _patched(turn: Turn, raw: Raw, touched: frozenset[str], profile: Profile) -> dict[str, Any]:
    """The client's own message with the members changed that `fit` touched."""
    message: dict[str, Any] = dict(jsonx.members(raw))
    if "sources" in touched:
        del message["sources"]
    if "role" in touched:
        message["role"] = "system" if turn.role == "system" else "user"
    if "content" in touched:
        inner: list[Part] = [part for part in turn.parts if not isinstance(part, (CallPart, ReasoningPart))]
        if inner and isinstance(inner[0], ResultPart):
            inner = _marked(inner[0].parts, inner[0].cache, profile)
        message["content"] = _content(inner, profile, turn.role, True)
    if "reasoning" in touched:
        for name in ("reasoning", "reasoning_content", "reasoning_details"):
            message.pop(name, None)
        message |= _thoughts(turn, profile)
    if "calls" in touched:
        message.pop("function_call", None)
        calls = [_call(part) for part in turn.parts if isinstance(part, CallPart)]
        if calls:
            message["tool_calls"] = calls
        else:
            message.pop("tool_calls", None)
    return message


def _turn(turn: Turn, profile: Profile, same: bool) -> list[Any]:
    """The messages of one turn: results first, each in its own, then the rest (B061)."""
    out: list[Any] = []
    rest: list[Part] = []
    for part in turn.parts:
        if isinstance(part, ResultPart):
            out.append(_result(part, profile, same))
        else:
            rest.append(part)
    if turn.role == "assistant":
        message = _assistant(turn, rest, profile, same)
        return [message] if message is not None else []
    if rest:
        role = "user" if turn.role == "user" else "developer" if turn.developer else "system"
        out.append({"role": role, "content": _content(rest, profile, turn.role, same)})
    return out


def _assistant(turn: Turn, parts: list[Part], profile: Profile, same: bool) -> dict[str, Any] | None:
    texts: list[Part] = [part for part in parts if not isinstance(part, (CallPart, ReasoningPart))]
    calls = [_call(part) for part in parts if isinstance(part, CallPart)]
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if texts:
        message["content"] = _content(texts, profile, "assistant", same)
    elif not calls:
        return None
    message |= _thoughts(turn, profile)
    if calls:
        message["tool_calls"] = calls
    return message


def _thoughts(turn: Turn, profile: Profile) -> dict[str, Any]:
    thoughts = [part for part in turn.parts if isinstance(part, ReasoningPart)]
    details = [one for part in thoughts if part.details is not None for one in jsonx.elements(part.details)]
    if details:
        return {"reasoning_details": details}
    text = b"".join(part.text for part in thoughts)
    return {profile.reasoning_field: jsonx.quoted_raw(text)} if text else {}


def _content(parts: list[Part], profile: Profile, role: str, same: bool) -> Any:
    """A string where there is only text, else parts: the client's own (`same`) as they came. Nothing is null."""
    if not parts:
        return None if role == "assistant" else ""
    if same and any(isinstance(part, TextPart) and part.raw is not None for part in parts):
        return [_part(part, profile, True) for part in parts]
    marked = profile.cache_control and any(isinstance(part, TextPart) and part.cache is not None for part in parts)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if not marked and len(texts) == len(parts):
        return jsonx.quoted_raw((b"" if role == "assistant" else b"\\n").join(texts))
    return [_part(part, profile, same) for part in parts]


def _part(part: Part, profile: Profile, same: bool) -> Any:
    if same and part.raw is not None:
        return part.raw
    match part:
        case TextPart():
            out: dict[str, Any] = {"type": "text", "text": jsonx.quoted_raw(part.text)}
            if profile.cache_control and part.cache is not None:
                out["cache_control"] = part.cache
            return out
        case ImagePart():
            url = part.url or b"data:" + part.media_type.encode() + b";base64," + part.data
            image: dict[str, Any] = {"url": jsonx.quoted_raw(url)}
            if part.detail in ("auto", "low", "high"):
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image}
        case FilePart():
            data = b"data:" + part.media_type.encode() + b";base64," + part.data
            name = part.filename or b"document"
            return {
                "type": "file",
                "file": {"filename": jsonx.quoted_raw(name), "file_data": jsonx.quoted_raw(data)},
            }
        case AudioPart():
            return {"type": "input_audio", "input_audio": {"data": jsonx.quoted_raw(part.data), "format": part.format}}
        case OpaquePart():
            return part.raw
        case _:
            raise TypeError(f"{type(part).__name__} is no content part")


def _call(part: CallPart) -> dict[str, Any]:
    arguments = part.arguments if part.quoted else jsonx.embed(part.arguments)
    function = {"name": part.name, "arguments": jsonx.quoted_raw(arguments or b"{}")}
    call = {"id": part.call_id, "type": "function", "function": function}
    return call if part.extra is None else call | {"extra_content": part.extra}


def _result(part: ResultPart, profile: Profile, same: bool) -> dict[str, Any]:
    """A tool message. There is no flag for a failure, so the text says it (B061)."""
    parts = part.parts
    if part.is_error and not same:
        first = parts[0].text if parts and isinstance(parts[0], TextPart) else b""
        rest = parts[1:] if first else parts
        parts = [TextPart(b"Error: " + first), *rest]
    parts = _marked(parts, part.cache, profile)
    return {"role": "tool", "tool_call_id": part.call_id, "content": _content(parts, profile, "user", same)}


def _marked(parts: list[Part], cache: Raw | None, profile: Profile) -> list[Part]:
    """A result's parts with its cache mark on the last text: this format has no other place for it."""
    if cache is None or not profile.cache_control:
        return parts
    for index in range(len(parts) - 1, -1, -1):
        part = parts[index]
        if isinstance(part, TextPart):
            return [*parts[:index], msgspec.structs.replace(part, cache=cache, raw=None), *parts[index + 1 :]]
    return parts
