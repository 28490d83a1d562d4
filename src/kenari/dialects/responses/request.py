"""A Responses client's request -> Request. Every fault is a 400 with the path of the field (S105-S146, S166-S172)."""

from msgspec import Raw

from kenari.core.errors import bad_request
from kenari.core.events import Escaped
from kenari.core.request import EFFORTS, Format, Notice, Request, Served, TextPart, Thinking, Tool, ToolChoice, Turn
from kenari.dialects.fields import Fields, read_sampling
from kenari.dialects.responses.history import History
from kenari.dialects.responses.packed import ASKED
from kenari.dialects.served import read_served
from kenari.wire import jsonx

SAMPLING = ("temperature", "top_p")
_UNDERSTOOD = frozenset(
    [
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "stream",
        "max_output_tokens",
        "reasoning",
        "text",
        "prompt_cache_key",
        "previous_response_id",
        ASKED,
        *SAMPLING,
    ]
)
MAX_CACHE_KEY = 512
"""S128, in bytes of UTF-8."""


def decode_request(body: bytes, formats: bool = False) -> Request:
    """The request of a Responses client. Fields that are not named here are accepted and ignored (S133). With `formats`
    the operator lets JSON formats in, which S126 refuses otherwise."""
    fields = Fields(jsonx.request_fields(body))
    model = fields.require_string("model", "the id of a model (see GET /v1/models)")
    if fields.get("previous_response_id") is not None:
        raise bad_request(
            "previous_response_id must be absent or null: nothing is kept here. send the whole conversation in input",
            "previous_response_id",
        )
    members = fields.members  # most are not there
    form = _format(fields, formats) if "text" in members else None
    notices: list[Notice] = []
    served: list[Served] = []
    tools = _read_tools(fields, notices, served) if "tools" in members else []
    turns = _turns(fields, tools, notices, served)
    return Request(
        origin="responses",
        model=model,
        turns=turns,
        fields=members,
        stream=fields.boolean("stream") or False,
        tools=tools,
        served=served,
        # notes are words; the tools stay, for what a provider has cached begins with them
        tool_choice=ToolChoice("none") if tools and ASKED in members else _tool_choice(fields),
        max_output=fields.integer("max_output_tokens", 1) if "max_output_tokens" in members else None,
        sampling=read_sampling(fields, SAMPLING),
        thinking=_thinking(fields) if "reasoning" in members else None,
        format=form,
        cache_key=_cache_key(fields) if "prompt_cache_key" in members else None,
        extra=tuple([name for name in members if name not in _UNDERSTOOD]),
        notices=notices,
    )


def _turns(fields: Fields, tools: list[Tool], notices: list[Notice], served: list[Served]) -> list[Turn]:
    turns: list[Turn] = []
    instructions = fields.escaped("instructions")
    if instructions:
        turns.append(Turn("system", [TextPart(instructions)], param="instructions"))
    source = fields.get("input")
    kind = jsonx.kind(source) if source is not None else ""
    if source is None or (kind == "string" and len(source) == 2):
        raise bad_request("input is required and must not be empty: a string or an array of items", "input")
    if kind == "string":
        turns.append(Turn("user", [TextPart(jsonx.unquoted(source))], param="input"))
        return turns
    if kind != "array":
        raise bad_request("input must be a string or an array of items", "input")
    items = fields.elements("input")
    if not items:
        raise bad_request("input is required and must not be empty: a string or an array of items", "input")
    history = History(notices)
    for position, raw in enumerate(items):
        listing = history.add(raw, f"input[{position}]")
        if listing is not None:
            _merge(tools, _read_tools(listing, notices, served))
    if history.asked:
        history.ask(f"input[{len(items) - 1}]")
        fields.members[ASKED] = Raw(b"true")
    return turns + history.turns


def _format(fields: Fields, allowed: bool) -> Format | None:
    """S126: only plain text unless more is allowed; verbosity and empty objects do not matter."""
    text = fields.child("text")
    wanted = text.child("format") if text is not None else None
    if wanted is None or wanted.string("type") == "text":
        return None
    kind = wanted.string("type")
    if not allowed:
        raise bad_request(
            'text.format must be {"type":"text"} here. for JSON output use POST /v1/chat/completions with '
            "response_format",
            "text.format",
        )
    if kind == "json_object":
        return Format("json_object")
    if kind != "json_schema":
        raise wanted.fault("type", "must be text, json_object or json_schema")
    schema = wanted.typed("schema", "object")
    if schema is None:
        raise wanted.fault("schema", "is required and must be an object")
    name = wanted.string("name") or "response"
    return Format("json_schema", name, schema, wanted.boolean("strict"), wanted.escaped("description"))


def _merge(tools: list[Tool], more: list[Tool]) -> None:
    known = {(tool.namespace, tool.name) for tool in tools}
    tools += [tool for tool in more if (tool.namespace, tool.name) not in known]


def _read_tools(
    fields: Fields, notices: list[Notice], served: list[Served], namespace: str | None = None
) -> list[Tool]:
    """Function tools, those in containers too (D18); other kinds are dropped by name (S117)."""
    tools: list[Tool] = []
    for raw, tool in fields.children("tools"):
        kind = tool.string("type")
        match kind:
            case "function":
                tools.append(_function(tool, raw, namespace))
            case "namespace" if namespace is None:
                tools += _read_tools(tool, notices, served, tool.require_string("name", "the container's name"))
            case "custom" if name := _name(tool):
                tools.append(Tool(name, _words(tool), namespace=namespace, custom=True))
            case None:
                raise tool.fault("type", "is required")
            case _:
                if kind.startswith("kenari:"):
                    read_served(tool, kind, served)
                else:
                    notices.append(Notice(kind[:64], "a tool of a kind that is not served here"))
    return tools


def _name(tool: Fields) -> str | None:
    """The name of a tool that may be dropped without error (S117), so that a wrong one is none."""
    raw = tool.get("name")
    return tool.string("name") if raw is not None and jsonx.kind(raw) == "string" else None


def _words(tool: Fields) -> Escaped | None:
    """The same of its description."""
    raw = tool.get("description")
    return jsonx.unquoted(raw) if raw is not None and jsonx.kind(raw) == "string" else None


def _function(tool: Fields, raw: Raw, namespace: str | None) -> Tool:
    return Tool(
        tool.require_string("name", "the function's name"),
        tool.escaped("description"),
        tool.typed("parameters", "object"),
        tool.boolean("strict"),
        namespace=namespace,
        raw=None if namespace else raw,
    )


def _tool_choice(fields: Fields) -> ToolChoice | None:
    """S118, S119."""
    raw = fields.get("tool_choice")
    if raw is None:
        return None
    wrong = fields.fault("tool_choice", 'must be auto, none, required or {"type":"function","name":"..."}')
    if jsonx.kind(raw) == "string":
        word = jsonx.unescape(jsonx.unquoted(raw))
        if word not in ("auto", "none", "required"):
            raise wrong
        return ToolChoice(word)
    if jsonx.kind(raw) != "object":
        raise wrong
    choice = Fields.of(raw, "tool_choice")
    if choice.get("type") is None or choice.string("type") != "function" or not choice.string("name"):
        raise wrong
    return ToolChoice("named", choice.require_string("name"), choice.string("namespace"))


def _thinking(fields: Fields) -> Thinking | None:
    reasoning = fields.child("reasoning")
    if reasoning is None:
        return None
    effort = reasoning.string("effort")
    if effort is None:
        return None
    for level in EFFORTS:
        if level == effort:
            return Thinking(level)
    raise reasoning.fault("effort", f"must be one of {', '.join(EFFORTS)}")


def _cache_key(fields: Fields) -> str | None:
    """S127, S128: ignored when empty, too long, or no string at all."""
    raw = fields.get("prompt_cache_key")
    if raw is None or jsonx.kind(raw) != "string":
        return None
    key = jsonx.unescape(jsonx.unquoted(raw))
    return key if 0 < len(key.encode("utf-8", "replace")) <= MAX_CACHE_KEY else None
