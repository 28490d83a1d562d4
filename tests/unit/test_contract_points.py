"""Points of the contract that no other test is named after, each over the whole gateway."""

import json
from typing import Any

import pytest
from gateway_kit import COMPLETION, DONE, FORMATS, GOOD, PATHS, ROLE, STOP, Rig, Script, chunk, plain

from kenari.dialects.registry import BY_PATH
from kenari.wire.sse import Frames


def test_streams_on_exactly_three_endpoints() -> None:
    """S1."""
    assert set(BY_PATH) == {"/v1/chat/completions", "/v1/messages", "/v1/responses"}


@pytest.mark.parametrize(
    ("client", "last"), [("chat", b"data: [DONE]"), ("messages", b"message_stop"), ("responses", b"response.completed")]
)
def test_how_each_stream_ends(client: str, last: bytes) -> None:
    """S9, S10, S11: the terminator of each format, and no `[DONE]` on Responses."""
    got = Rig(GOOD).ask(client)
    assert last in got.out.rstrip(b"\n").split(b"\n\n")[-1]
    assert (b"[DONE]" in got.out) is (client == "chat")


def test_a_providers_comments_are_no_events() -> None:
    """S14: lines that begin with a colon say nothing, wherever they stand."""
    frames = Frames()
    assert [f.data for f in frames.feed(b": a\n\ndata: 1\n: b\n\n:\n\n")] == [b"1"]
    got = Rig(
        Script([(0, b":\n\n" + ROLE), (0, b": ping\n\n" + chunk({"content": "x"})), (0, STOP + DONE), (0, None)])
    ).ask("chat")
    assert b":\n" not in got.out.replace(b'":', b"")


def test_usage_stands_in_its_one_place() -> None:
    """S27, S28, S29, L7: each format shows the counts of the line, at its own place."""
    for client in FORMATS:
        rig = Rig(GOOD)
        got = rig.ask(client)
        leg = rig.books.lines[0].legs[0].usage
        if client == "chat":
            shown = got.data[-2]["usage"]
            assert (shown["prompt_tokens"], shown["completion_tokens"]) == (leg.prompt, leg.output)
        elif client == "messages":
            assert got.data[0]["message"]["usage"]["output_tokens"] == 0
            shown = next(event["usage"] for event in got.data if event["type"] == "message_delta")
            assert (shown["input_tokens"], shown["output_tokens"]) == (leg.fresh, leg.output)
        else:
            shown = got.data[-1]["response"]["usage"]
            assert (shown["input_tokens"], shown["output_tokens"]) == (leg.prompt, leg.output)


def test_a_codex_turn_with_its_follow_up() -> None:
    """S102, S155, S158: a call, and the follow-up of the page as it is written there."""
    call = chunk(
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Jakarta"}'},
                }
            ]
        }
    )
    rig = Rig([Script([(0, ROLE + call), (0, chunk({}, "tool_calls") + DONE), (0, None)]), GOOD])
    tools = [
        {
            "type": "function",
            "name": "get_weather",
            "description": "Ambil cuaca.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
    ]
    item = rig.ask("responses", input="Bagaimana cuaca di Jakarta?", tools=tools).data[-1]["response"]["output"][0]
    assert (item["type"], item["call_id"], item["name"]) == ("function_call", "call_1", "get_weather")
    history = [
        {"role": "user", "content": "Bagaimana cuaca di Jakarta?"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": item["arguments"]},
        {"type": "function_call_output", "call_id": "call_1", "output": "31 C dan cerah"},
    ]
    assert rig.ask("responses", input=history, tools=tools).data[-1]["response"]["status"] == "completed"
    assert [message["role"] for message in rig.upstream.sent[1]["messages"]] == ["user", "assistant", "tool"]


def test_a_model_is_found_by_its_names() -> None:
    """S109: an id, and an alias of it; the answer repeats the name that was asked for (S38)."""
    got = Rig(GOOD, aliases=("other:free",)).ask("responses", model="other:free")
    assert got.data[0]["response"]["model"] == "other:free"


@pytest.mark.parametrize("choice", ["auto", "none", "required", {"type": "function", "name": "f"}])
def test_each_tool_choice_reaches_the_provider(choice: Any) -> None:
    """S118."""
    rig = Rig(GOOD)
    rig.ask("responses", tools=[{"type": "function", "name": "f", "parameters": {}}], tool_choice=choice)
    want = {"type": "function", "function": {"name": "f"}} if isinstance(choice, dict) else choice
    assert rig.upstream.sent[0]["tool_choice"] == want


def test_reasoning_and_sampling_are_passed_on() -> None:
    """S120, S124, S125."""
    rig = Rig(GOOD)
    rig.ask("responses", reasoning={"effort": "low"}, temperature=0.25, top_p=0.5)
    sent = rig.upstream.sent[0]
    assert (sent["reasoning_effort"], sent["temperature"], sent["top_p"]) == ("low", 0.25, 0.5)


def test_previous_response_id_null_is_absent() -> None:
    """S129."""
    assert Rig(GOOD).ask("responses", previous_response_id=None).status == 200


def test_the_parts_of_messages() -> None:
    """S142: input_text, output_text and input_image, in their order."""
    rig = Rig(GOOD)
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:image/png;base64,QQ=="}]
    history = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"role": "user", "content": "c"},
    ]
    rig.ask("responses", input=history)
    messages = rig.upstream.sent[0]["messages"]
    assert [part["type"] for part in messages[0]["content"]] == ["text", "image_url"]
    assert messages[1]["content"] == "b"


@pytest.mark.parametrize("client", FORMATS)
def test_a_rate_limit_is_an_http_error_before_the_stream(client: str) -> None:
    """S174, S17."""
    got = Rig(Script([(0, b'{"error":{"message":"slow down"}}'), (0, None)], 429, {})).ask(client)
    assert got.status == 429
    assert got.header["content-type"] == "application/json"


def test_the_billing_line_of_claude_code_does_not_travel() -> None:
    """D21: its changing text would break the prefix of every prompt cache."""
    rig = Rig(GOOD)
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1.2"},
        {"type": "text", "text": "You are helpful."},
    ]
    rig.ask("messages", system=system)
    assert rig.upstream.sent[0]["messages"][0] == {"role": "system", "content": "You are helpful."}


def test_a_long_plain_answer_waits_as_long_as_a_stream() -> None:
    """D22: a plain call outlives silences that are shorter than the provider's time-outs."""
    rig = Rig(Script([(0.4, json.dumps(COMPLETION).encode()), (0, None)], 200, {b"content-type": b"application/json"}))
    rig.silence = (0.05, 0.1)
    assert rig.ask("messages", stream=False).json["content"][0]["text"] == "Hello"


def test_json_depth_and_other_bad_bodies() -> None:
    """F2: the right 400 for each, in each format, never a 500."""
    bad = [
        b"",
        b"   ",
        b"nope",
        b"[]",
        b'"x"',
        b'{"model": "m", "messages": [',
        b'{"model":"m","input":"\xff","messages":[]}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"model":' + b"9" * 5000 + b"}",
        b'{"model":1e999,"messages":[{"role":"user","content":"x"}],"input":"x"}',
        b'{"model":"m","messages":{"role":"user"},"input":{"a":1}}',
        b'{"model":"m","messages":[[]],"input":[[]]}',
        b'{"model":"m","messages":[{"role":"user","content":{"a":1}}],"input":[{"role":"user","content":{"a":1}}]}',
    ]
    for body in bad:
        for path in PATHS.values():
            got = Rig(GOOD).post(path, body)
            assert got.status == 400, (path, body[:40], got.out[:100])
            assert got.json["error"]["message"]


def test_legal_json_passes_whatever_it_holds() -> None:
    """F2: NUL, lone surrogates, duplicate keys, huge numbers where they do not matter."""
    body = b'{"model":"m","model":"m","big":%b,"messages":[{"role":"user","content":"a\\u0000b\\ud83d"}]}' % (
        b"9" * 4000
    )
    rig = Rig(plain(COMPLETION))
    assert rig.post(PATHS["chat"], body).status == 200
    assert rig.upstream.sent[0]["messages"][0]["content"] == "a\0b\ufffd"
