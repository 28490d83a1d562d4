"""A wanted answer format for a target: enforced by the provider, else by a forced function, else asked for in words.

What is not enforced by the provider is checked by the gateway (`gateway/shape.py`); nothing is silently ignored.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Raw

from kenari.core.events import Escaped
from kenari.core.ids import squeeze_name
from kenari.core.request import Format, Request, TextPart, Tool, ToolChoice, ToolName, Turn, leading_system
from kenari.dialects.fit.target import Target
from kenari.wire import jsonx

Way: TypeAlias = Literal["native", "function", "instruct"]
_OBJECT_WORDS = b"Answer with one JSON object and nothing else: no words before or behind it, no code fence."
_SCHEMA_WORDS = (
    b"Answer with one JSON value and nothing else: no words before or behind it, no code fence. It must be valid "
    b"against this JSON Schema:"
)
_FUNCTION_WORDS = b"Give the answer by calling this function. Its arguments are the answer."


def way_of(request: Request, target: Target) -> Way | None:
    """How this target is held to the wanted format; None when none is wanted."""
    wanted = request.format
    if wanted is None:
        return None
    able = target.profile.response_format or "json_schema"
    if target.dialect == "messages" and wanted.kind == "json_object":  # that format has no word for it
        able = "none"
    if able in ("json_schema", wanted.kind):
        return "native"
    if wanted.kind == "json_schema" and target.profile.tool_choice_required and not request.tools:
        return "function" if _is_object(wanted.schema) else "instruct"
    return "instruct"


def is_checked(request: Request, target: Target) -> bool:
    """Whether we look at the answer ourselves: always, but where a profile vouches for a provider that enforces it.

    Servers of one's own that do not know the wish ignore it without a word.
    """
    way = way_of(request, target)
    return way is not None and (way != "native" or target.profile.response_format is None)


def fit_format(request: Request, target: Target) -> Request:
    """The request with its wanted format as this target takes it."""
    wanted = request.format
    way = way_of(request, target)
    if wanted is None or way in (None, "native"):
        return request
    request = _without_format(request)
    if way == "function":
        return _as_function(request, wanted)
    asked = _asked(request, wanted)
    if target.profile.response_format == "json_object" and target.dialect != "messages" and not request.tools:
        half = Format("json_object")  # at least that much is enforced
        fields = asked.fields
        if request.origin == "chat":
            fields = fields | {"response_format": Raw(b'{"type":"json_object"}')}
        return msgspec.structs.replace(asked, format=half, fields=fields)
    return asked


def function_name(wanted: Format) -> str:
    """The name of the function that carries an answer of this format."""
    return squeeze_name(wanted.name or "response", ())


def _as_function(request: Request, wanted: Format) -> Request:
    name = function_name(wanted)
    words = _FUNCTION_WORDS if not wanted.description else wanted.description + b"\\n\\n" + _FUNCTION_WORDS
    tool = Tool(name, words, wanted.schema, wanted.strict)
    return msgspec.structs.replace(
        request,
        tools=[tool],
        tool_choice=ToolChoice("named", name),
        parallel=None,
        names={name: ToolName(name)},
    )


def _asked(request: Request, wanted: Format) -> Request:
    """The wish in words, at the end of the system prompt, where it is the same in each turn of a conversation."""
    words: Escaped = _OBJECT_WORDS
    if wanted.kind == "json_schema":
        words = _SCHEMA_WORDS + b"\\n" + jsonx.embed(wanted.schema or Raw(b"{}"))
    turns = list(request.turns)
    lead = leading_system(turns)
    if lead:
        last = turns[lead - 1]
        touched = last.touched | {"content"}
        parts = [*last.parts, TextPart(b"\\n" + words)]
        turns[lead - 1] = msgspec.structs.replace(last, parts=parts, touched=touched)
    else:
        turns.insert(0, Turn("system", [TextPart(words)]))
    return msgspec.structs.replace(request, turns=turns)


def _without_format(request: Request) -> Request:
    """The request without the wish in the client's own words, which would travel raw to a provider of its format."""
    fields = {name: raw for name, raw in request.fields.items() if name not in ("response_format", "output_format")}
    config = fields.get("output_config")
    if config is not None and jsonx.kind(config) == "object":
        rest = {name: raw for name, raw in jsonx.members(config).items() if name != "format"}
        fields["output_config"] = Raw(jsonx.encode(rest))
        if not rest:
            del fields["output_config"]
    return msgspec.structs.replace(request, format=None, fields=fields)


def _is_object(schema: Raw | None) -> bool:
    """A function's arguments are an object, so only such a schema can be one's parameters."""
    kind = None if schema is None else jsonx.members(schema).get("type")
    return kind is not None and bytes(kind) == b'"object"'
