"""The response object: all members of the Open Responses resource (D2), in every place where it stands."""

from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.events import Source, Stop
from kenari.core.request import Format, Request, Tool
from kenari.core.usage import Usage
from kenari.dialects.base import Answer
from kenari.wire import jsonx


class Resource:
    """Writes the response object of one answer. What the request fixes is encoded once."""

    def __init__(self, answer: Answer) -> None:
        self.id = "resp_" + answer.id
        self._now = answer.now
        self._head = jsonx.encode({"id": self.id, "object": "response", "created_at": answer.created})[:-1]
        self._model = jsonx.encode(answer.model)
        self._rest = jsonx.one_line(jsonx.encode(_fixed(answer.request)))[1:]  # schemas are as their author wrote them

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
        return b"".join(
            (
                self._head,
                b',"completed_at":' + done,
                b',"status":"' + status.encode() + b'"',
                b',"model":' + self._model,
                b',"output":' + output,
                b',"usage":' + (jsonx.encode(usage_object(usage)) if usage is not None else b"null"),
                b',"error":' + (bytes(error) if error is not None else b"null"),
                b',"incomplete_details":' + details,
                b',"sources":' + jsonx.encode(sources) if sources is not None else b"",
                b",",
                self._rest,
            )
        )


def status_of(stop: Stop) -> str:
    """F1: only a cut or a filter leaves a response incomplete."""
    return "incomplete" if stop.reason in ("length", "filter") else "completed"


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage with cached tokens inside the input's, both details always there (S97, S151)."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read or 0},
        "output_tokens": usage.output or 0,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": usage.total,
    }


def error_object(error: KenariError) -> Raw:
    """`response.error`: code and message (S98)."""
    return Raw(jsonx.encode({"code": error.code, "message": error.message}))


def _fixed(request: Request) -> dict[str, Any]:
    """What of the object the request fixes; ignored members show their defaults."""
    fields = request.fields
    thinking = request.thinking
    effort = thinking.effort if thinking else None
    return {
        "instructions": _text(fields.get("instructions")),
        "tools": [_tool(tool) for tool in request.tools if not tool.custom],
        "tool_choice": _choice(request),
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "text": {"format": _form(request.format)},
        "reasoning": {"effort": _shown(effort), "summary": None},
        "temperature": request.sampling.get("temperature", Raw(b"1.0")),
        "top_p": request.sampling.get("top_p", Raw(b"1.0")),
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "max_output_tokens": request.max_output,
        "max_tool_calls": None,
        "store": False,
        "background": False,
        "service_tier": "default",
        "metadata": _object(fields.get("metadata")),
        "safety_identifier": None,
        "prompt_cache_key": request.cache_key,
        "previous_response_id": None,
    }


def _shown(effort: str | None) -> str | None:
    """The specification's nearest word for an effort that it does not list."""
    return {"minimal": "low", "max": "xhigh"}.get(effort or "", effort)


def _form(wanted: Format | None) -> dict[str, Any]:
    if wanted is None:
        return {"type": "text"}
    if wanted.kind == "json_object":
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "name": wanted.name,
        "description": jsonx.quoted_raw(wanted.description) if wanted.description is not None else None,
        "schema": wanted.schema,
        "strict": wanted.strict,
    }


def _text(raw: Raw | None) -> Raw | None:
    return raw if raw is not None and jsonx.kind(raw) == "string" else None


def _object(raw: Raw | None) -> Raw | dict[str, str]:
    return raw if raw is not None and jsonx.kind(raw) == "object" else {}


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": jsonx.quoted_raw(tool.description) if tool.description is not None else None,
        "parameters": tool.schema,
        "strict": tool.strict,
    }


def _choice(request: Request) -> Any:
    choice = request.tool_choice
    if choice is None:
        return "auto"
    return {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode
