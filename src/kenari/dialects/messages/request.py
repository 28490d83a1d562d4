"""A client's Messages request -> Request. Strict on what is understood, silent on what is not (D12, F2)."""

from msgspec import Raw

from kenari.core.request import Notice, Request, ResultPart, Served, Tool, Turn
from kenari.dialects.fields import Fields, read_sampling, read_stop
from kenari.dialects.messages.blocks import NAME, Content
from kenari.dialects.messages.options import read_format, read_thinking, read_tool_choice
from kenari.dialects.served import read_served, read_vendor_search
from kenari.wire import jsonx

SAMPLING = ("temperature", "top_p", "top_k")
PLACEHOLDER = "DeferredToolPlaceholder"
"""Claude Code's stand-in for tools that it has not loaded; no model may ever see it (D19)."""

_UNDERSTOOD = frozenset(
    [
        "model",
        "messages",
        "system",
        "max_tokens",
        "stream",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
        "stop_sequences",
        "temperature",
        "top_p",
        "top_k",
    ]
)


def decode_request(body: bytes) -> Request:
    """The request of `POST /v1/messages`, and of its `count_tokens`. Raises the 400 that names the field at fault."""
    fields = Fields(jsonx.request_fields(body))
    model = fields.require_string("model", "the id of a model")
    content = Content()
    turns = _turns(fields, content)
    notices: list[Notice] = []
    served: list[Served] = []
    tools, dropped = _tools(fields, content.referenced, notices, served)
    choice, parallel = read_tool_choice(fields)
    if choice is not None and choice.mode == "named" and choice.name in dropped:
        choice = None  # the tool is not served here, which the notice says
    _check_metadata(fields)
    return Request(
        origin=NAME,
        model=model,
        turns=turns,
        fields=fields.members,
        stream=bool(fields.boolean("stream")),
        tools=tools,
        served=served,
        tool_choice=choice,
        parallel=parallel,
        max_output=fields.integer("max_tokens", 1),
        stop=_stops(fields),
        sampling=_sampling(fields),
        thinking=read_thinking(fields),
        format=read_format(fields),
        extra=tuple(name for name in fields.members if name not in _UNDERSTOOD),
        notices=notices,
    )


def _turns(fields: Fields, content: Content) -> list[Turn]:
    turns: list[Turn] = []
    system = fields.get("system")
    if system is not None:
        turns.append(Turn("system", content.parts(fields, "system", "system"), raw=system, param="system"))
    messages = fields.elements("messages")
    if not messages:
        raise fields.fault("messages", "is required and must be an array with at least one message")
    for position, raw in enumerate(messages):
        turns.append(_turn(raw, Fields.of(raw, f"messages[{position}]"), content))
    return turns


def _turn(raw: Raw, message: Fields, content: Content) -> Turn:
    role = message.string("role")
    if role not in ("user", "assistant", "system"):
        raise message.fault("role", "must be user, assistant or system")
    parts = content.parts(message, "content", role)
    changed = any(isinstance(part, ResultPart) and part.raw is None for part in parts)
    touched = frozenset({"content"}) if changed else frozenset[str]()
    return Turn(role, parts, raw=raw, touched=touched, param=message.path)


def _tools(
    fields: Fields, referenced: set[str], notices: list[Notice], served: list[Served]
) -> tuple[list[Tool], set[str]]:
    """The function tools, and the names of those that are not served here."""
    tools: list[Tool] = []
    dropped: set[str] = set()
    for raw, tool in fields.children("tools"):
        kind = tool.string("type") or "custom"
        if kind.startswith("kenari:"):
            read_served(tool, kind, served)
            continue
        if kind.startswith("web_search_"):
            read_vendor_search(tool, kind, served)
            continue
        if kind not in ("custom", "function"):
            dropped.add(tool.string("name") or kind)
            notices.append(Notice(kind, "tools that a vendor serves itself are not forwarded"))
            continue
        name = tool.require_string("name", "the name of a tool")
        if name == PLACEHOLDER:
            dropped.add(name)
            notices.append(Notice(name, "a stand-in for tools that are not loaded"))
            continue
        tools.append(_tool(raw, tool, name, referenced))
    return tools, dropped


def _tool(raw: Raw, tool: Fields, name: str, referenced: set[str]) -> Tool:
    later = bool(tool.boolean("defer_loading"))
    return Tool(
        name,
        tool.escaped("description"),
        tool.typed("input_schema", "object"),
        tool.boolean("strict"),
        deferred=later and name not in referenced,
        cache=tool.get("cache_control"),
        raw=_loaded(tool) if "defer_loading" in tool.members else raw,
    )


def _loaded(tool: Fields) -> Raw:
    """A tool without its mark for later loading, which only a beta knows (F4)."""
    return Raw(jsonx.encode({name: raw for name, raw in tool.members.items() if name != "defer_loading"}))


def _stops(fields: Fields) -> list[bytes]:
    fields.typed("stop_sequences", "array")
    return read_stop(fields, "stop_sequences")


def _sampling(fields: Fields) -> dict[str, Raw]:
    sampling = read_sampling(fields, SAMPLING)
    if "top_k" in sampling:
        fields.integer("top_k", 0)
    for name in ("temperature", "top_p"):
        if name in sampling and bytes(sampling[name]).startswith(b"-") and float(jsonx.value(sampling[name])) < 0:
            raise fields.fault(name, "must not be negative")
    return sampling


def _check_metadata(fields: Fields) -> None:
    metadata = fields.child("metadata")
    if metadata is not None:
        metadata.string("user_id")
