"""L10 over the conversations of real clients: each captured request, begun earlier and gone on with, keeps its first bytes
through every translation, so that a provider's prompt cache hits in each turn."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from test_caching import sent, without_marks

from kenari.core.profile import Profile
from kenari.dialects.registry import DIALECTS
from kenari.wire import jsonx

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"
FORMATS = {"/v1/chat/completions": "chat", "/v1/messages": "messages", "/v1/responses": "responses"}
PROFILES = [Profile(), Profile(cache_control=True, prompt_cache_key=True, reasoning_content_roundtrip=True)]


def captured() -> list[Any]:
    """(client format, body) of each capture of a chat endpoint."""
    out: list[Any] = []
    for path in sorted(CAPTURES.glob("*.json")) if CAPTURES.is_dir() else []:
        capture = json.loads(path.read_text(encoding="utf-8"))
        client = FORMATS.get(capture["path"].partition("?")[0])
        if client and isinstance(capture.get("body"), dict) and isinstance(capture["body"].get(place(client)), list):
            out.append(pytest.param(client, capture["body"], id=path.stem))
    return out


def place(dialect: str) -> str:
    """Where the conversation stands."""
    return "input" if dialect == "responses" else "messages"


def further(client: str, body: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What a client adds in its next two turns: an answer with a new question, a call with its result."""
    name = _tool_name(body)
    if client == "chat":
        call = {"id": "call_x", "type": "function", "function": {"name": name, "arguments": '{ "b": 1.0}'}}
        result = {"role": "tool", "tool_call_id": "call_x", "content": "caf\u00e9"}
        turns = [[{"role": "assistant", "content": "done"}, {"role": "user", "content": "and more"}]]
        return [*turns, [{"role": "assistant", "content": None, "tool_calls": [call]}, result]]
    if client == "messages":
        call = {"type": "tool_use", "id": "toolu_x", "name": name, "input": {"b": 1}}
        result = {"type": "tool_result", "tool_use_id": "toolu_x", "content": "caf\u00e9"}
        said = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
        turns = [[said, {"role": "user", "content": [{"type": "text", "text": "and more"}]}]]
        return [*turns, [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]]
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    call = {"type": "function_call", "call_id": "call_x", "name": name, "arguments": '{"b":1}'}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and more"}]}
    return [[said, asked], [call, {"type": "function_call_output", "call_id": "call_x", "output": "caf\u00e9"}]]


def _tool_name(body: dict[str, Any]) -> str:
    tools: list[dict[str, Any]] = body.get("tools") or []
    for tool in tools:
        inner: dict[str, Any] = tool.get("function", tool)
        if inner.get("name") and tool.get("type", "function") in ("function", "custom"):
            return str(inner["name"])
    return "look"


def begun(client: str, items: list[dict[str, Any]]) -> int:
    """How many of the items were there before the model spoke first; all of them when it has not."""
    made = ("assistant", "reasoning", "function_call", "item_reference")
    for at, item in enumerate(items):
        if at and (item.get("role") or item.get("type")) in made:
            return at
    return len(items)


@pytest.mark.skipif(not captured(), reason="the shared captures are not here")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("provider", DIALECTS)
@pytest.mark.parametrize(("client", "body"), captured())
def test_l10_each_turn_of_a_real_client_begins_with_the_one_before(
    client: str, body: dict[str, Any], provider: str, profile: Profile
) -> None:
    """L10."""
    items, more = body[place(client)], further(client, body)
    states = [items[: begun(client, items)], items, items + more[0], items + more[0] + more[1]]
    states = states[1:] if len(states[0]) == len(items) else states
    bodies = [sent(client, provider, json.dumps(body | {place(client): one}).encode(), profile) for one in states]
    for earlier, later in pairwise(bodies):
        for name in ("tools", "instructions", "system"):
            assert without_marks(earlier.get(name, Raw(b""))) == without_marks(later.get(name, Raw(b"")))
        assert earlier.get("prompt_cache_key") == later.get("prompt_cache_key")
        first = [without_marks(one) for one in jsonx.elements(earlier[place(provider)])]
        second = [without_marks(one) for one in jsonx.elements(later[place(provider)])]
        assert second[: len(first)] == first
        assert len(second) > len(first)
