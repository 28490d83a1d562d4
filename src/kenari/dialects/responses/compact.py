"""`POST /v1/responses/compact`: a long conversation becomes one `compaction` item that a later `input` begins with.

It is the Responses dialect with another question and another object around the answer, so the request takes the same
way as every other. The item carries the summary itself, for nothing is kept here; it is the client's own
conversation, so it is packed, not secret.
"""

from typing import Any

from msgspec import Raw

from kenari.core.fold import Reply
from kenari.core.request import Request
from kenari.dialects.base import Answer
from kenari.dialects.fields import Fields
from kenari.dialects.responses import request
from kenari.dialects.responses.dialect import ResponsesDialect
from kenari.dialects.responses.packed import QUESTION, pack
from kenari.dialects.responses.resource import usage_object
from kenari.wire import jsonx

_KEPT = ("model", "instructions", "prompt_cache_key", "reasoning", "max_output_tokens", "temperature", "top_p")


class CompactDialect(ResponsesDialect):
    """The endpoint as a `Dialect`, for the gateway alone: no provider is asked in it."""

    path = "/v1/responses/compact"

    def decode_request(self, body: bytes) -> Request:
        """The conversation with our question behind it and no tools."""
        fields = Fields(jsonx.request_fields(body))
        members = fields.members
        kept: dict[str, Any] = {name: members[name] for name in _KEPT if name in members}
        kept["previous_response_id"] = members.get("previous_response_id")
        source = members.get("input")
        if source is not None:
            kept["input"] = source
        if source is not None and jsonx.kind(source) in ("array", "string"):
            items: list[Any] = (
                [_message(source)] if jsonx.kind(source) == "string" else [*(fields.elements("input") or ())]
            )
            kept["input"] = [*items, _message(QUESTION)] if items else source
        decoded = request.decode_request(jsonx.encode(kept))
        if source is not None:
            decoded.fields["compacted"] = source
        return decoded

    def encode_reply(self, reply: Reply, answer: Answer) -> bytes:
        """The compacted window: one item, or the conversation as it was when the model had nothing to say."""
        text = b"".join(block.text for block in reply.blocks if block.kind == "text")
        output: Any = answer.request.fields["compacted"]
        if text.strip():
            output = [{"type": "compaction", "id": "cmp_" + answer.id, "encrypted_content": pack(text)}]
        elif jsonx.kind(output) == "string":
            output = [_message(output)]
        return jsonx.encode(
            {
                "id": "resp_" + answer.id,
                "object": "response.compaction",
                "created_at": answer.created,
                "output": output,
                "usage": Raw(usage_object(reply.usage)),
            }
        )


def _message(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


COMPACT = CompactDialect()
"""The one instance."""
