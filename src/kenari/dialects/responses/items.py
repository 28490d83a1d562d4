"""Output items as they stand in `output` and in item events."""

from typing import Any

from msgspec import Raw

from kenari.core.ids import item_id
from kenari.core.request import CallPart
from kenari.wire import jsonx

PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "compaction": "cmp"}


def new_id(kind: str, answer_id: str, index: int) -> str:
    """An item's id, unique over the turns of a conversation (F12)."""
    return item_id(PREFIXES[kind], answer_id, index)


def message_item(item: str, text: bytes, status: bytes, annotations: bytes = b"[]") -> bytes:
    """The JSON of a message with its one output_text part (D1, S149) and what it cites (D13)."""
    return (
        b'{"type":"message","id":"%b","status":"%b","role":"assistant","content":'
        b'[{"type":"output_text","text":"%b","annotations":%b}]}'
    ) % (item.encode(), status, text, annotations)


def reasoning_item(item: str, text: bytes, envelope: str | None, status: str) -> dict[str, Any]:
    """A reasoning item with its one summary part (S152), none while or when nothing was said."""
    summary = [{"type": "summary_text", "text": jsonx.quoted_raw(text)}] if text else []
    out: dict[str, Any] = {"type": "reasoning", "id": item, "summary": summary, "status": status}
    if envelope is not None:
        out["encrypted_content"] = envelope
    return out


def call_item(item: str, call: CallPart, status: str) -> dict[str, Any]:
    """A function call, or a freeform one (D10), under the client's own name and namespace (D18)."""
    out: dict[str, Any] = {"type": "function_call", "id": item, "call_id": call.call_id, "name": call.name}
    if call.namespace is not None:
        out["namespace"] = call.namespace
    if call.custom:
        out["type"] = "custom_tool_call"
        out["input"] = jsonx.quoted_raw(call.arguments)
    else:
        out["arguments"] = jsonx.quoted_raw(call.arguments)
    out["status"] = status
    return out


def freeform_input(arguments: bytes) -> bytes:
    """The text of a freeform call out of its function arguments `{"input": ...}`, both escaped; all of it when they
    are not in that form."""
    try:
        value: Raw | None = jsonx.members(jsonx.unescape(arguments).encode("utf-8", "replace")).get("input")
    except jsonx.Malformed:
        return arguments
    return jsonx.unquoted(value) if value is not None and jsonx.kind(value) == "string" else arguments
