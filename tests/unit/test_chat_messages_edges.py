"""Uncommon shapes of Chat Completions and Messages, from both sides, that real clients and providers send."""

from typing import Any

import pytest
from gateway_kit import COMPLETION, Rig, plain

from kenari.core.profile import Profile

MARK = {"type": "ephemeral"}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "vendor-model",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 3},
}
ANSWERS = {"chat": COMPLETION, "messages": MESSAGE}
CHAT_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


def user(content: Any) -> dict[str, Any]:
    """A person's message."""
    return {"role": "user", "content": content}


class Asked:
    """One plain request: what the provider got, what the client was told."""

    def __init__(self, client: str, dialect: str, profile: Profile | None = None, **members: Any) -> None:
        rig = Rig(plain(ANSWERS[dialect]), dialect=dialect, profile=profile)
        self.got = rig.ask(client, stream=False, **members)
        self.sent: Any = rig.upstream.sent[0] if rig.upstream.sent else None
        self.ignored = self.got.header.get("x-kenari-ignored")


# -- cache marks


def called(**result: Any) -> list[dict[str, Any]]:
    """A Messages conversation that ends with a tool's result."""
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    return [
        user("go"),
        {"role": "assistant", "content": [call]},
        user([{"type": "tool_result", "tool_use_id": "t", **result}]),
    ]


def test_l10_a_mark_on_a_result_reaches_a_chat_provider_that_takes_marks() -> None:
    """Agents mark the last block of a conversation, which is a tool's result nearly always: without it nothing is cached."""
    marks = Profile(cache_control=True)
    sent = Asked("messages", "chat", marks, messages=called(content="r", cache_control=MARK), tools=TOOLS).sent
    assert sent["messages"][-1]["content"] == [{"type": "text", "text": "r", "cache_control": MARK}]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    sent = Asked("messages", "chat", marks, messages=called(content=parts, cache_control=MARK), tools=TOOLS).sent
    assert [part.get("cache_control") for part in sent["messages"][-1]["content"]] == [None, MARK]
    sent = Asked("messages", "chat", messages=called(content="r", cache_control=MARK), tools=TOOLS).sent
    assert sent["messages"][-1]["content"] == "r"


@pytest.mark.parametrize("content", ["r", [{"type": "text", "text": "r"}]])
def test_l10_our_own_breakpoints_stand_on_results_too(content: Any) -> None:
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        user("go"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": content},
    ]
    profile = Profile(cache_control=True, cache_breakpoints=True)
    sent = Asked("chat", "chat", profile, messages=messages, tools=CHAT_TOOLS).sent
    assert sent["messages"][-1]["content"] == [{"type": "text", "text": "r", "cache_control": MARK}]
