"""Uncommon shapes of Chat Completions and Messages, from both sides, that real clients and providers send."""

import json
from typing import Any

import pytest
from fit_kit import fitted, target
from gateway_kit import COMPLETION, DONE, ROLE, Rig, Script, chunk, plain

from kenari.core.errors import KenariError
from kenari.core.profile import Profile
from kenari.dialects.registry import DIALECTS

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
CHAT_TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
]
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
    call: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
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


# -- what a person or a tool said

FOUND = {
    "type": "search_result",
    "source": "https://a.example/x",
    "title": "A title",
    "content": [{"type": "text", "text": "First."}, {"type": "text", "text": "Second."}],
    "citations": {"enabled": True},
}
FOUND_TEXT = "A title\nhttps://a.example/x\nFirst.\nSecond."


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_d12_search_results_are_text_for_providers_of_other_formats(dialect: str) -> None:
    """A tool that searches answers in such blocks: without them its result would be empty."""
    made = DIALECTS["messages"].decode_request(
        json.dumps({"model": "m", "messages": called(content=[FOUND]), "tools": TOOLS}).encode()
    )
    to = target(dialect)
    fitting = fitted(made, to)
    sent = json.loads(DIALECTS[dialect].encode_request(fitting, to.profile))
    result = sent["messages"][-1]["content"] if dialect == "chat" else sent["input"][-1]["output"]
    assert result == FOUND_TEXT
    assert not fitting.notices


def test_d12_search_results_of_a_person_are_text_too_and_stay_blocks_for_their_own_format() -> None:
    content = [FOUND, {"type": "text", "text": "Why?"}]
    asked = Asked("messages", "chat", messages=[user(content)])
    assert (asked.sent["messages"], asked.ignored) == ([user(f"{FOUND_TEXT}\nWhy?")], None)
    assert Asked("messages", "messages", messages=[user(content)]).sent["messages"] == [user(content)]
    assert Asked("messages", "messages", messages=called(content=[FOUND]), tools=TOOLS).sent["messages"] == called(
        content=[FOUND]
    )


@pytest.mark.parametrize(
    ("client", "dialect", "part"),
    [
        ("messages", "chat", {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        ("messages", "responses", {"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
        ("chat", "messages", {"type": "video_url", "video_url": {"url": "https://a.example/v.mp4"}}),
        ("chat", "responses", {"type": "video_url", "video_url": {"url": "https://a.example/v.mp4"}}),
    ],
)
def test_a_part_of_a_person_that_a_model_cannot_take_is_named(client: str, dialect: str, part: dict[str, Any]) -> None:
    """S146's reason: to lose what a person said is worse than an error."""
    content = [{"type": "text", "text": "Look:"}, part]
    with pytest.raises(KenariError, match=r"messages\[0\]\.content\[1\]") as caught:
        fitted(
            DIALECTS[client].decode_request(json.dumps({"model": "m", "messages": [user(content)]}).encode()),
            target(dialect),
        )
    assert (caught.value.code, caught.value.param) == ("bad_request", "messages[0].content[1]")
    assert caught.value.elsewhere  # another target of the model may speak the client's format
    assert Asked(client, client, messages=[user(content)]).sent["messages"] == [user(content)]


def test_a_part_of_an_unknown_kind_in_the_models_own_history_is_left_out() -> None:
    messages = [
        user("hi"),
        {"role": "assistant", "content": [{"type": "odd"}, {"type": "text", "text": "a"}]},
        user("b"),
    ]
    asked = Asked("chat", "messages", messages=messages)
    assert (asked.got.status, asked.ignored) == (200, "odd")


def test_d12_only_texts_are_a_system_prompt() -> None:
    """An image there would reach nobody."""
    image = {"type": "image", "source": {"type": "url", "url": "https://a.example/i.png"}}
    system: dict[str, Any] = {"system": [image]}
    later: dict[str, Any] = {"messages": [user("hi"), {"role": "system", "content": [image]}]}
    for members in (system, later):
        got = Asked("messages", "chat", **members).got
        assert got.status == 400
        assert "an image block can only stand in a message of the user" in got.json["error"]["message"]


# -- what is left out is named (D9)

THINKS: dict[str, Any] = {"reasoning_effort": "high", "max_tokens": 4000}


def test_d9_sampling_that_may_not_stand_beside_thinking_is_named() -> None:
    asked = Asked("chat", "messages", **THINKS, temperature=0.3, top_p=0.9, top_k=5)
    assert asked.sent["thinking"]["type"] == "enabled"
    assert not {"temperature", "top_p", "top_k"} & asked.sent.keys()
    assert asked.ignored == "temperature, top_p, top_k"
    adaptive = Profile(effort="output_config")
    asked = Asked("chat", "messages", adaptive, **THINKS, temperature=1.5)
    assert (asked.sent["output_config"], asked.ignored) == ({"effort": "high"}, "temperature")
    asked = Asked("chat", "messages", adaptive, reasoning_effort="none", temperature=0.3)
    assert (asked.sent["temperature"], asked.ignored) == (0.3, None)


def test_d27_temperature_and_top_p_do_not_go_together() -> None:
    """Vendors of Messages refuse that since Claude 4.1; clients of other formats send both as a matter of course."""
    for client in ("chat", "responses"):
        asked = Asked(client, "messages", temperature=0.3, top_p=0.9)
        assert ("top_p" in asked.sent, asked.sent["temperature"], asked.ignored) == (False, 0.3, "top_p")
        asked = Asked(client, "messages", top_p=0.9)
        assert (asked.sent["top_p"], asked.ignored) == (0.9, None)
    asked = Asked("messages", "messages", temperature=0.3, top_p=0.9)
    assert (asked.sent["top_p"], asked.ignored) == (0.9, None)  # its own client's fault is its provider's to name


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
def test_d9_an_effort_beside_a_forced_call_is_named(choice: Any) -> None:
    """Vendors refuse a budget there; the level of `output_config` may stay."""
    asked = Asked("chat", "messages", **THINKS, tools=CHAT_TOOLS, tool_choice=choice, temperature=0.3)
    assert "thinking" not in asked.sent
    assert (asked.sent["temperature"], asked.ignored) == (0.3, "reasoning_effort")
    adaptive = Profile(effort="output_config")
    asked = Asked("chat", "messages", adaptive, **THINKS, tools=CHAT_TOOLS, tool_choice=choice)
    assert (asked.sent["output_config"], asked.ignored) == ({"effort": "high"}, None)


def test_d9_an_effort_within_a_round_whose_thought_is_not_there_is_named() -> None:
    """A client that does not give the proof of a thought back gets no thinking until the round is over."""
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        user("go"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": "r"},
    ]
    asked = Asked("chat", "messages", **THINKS, tools=CHAT_TOOLS, messages=messages)
    assert ("thinking" in asked.sent, asked.ignored) == (False, "reasoning_effort")


@pytest.mark.parametrize("stop", ["\n\n", ["\n", "END"]])
def test_d9_a_stop_sequence_without_a_visible_character_is_named(stop: Any) -> None:
    """Messages vendors refuse them; without one the answer runs on."""
    asked = Asked("chat", "messages", stop=stop)
    assert asked.sent.get("stop_sequences", ["END"]) == ["END"]
    assert asked.ignored == "stop"
    assert Asked("chat", "chat", stop=stop).ignored is None


# -- a stream says what a plain answer says


def chat_stream(*deltas: dict[str, Any], finish: str = "stop", **last: Any) -> Script:
    """A chat provider's stream of these deltas."""
    end = chunk({}, finish, usage={"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}, **last)
    return Script([(0, ROLE + b"".join(map(chunk, deltas)) + end + DONE), (0, None)])


def chat_plain(finish: str = "stop", **message: Any) -> Script:
    """A chat provider's plain answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    return plain(COMPLETION | {"choices": [choice]})


def blocks_of(stream: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of a Messages stream, put together as its SDKs do."""
    blocks: list[dict[str, Any]] = []
    given = ""
    for frame in stream:
        if frame["type"] == "content_block_start":
            blocks.append(frame["content_block"])
            given = ""
        elif frame["type"] == "content_block_delta":
            delta = frame["delta"]
            blocks[-1]["text"] = blocks[-1].get("text", "") + delta.get("text", "")
            given += delta.get("partial_json", "")
        elif frame["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
            blocks[-1] = {key: blocks[-1][key] for key in ("type", "id", "name")} | {"input": json.loads(given or "{}")}
    return blocks


@pytest.mark.parametrize(
    "pieces",
    [["[1", ",2]"], ["nu", "ll"], ['"{}', '"'], ["  "], ['  {"a"', ":1}"], ["tex", "t"], ["5"]],
)
def test_s71_the_input_of_a_call_is_an_object_in_streams_too(pieces: list[str]) -> None:
    """`input` is an object in every SDK; what a model wrote instead is handed over as in a plain answer."""
    whole = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "".join(pieces)}}
    first: dict[str, Any] = {"id": "t", "type": "function", "function": {"name": "f", "arguments": pieces[0]}}
    deltas = [{"tool_calls": [{"index": 0, **first}]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces[1:]]
    streamed = Rig(chat_stream(*deltas, finish="tool_calls")).ask("messages")
    answered = Rig(chat_plain("tool_calls", tool_calls=[whole])).ask("messages", stream=False)
    assert blocks_of(streamed.data) == answered.json["content"]
    assert isinstance(answered.json["content"][0]["input"], dict)


def test_s71_an_input_that_the_output_cap_has_cut_stays_as_it_came() -> None:
    """F1: the stop reason says so; SDKs read the beginning of an object."""
    delta = {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": '{"a":'}}]}
    got = Rig(chat_stream(delta, finish="length")).ask("messages")
    assert [frame["delta"]["partial_json"] for frame in got.data if frame["type"] == "content_block_delta"] == ['{"a":']


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
def test_a_refusal_beside_a_text_is_not_lost(client: str) -> None:
    """S20: in one delta, in several, and in a plain answer."""
    parts = [
        chat_stream({"content": "Hm. ", "refusal": None}, {"refusal": "No"}, {"refusal": "."}),
        chat_stream({"content": "Hm. ", "refusal": "No."}),
    ]
    streamed = [Rig(one).ask(client) for one in parts]
    answered = Rig(chat_plain(content="Hm. ", refusal="No.")).ask(client, stream=False)
    for got in [*streamed, answered]:
        assert (_text_of(got.data) if got.data else got.out.decode()).count("Hm. No.") == 1


def _text_of(data: list[Any]) -> str:
    """The text of a stream of any format."""
    out = ""
    for frame in data:
        if frame == "[DONE]":
            continue
        if "choices" in frame:
            out += frame["choices"][0]["delta"].get("content") or ""
        delta = frame.get("delta", "")
        out += delta if isinstance(delta, str) else delta.get("text", "")
    return out


def token(text: str) -> dict[str, Any]:
    """A token with its log probability."""
    return {"token": text, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": []}


def probable(delta: dict[str, Any], text: str) -> bytes:
    """A chunk with the log probability of one token."""
    choice = {
        "index": 0,
        "delta": delta,
        "finish_reason": None,
        "logprobs": {"content": [token(text)], "refusal": None},
    }
    return chunk({}, choices=[choice])


def test_d8_log_probabilities_of_tokens_without_text_reach_chat_clients() -> None:
    """A token that is a part of a character, or an end, shows no text of its own."""
    data = b"".join(
        [
            ROLE,
            probable({"content": ""}, "a"),
            probable({"content": "é"}, "b"),
            probable({"content": ""}, "c"),
            probable({"content": None}, "d"),
            chunk({}, "stop"),
            DONE,
        ]
    )
    got = Rig(Script([(0, data), (0, None)])).ask("chat", logprobs=True)
    said = [frame["choices"][0] for frame in got.data[:-1]]
    tokens = [choice["logprobs"]["content"][0]["token"] for choice in said if "logprobs" in choice]
    assert tokens == list("abcd")
    assert _text_of(got.data) == "é"


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_s33_a_token_without_text_opens_nothing_for_others(client: str) -> None:
    data = ROLE + probable({"content": ""}, "a") + chunk({}, "stop") + DONE
    got = Rig(Script([(0, data), (0, None)])).ask(client)
    kinds = {frame["type"] for frame in got.data}
    assert not kinds & {"content_block_start", "response.output_item.added"}


# -- what providers refuse is never sent (D27)


def test_d27_sources_that_we_gave_do_not_come_back_to_a_provider() -> None:
    """S52: a client sends the assistant's message back as it came; strict servers refuse members that they do not know."""
    message = {
        "role": "assistant",
        "content": "a",
        "sources": [{"url": "https://a.example", "title": "t"}],
        "name": "x",
    }
    sent = Asked("chat", "chat", messages=[user("hi"), message, user("b")]).sent
    assert sent["messages"] == [user("hi"), {"role": "assistant", "content": "a", "name": "x"}, user("b")]


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
@pytest.mark.parametrize("text", [" ", "\n\t"])
def test_d27_a_conversation_without_a_visible_character_is_refused_here(client: str, text: str) -> None:
    """A Messages provider takes no blank text, and no empty conversation."""
    members: dict[str, Any] = {"input": text} if client == "responses" else {"messages": [user(text)]}
    got = Asked(client, "messages", **members).got
    assert got.status == 400
    assert "holds no message of a user or an assistant" in got.json["error"]["message"]
    blank = [{"type": "text", "text": text}, {"type": "text", "text": "a"}]
    if client != "responses":
        assert Asked(client, "messages", messages=[user(blank)]).got.status == 200


@pytest.mark.parametrize("client", ["chat", "responses"])
def test_d27_the_beginning_of_an_answer_ends_with_a_visible_character(client: str) -> None:
    """Messages vendors refuse white space at the end of a prefilled answer; other formats take it."""
    turns = [user("hi"), {"role": "assistant", "content": "Sure: \n"}]
    name = "input" if client == "responses" else "messages"
    begun: dict[str, Any] = {name: turns}
    sent = Asked(client, "messages", **begun).sent
    assert sent["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "Sure:"}]}
    earlier: dict[str, Any] = {name: [*turns, user("b")]}
    sent = Asked(client, "messages", **earlier).sent
    assert sent["messages"][1]["content"][0]["text"] == "Sure: \n"


def test_d27_a_system_prompt_alone_is_input_for_a_responses_provider() -> None:
    """Chat clients send such conversations; an empty input is refused."""
    made = DIALECTS["chat"].decode_request(
        json.dumps(
            {"model": "m", "messages": [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}]}
        ).encode()
    )
    to = target("responses")
    sent = json.loads(DIALECTS["responses"].encode_request(fitted(made, to), to.profile))
    assert sent.get("instructions") == "a"
    assert [(item["role"], item["content"]) for item in sent["input"]] == [
        ("developer", [{"type": "input_text", "text": "b"}])
    ]


def test_e3_a_provider_that_wants_to_be_paid_by_us_is_not_the_callers_fault() -> None:
    """One vendor says so with 400: another target may serve, and its words are for the operator."""
    words = "Your credit balance is too low to access the API. Please go to Plans & Billing to purchase credits."
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    refusal = Script([(0, json.dumps(body).encode()), (0, None)], 400, {b"content-type": b"application/json"})
    got = Rig(refusal, dialect="messages").ask("chat", stream=False)
    assert (got.status, got.json["error"]["code"], got.header["x-should-retry"]) == (502, "upstream_error", "false")
    assert "balance" not in got.json["error"]["message"]
    second = Rig(refusal, plain(MESSAGE), dialect="messages").ask("chat", stream=False)
    assert second.status == 200


def test_d27_arguments_are_a_string_for_every_provider() -> None:
    """Some clients write them as an object; vendors refuse that. The rest of the message stays as it came."""
    call: dict[str, Any] = {"id": "t", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        user("go"),
        {"role": "assistant", "content": "x", "name": "me", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": "r"},
    ]
    sent = Asked("chat", "chat", messages=messages, tools=CHAT_TOOLS).sent["messages"][1]
    assert json.loads(sent["tool_calls"][0]["function"].pop("arguments")) == {"a": 1}
    assert sent == {
        "role": "assistant",
        "content": "x",
        "name": "me",
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f"}}],
    }


# -- clients of the older function format

OLDER: dict[str, Any] = {"functions": [{"name": "a.b", "parameters": {"type": "object"}}], "function_call": "auto"}
CALLED: dict[str, Any] = {"index": 0, "id": "t", "type": "function"}


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_of_functions_is_answered_in_its_own_words(streamed: bool) -> None:
    """Such a client never looks at `tool_calls`."""
    function = {"name": "a_b_2e7336dc", "arguments": '{"x":1}'}
    if streamed:
        first = {"tool_calls": [CALLED | {"function": function | {"arguments": '{"x"'}}]}
        second = {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}
        rig = Rig(chat_stream({"content": "A"}, first, second, finish="tool_calls"))
        got = rig.ask("chat", **OLDER)
        deltas = [frame["choices"][0]["delta"] for frame in got.data[:-1]]
        assert [delta["function_call"] for delta in deltas if "function_call" in delta] == [
            {"name": "a.b", "arguments": ""},
            {"arguments": '{"x"'},
            {"arguments": ":1}"},
        ]
        assert got.data[-2]["choices"][0]["finish_reason"] == "function_call"
    else:
        rig = Rig(chat_plain("tool_calls", content="A", tool_calls=[CALLED | {"function": function}]))
        got = rig.ask("chat", stream=False, **OLDER)
        [choice] = got.json["choices"]
        assert choice["message"]["function_call"] == {"name": "a.b", "arguments": '{"x":1}'}
        assert choice["finish_reason"] == "function_call"
    assert b"tool_calls" not in got.out
    assert rig.upstream.sent[0]["parallel_tool_calls"] is False


def test_a_client_of_functions_sees_one_call() -> None:
    """Its format has no place for another one."""
    calls = [CALLED | {"function": {"name": "a_b_2e7336dc", "arguments": "{}"}}]
    calls += [{**CALLED, "index": 1, "id": "u", "function": {"name": "a_b_2e7336dc", "arguments": '{"x":2}'}}]
    whole = Rig(chat_plain("tool_calls", tool_calls=calls)).ask("chat", stream=False, **OLDER).json["choices"][0]
    assert whole["message"]["function_call"]["arguments"] == "{}"
    got = Rig(chat_stream({"tool_calls": calls}, finish="tool_calls")).ask("chat", **OLDER)
    told = [frame["choices"][0]["delta"].get("function_call") for frame in got.data[:-1]]
    assert "".join(one["arguments"] for one in told if one) == "{}"


# -- histories that Messages vendors refuse as they are


def test_d27_a_begun_answer_is_not_thought_about() -> None:
    """A vendor that is to think wants the last message of an assistant to begin with its thought."""
    messages = [user("hi"), {"role": "assistant", "content": "Sure:"}]
    asked = Asked("chat", "messages", messages=messages, **THINKS)
    assert ("thinking" in asked.sent, asked.ignored) == (False, "reasoning_effort")
    asked = Asked("chat", "messages", messages=[*messages, user("b")], **THINKS)
    assert ("thinking" in asked.sent, asked.ignored) == (True, None)
