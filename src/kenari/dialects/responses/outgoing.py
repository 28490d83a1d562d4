"""Request -> the body for a Responses provider. What `fit` left alone is byte-equal to the client's own (law L10)."""

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
from kenari.wire import jsonx

_INCLUDE = ["reasoning.encrypted_content"]


def encode_request(request: Request, profile: Profile) -> bytes:
    """The body that a Responses provider gets: always stateless (F3)."""
    same = request.origin == "responses"
    out: dict[str, Any] = {"model": request.model}
    turns = request.turns
    if same:
        if turns and turns[0].raw is None and turns[0].param == "instructions":
            out["instructions"] = request.fields["instructions"]
            turns = turns[1:]
    else:
        lead = leading_system(turns)
        texts = [part.text for turn in turns[:lead] for part in turn.parts if isinstance(part, TextPart)]
        if texts:
            out["instructions"] = jsonx.quoted_raw(b"\\n\\n".join(texts))
        turns = turns[lead:]
    out["input"] = _input(request, turns, same)
    _add_tools(out, request, same)
    if request.max_output is not None:
        out["max_output_tokens"] = request.max_output
    out |= {name: raw for name, raw in request.sampling.items() if name in ("temperature", "top_p")}
    if request.thinking is not None and request.thinking.effort is not None:
        out["reasoning"] = {"effort": request.thinking.effort, "summary": "auto"}
    text = _text(request, same)
    if text:
        out["text"] = text
    if request.cache_key is not None:
        out["prompt_cache_key"] = request.cache_key
    out["store"] = False
    out["include"] = _INCLUDE
    if request.stream:
        out["stream"] = True
    return jsonx.encode(out)


def _text(request: Request, same: bool) -> Any:
    """`text`: the client's verbosity, or the answer's format."""
    raw = request.fields.get("text") if same else None
    if raw is not None and jsonx.kind(raw) == "object" and "verbosity" in jsonx.members(raw):
        return {"verbosity": jsonx.members(raw)["verbosity"]}
    wanted = request.format
    if wanted is None:
        return None
    if wanted.kind == "json_object":
        return {"format": {"type": "json_object"}}
    schema: dict[str, Any] = {"type": "json_schema", "name": wanted.name, "schema": wanted.schema}
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return {"format": schema}


def _input(request: Request, turns: list[Turn], same: bool) -> Any:
    source = request.fields.get("input")
    if same and source is not None and jsonx.kind(source) == "string" and not any(turn.touched for turn in turns):
        return source
    items: list[Any] = []
    for turn in turns:
        if same and turn.raw is not None and not turn.touched:
            items.append(turn.raw)
        else:
            items += _items(turn, same)
    return items


def _items(turn: Turn, same: bool) -> list[Any]:
    """The items of one turn: texts and images that follow each other are one message."""
    out: list[Any] = []
    content: list[Part] = []
    for part in turn.parts:
        if isinstance(part, (TextPart, ImagePart, FilePart)):
            if same and isinstance(part, TextPart) and part.raw is not None:
                _flush(out, content, turn)
                out.append(part.raw)
            else:
                content.append(part)
            continue
        _flush(out, content, turn)
        out.append(_item(part, same))
    _flush(out, content, turn)
    return out


def _flush(out: list[Any], content: list[Part], turn: Turn) -> None:
    if content:
        role = turn.role if turn.role != "system" else "developer"
        out.append({"type": "message", "role": role, "content": [_part(part, turn.role) for part in content]})
        content.clear()


def _item(part: Part, same: bool) -> Any:
    raw = getattr(part, "raw", None)
    if same and raw is not None:
        return raw
    match part:
        case ReasoningPart():
            item: dict[str, Any] = {"type": "reasoning", "summary": []}
            if part.text:
                item["summary"] = [{"type": "summary_text", "text": jsonx.quoted_raw(part.text)}]
            if part.proof:
                item["encrypted_content"] = part.proof
            return item
        case CallPart():
            arguments = part.arguments if part.quoted else jsonx.embed(part.arguments)
            return {
                "type": "function_call",
                "call_id": part.call_id,
                "name": part.name,
                "arguments": jsonx.quoted_raw(arguments or b"{}"),
            }
        case ResultPart():
            return {"type": "function_call_output", "call_id": part.call_id, "output": _output(part)}
        case OpaquePart():
            return part.raw
        case _:
            raise TypeError(f"{type(part).__name__} is no item of this format")


def _output(part: ResultPart) -> Any:
    texts = [inner.text for inner in part.parts if isinstance(inner, TextPart)]
    if len(texts) == len(part.parts):
        text = b"\\n".join(texts)
        return jsonx.quoted_raw(b"Error: " + text if part.is_error else text)
    return [_part(inner, "user") for inner in part.parts]


def _part(part: Part, role: str) -> Any:
    match part:
        case TextPart():
            kind = "output_text" if role == "assistant" else "input_text"
            out: dict[str, Any] = {"type": kind, "text": jsonx.quoted_raw(part.text)}
            if kind == "output_text":
                out["annotations"] = []
            return out
        case ImagePart():
            url = part.url or b"data:" + part.media_type.encode() + b";base64," + part.data
            image: dict[str, Any] = {"type": "input_image", "image_url": jsonx.quoted_raw(url)}
            image["detail"] = part.detail or "auto"
            return image
        case FilePart():
            data = b"data:" + part.media_type.encode() + b";base64," + part.data
            name = part.filename or b"document"
            return {"type": "input_file", "filename": jsonx.quoted_raw(name), "file_data": jsonx.quoted_raw(data)}
        case _:
            raise TypeError(f"{type(part).__name__} is no content part")


def _add_tools(out: dict[str, Any], request: Request, same: bool) -> None:
    if not request.tools:
        return
    out["tools"] = [tool.raw if same and tool.raw is not None else _tool(tool) for tool in request.tools]
    choice = request.tool_choice
    if choice is not None:
        renamed = choice.mode == "named" and request.names[choice.name].name != choice.name
        if same and not renamed:
            out["tool_choice"] = request.fields["tool_choice"]
        else:
            out["tool_choice"] = {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode
    if request.parallel is not None:
        out["parallel_tool_calls"] = request.parallel


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = jsonx.quoted_raw(tool.description)
    out["parameters"] = tool.schema if tool.schema is not None else Raw(b'{"type":"object","properties":{}}')
    out["strict"] = tool.strict if tool.strict is not None else False
    return out
