"""Request -> the body for a Responses provider. What `fit` left alone is byte-equal to the client's own (law L10)."""

from typing import Any

from msgspec import Raw

from kenari.core.profile import Profile
from kenari.core.request import (
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
from kenari.wire import jsonx

_INCLUDE = ["reasoning.encrypted_content"]


def encode_request(request: Request, profile: Profile) -> bytes:
    """The body that a Responses provider gets: always stateless (F3)."""
    same = request.origin == "responses"
    out: dict[str, Any] = {"model": request.model}
    turns = request.turns
    if same:
        if turns and turns[0].raw is None and turns[0].param == "instructions":
            words = turns[0]
            out["instructions"] = _joined(words) if words.touched else request.fields["instructions"]
            turns = turns[1:]
    else:
        lead = min(leading_system(turns), len(turns) - 1)  # an empty input is refused
        texts = [part.text for turn in turns[:lead] for part in turn.parts if isinstance(part, TextPart)]
        if texts:
            out["instructions"] = jsonx.quoted_raw(b"\\n\\n".join(texts))
        turns = turns[lead:]
    out["input"] = _input(request, turns, same)
    _add_tools(out, request, profile, same)
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
    out: dict[str, Any] = {}
    if raw is not None and jsonx.kind(raw) == "object":
        verbosity = jsonx.members(raw).get("verbosity")
        if verbosity is not None and jsonx.kind(verbosity) == "string":
            out["verbosity"] = verbosity
    if request.format is not None:
        out["format"] = _format(request.format)
    return out or None


def _format(wanted: Format) -> dict[str, Any]:
    """The answer's format in this dialect's words."""
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    schema: dict[str, Any] = {"type": "json_schema", "name": wanted.name, "schema": wanted.schema or {}}
    if wanted.description is not None:
        schema["description"] = jsonx.quoted_raw(wanted.description)
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return schema


def _input(request: Request, turns: list[Turn], same: bool) -> Any:
    source = request.fields.get("input")
    alone = len(turns) == 1 and turns[0].param == "input" and not turns[0].touched
    if same and alone and source is not None and jsonx.kind(source) == "string":
        return source
    items: list[Any] = []
    for turn in turns:
        if same and turn.raw is not None and not turn.touched:
            items.append(turn.raw)
        else:
            items += _items(turn, same)
    return items


def _joined(turn: Turn) -> Raw:
    """The texts of the instructions with what was put behind them."""
    return jsonx.quoted_raw(b"".join(part.text for part in turn.parts if isinstance(part, TextPart)))


def _items(turn: Turn, same: bool) -> list[Any]:
    """The items of one turn: results first, right behind their calls (D27); texts and images that follow each other are
    one message."""
    results = [_item(part, same) for part in turn.parts if isinstance(part, ResultPart)]
    out: list[Any] = results
    content: list[Part] = []
    for part in turn.parts:
        if isinstance(part, ResultPart):
            continue
        if isinstance(part, (TextPart, ImagePart, FilePart)):
            if same and part.raw is not None:
                _flush(out, content, turn)
                if len(part.raw):  # else its item went out with the part before
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
        role = "developer" if turn.developer else turn.role
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
    failed = [{"type": "input_text", "text": "Error:"}] if part.is_error else []
    return failed + [_part(inner, "user") for inner in part.parts]


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
            if part.url:
                return {"type": "input_file", "file_url": jsonx.quoted_raw(part.url)}
            data = b"data:" + part.media_type.encode() + b";base64," + part.data
            name = part.filename or b"document"
            return {"type": "input_file", "filename": jsonx.quoted_raw(name), "file_data": jsonx.quoted_raw(data)}
        case _:
            raise TypeError(f"{type(part).__name__} is no content part")


def _add_tools(out: dict[str, Any], request: Request, profile: Profile, same: bool) -> None:
    if not request.tools:
        return
    strict = profile.strict_tools
    out["tools"] = [tool.raw if same and tool.raw is not None else _tool(tool, strict) for tool in request.tools]
    choice = request.tool_choice
    if choice is not None:
        out["tool_choice"] = {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode
    if request.parallel is not None:
        out["parallel_tool_calls"] = request.parallel


def _tool(tool: Tool, strict: bool) -> dict[str, Any]:
    """A function tool. The format's own default for `strict` is true, which a schema made for others fails."""
    out: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = jsonx.quoted_raw(tool.description)
    out["parameters"] = tool.schema if tool.schema is not None else Raw(b'{"type":"object","properties":{}}')
    if strict:
        out["strict"] = tool.strict or False
    return out
