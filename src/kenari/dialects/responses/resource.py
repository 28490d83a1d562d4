"""The response object: all members of the Open Responses resource (D2), in every place where it stands."""

from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.events import Source, Stop
from kenari.core.request import Format, Request, Tool, ToolChoice
from kenari.core.usage import Usage
from kenari.dialects.base import Answer
from kenari.wire import jsonx

_HEAD = b'{"id":"%b","object":"response","created_at":%d,"completed_at":'
_MIDDLE = b',"model":%b,"output":'
_FIXED = (
    b'{"instructions":%b,"tools":%b,"tool_choice":%b,"parallel_tool_calls":true,"truncation":"disabled",'
    b'"text":{"format":%b},"reasoning":{"effort":%b,"summary":null},"temperature":%b,"top_p":%b,'
    b'"presence_penalty":0.0,"frequency_penalty":0.0,"top_logprobs":0,"max_output_tokens":%b,"max_tool_calls":null,'
    b'"store":false,"background":false,"service_tier":"default","metadata":%b,"safety_identifier":null,'
    b'"prompt_cache_key":%b,"previous_response_id":null}'
)
"""What of the object the request fixes; ignored members show their defaults."""
_OBJECT = b'%b%b,"status":"%b"%b%b,"usage":%b,"error":%b,"incomplete_details":%b%b,%b'
_USAGE = (
    b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,'
    b'"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
)


class Resource:
    """Writes the response object of one answer. What the request fixes is written once."""

    def __init__(self, answer: Answer) -> None:
        id = "resp_" + answer.id
        self._now = answer.now
        self._head = _HEAD % (id.encode(), answer.created)
        self._middle = _MIDDLE % jsonx.encode(answer.model)
        self._rest = _fixed(answer.request)

    def write(
        self,
        status: str,
        output: bytes,
        usage: Usage | None = None,
        stop: Stop | None = None,
        error: Raw | None = None,
        sources: tuple[Source, ...] | None = None,
    ) -> bytes:
        """The object. `output` is the JSON array of items; a finished response has usage and no error. `sources` is
        what kenari searched for it, None when it did not (D13)."""
        done = b"%d" % int(self._now()) if status in ("completed", "incomplete") else b"null"
        details = b"null"
        if status == "incomplete" and stop is not None:
            reason = "content_filter" if stop.reason == "filter" else "max_output_tokens"
            details = jsonx.encode({"reason": reason})
        return _OBJECT % (
            self._head,
            done,
            status.encode(),
            self._middle,
            output,
            usage_object(usage) if usage is not None else b"null",
            bytes(error) if error is not None else b"null",
            details,
            b',"sources":' + jsonx.encode(sources) if sources is not None else b"",
            self._rest,
        )


def status_of(stop: Stop) -> str:
    """F1: only a cut or a filter leaves a response incomplete."""
    return "incomplete" if stop.reason in ("length", "filter") else "completed"


def usage_object(usage: Usage) -> bytes:
    """Usage with cached tokens inside the input's, both details always there (S97, S151)."""
    prompt, output = usage.prompt, usage.output or 0
    return _USAGE % (prompt, usage.cache_read or 0, output, usage.reasoning or 0, prompt + output)


def error_object(error: KenariError) -> Raw:
    """`response.error`: code and message (S98)."""
    return Raw(jsonx.encode({"code": error.code, "message": error.message}))


def _fixed(request: Request) -> bytes:
    """The members that the request fixes, and the end of the object."""
    fields, sampling, thinking = request.fields, request.sampling, request.thinking
    instructions, metadata = fields.get("instructions"), fields.get("metadata")
    tools = [_tool(tool) for tool in request.tools if not tool.custom] if request.tools else None
    rest = _FIXED % (
        instructions if instructions is not None and jsonx.kind(instructions) == "string" else b"null",
        jsonx.encode(tools) if tools else b"[]",
        b'"auto"' if request.tool_choice is None else jsonx.encode(_choice(request.tool_choice)),
        b'{"type":"text"}' if request.format is None else jsonx.encode(_form(request.format)),
        b"null" if thinking is None else jsonx.encode(_shown(thinking.effort)),
        sampling.get("temperature", b"1.0"),
        sampling.get("top_p", b"1.0"),
        b"null" if request.max_output is None else b"%d" % request.max_output,
        metadata if metadata is not None and jsonx.kind(metadata) == "object" else b"{}",
        b"null" if request.cache_key is None else jsonx.encode(request.cache_key),
    )
    if b"\n" in rest or b"\r" in rest:  # schemas are as their author wrote them
        rest = jsonx.one_line(rest)
    return rest[1:]


def _shown(effort: str | None) -> str | None:
    """The specification's nearest word for an effort that it does not list."""
    return {"minimal": "low", "max": "xhigh"}.get(effort or "", effort)


def _form(wanted: Format) -> dict[str, Any]:
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "name": wanted.name,
        "description": jsonx.quoted_raw(wanted.description) if wanted.description is not None else None,
        "schema": wanted.schema,
        "strict": wanted.strict,
    }


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": jsonx.quoted_raw(tool.description) if tool.description is not None else None,
        "parameters": tool.schema,
        "strict": tool.strict,
    }


def _choice(choice: ToolChoice) -> Any:
    return {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode
