"""Tools for a target: names that it takes, containers flattened, freeform and deferred tools mapped or left out."""

import msgspec
from msgspec import Raw

from kenari.core.errors import bad_request
from kenari.core.ids import squeeze_name
from kenari.core.request import CallPart, Notice, Part, Request, Tool, ToolChoice, ToolName, Turn
from kenari.dialects.fit.target import Target

_TEXT_INPUT = Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)
"""The schema of a freeform tool that travels as a function (D10)."""


def fit_tools(
    request: Request, target: Target, notices: list[Notice]
) -> tuple[list[Tool], ToolChoice | None, dict[str, ToolName]]:
    """The tools, the choice among them, and the map from the names a provider sees to the client's own."""
    if not request.tools:
        if request.tool_choice is not None and request.tool_choice.mode == "named":
            _require_tool(request.tool_choice, [])
        return [], None, {}
    names: dict[str, ToolName] = {}
    tools: list[Tool] = []
    taken = {tool.name for tool in request.tools if tool.namespace is None}  # and every name that is given
    for tool in request.tools:
        fitted = _fit_tool(tool, target, names, taken, notices)
        if fitted is not None:
            tools.append(fitted)
    choice = request.tool_choice
    if choice is not None and choice.mode == "named":
        choice = _require_tool(choice, [*names.items()])
    forced = choice is not None and choice.mode in ("required", "named")
    if forced and not target.profile.tool_choice_required:
        notices.append(Notice("tool_choice", "this provider cannot be made to call a tool"))
        choice = ToolChoice("auto")
    return tools, choice if tools else None, names


def _fit_tool(
    tool: Tool, target: Target, names: dict[str, ToolName], taken: set[str], notices: list[Notice]
) -> Tool | None:
    if tool.deferred:  # not referenced yet (D19)
        return None
    if tool.custom and not target.custom_tools:
        notices.append(Notice("custom", f"the freeform tool {tool.name}"))
        return None
    if tool.namespace is None:
        seen = squeeze_name(tool.name, names, len(names))
    else:
        seen = squeeze_name(f"{tool.namespace}__{tool.name}", taken, len(names))
    taken.add(seen)
    names[seen] = ToolName(tool.name, tool.namespace, tool.custom)
    strict = tool.strict if target.profile.strict_tools else None
    if tool.custom:
        return Tool(seen, tool.description, _TEXT_INPUT)
    if seen == tool.name and strict == tool.strict:
        return tool
    return msgspec.structs.replace(tool, name=seen, namespace=None, strict=strict, raw=None)


def _require_tool(choice: ToolChoice, known: list[tuple[str, ToolName]]) -> ToolChoice:
    """The choice with the name a provider sees. Raises the 400 of F12 for a tool that is not there."""
    for seen, own in known:
        if own.name == choice.name and choice.namespace in (None, own.namespace):
            return ToolChoice("named", seen)
    raise bad_request(
        f"tool_choice names the tool {choice.name!r}, which is not among the tools of this request. add it or choose "
        "another",
        "tool_choice",
    )


def rename_calls(turns: list[Turn], names: dict[str, ToolName]) -> list[Turn]:
    """Earlier calls under the names that the provider sees, freeform ones as functions with one argument `input`."""
    seen_of = {(own.namespace, own.name): seen for seen, own in names.items()}
    return [_rename_turn(turn, seen_of) if turn.role == "assistant" else turn for turn in turns]


def _rename_turn(turn: Turn, seen_of: dict[tuple[str | None, str], str]) -> Turn:
    parts: list[Part] | None = None
    for position, part in enumerate(turn.parts):
        if not isinstance(part, CallPart):
            continue
        seen = seen_of.get((part.namespace, part.name)) or _past_name(part)
        if seen == part.name and part.namespace is None and not part.custom:
            continue
        if parts is None:
            parts = list(turn.parts)
        parts[position] = CallPart(part.call_id, seen, *_function_arguments(part), cache=part.cache, extra=part.extra)
    if parts is None:
        return turn
    return msgspec.structs.replace(turn, parts=parts, touched=turn.touched | {"calls"})


def _past_name(part: CallPart) -> str:
    """A name for a call of a tool that is no longer offered."""
    return squeeze_name(f"{part.namespace}__{part.name}" if part.namespace else part.name, ())


def _function_arguments(part: CallPart) -> tuple[bytes, bool]:
    if not part.custom:
        return part.arguments, part.quoted
    return b'{"input":"' + part.arguments + b'"}', False
