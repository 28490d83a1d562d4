"""L10 over whole conversations: what an agent sends turn after turn begins with the same bytes for the provider, through
every translation, and what providers say of their caches is counted, row by row."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from msgspec import Raw

from kenari.core.ids import Envelopes
from kenari.core.ports import Leg
from kenari.core.profile import Profile
from kenari.dialects.fit import Target, fit
from kenari.dialects.registry import DIALECTS
from kenari.dialects.responses.dialect import ResponsesDialect
from kenari.ledger.price import charge, make_price
from kenari.providers.rows import ROWS
from kenari.wire import jsonx
from kenari.wire.sse import Frames

MARK = {"type": "ephemeral"}
_MARKS = re.compile(rb',\s*"cache_control":\s*\{[^{}]*\}')
_LONE_TEXT = re.compile(rb'"content":\[\{"type":"text","text":("(?:[^"\\]|\\.)*")\}\]')
SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "number"}}, "required": ["b"]}


def chat_agent() -> dict[str, Any]:
    """The way of agents on chat completions: tools, reasoning given back, two calls at once, results in parts."""
    call = {"type": "function", "function": {"name": "read", "arguments": '{ "b": "x",  "a": 1.0 }'}}
    return {
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "read", "description": "reads", "parameters": SCHEMA}}],
        "prompt_cache_key": "session",
        "messages": [
            {"role": "system", "content": "You are an agent.\nBe careful."},
            {"role": "user", "content": [{"type": "text", "text": "fix it"}, {"type": "text", "text": "<env>x</env>"}]},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [{"id": "c1", **call}]},
            {"role": "tool", "tool_call_id": "c1", "content": "caf\u00e9"},
            {"role": "assistant", "content": "now", "tool_calls": [{"id": "c2", **call}, {"id": "c3", **call}]},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
            {"role": "tool", "tool_call_id": "c3", "content": "three"},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "and more"},
        ],
    }


def messages_agent() -> dict[str, Any]:
    """The way of agents on Messages: a changing first system block, marks that move, reminders, thoughts, results."""
    call = {"type": "tool_use", "name": "Read", "input": {"b": "x", "a": 1}}
    return {
        "model": "m",
        "max_tokens": 100,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=%d;"},
            {"type": "text", "text": "You are an agent.", "cache_control": MARK},
        ],
        "tools": [{"name": "Read", "description": "reads", "input_schema": SCHEMA, "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"id": "t1", **call}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "caf\u00e9"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "now"}, {"id": "t2", **call}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}]},
                    {"type": "text", "text": "<system-reminder>y</system-reminder>"},
                ],
            },
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "and more"},
        ],
    }


def responses_agent() -> dict[str, Any]:
    """The way of agents on Responses: instructions, developer and context messages, reasoning items, calls, outputs."""
    call = {"type": "function_call", "name": "shell", "arguments": '{"b": "x"}'}
    return {
        "model": "m",
        "instructions": "You are an agent.",
        "prompt_cache_key": "thread",
        "store": False,
        "tools": [{"type": "function", "name": "shell", "description": "runs", "parameters": SCHEMA, "strict": False}],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<rules>"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": None},
            {**call, "call_id": "c1"},
            {"type": "function_call_output", "call_id": "c1", "output": "caf\u00e9"},
            {**call, "call_id": "c2"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and more"}]},
        ],
    }


CLIENTS = DIALECTS | {"responses": ResponsesDialect(formats=True)}
AGENTS = {"chat": chat_agent, "messages": messages_agent, "responses": responses_agent}
ENDS = {"chat": (2, 4, 7, 9), "messages": (1, 3, 5, 7), "responses": (2, 5, 7, 9)}
"""After how many items the agent's turns end: each time it asks the model."""


def requests_of(client: str) -> list[bytes]:
    """What the agent sends, turn after turn; marks sit on the last message only, as agents move them."""
    out: list[bytes] = []
    key = "input" if client == "responses" else "messages"
    for number, end in enumerate(ENDS[client]):
        body = AGENTS[client]()
        body[key] = body[key][:end]
        if client == "messages":
            body["system"][0]["text"] %= number
            last = body[key][-1]
            if isinstance(last["content"], list):
                last["content"][-1]["cache_control"] = MARK
        out.append(json.dumps(body).encode())
    return out


def sent(client: str, provider: str, body: bytes, profile: Profile) -> dict[str, Raw]:
    """What the provider gets, member by member."""
    target = Target(
        dialect=provider,
        model="v",
        profile=profile,
        maker=f"{provider}/p/v",
        envelopes=Envelopes(b"k" * 32),
        max_output=500,
    )
    fitted = fit(CLIENTS[client].decode_request(body), target, lambda key: "sealed-" + key)
    return jsonx.members(DIALECTS[provider].encode_request(fitted, profile))


def without_marks(data: bytes | Raw) -> bytes:
    """Marks say where to cache and are no part of what is cached; a text with a mark is written as a block."""
    return _LONE_TEXT.sub(rb'"content":\1', _MARKS.sub(b"", bytes(data)))


@pytest.mark.parametrize("profile", [Profile(), Profile(cache_control=True, reasoning_content_roundtrip=True)])
@pytest.mark.parametrize("provider", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
def test_l10_each_turn_of_an_agent_begins_with_the_bytes_of_the_one_before(
    client: str, provider: str, profile: Profile
) -> None:
    """L10: system prompt, tools and every earlier message, byte for byte; so prefix caches hit in each turn."""
    bodies = [sent(client, provider, body, profile) for body in requests_of(client)]
    place = "input" if provider == "responses" else "messages"
    for earlier, later in pairwise(bodies):
        for name in ("tools", "instructions"):
            assert without_marks(earlier.get(name, Raw(b""))) == without_marks(later.get(name, Raw(b"")))
        if not client == provider == "messages":  # there the client's own changing block travels as it is
            assert without_marks(earlier.get("system", Raw(b""))) == without_marks(later.get("system", Raw(b"")))
        first = [without_marks(one) for one in jsonx.elements(earlier[place])]
        second = [without_marks(one) for one in jsonx.elements(later[place])]
        assert second[: len(first)] == first
        assert len(second) > len(first)


@pytest.mark.parametrize("client", ["chat", "responses"])
def test_breakpoints_are_set_for_clients_that_have_none(client: str) -> None:
    """The last tool, the system prompt, the last message and the user's one before: four at most."""
    for body in requests_of(client)[1:]:
        out = sent(client, "messages", body, Profile())
        assert b"cache_control" in bytes(out["tools"])
        assert bytes(out["system"]).count(b"cache_control") == 1
        messages = jsonx.elements(out["messages"])
        marked = [at for at, one in enumerate(messages) if b"cache_control" in bytes(one)]
        assert len(marked) == 2
        assert marked[-1] == len(messages) - 1
        assert sum(bytes(raw).count(b"cache_control") for raw in out.values()) == 4


def test_breakpoints_are_left_to_clients_that_know_them_and_not_paid_for_once() -> None:
    marked = sent("messages", "messages", requests_of("messages")[2], Profile())
    assert sum(bytes(raw).count(b"cache_control") for raw in marked.values()) == 3
    for profile in (Profile(cache_breakpoints=False), Profile(cache_control=False)):
        assert b"cache_control" not in b"".join(
            map(bytes, sent("chat", "messages", requests_of("chat")[1], profile).values())
        )
    once = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    assert b"cache_control" not in b"".join(map(bytes, sent("chat", "messages", once, Profile()).values()))
    own = AGENTS["chat"]()
    own["messages"][1]["content"][0]["cache_control"] = MARK
    out = sent("chat", "messages", json.dumps(own).encode(), Profile())
    assert sum(bytes(raw).count(b"cache_control") for raw in out.values()) == 1


def test_chat_providers_get_marks_where_their_profile_says_so() -> None:
    on = Profile(cache_control=True, cache_breakpoints=True)
    out = sent("chat", "chat", requests_of("chat")[1], on)
    assert b"cache_control" in bytes(out["messages"])
    assert b"cache_control" not in bytes(sent("chat", "chat", requests_of("chat")[1], Profile())["messages"])


@pytest.mark.parametrize("row", ROWS)
def test_the_cache_key_travels_where_the_row_says_so(row: str) -> None:
    """M3: sealed, never the caller's own."""
    made = ROWS[row]
    flag = made.profile.prompt_cache_key
    wanted = made.dialect == "responses" if flag is None else flag
    for client in ("chat", "responses"):
        out = sent(client, made.dialect, requests_of(client)[0], made.profile)
        assert ("prompt_cache_key" in out) is wanted
        if wanted:
            assert jsonx.value(out["prompt_cache_key"]).startswith("sealed-")


DETAILS = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}}
CHAT_USAGE: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "openai-chat": (DETAILS, 20, 80, 0),
    "openrouter": (
        {**DETAILS, "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}},
        10,
        60,
        30,
    ),
    "groq": (DETAILS, 20, 80, 0),
    "deepseek": (
        {"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
        36,
        64,
        0,
    ),
    "mistral": (DETAILS, 20, 80, 0),
    "together": ({"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 70}, 30, 70, 0),
    "fireworks": (DETAILS, 20, 80, 0),
    "xai": (DETAILS, 20, 80, 0),
    "gemini": (DETAILS, 20, 80, 0),
    "ollama": ({"prompt_tokens": 100, "completion_tokens": 5}, 100, 0, 0),
    "llama-server": (DETAILS, 20, 80, 0),
    "vllm": (DETAILS, 20, 80, 0),
    "sglang": (DETAILS, 20, 80, 0),
}
"""What each row's provider says of a prompt of 100 tokens: fresh, read from and written to its cache."""


@pytest.mark.parametrize("row", ROWS)
def test_what_a_provider_says_of_its_cache_is_counted(row: str) -> None:
    """U1, U2, U4: cache reads and writes of every row, apart from fresh input, each billed at its own price."""
    made = ROWS[row]
    frames: list[Any]
    if made.dialect == "chat":
        usage, fresh, read, written = CHAT_USAGE[row]
        choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
        frames = [{"choices": [choice]}, {"choices": [], "usage": usage}]
    elif made.dialect == "messages":
        fresh, read, written = 20, 50, 30
        counts = {"input_tokens": 20, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 30}
        frames = [
            {"type": "message_start", "message": {"usage": counts}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]
    else:
        fresh, read, written = 20, 80, 0
        counts = {"input_tokens": 100, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 80}}
        frames = [{"type": "response.completed", "response": {"status": "completed", "output": [], "usage": counts}}]
    decoder = DIALECTS[made.dialect].decoder(made.profile, "0" * 16)
    events: list[Any] = []
    data = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in frames)
    for frame in Frames().feed(data):
        events += decoder.feed(frame)
    usage_seen = [event.usage for event in events if getattr(event, "usage", None) is not None][-1]
    assert (usage_seen.fresh, usage_seen.cache_read or 0, usage_seen.cache_write) == (fresh, read, written)
    assert usage_seen.prompt == 100
    price = make_price("1", "2", cache_read="0.1", cache_write="1.25")
    bill = charge([Leg("t", usage_seen, "ok", 1.0)], price)
    assert bill == fresh * 1000 + read * 100 + written * 1250 + 5 * 2000
