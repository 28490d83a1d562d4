"""Request -> the body for a Messages provider. What `fit` left alone is byte-equal to the client's own (law L10)."""

import re
from typing import Any

from msgspec import Raw

from kenari.core.profile import Profile
from kenari.core.request import (
    CallPart,
    FilePart,
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
from kenari.dialects.messages.encode import input_object
from kenari.wire import jsonx

_KEPT = ("metadata", "stop_sequences", "cache_control")
"""Members of a Messages client that travel raw: they need no beta and change no price (F4)."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_EMPTY_SCHEMA = Raw(b'{"type":"object","properties":{}}')


def encode_request(request: Request, profile: Profile) -> bytes:
    """The body that a Messages provider gets."""
    same = request.origin == "messages"
    out: dict[str, Any] = {"model": request.model, "max_tokens": request.max_output or 1}
    lead = leading_system(request.turns)
    system = _system(request.turns[:lead], same)
    if system is not None:
        out["system"] = system
    out["messages"] = _messages(request.turns[lead:], same)
    _add_tools(out, request, same)
    out |= {name: raw for name, raw in request.sampling.items() if name in ("temperature", "top_p", "top_k")}
    if same:
        out |= {name: request.fields[name] for name in _KEPT if not jsonx.is_null(request.fields.get(name))}
    elif request.stop:
        out["stop_sequences"] = [jsonx.quoted_raw(text) for text in request.stop]
    _add_thinking(out, request, profile, same)
    if request.format is not None:
        config = out.setdefault("output_config", {})
        config["format"] = {"type": "json_schema", "schema": request.format.schema}
    if request.stream:
        out["stream"] = True
    return jsonx.encode(out)


def _add_thinking(out: dict[str, Any], request: Request, profile: Profile, same: bool) -> None:
    thinking = request.thinking
    if thinking is None:
        return
    if same and profile.effort is None:
        wish = request.fields.get("thinking")
        if thinking.effort is not None and thinking.effort != "none":
            out["output_config"] = {"effort": thinking.effort}
        too_large = thinking.budget is not None and thinking.budget >= out["max_tokens"]
        if wish is not None and not jsonx.is_null(wish) and not too_large:
            out["thinking"] = wish
        elif too_large and out["max_tokens"] > profile.min_budget:
            out["thinking"] = {"type": "enabled", "budget_tokens": out["max_tokens"] - 1}
        return
    if thinking.effort == "none":
        out["thinking"] = {"type": "disabled"}
    elif thinking.budget is not None:
        out["thinking"] = {"type": "enabled", "budget_tokens": thinking.budget}
        for name in ("temperature", "top_k", "top_p"):  # the vendor refuses them beside a budget
            out.pop(name, None)
        if out.get("tool_choice", {}).get("type") in ("any", "tool"):  # and a forced call
            out["tool_choice"] = out["tool_choice"] | {"type": "auto"}
            out["tool_choice"].pop("name", None)
    elif thinking.effort is not None or thinking.adaptive:
        out["thinking"] = {"type": "adaptive"}
        if thinking.effort is not None:
            out["output_config"] = {"effort": thinking.effort}


def _system(turns: list[Turn], same: bool) -> Any:
    parts = [part for turn in turns for part in turn.parts if isinstance(part, TextPart)]
    if not parts:
        return None
    if same and len(turns) == 1 and turns[0].raw is not None and not turns[0].touched:
        raw = turns[0].raw  # a system message in the first place of `messages` is no system prompt yet
        return raw if jsonx.kind(raw) != "object" else [_part(part, same) for part in parts]
    return [_part(part, same) for part in parts]


def _messages(turns: list[Turn], same: bool) -> list[Any]:
    """The messages; user turns that answer calls are put together, as all results must be in one message."""
    out: list[Any] = []
    answering: list[Any] | None = None  # the content of the last message while it still takes results
    for turn in turns:
        results = turn.role == "user" and bool(turn.parts) and isinstance(turn.parts[0], ResultPart)
        if results and answering is not None:
            answering += [_part(part, same) for part in turn.parts]
            continue
        if same and turn.raw is not None and not turn.touched and _clean(turn):
            out.append(turn.raw)
            answering = None
            continue
        content = [_part(part, same) for part in turn.parts]
        if not content:
            continue
        out.append({"role": turn.role if turn.role == "assistant" else "user", "content": content})
        answering = content if results else None
    return out


def _clean(turn: Turn) -> bool:
    """Whether the client's own message may go as it is: no reference blocks, which only a beta knows."""
    return not any(isinstance(part, ResultPart) and part.raw is None for part in turn.parts)


def _part(part: Part, same: bool) -> Any:
    raw = getattr(part, "raw", None)
    if same and raw is not None:
        return raw
    out: dict[str, Any]
    match part:
        case TextPart():
            out = {"type": "text", "text": jsonx.quoted_raw(part.text)}
        case ImagePart():
            out = {"type": "image", "source": _source(part)}
        case FilePart():
            out = {"type": "document", "source": _document(part)}
        case ReasoningPart():
            if part.kind == "redacted":
                return {"type": "redacted_thinking", "data": part.proof}
            return {"type": "thinking", "thinking": jsonx.quoted_raw(part.text), "signature": part.proof}
        case CallPart():
            arguments = input_object(part.arguments) if part.quoted else Raw(part.arguments)
            out = {"type": "tool_use", "id": safe_id(part.call_id), "name": part.name, "input": arguments}
        case ResultPart():
            out = _result(part, same)
        case OpaquePart():
            return part.raw
        case _:
            raise TypeError(f"{type(part).__name__} is no block of this format")
    cache = getattr(part, "cache", None)
    if cache is not None:
        out["cache_control"] = cache
    return out


def _result(part: ResultPart, same: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "tool_result", "tool_use_id": safe_id(part.call_id)}
    inner = [one for one in part.parts if not (isinstance(one, TextPart) and not one.text)]
    if len(inner) == 1 and isinstance(inner[0], TextPart):
        out["content"] = jsonx.quoted_raw(inner[0].text)
    elif inner:
        out["content"] = [_part(one, same) for one in inner]
    if part.is_error:
        out["is_error"] = True
    return out


def _source(part: ImagePart) -> dict[str, Any]:
    if part.url:
        return {"type": "url", "url": jsonx.quoted_raw(part.url)}
    return {"type": "base64", "media_type": part.media_type, "data": jsonx.quoted_raw(part.data)}


def _document(part: FilePart) -> dict[str, Any]:
    if part.text:
        return {"type": "text", "media_type": "text/plain", "data": jsonx.quoted_raw(part.text)}
    if part.url:
        return {"type": "url", "url": jsonx.quoted_raw(part.url)}
    return {"type": "base64", "media_type": part.media_type, "data": jsonx.quoted_raw(part.data)}


def _add_tools(out: dict[str, Any], request: Request, same: bool) -> None:
    if not request.tools:
        return
    out["tools"] = [tool.raw if same and tool.raw is not None else _tool(tool) for tool in request.tools]
    choice = request.tool_choice
    if choice is not None and same and (choice.mode != "named" or request.names[choice.name].name == choice.name):
        out["tool_choice"] = request.fields["tool_choice"]
        return
    wish: dict[str, Any] = {}
    if choice is not None:
        wish["type"] = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}[choice.mode]
        if choice.mode == "named":
            wish["name"] = choice.name
    if request.parallel is False and wish.get("type") != "none":
        wish = {"type": "auto"} | wish | {"disable_parallel_tool_use": True}
    if wish:
        out["tool_choice"] = wish


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        out["description"] = jsonx.quoted_raw(tool.description)
    out["input_schema"] = _object_schema(tool.schema)
    if tool.strict is not None:
        out["strict"] = tool.strict
    if tool.cache is not None:
        out["cache_control"] = tool.cache
    return out


def _object_schema(schema: Raw | None) -> Raw | dict[str, Any]:
    """The schema as it came; one that does not say that it is an object is made to, as the vendor demands."""
    if schema is None:
        return _EMPTY_SCHEMA
    members = jsonx.members(schema)
    return schema if "type" in members else {"type": "object"} | dict(members)


def safe_id(call_id: str) -> str:
    """A call's id in the letters that Messages providers take."""
    return _UNSAFE.sub("_", call_id)
