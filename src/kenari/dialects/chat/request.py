"""A chat client's request -> Request. Every fault is a 400 with the path of the field."""

import base64
from collections.abc import Mapping
from typing import cast

from msgspec import Raw

from kenari.core.errors import bad_request
from kenari.core.events import Escaped
from kenari.core.request import (
    EFFORTS,
    AudioPart,
    CallPart,
    Effort,
    FilePart,
    Format,
    ImagePart,
    Notice,
    OpaquePart,
    Part,
    ReasoningPart,
    Request,
    ResultPart,
    Served,
    TextPart,
    Thinking,
    Tool,
    ToolChoice,
    Turn,
)
from kenari.dialects.chat.plain import holds_texts, plain_request
from kenari.dialects.fields import (
    SAMPLING,
    Fields,
    data_url,
    read_effort,
    read_sampling,
    read_stop,
)
from kenari.dialects.served import read_served
from kenari.wire import jsonx

UNDERSTOOD = frozenset(
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
        "stop",
        "n",
        "response_format",
        "reasoning",
        "reasoning_effort",
        "prompt_cache_key",
        "session_id",
        "logprobs",
        "top_logprobs",
        "user",
        "functions",
        "function_call",
        "logit_bias",
    ]
) | frozenset(SAMPLING)
SIMPLE = frozenset(["model", "messages", "stream", "stream_options"])
"""A request with no other members asks for nothing but an answer."""
PRICED = frozenset(["service_tier", "speed", "web_search_options"])
"""Accepted and not sent on because they change the price (F4)."""
IGNORED = PRICED | frozenset(["store", "metadata", "safety_identifier"])
"""Accepted and not sent on, whatever their type: they keep something, name somebody, or change the price."""
_TEXTS = frozenset(["application/json", "application/xml", "application/yaml", "application/javascript"])
MAX_CACHE_KEY = 512
"""Bytes; longer keys are ignored."""


def decode_request(body: bytes) -> Request:
    """The request of a chat client."""
    members = jsonx.request_fields(body)
    if members.keys() <= SIMPLE:  # most requests of programs: nothing else to look at
        plain = plain_request(body, members)
        if plain is not None:
            return plain
    return _decode(Fields(members))


def _decode(fields: Fields) -> Request:
    model = fields.require_string("model", "the id of a model (see GET /v1/models)")
    notices = [
        Notice(name, "it changes the price" if name in PRICED else "nothing is kept here")
        for name in fields.members
        if name in IGNORED and fields.get(name)
    ]
    count = fields.integer("n", 0)
    if count is not None and count != 1:
        raise bad_request("n must be 1: send one request for each answer", "n")
    messages = _messages(fields)
    served: list[Served] = []
    tools = _tools(fields, notices, served)
    fields.child("logit_bias")
    fields.boolean("logprobs")
    fields.integer("top_logprobs", 0)
    cap = fields.integer("max_completion_tokens", 1)
    older = fields.integer("max_tokens", 1)
    thinking, form, cache_key = _thinking(fields), _format(fields), _cache_key(fields)
    special = tools or served or thinking or form or cache_key
    return Request(
        origin="chat",
        model=model,
        turns=_turns(messages),
        fields=fields.members,
        stream=fields.boolean("stream") or False,
        tools=tools,
        served=served,
        tool_choice=_tool_choice(fields),
        parallel=_parallel(fields),
        max_output=cap if cap is not None else older,
        stop=read_stop(fields, "stop"),
        sampling=read_sampling(fields, SAMPLING),
        thinking=thinking,
        format=form,
        cache_key=cache_key,
        user=fields.string("user"),
        extra=tuple(name for name in fields.members if name not in UNDERSTOOD and name not in IGNORED),
        notices=notices,
        plain=not special and holds_texts(fields.members["messages"]),
    )


def is_older(fields: Mapping[str, Raw]) -> bool:
    """Whether a client speaks the older function format: it has one call at most, and never looks at `tool_calls`."""
    return "functions" in fields and not jsonx.is_null(fields["functions"]) and jsonx.is_null(fields.get("tools"))


def _parallel(fields: Fields) -> bool | None:
    """Whether calls may be parallel."""
    return False if is_older(fields.members) else fields.boolean("parallel_tool_calls")


def _messages(fields: Fields) -> list[Raw]:
    """The messages, raw; at least one."""
    messages = fields.elements("messages")
    if not messages:
        raise bad_request("messages is required and must be an array with at least one message", "messages")
    return messages


def _cache_key(fields: Fields) -> str | None:
    """M3: `prompt_cache_key` or `session_id`; empty and long ones are ignored."""
    for name in ("prompt_cache_key", "session_id"):
        key = fields.string(name)
        if key and len(key.encode("utf-8", "replace")) <= MAX_CACHE_KEY:
            return key
    return None


def _turns(messages: list[Raw]) -> list[Turn]:
    """One turn for each message. Messages of the older function format become calls and results: `called` holds the
    ids that we made for their calls."""
    called: dict[str, str] = {}
    turns: list[Turn] = []
    for at, raw in enumerate(messages):
        message = Fields.of(raw, f"messages[{at}]")
        role = message.string("role")
        parts: list[Part]
        match role:
            case "system" | "developer":
                turn = Turn("system", _content(message, "system"), developer=role == "developer", raw=raw)
            case "user":
                turn = Turn("user", _content(message, "user"), raw=raw)
            case "assistant":
                parts = _assistant(message)
                legacy = message.child("function_call")
                if legacy is not None:
                    name = legacy.require_string("name", "the function's name")
                    called[name] = f"call_{at}"
                    parts.append(CallPart(called[name], name, legacy.escaped("arguments") or b"{}"))
                turn = Turn("assistant", parts, raw=raw if legacy is None else None)
                if any(isinstance(part, CallPart) and not part.quoted for part in parts):
                    turn.touched = frozenset({"calls"})  # arguments that are no string reach no provider as they are
            case "tool":
                call_id = message.require_string("tool_call_id", "the id of the call that this answers")
                turn = Turn("user", [ResultPart(call_id, _content(message, "tool"))], raw=raw)
            case "function":
                name = message.require_string("name", "the function's name")
                turn = Turn("user", [ResultPart(called.get(name, name), _content(message, "tool"))])
            case _:
                raise message.fault("role", "must be system, developer, user, assistant or tool")
        turn.param = message.path
        turns.append(turn)
    return turns


def _content(message: Fields, role: str) -> list[Part]:
    raw = message.get("content")
    if raw is None:
        if role in ("assistant", "tool"):
            return []
        raise message.fault("content", "is required")
    if jsonx.kind(raw) == "string":
        return [TextPart(jsonx.unquoted(raw))]
    if jsonx.kind(raw) != "array":
        raise message.fault("content", "must be a string or an array of parts")
    return [_part(part, source, role) for source, part in message.children("content")]


def _part(part: Fields, raw: Raw, role: str) -> Part:
    kind = part.string("type")
    cache = part.get("cache_control")
    match kind:
        case "text":
            text = part.escaped("text")
            if text is None:
                raise part.fault("text", "is required")
            return TextPart(text, cache=cache, raw=raw)
        case "refusal":
            return TextPart(part.escaped("refusal") or b"", refusal=True, raw=raw)
        case "image_url" if role != "system":
            return _image(part, raw, cache)
        case "file" if role == "user":
            return _file(part, raw, cache)
        case "input_audio" if role == "user":
            audio = part.child("input_audio")
            data = audio.escaped("data") if audio else None
            if audio is None or data is None:
                raise part.fault("input_audio", "must be an object with base64 data and format")
            return AudioPart(data, audio.string("format") or "wav", raw)
        case None:
            raise part.fault("type", "is required")
        case "image_url" | "file" | "input_audio":
            raise part.fault("type", f"{kind} parts are not taken in {role} messages")
        case _:
            return OpaquePart("chat", kind, raw)


def _image(part: Fields, raw: Raw, cache: Raw | None) -> ImagePart | FilePart:
    source = part.get("image_url")
    if source is not None and jsonx.kind(source) == "string":  # a shorthand that some clients send
        url, detail = jsonx.unquoted(source), None
    else:
        inner = part.child("image_url")
        if inner is None:
            raise part.fault("image_url", "must be an object with url")
        url, detail = inner.escaped("url") or b"", inner.string("detail")
    inline = data_url(url)
    if inline is not None and not inline[0].startswith("image/"):  # a document under the wrong name
        return FilePart(b"document", inline[0], inline[1], cache=cache, raw=raw)
    if inline is not None:
        return ImagePart(media_type=inline[0], data=inline[1], detail=detail, cache=cache, raw=raw)
    if not url.lower().startswith((b"https:", b"http:")):
        raise part.fault("image_url", "must be a data URL (base64) or an http(s) address")
    return ImagePart(url=url, detail=detail, cache=cache, raw=raw)


def _file(part: Fields, raw: Raw, cache: Raw | None) -> FilePart:
    file = part.child("file")
    if file is None:
        raise part.fault("file", "must be an object with filename and file_data")
    if file.get("file_id") is not None:
        raise file.fault("file_id", "is not known here: nothing is kept. send file_data instead")
    data = file.escaped("file_data")
    if not data:
        raise file.fault("file_data", "is required: the document as a base64 data URL")
    name = file.escaped("filename") or b"document"
    if data[:8].lower().startswith((b"https:", b"http:")):
        return FilePart(name, url=data, cache=cache, raw=raw)
    media, content = data_url(data) or ("application/pdf", data)
    if media.startswith("text/") or media in _TEXTS:
        return FilePart(name, media, text=_file_text(file, content), cache=cache, raw=raw)
    return FilePart(name, media, content, cache=cache, raw=raw)


def _file_text(file: Fields, data: bytes) -> Escaped:
    """A text document is text: every model takes it (S145)."""
    try:
        return jsonx.escape(base64.b64decode(data.replace(b"\\/", b"/"), validate=True).decode("utf-8", "replace"))
    except ValueError:
        raise file.fault("file_data", "is not valid base64") from None


def _assistant(message: Fields) -> list[Part]:
    parts: list[Part] = []
    thought = message.get("reasoning_content")
    name = "reasoning_content"
    if thought is None or jsonx.kind(thought) != "string":
        thought, name = message.get("reasoning"), "reasoning"
    text = message.escaped(name) if thought is not None and jsonx.kind(thought) == "string" else b""
    proof = _proof(message)
    if text or proof:
        parts.append(ReasoningPart(text or b"", proof, "encrypted" if proof else "mark"))
    parts += _content(message, "assistant")
    refusal = message.get("refusal")
    if refusal is not None and jsonx.kind(refusal) == "string":
        parts.append(TextPart(jsonx.unquoted(refusal), refusal=True))
    for _, call in message.children("tool_calls"):
        parts.append(_call(call))
    return parts


def _proof(message: Fields) -> str:
    """The envelope that an earlier answer carried in `reasoning_details`: the last one, which covers those before it.
    Anything else there is ignored."""
    details = message.get("reasoning_details")
    found = ""
    if details is None or jsonx.kind(details) != "array":
        return found
    for raw in jsonx.elements(details):
        if jsonx.kind(raw) == "object":
            data = jsonx.members(raw).get("data")
            if data is not None and jsonx.kind(data) == "string":
                found = jsonx.unescape(jsonx.unquoted(data))
    return found


def _call(call: Fields) -> CallPart:
    call_id = call.require_string("id", "the call's id")
    custom = call.child("custom") if call.string("type") == "custom" else None
    if custom is not None:
        return CallPart(call_id, custom.require_string("name"), custom.escaped("input") or b"", custom=True)
    function = call.child("function")
    if function is None:
        raise call.fault("function", "is required: an object with name and arguments")
    arguments = function.get("arguments")
    quoted = arguments is None or jsonx.kind(arguments) == "string"
    if not quoted and jsonx.kind(arguments or b"") != "object":
        raise function.fault("arguments", "must be a string that holds a JSON object")
    text = b"{}" if arguments is None else jsonx.unquoted(arguments) if quoted else bytes(arguments)
    name = function.require_string("name", "the function's name")
    return CallPart(call_id, name, text, quoted, extra=call.get("extra_content"))


def _tools(fields: Fields, notices: list[Notice], served: list[Served]) -> list[Tool]:
    tools: list[Tool] = []
    for raw, tool in fields.children("tools"):
        kind = tool.string("type")
        if kind == "function":
            function = tool.child("function")
            if function is None:
                raise tool.fault("function", "is required: an object with name, description and parameters")
            tools.append(_function(function, tool.get("cache_control"), raw))
        elif kind is None:
            raise tool.fault("type", "is required")
        elif kind.startswith("kenari:"):
            read_served(tool, kind, served)
        else:
            notices.append(Notice(kind))
    tools += [_function(function, None, None) for _, function in fields.children("functions")]
    return tools


def _function(function: Fields, cache: Raw | None, raw: Raw | None) -> Tool:
    return Tool(
        function.require_string("name", "the function's name"),
        function.escaped("description"),
        function.typed("parameters", "object"),
        function.boolean("strict"),
        cache=cache,
        raw=raw,
    )


def _tool_choice(fields: Fields) -> ToolChoice | None:
    name = "tool_choice" if fields.get("tool_choice") is not None else "function_call"
    raw = fields.get(name)
    if raw is None:
        return None
    if jsonx.kind(raw) == "string":
        word = jsonx.unescape(jsonx.unquoted(raw))
        if word == "any":
            word = "required"
        if word not in ("auto", "none", "required"):
            raise fields.fault(name, "must be auto, none, required or an object that names a function")
        return ToolChoice(word)
    choice = Fields.of(raw, name)
    inner = choice.child("function") or choice.child("custom") or (choice if name == "function_call" else None)
    if inner is None:
        raise fields.fault(name, 'must be {"type":"function","function":{"name":"..."}}')
    return ToolChoice("named", inner.require_string("name", "the function's name"))


def _thinking(fields: Fields) -> Thinking | None:
    """R1: `reasoning.effort`, `reasoning_effort`, `reasoning.max_tokens`, `reasoning.exclude`."""
    effort = read_effort(fields, "reasoning_effort", EFFORTS)
    reasoning = fields.child("reasoning")
    budget = None
    exclude = False
    if reasoning is not None:
        effort = read_effort(reasoning, "effort", EFFORTS) or effort
        budget = reasoning.integer("max_tokens", 1)
        exclude = reasoning.boolean("exclude") or False
        if reasoning.boolean("enabled") is False and effort is None:
            effort = "none"
        if budget is not None and effort is not None:
            raise bad_request("reasoning takes either effort or max_tokens, not both", "reasoning.max_tokens")
    if effort is None and budget is None and not exclude:
        return None
    return Thinking(cast("Effort | None", effort), budget, exclude=exclude)


def _format(fields: Fields) -> Format | None:
    wanted = fields.child("response_format")
    if wanted is None:
        return None
    match wanted.string("type"):
        case "text":
            return None
        case "json_object":
            return Format("json_object")
        case "json_schema":
            inner = wanted.child("json_schema")
            if inner is None or inner.typed("schema", "object") is None:
                raise wanted.fault("json_schema", "must be an object with name and schema")
            return Format(
                "json_schema",
                inner.string("name") or "response",
                inner.typed("schema", "object"),
                inner.boolean("strict"),
                inner.escaped("description"),
            )
        case _:
            raise wanted.fault("type", "must be text, json_object or json_schema")
