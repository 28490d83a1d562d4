"""A chat client's request -> Request, and a Request -> the body for a chat provider."""

import base64
import json
from typing import Any

import msgspec
import pytest
from chat_kit import MINIMAL, SHARED, request
from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.profile import Profile
from kenari.core.request import (
    AudioPart,
    CallPart,
    FilePart,
    Format,
    ImagePart,
    OpaquePart,
    ReasoningPart,
    Request,
    ResultPart,
    TextPart,
    Thinking,
    Tool,
    ToolChoice,
    Turn,
)
from kenari.dialects.chat import CHAT

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_time", "description": "now", "parameters": {"type": "object"}, "strict": True},
}
CALL: dict[str, Any] = {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": '{"a": 1}'}}


def sent(request: Request, **flags: Any) -> dict[str, Any]:
    """What a provider with these profile flags gets."""
    return json.loads(CHAT.encode_request(request, Profile(**flags)))


def turns(*messages: dict[str, Any]) -> list[Turn]:
    """The decoded conversation."""
    return request(messages=list(messages)).turns


def parts(*content: dict[str, Any], role: str = "user") -> list[Any]:
    """The decoded parts of one message."""
    return turns({"role": role, "content": list(content)})[0].parts


# -- faults


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": 5}, "model"),
    ({"model": ""}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]}]},
        "messages[0].content[0].image_url",
    ),
    (
        {"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": "https://x"}]}]},
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "messages[0].content[0].file.file_id",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        "messages[0].content[0].input_audio",
    ),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "messages[0].tool_calls[0].function"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]},
        "messages[0].tool_calls[0].id",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": 5}}]}]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"n": 2}, "n"),
    ({"n": 0}, "n"),
    ({"n": "1"}, "n"),
    ({"stream": "yes"}, "stream"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": True}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_completion_tokens": "9"}, "max_completion_tokens"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a", 5]}, "stop[1]"),
    ({"tools": {}}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, "tools[0].function.parameters"),
    ({"tools": [TOOL, {"type": "kenari:web_serch"}]}, "tools[1].type"),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
    ({"reasoning": {"effort": "low", "max_tokens": 9}}, "reasoning.max_tokens"),
    ({"reasoning_effort": "low", "reasoning": {"max_tokens": 9}}, "reasoning.max_tokens"),
    ({"reasoning": "low"}, "reasoning"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": "x"}, "top_logprobs"),
    ({"logit_bias": []}, "logit_bias"),
]


@pytest.mark.parametrize(("members", "param"), FAULTS)
def test_e1_d8_faults_name_their_field(members: dict[str, Any], param: str) -> None:
    """E1, D8, D9, S19: a dotted path, status 400, words that begin in lower case."""
    with pytest.raises(KenariError) as caught:
        request(**members)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "bad_request", param)


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"{", b'{"model":"m"', b'{"model":"\xff"}', b"[" * 100_000])
def test_f2_bodies_that_are_no_json_object(body: bytes) -> None:
    with pytest.raises(KenariError) as caught:
        CHAT.decode_request(body)
    assert caught.value.status == 400


def test_d9_a_server_tool_that_is_not_there_is_named() -> None:
    with pytest.raises(KenariError, match="kenari:web_serch"):
        request(tools=[{"type": "kenari:web_serch"}])


# -- what is accepted


def test_f2_null_is_absent_everywhere() -> None:
    names = [
        "n",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "tools",
        "tool_choice",
        "functions",
        "parallel_tool_calls",
        "reasoning",
        "reasoning_effort",
        "response_format",
        "logprobs",
        "logit_bias",
        "prompt_cache_key",
        "user",
        "seed",
    ]
    decoded = request(**dict.fromkeys(names))
    same: dict[str, Any] = {"fields": {}, "plain": False}  # what is not decoded, and how it was read
    assert msgspec.structs.replace(decoded, **same) == msgspec.structs.replace(request(), **same)
    assert sent(decoded) == MINIMAL


@pytest.mark.parametrize("value", [5, "x", [], {"a": 1}, False])
def test_f2_ignored_fields_are_ignored_whatever_their_type(value: Any) -> None:
    """F2, F4, D9, D23, S49: `store` and the like are taken, not sent on, and named."""
    names = ("store", "metadata", "service_tier", "speed", "web_search_options", "safety_identifier", "stream_options")
    decoded = request(**dict.fromkeys(names, value))
    assert sent(decoded) == MINIMAL
    assert {notice.name for notice in decoded.notices} == {*names} - {"stream_options"}


def test_f2_lone_surrogates_and_nul_pass() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"nul \\u0000 and \\ud800 here"}]}'
    assert sent(CHAT.decode_request(body))["messages"][0]["content"] == "nul \0 and \ufffd here"


def test_s2_stream_is_off_by_default() -> None:
    assert not request().stream
    assert request(stream=True).stream


def test_d23_both_names_of_the_cap() -> None:
    assert request(max_tokens=7).max_output == 7
    assert request(max_completion_tokens=9, max_tokens=7).max_output == 9


def test_d23_developer_and_system() -> None:
    first, second = turns({"role": "developer", "content": "a"}, {"role": "system", "content": [text("b")]})
    assert (first.role, first.developer, second.role, second.developer) == ("system", True, "system", False)
    assert (first.parts, first.param) == ([TextPart(b"a")], "messages[0]")


def text(words: str) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "text": words}


def test_d23_tool_results_as_text_and_as_parts() -> None:
    first, second, third = turns(
        {"role": "tool", "tool_call_id": "a", "content": "12:00"},
        {"role": "tool", "tool_call_id": "b", "content": [text("x"), text("y")]},
        {"role": "tool", "tool_call_id": "c", "content": None},
    )
    assert first.parts == [ResultPart("a", [TextPart(b"12:00")])]
    result = second.parts[0]
    assert isinstance(result, ResultPart)
    assert [part.text for part in result.parts if isinstance(part, TextPart)] == [b"x", b"y"]
    assert third.parts == [ResultPart("c", [])]


def test_d11_images_in_tool_results() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    [turn] = turns({"role": "tool", "tool_call_id": "a", "content": [image]})
    result = turn.parts[0]
    assert isinstance(result, ResultPart)
    assert isinstance(result.parts[0], ImagePart)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_d23_r3_earlier_reasoning_under_either_name(name: str) -> None:
    """D23, R3."""
    [turn] = turns({"role": "assistant", "content": "4", name: "2+2"})
    assert turn.parts == [ReasoningPart(b"2+2"), TextPart(b"4")]


def test_d5_the_last_envelope_in_reasoning_details_is_the_proof() -> None:
    details = [{"data": "kn1.a"}, "odd", {"type": "reasoning.text"}, {"type": "reasoning.encrypted", "data": "kn1.b"}]
    [turn] = turns({"role": "assistant", "content": "4", "reasoning": "2+2", "reasoning_details": details})
    part = turn.parts[0]
    assert isinstance(part, ReasoningPart)
    assert (part.proof, part.text) == ("kn1.b", b"2+2")


def test_calls_in_the_history() -> None:
    [turn] = turns({"role": "assistant", "content": None, "tool_calls": [CALL, CALL | {"id": "b"}]})
    assert turn.parts == [
        CallPart("call_1", "get_time", b'{\\"a\\": 1}'),
        CallPart("b", "get_time", b'{\\"a\\": 1}'),
    ]


def test_d26_freeform_calls_stay_in_the_history() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** x"}}
    [turn] = turns({"role": "assistant", "tool_calls": [call]})
    assert turn.parts == [CallPart("c", "patch", b"*** x", custom=True)]


def test_s145_files_images_and_audio() -> None:
    """S145: documents are taken; a text document is text for every model."""
    pdf = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}}
    note = {
        "type": "file",
        "file": {"file_data": "data:text/plain;base64," + base64.b64encode(b"caf\xc3\xa9\n").decode()},
    }
    odd = {"type": "image_url", "image_url": {"url": "data:application/pdf;base64,JVBE"}}
    found = parts(
        pdf,
        note,
        odd,
        {"type": "image_url", "image_url": {"url": "data:image/JPEG;base64,/9j/", "detail": "low"}},
        {"type": "image_url", "image_url": "https://example.test/a.png"},
        {"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}},
        {"type": "hologram", "x": 1},
    )
    for part in found:
        assert part.raw is not None
        part.raw = None
    assert found[:-1] == [
        FilePart(b"a.pdf", "application/pdf", b"JVBE"),
        FilePart(b"document", "text/plain", text="café\\n".encode()),
        FilePart(b"document", "application/pdf", b"JVBE"),
        ImagePart(media_type="image/jpeg", data=b"/9j/", detail="low"),
        ImagePart(url=b"https://example.test/a.png"),
        AudioPart(b"UklG", "mp3"),
    ]
    assert isinstance(found[-1], OpaquePart)
    assert (found[-1].dialect, found[-1].kind) == ("chat", "hologram")


def test_tools_and_d9_other_kinds() -> None:
    """D9, D27: kinds of other vendors are dropped by name, the older `functions` are tools too."""
    decoded = request(
        tools=[TOOL, {"type": "web_search"}, {"type": "custom", "custom": {"name": "patch"}}],
        functions=[{"name": "old", "parameters": {"type": "object"}}],
        function_call={"name": "old"},
    )
    assert [tool.name for tool in decoded.tools] == ["get_time", "old"]
    first = decoded.tools[0]
    assert (first.description, first.strict, bytes(first.schema or b"")) == (b"now", True, b'{"type": "object"}')
    assert [notice.name for notice in decoded.notices] == ["web_search", "custom"]
    assert decoded.tool_choice == ToolChoice("named", "old")
    out = sent(decoded)
    assert "functions" not in out
    assert "function_call" not in out
    assert out["tool_choice"] == {"type": "function", "function": {"name": "old"}}
    assert out["tools"] == [TOOL, {"type": "function", "function": {"name": "old", "parameters": {"type": "object"}}}]


def test_the_older_function_messages_become_calls_and_results() -> None:
    decoded = request(
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
            {"role": "function", "name": "old", "content": "1"},
            {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
            {"role": "function", "name": "old", "content": "2"},
        ]
    )
    messages = sent(decoded)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    ids = [messages[at]["tool_calls"][0]["id"] for at in (1, 3)]
    assert [messages[2]["tool_call_id"], messages[4]["tool_call_id"]] == ids
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("choice", "decoded"),
    [
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ("any", ToolChoice("required")),
        ({"type": "function", "function": {"name": "get_time"}}, ToolChoice("named", "get_time")),
    ],
)
def test_f12_tool_choice(choice: Any, decoded: ToolChoice) -> None:
    """F12: whether the tool is there is asked by `fit`."""
    assert request(tool_choice=choice, tools=[TOOL]).tool_choice == decoded


@pytest.mark.parametrize(
    ("members", "thinking"),
    [
        ({"reasoning_effort": "low"}, Thinking("low")),
        ({"reasoning": {"effort": "xhigh"}}, Thinking("xhigh")),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, Thinking("high")),
        ({"reasoning": {"max_tokens": 2000}}, Thinking(budget=2000)),
        ({"reasoning": {"exclude": True}}, Thinking(exclude=True)),
        ({"reasoning": {"enabled": False}}, Thinking("none")),
        ({"reasoning": {}}, None),
    ],
)
def test_r1_s34_how_much_to_reason(members: dict[str, Any], thinking: Thinking | None) -> None:
    """R1, S34."""
    assert request(**members).thinking == thinking


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_r1_all_seven_efforts(effort: str) -> None:
    assert request(reasoning_effort=effort).thinking == Thinking(effort)  # type: ignore[arg-type]


def test_formats() -> None:
    inner = {"name": "r", "schema": {"type": "object"}, "strict": True}
    wanted = request(response_format={"type": "json_schema", "json_schema": inner}).format
    assert wanted == Format("json_schema", "r", Raw(b'{"type": "object"}'), True)
    assert request(response_format={"type": "json_object"}).format == Format("json_object")
    assert request(response_format={"type": "text"}).format is None


def test_m3_the_cache_key_and_its_other_name() -> None:
    assert request(prompt_cache_key="a", session_id="b").cache_key == "a"
    assert request(session_id="b").cache_key == "b"
    assert request(prompt_cache_key="é" * 300, session_id="").cache_key is None
    assert sent(request(prompt_cache_key="a", session_id="b"))["prompt_cache_key"] == "a"
    assert "session_id" not in sent(request(session_id="b"))


# -- towards a chat provider, from a chat client


def odd(value: Any) -> str:
    """JSON that no library writes by default."""
    return json.dumps(value, ensure_ascii=True, separators=(" ,", ": "))


EVERYTHING: dict[str, Any] = {
    "model": "kenari-test",
    "messages": [
        {"role": "developer", "content": "Jawab singkat é", "name": "dev"},
        {"role": "user", "content": [text("hi"), {"type": "hologram", "x": 1}]},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "audio": None},
        {"role": "tool", "tool_call_id": "call_1", "content": [text("12:00")]},
    ],
    "temperature": 0.70,
    "top_p": 1,
    "seed": 12345678901234567890,
    "stop": ["a", "b"],
    "tools": [TOOL],
    "tool_choice": {"type": "function", "function": {"name": "get_time"}},
    "response_format": {"type": "json_object"},
    "logit_bias": {"50256": -100},
    "user": "u-1",
    "chat_template_kwargs": {"enable_thinking": False},
}


def test_l10_what_fit_left_alone_is_byte_equal() -> None:
    """Law L10: every member, message and tool as it came, in the client's order."""
    body = odd(EVERYTHING).encode()
    out = CHAT.encode_request(CHAT.decode_request(body), Profile())
    given, got = (msgspec.json.decode(raw, type=dict[str, Raw]) for raw in (body, out))
    assert list(got) == list(given)
    for name in given:
        if name in ("messages", "tools"):
            pair = [msgspec.json.decode(raw[name], type=list[Raw]) for raw in (given, got)]
            assert [bytes(raw) for raw in pair[0]] == [bytes(raw) for raw in pair[1]]
        elif name != "model":
            assert bytes(got[name]) == bytes(given[name])


def test_only_what_was_touched_is_rebuilt() -> None:
    """A message keeps its other members; parts that stayed keep their bytes."""
    decoded = request(
        messages=[
            {"role": "developer", "content": "a", "name": "dev"},
            {"role": "user", "content": [{"type": "text", "text": "x", "odd": 1}, text("y")]},
            {"role": "assistant", "content": "b", "reasoning": "r", "tool_calls": [CALL], "odd": 2},
        ]
    )
    system, user, assistant = decoded.turns
    system.touched = frozenset({"role"})
    user.parts[1] = TextPart(b"z")
    user.touched = frozenset({"content"})
    assistant.parts = [TextPart(b"b"), CallPart("call_1", "renamed", b"{}")]
    assistant.touched = frozenset({"calls", "reasoning"})
    first, second, third = sent(decoded)["messages"]
    assert first == {"role": "system", "content": "a", "name": "dev"}
    assert second["content"] == [{"type": "text", "text": "x", "odd": 1}, text("z")]
    assert third == {
        "role": "assistant",
        "content": "b",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "renamed", "arguments": "{}"}}],
        "odd": 2,
    }


def test_a_touched_tool_message_keeps_its_form() -> None:
    decoded = request(messages=[{"role": "tool", "tool_call_id": "a", "content": [text("x")], "odd": 1}])
    decoded.turns[0].parts = [ResultPart("a", [TextPart(b"note")])]
    decoded.turns[0].touched = frozenset({"content"})
    assert sent(decoded)["messages"] == [{"role": "tool", "tool_call_id": "a", "content": "note", "odd": 1}]


def test_calls_that_fit_removed_leave_no_member() -> None:
    decoded = request(messages=[{"role": "assistant", "content": "b", "tool_calls": [CALL]}])
    decoded.turns[0].parts = [TextPart(b"b")]
    decoded.turns[0].touched = frozenset({"calls", "content"})
    assert sent(decoded)["messages"] == [{"role": "assistant", "content": "b"}]


def test_r3_reasoning_goes_back_under_the_providers_name() -> None:
    decoded = request(messages=[{"role": "assistant", "content": "4", "reasoning": "2+2"}])
    message = sent(decoded, reasoning_content_roundtrip=True)["messages"][0]
    assert message == {"role": "assistant", "content": "4", "reasoning_content": "2+2"}
    message = sent(decoded, reasoning_content_roundtrip=True, reasoning_field="reasoning")["messages"][0]
    assert message == {"role": "assistant", "content": "4", "reasoning": "2+2"}


def test_profile_flags() -> None:
    plain = sent(request(max_tokens=7, stream=True))
    assert (plain["max_tokens"], plain["stream"], plain["stream_options"]) == (7, True, {"include_usage": True})
    assert "stream_options" not in sent(request(stream=True), stream_usage=False)
    assert "stream" not in sent(request(stream=False))
    newer = sent(request(max_tokens=7), max_tokens_field="max_completion_tokens")
    assert newer["max_completion_tokens"] == 7
    assert "max_tokens" not in newer
    assert "max_tokens" not in sent(request(max_tokens=7), max_tokens_field="none")
    assert sent(request(mirostat=2))["mirostat"] == 2
    assert "mirostat" not in sent(request(mirostat=2), extra_fields=False)
    assert sent(request(logprobs=True, top_logprobs=3))["top_logprobs"] == 3
    assert "logprobs" not in sent(request(logprobs=True), logprobs=False)
    calling = request(tools=[TOOL], parallel_tool_calls=False)
    assert sent(calling)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in sent(calling, parallel_tool_calls=False)


def test_r1_efforts_in_the_providers_words() -> None:
    assert sent(request(reasoning={"effort": "high"})) == MINIMAL | {"reasoning_effort": "high"}
    assert sent(request(reasoning_effort="high"), effort="reasoning") == MINIMAL | {"reasoning": {"effort": "high"}}
    assert sent(request(reasoning={"exclude": True})) == MINIMAL


def test_d27_no_empty_tools_and_no_choice_without_tools() -> None:
    decoded = request(tools=[], tool_choice="auto", parallel_tool_calls=True)
    assert sent(decoded) == MINIMAL


# -- towards a chat provider, from the other formats


def foreign(*turns: Turn, **members: Any) -> Request:
    """A request of another dialect, after `fit`."""
    return Request(origin="messages", model="m", turns=list(turns), fields={"metadata": Raw(b"{}")}, **members)


def test_system_texts_are_joined_by_a_blank_line() -> None:
    lead = [Turn("system", [TextPart(b"a"), TextPart(b"b")]), Turn("system", [TextPart(b"c")])]
    out = sent(foreign(*lead, Turn("user", [TextPart(b"x"), TextPart(b"y")]), Turn("system", [TextPart(b"late")])))
    assert out == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "a\n\nb\n\nc"},
            {"role": "user", "content": "x\ny"},
            {"role": "system", "content": "late"},
        ],
    }


def test_cache_marks_only_with_the_flag() -> None:
    mark = Raw(b'{"type":"ephemeral"}')
    turn = Turn("system", [TextPart(b"a", cache=mark)])
    assert sent(foreign(turn))["messages"][0]["content"] == "a"
    marked = sent(foreign(turn, turn), cache_control=True)["messages"][0]["content"]
    assert marked[0] == {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}


def test_results_come_first_each_in_its_own_message() -> None:
    """A failed one says so in its text, an empty one is an empty text; the turn's own words follow."""
    out = sent(
        foreign(
            Turn("user", [TextPart(b"run")]),
            Turn(
                "assistant", [CallPart("a", "f", b'{"x": 1}', quoted=False), CallPart("b", "f", b""), TextPart(b"ok")]
            ),
            Turn(
                "user",
                [
                    ResultPart("a", [TextPart(b"exit 2"), TextPart(b"more")], is_error=True),
                    ResultPart("b", []),
                    TextPart(b"go on"),
                ],
            ),
        )
    )
    _, assistant, first, second, third = out["messages"]
    assert assistant["content"] == "ok"
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == ['{"x": 1}', "{}"]
    assert first == {"role": "tool", "tool_call_id": "a", "content": "Error: exit 2\nmore"}
    assert second == {"role": "tool", "tool_call_id": "b", "content": ""}
    assert third == {"role": "user", "content": "go on"}


def test_d27_calls_alone_have_content_null_and_empty_turns_are_not_sent() -> None:
    call = Turn("assistant", [CallPart("a", "f", b"{}")])
    out = sent(foreign(call, Turn("assistant", []), Turn("user", [])))
    assert out["messages"] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        }
    ]


def test_media_and_reasoning() -> None:
    out = sent(
        foreign(
            Turn(
                "user",
                [
                    TextPart(b"look"),
                    ImagePart(media_type="image/png", data=b"AAAA", detail="high"),
                    ImagePart(url=b"https://example.test/a.png"),
                    FilePart(b"a.pdf", "application/pdf", b"JVBE"),
                    AudioPart(b"UklG", "wav"),
                ],
            ),
            Turn("assistant", [ReasoningPart(b"hmm"), TextPart(b"ok")]),
        )
    )
    content = out["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url", "file", "input_audio"]
    assert content[1]["image_url"] == {"url": "data:image/png;base64,AAAA", "detail": "high"}
    assert content[3]["file"]["file_data"] == "data:application/pdf;base64,JVBE"
    assert out["messages"][1]["reasoning_content"] == "hmm"


def test_tools_format_and_limits_of_another_format() -> None:
    out = sent(
        foreign(
            Turn("user", [TextPart(b"x")]),
            tools=[Tool("f", b"does", Raw(b'{"type": "object"}'), strict=True, raw=Raw(b'{"input_schema":{}}'))],
            tool_choice=ToolChoice("named", "f"),
            parallel=False,
            max_output=777,
            stop=[b"END"],
            sampling={"temperature": Raw(b"0.50")},
            thinking=Thinking("low"),
            format=Format("json_schema", "r", Raw(b"{}"), True),
        )
    )
    assert out == {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "stop": ["END"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": {}, "strict": True}},
        "temperature": 0.5,
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "description": "does", "parameters": {"type": "object"}, "strict": True},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "max_tokens": 777,
        "reasoning_effort": "low",
    }


# -- what real clients send

CAPTURES = sorted((SHARED / "captures").glob("*chat*.json")) if SHARED.is_dir() else []


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_captures_of_real_clients(path: Any) -> None:
    """Each real request is taken, and reaches a chat provider with its messages unchanged."""
    body = json.loads(path.read_bytes())["body"]
    if not isinstance(body, dict) or "messages" not in body:
        pytest.skip("no chat request")
    decoded = CHAT.decode_request(json.dumps(body).encode())
    if any(turn.role == "assistant" and "reasoning" in json.dumps(body) for turn in decoded.turns):
        pytest.skip("fit decides about reasoning")
    assert sent(decoded)["messages"] == body["messages"]
