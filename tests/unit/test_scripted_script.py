"""The scripted model's words: request -> steps, without a loop."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kenari.upstream.sample import sample_object, sample_value
from kenari.upstream.script import CUT, Script, perform
from kenari.upstream.wishes import KEYWORDS, LONGEST, Message, read_wishes

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 2},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "note": {"type": "string"},
            },
            "required": ["city", "days", "unit"],
        },
    },
}
TIME: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
}


def ask(text: str, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **fields}).encode()


def played(text: str, **fields: Any) -> Script:
    return perform(ask(text, **fields), 1700000000)


def chunks(script: Script) -> list[dict[str, Any]]:
    lines = b"".join(step.data for step in script.steps).decode().split("\n\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def plain(script: Script) -> dict[str, Any]:
    assert script.status == 200
    reply: dict[str, Any] = json.loads(b"".join(step.data for step in script.steps))
    return reply


def text_of(script: Script, key: str = "content") -> str:
    found = [chunk["choices"][0]["delta"] for chunk in chunks(script) if chunk["choices"]]
    return "".join(delta.get(key) or "" for delta in found)


def finish_of(script: Script) -> str | None:
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks(script) if chunk["choices"]]
    assert all(reason is None for reason in reasons[:-1])
    return reasons[-1]


def test_a_plain_answer_says_that_it_is_scripted() -> None:
    script = played("Hello there", stream=True)
    assert "demo/scripted" in text_of(script)
    assert "not a language model" in text_of(script)
    assert '"Hello there"' in text_of(script)
    assert finish_of(script) == "stop"
    assert script.headers[b"content-type"] == b"text/event-stream"
    assert script.steps[-1].data.endswith(b"data: [DONE]\n\n")


def test_indonesian_is_answered_in_indonesian() -> None:
    assert "bukan model bahasa" in text_of(played("Halo, apa kabar?", stream=True))
    assert "bukan model bahasa" in plain(played("alat"))["choices"][0]["message"]["content"]


def test_pictures_that_came_are_named() -> None:
    held = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    linked = {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}
    parts: list[Any] = [held, linked, {"type": "image_url"}, {"type": "text", "text": "look"}]
    asked = {"model": "m", "messages": [{"role": "user", "content": parts}], "stream": True}
    said = text_of(perform(json.dumps(asked).encode(), 1700000000))
    assert 'With it came as pictures: image/png, 8 bytes; address. You wrote: "look".' in said
    assert "pictures" not in text_of(played("look", stream=True))


def test_stream_and_plain_say_the_same() -> None:
    for text in ("hello", "reasoning", "reasoning tool", "parallel", "long"):
        stream = played(text, stream=True, tools=[WEATHER, TIME])
        reply = plain(played(text, tools=[WEATHER, TIME]))
        choice = reply["choices"][0]
        assert (choice["message"]["content"] or "") == text_of(stream)
        assert choice["message"].get("reasoning_content", "") == text_of(stream, "reasoning_content")
        assert choice["finish_reason"] == finish_of(stream)
        assert chunks(stream)[-1]["usage"] == reply["usage"]


def test_the_same_request_gives_the_same_bytes() -> None:
    assert played("reasoning tool", stream=True, tools=[WEATHER]) == played(
        "reasoning tool", stream=True, tools=[WEATHER]
    )
    assert chunks(played("a", stream=True))[0]["id"] != chunks(played("b", stream=True))[0]["id"]


def test_chunks_are_chat_chunks_with_usage_at_the_end() -> None:
    found = chunks(played("hi", stream=True))
    assert {chunk["object"] for chunk in found} == {"chat.completion.chunk"}
    assert {chunk["created"] for chunk in found} == {1700000000}
    assert {chunk["model"] for chunk in found} == {"m"}
    assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert found[-1]["choices"] == []
    usage = found[-1]["usage"]
    assert usage["completion_tokens"] == len(found) - 3  # all but the opening, the finish and the usage chunk
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_reasoning_comes_before_text_and_is_counted() -> None:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(played("reasoning", stream=True)) if chunk["choices"]]
    kinds = [next(iter(delta)) for delta in deltas[1:-1]]
    assert kinds == sorted(kinds, key=["reasoning_content", "content"].index)
    assert "reasoning_content" in kinds
    assert "content" in kinds
    usage = plain(played("penalaran"))["usage"]
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]


def test_tool_calls_the_first_function_with_its_required_properties() -> None:
    script = played("use the tool", stream=True, tools=[WEATHER, TIME])
    calls = [
        chunk["choices"][0]["delta"]["tool_calls"][0]
        for chunk in chunks(script)
        if chunk["choices"] and "tool_calls" in chunk["choices"][0]["delta"]
    ]
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert calls[0]["id"].startswith("call_")
    assert all("id" not in call for call in calls[1:])
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == {"city": "Jakarta", "days": 2, "unit": "celsius"}
    assert finish_of(script) == "tool_calls"


def test_parallel_calls_two_functions() -> None:
    message = plain(played("parallel", tools=[WEATHER, TIME]))["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["get_weather", "get_time"]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    twice = plain(played("paralel", tools=[WEATHER]))["choices"][0]["message"]
    assert [call["function"]["name"] for call in twice["tool_calls"]] == ["get_weather", "get_weather"]


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", ["get_weather"]),
        ({"type": "function", "function": {"name": "get_time"}}, ["get_time"]),
        ("auto", None),
        ("none", None),
    ],
)
def test_tool_choice_is_obeyed(choice: Any, names: list[str] | None) -> None:
    message = plain(played("hello", tools=[WEATHER, TIME], tool_choice=choice))["choices"][0]["message"]
    calls = message.get("tool_calls")
    assert (calls and [call["function"]["name"] for call in calls]) == names


def test_tool_without_a_function_says_so() -> None:
    assert "offers no function" in text_of(played("tool", stream=True))
    assert finish_of(played("tool", stream=True)) == "stop"


def test_a_tool_result_is_quoted() -> None:
    messages = [
        {"role": "user", "content": "tool"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": "31 degrees"},
        {"role": "tool", "tool_call_id": "d", "content": [{"type": "text", "text": "and rain"}]},
    ]
    body = json.dumps({"model": "m", "messages": messages, "tools": [WEATHER], "tool_choice": "required"}).encode()
    message = plain(perform(body, 0))["choices"][0]["message"]
    assert '"31 degrees"' in message["content"]
    assert '"and rain"' in message["content"]
    assert "tool_calls" not in message


@pytest.mark.parametrize("word", ["long", "length", "panjang"])
def test_long_is_cut_by_length(word: str) -> None:
    script = played(word, stream=True)
    assert finish_of(script) == "length"
    assert chunks(script)[-1]["usage"]["completion_tokens"] == CUT


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("text", ["hello", "long", "reasoning", "tool"])
def test_max_tokens_is_respected(field: str, text: str) -> None:
    script = played(text, stream=True, tools=[WEATHER], **{field: 3})
    assert finish_of(script) == "length"
    assert chunks(script)[-1]["usage"]["completion_tokens"] == 3


def test_slow_pauses_before_the_first_content_and_in_the_middle() -> None:
    delays = [step.delay for step in played("slow 3.5", stream=True).steps]
    assert delays[0] == 0
    assert delays[1] == 3.5
    assert delays.count(3.5) == 2
    assert max(step.delay for step in played("lambat", stream=True).steps) > 15
    assert played("slow 3").steps[0].delay > 6


def test_fast_has_no_delays() -> None:
    assert {step.delay for step in played("fast", stream=True).steps} == {0.0}


def test_fail_breaks_off_after_content() -> None:
    script = played("please fail", stream=True)
    assert script.broken
    assert text_of(script)
    assert b"[DONE]" not in script.steps[-1].data
    half = played("gagal")
    assert half.broken
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(half.steps[0].data)


@pytest.mark.parametrize(("text", "status"), [("error", 500), ("error 429", 429), ("galat 503", 503), ("error 7", 500)])
def test_error_is_an_http_error(text: str, status: int) -> None:
    script = played(text, stream=True)
    assert script.status == status
    assert script.headers[b"content-type"] == b"application/json"
    assert (b"retry-after" in script.headers) == (status in (429, 503))
    assert json.loads(script.steps[0].data)["error"]["message"]


def test_filter_and_empty() -> None:
    assert finish_of(played("filter", stream=True)) == "content_filter"
    assert played("empty", stream=True).steps == []
    assert plain(played("kosong"))["choices"] == []


def test_echo_gives_the_words_back() -> None:
    text = 'echo "quoted" é 😀\n  two  spaces '
    assert text_of(played(text, stream=True)) == text.strip()


def test_response_formats_are_answered_in_json() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert json.loads(plain(played("hi", response_format=form))["choices"][0]["message"]["content"]) == {"n": 1}
    some = plain(played("hi", response_format={"type": "json_object"}))["choices"][0]["message"]["content"]
    assert json.loads(some)["scripted"] is True


def test_only_the_last_text_of_the_last_user_message_counts() -> None:
    parts = [{"type": "text", "text": "error error"}, {"type": "image_url"}, {"type": "text", "text": "hello"}]
    messages = [Message("user", "fail"), Message("user", parts), Message("assistant", "tool")]
    assert read_wishes(messages).named == frozenset()
    assert read_wishes([Message("user", "terror and toolbox")]).named == frozenset()
    assert read_wishes([Message("user", "error " + "x" * LONGEST)]).named == frozenset()
    assert read_wishes([Message("user", " ".join(KEYWORDS))]).named == frozenset(KEYWORDS.values())


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"model":"m"}', b'{"model":"m","messages":[]}', b'{"model":1,"messages":[{"role":"user"}]}'],
)
def test_what_is_no_request_is_a_400(body: bytes) -> None:
    script = perform(body, 0)
    assert script.status == 400
    assert "scripted provider" in json.loads(script.steps[0].data)["error"]["message"]


def test_schema_samples() -> None:
    schema = {
        "type": "object",
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        "properties": {
            "at": {"$ref": "#/$defs/point"},
            "many": {"type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 2},
            "either": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "nullable": {"type": ["string", "null"], "minLength": 9},
            "fixed": {"const": 7},
            "command": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["at", "many", "either", "nullable", "fixed", "command"],
    }
    assert sample_object(schema) == {
        "at": {"x": 1},
        "many": [{"x": 1}, {"x": 1}],
        "either": True,
        "nullable": "kenari...",
        "fixed": 7,
        "command": ["echo", "kenari"],
    }
    assert sample_object(None) == {}
    assert sample_object({"type": "array"}) == {}
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert sample_object(loop) == {}


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "items", "enum", "anyOf", "$ref", "minItems", "minLength"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(_JSON, _JSON, _JSON)
def test_any_schema_and_content_gets_an_answer(schema: Any, content: Any, choice: Any) -> None:
    json.dumps(sample_value(schema))
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = json.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": content}, {"role": "user", "content": "tool"}],
            "tools": [tool],
            "tool_choice": choice,
            "response_format": schema,
        }
    ).encode()
    assert perform(body, 0).status == 200
