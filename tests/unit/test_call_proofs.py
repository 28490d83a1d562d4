"""D5 for chat providers: what they sign, and want back, travels with any client."""

import json
from typing import Any

import pytest
from gateway_kit import COMPLETION, DONE, ROLE, Rig, Script, chunk, plain

from kenari.core.profile import Profile
from kenari.providers.rows import ROWS

SIGNED = {"google": {"thought_signature": "AY89/=="}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
TOOLS: dict[str, Any] = {
    "chat": [{"type": "function", "function": {"name": name}} for name in ("a.b", "g")],
    "messages": [{"name": name, "input_schema": {"type": "object"}} for name in ("a.b", "g")],
    "responses": [{"type": "function", "name": name, "parameters": {}} for name in ("a.b", "g")],
}


def call(index: int, name: str, **more: Any) -> dict[str, Any]:
    """A whole call, as one vendor sends it in one piece."""
    return {
        "index": index,
        "id": f"c{index}",
        "type": "function",
        "function": {"name": name, "arguments": "{}"},
        **more,
    }


FIRST, SECOND = call(0, "a_b_2e7336dc", extra_content=SIGNED), call(1, "g")


def provider(streamed: bool) -> Script:
    """Two calls, of which the first is signed."""
    if streamed:
        deltas = chunk({"tool_calls": [FIRST]}) + chunk({"tool_calls": [SECOND]})
        return Script([(0, ROLE + deltas + chunk({}, "tool_calls", usage=USAGE) + DONE), (0, None)])
    message = {"role": "assistant", "content": None, "tool_calls": [FIRST, SECOND]}
    return plain(COMPLETION | {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})


def history(client: str, streamed: bool, answer: Any) -> dict[str, Any]:
    """The next request of a client that gives back what it got, with a result for each call."""
    if client == "responses":
        output = answer[-1]["response"]["output"] if streamed else answer["output"]
        results = [{"type": "function_call_output", "call_id": f"c{index}", "output": "r"} for index in (0, 1)]
        return {"input": [{"role": "user", "content": "hi"}, *output, *results]}
    user = {"role": "user", "content": "hi"}
    if client == "messages":
        blocks = blocks_of(answer) if streamed else answer["content"]
        results = [{"type": "tool_result", "tool_use_id": f"c{index}", "content": "r"} for index in (0, 1)]
        return {"messages": [user, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]}
    message = message_of(answer) if streamed else answer["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": f"c{index}", "content": "r"} for index in (0, 1)]
    return {"messages": [user, message, *results]}


def blocks_of(frames: list[Any]) -> list[dict[str, Any]]:
    """A Messages stream's blocks."""
    blocks: list[dict[str, Any]] = []
    for frame in frames:
        if frame["type"] == "content_block_start":
            blocks.append(frame["content_block"])
        elif frame["type"] == "content_block_delta" and frame["delta"]["type"] == "signature_delta":
            blocks[-1]["signature"] = frame["delta"]["signature"]
    return blocks


def message_of(frames: list[Any]) -> dict[str, Any]:
    """A chat stream's message."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    for frame in frames[:-1]:
        delta = frame["choices"][0]["delta"]
        message |= {name: delta[name] for name in ("reasoning_details",) if name in delta}
        for told in delta.get("tool_calls", ()):
            if "id" in told:
                message["tool_calls"].append({key: told[key] for key in ("id", "type", "function")})
            else:
                message["tool_calls"][told["index"]]["function"]["arguments"] += told["function"]["arguments"]
    return message


def next_request(client: str, streamed: bool, **model: Any) -> Any:
    """What the provider gets when a client goes on after calls; the request that it got for that."""
    rig = Rig(provider(streamed), **model)
    got = rig.ask(client, streamed, tools=TOOLS[client])
    assert got.status == 200
    answer = got.data if streamed else got.json
    assert b"thought_signature" not in got.out  # sealed: it is its maker's
    again = Rig(plain(COMPLETION), **model)
    asked = again.ask(client, False, tools=TOOLS[client], **history(client, streamed, answer))
    assert asked.status == 200
    return again.upstream.sent[0]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
def test_d5_the_signature_of_a_call_comes_back_to_its_maker(client: str, streamed: bool) -> None:
    """Gemini answers 400 to a conversation of calls without it."""
    sent = next_request(client, streamed)
    message = sent["messages"][1]
    assert [one.get("extra_content") for one in message["tool_calls"]] == [SIGNED, None]
    assert [one["function"]["name"] for one in message["tool_calls"]] == ["a_b_2e7336dc", "g"]
    assert not {"reasoning", "reasoning_content", "reasoning_details"} & message.keys()


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
def test_d5_another_maker_never_sees_it(client: str) -> None:
    rig = Rig(provider(True))
    answer = rig.ask(client, True, tools=TOOLS[client]).data
    again = Rig(Script([(0, b"{}"), (0, None)], 500), plain(COMPLETION))
    again.ask(client, False, tools=TOOLS[client], **history(client, True, answer))
    first, second = (json.dumps(sent) for sent in again.upstream.sent)
    assert "thought_signature" in first
    assert "thought_signature" not in second


# -- reasoning_details (OpenRouter)


def detail(kind: str, index: int = 0, **more: Any) -> dict[str, Any]:
    """One detail, or a piece of it."""
    return {"type": f"reasoning.{kind}", "index": index, "format": "anthropic-claude-v1", **more}


WHOLE = [
    detail("text", text="think hard", signature="S"),
    detail("encrypted", 1, data="BLOB", id="c0"),
]


def thinking_provider(streamed: bool, called: bool) -> Script:
    """A thought in pieces with its signature, and a blob beside the call."""
    finish = "tool_calls" if called else "stop"
    said: dict[str, Any] = {"tool_calls": [call(0, "g"), call(1, "g")]} if called else {"content": "A"}
    if not streamed:
        message = {"role": "assistant", "content": None, "reasoning": "think hard", "reasoning_details": WHOLE, **said}
        return plain(COMPLETION | {"choices": [{"index": 0, "message": message, "finish_reason": finish}]})
    data = b"".join(
        [
            ROLE,
            chunk({"reasoning": "think", "reasoning_details": [detail("text", text="think")]}),
            chunk({"reasoning": " hard", "reasoning_details": [detail("text", text=" hard", signature=None)]}),
            chunk({"content": "", "reasoning_details": [detail("text", signature="S")]}),
            chunk({"reasoning_details": [detail("encrypted", 1, data="BLOB", id="c0")], **said}),
            chunk({}, finish, usage=USAGE),
            DONE,
        ]
    )
    return Script([(0, data), (0, None)])


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
def test_d5_signed_details_come_back_to_their_maker_whole(client: str, streamed: bool) -> None:
    """Vendors behind a router refuse to think on, or to go on at all, without their signatures."""
    rig = Rig(thinking_provider(streamed, True))
    got = rig.ask(client, streamed, tools=TOOLS[client])
    assert (b'"S"' in got.out, b"think" in got.out) == (False, True)
    again = Rig(plain(COMPLETION))
    again.ask(client, False, tools=TOOLS[client], **history(client, streamed, got.data if streamed else got.json))
    message = again.upstream.sent[0]["messages"][1]
    assert message["reasoning_details"] == WHOLE
    assert not {"reasoning", "reasoning_content"} & message.keys()


def test_d5_details_of_text_alone_are_only_words() -> None:
    """Nothing was signed: nothing travels."""
    told = chunk({"reasoning": "hm", "reasoning_details": [detail("text", text="hm")]})
    data = ROLE + told + chunk({"content": "A"}) + chunk({}, "stop", usage=USAGE) + DONE
    got = Rig(Script([(0, data), (0, None)])).ask("chat")
    assert b"reasoning_details" not in got.out


def test_d5_details_that_are_told_nowhere_else_are_whole_as_well() -> None:
    """Their text is read from them alone, frame after frame of one form."""
    pieces = [chunk({"reasoning_details": [detail("text", text=text)]}) for text in "abcdefgh"]
    signed = chunk({"reasoning_details": [detail("text", signature="S")]})
    data = ROLE + b"".join(pieces) + signed + chunk({"tool_calls": [call(0, "g"), call(1, "g")]})
    data += chunk({}, "tool_calls", usage=USAGE) + DONE
    answer = Rig(Script([(0, data), (0, None)])).ask("chat", tools=TOOLS["chat"]).data
    again = Rig(plain(COMPLETION))
    again.ask("chat", False, tools=TOOLS["chat"], **history("chat", True, answer))
    [kept] = again.upstream.sent[0]["messages"][1]["reasoning_details"]
    assert (kept["text"], kept["signature"]) == ("abcdefgh", "S")


# -- calls that nobody signed


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
def test_unsigned_calls_carry_a_word_where_the_provider_wants_one(client: str) -> None:
    """Calls of another model, or of a client that lost their proofs: one a turn, the first, as its maker does it."""
    profile = ROWS["gemini"].profile
    rig = Rig(Script(thinking_provider(True, True).steps))
    answer = rig.ask(client, True, tools=TOOLS[client]).data
    for quirks, wanted in ((profile, "skip_thought_signature_validator"), (Profile(), None)):
        again = Rig(plain(COMPLETION), profile=quirks)
        again.ask(client, False, tools=TOOLS[client], **history(client, True, answer))
        calls = again.upstream.sent[0]["messages"][1]["tool_calls"]
        signs = [one.get("extra_content", {}).get("google", {}).get("thought_signature") for one in calls]
        assert signs == [wanted, None]


def test_a_call_that_was_signed_keeps_its_own_signature() -> None:
    sent = next_request("messages", True, profile=ROWS["gemini"].profile)
    assert [one.get("extra_content") for one in sent["messages"][1]["tool_calls"]] == [SIGNED, None]


def test_a_chat_client_may_carry_signatures_itself() -> None:
    """L10: also where the name of the call is squeezed."""
    made = {"role": "assistant", "content": None, "tool_calls": [call(0, "a.b", extra_content=SIGNED)]}
    result = {"role": "tool", "tool_call_id": "c0", "content": "r"}
    rig = Rig(plain(COMPLETION), profile=ROWS["gemini"].profile)
    rig.ask("chat", False, tools=TOOLS["chat"], messages=[{"role": "user", "content": "hi"}, made, result])
    [sent] = rig.upstream.sent[0]["messages"][1]["tool_calls"]
    assert (sent["function"]["name"], sent["extra_content"]) == ("a_b_2e7336dc", SIGNED)
