"""Events -> a chat client's stream and its plain answer, frame by frame as the page shows them."""

import json
from typing import Any

import pytest
from chat_kit import ID, STREAMS, answer, chunks_of, decode, deltas, encode, profile, stream
from hypothesis import given, settings
from hypothesis import strategies as st

from kenari.core.errors import INTERRUPTED, KenariError, bad_request, interrupted
from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.fold import Block, Reply, fold, unfold
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.dialects.chat import CHAT

USED = Usage(fresh=14, output=6)
COUNTING: list[Event] = [
    Start(),
    Open(0, "text"),
    Text(0, b"1, 2"),
    Text(0, b", 3"),
    Close(0),
    Stop("stop"),
    Meter(USED),
]
PAGE = b"""data: {"id":"4f1c9a2e7b3d5a60","object":"chat.completion.chunk","created":1790000000,"model":"step-3-7-flash:free","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"4f1c9a2e7b3d5a60","object":"chat.completion.chunk","created":1790000000,"model":"step-3-7-flash:free","choices":[{"index":0,"delta":{"content":"1, 2"},"finish_reason":null}]}

data: {"id":"4f1c9a2e7b3d5a60","object":"chat.completion.chunk","created":1790000000,"model":"step-3-7-flash:free","choices":[{"index":0,"delta":{"content":", 3"},"finish_reason":null}]}

data: {"id":"4f1c9a2e7b3d5a60","object":"chat.completion.chunk","created":1790000000,"model":"step-3-7-flash:free","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":14,"completion_tokens":6,"total_tokens":20}}

data: [DONE]

"""
THINKING: list[Event] = [
    Start(),
    Open(0, "reasoning"),
    Reason(0, b"count"),
    Seal(0, "signature", "sig"),
    Close(0),
    Open(1, "text"),
    Text(1, b"3"),
    Close(1),
    Stop("stop"),
]
CALLING: list[Event] = [
    Start(),
    Open(0, "text"),
    Text(0, b"let me see"),
    Close(0),
    Open(1, "call", "call_a", "get_weather"),
    Open(2, "call", "call_b", 'odd "name"'),
    Args(1, b'{\\"city\\":'),
    Args(2, b"{}"),
    Args(1, b'\\"Jakarta\\"}'),
    Close(1),
    Close(2),
    Stop("call"),
]


def test_s6_s9_s12_s36_to_s42_s47_s51_the_example_of_the_page() -> None:
    """S6, S9, S12, S36, S37, S38, S39, S40, S41, S42, S47, S51, S57: byte for byte, one chunk for each event."""
    assert encode(COUNTING) == PAGE


def test_events_that_come_together_are_written_together() -> None:
    encoder = CHAT.encoder(answer())
    assert encoder.encode(COUNTING) + encoder.finish() == PAGE


def test_s37_s38_every_chunk_has_one_id_and_the_clients_model() -> None:
    encoder = CHAT.encoder(answer(model='byok/"x"/é'))
    for chunk in chunks_of(encoder.encode(COUNTING) + encoder.noop() + encoder.finish()):
        assert (chunk["id"], chunk["model"], chunk["created"]) == (ID, 'byok/"x"/é', 1790000000)


def test_s21_s43_reasoning_under_both_names_before_the_text() -> None:
    """S21, S32, S43."""
    chunks = chunks_of(encode(THINKING))
    assert deltas(chunks, "reasoning") == deltas(chunks, "reasoning_content") == ["count"]
    assert [name for chunk in chunks for name in chunk["choices"][0]["delta"]].index("reasoning") < 4
    assert "".join(deltas(chunks, "content")) == "3"


def test_d5_a_proof_rides_in_an_envelope_at_the_end_of_its_block() -> None:
    [details] = deltas(chunks_of(encode(THINKING)), "reasoning_details")
    assert details == [{"type": "reasoning.encrypted", "data": "kn1.signature:sig:5"}]


def test_d5_no_proof_no_envelope() -> None:
    events: list[Event] = [event for event in THINKING if not isinstance(event, Seal)]
    assert b"reasoning_details" not in encode(events)


TWICE: list[Event] = [
    Start(),
    Open(0, "reasoning"),
    Reason(0, b"plain"),
    Close(0),
    Open(1, "reasoning"),
    Reason(1, b"\\u00e9t"),
    Seal(1, "signature", "one"),
    Close(1),
    Open(2, "text"),
    Text(2, b"x"),
    Close(2),
    Open(3, "reasoning"),
    Seal(3, "redacted", "blob"),
    Close(3),
    Stop("stop"),
]


def test_d5_the_last_envelope_covers_all_reasoning_so_far() -> None:
    """D4, D5: lengths are in characters and add up over blocks without a proof; the plain answer has the same one."""
    details = deltas(chunks_of(encode(TWICE)), "reasoning_details")
    assert [one[0]["data"] for one in details] == [
        "kn1.mark::5,signature:one:2",
        "kn1.mark::5,signature:one:2,redacted:blob:0",
    ]
    body = json.loads(CHAT.encode_reply(fold(TWICE), answer()))
    assert body["choices"][0]["message"]["reasoning_details"][0]["data"] == details[-1][0]["data"]


def test_s34_s35_exclude_removes_reasoning_and_nothing_else() -> None:
    """S34, S35: from the stream and the plain answer; usage stays."""
    exclude: dict[str, Any] = {"reasoning": {"exclude": True}}
    events = [*THINKING, Meter(Usage(fresh=9, output=7, reasoning=5))]
    data = encode(events, **exclude)
    assert b"reasoning_content" not in data
    assert b"reasoning_details" not in data
    assert b'"reasoning":' not in data
    body = json.loads(CHAT.encode_reply(fold(events), answer(**exclude)))
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "3"}
    assert chunks_of(data)[-1]["usage"] == chunks_of(encode(events))[-1]["usage"] == body["usage"]


def test_s24_s44_s45_s46_calls() -> None:
    """S24, S44, S45, S46: one opening chunk with empty arguments, pieces under the same dense index."""
    chunks = chunks_of(encode(CALLING))
    calls = [call for one in deltas(chunks, "tool_calls") for call in one]
    assert calls[0] == {
        "index": 0,
        "id": "call_a",
        "type": "function",
        "function": {"name": "get_weather", "arguments": ""},
    }
    assert calls[1]["index"] == 1
    assert calls[1]["function"]["name"] == 'odd "name"'
    pieces = ["".join(c["function"]["arguments"] for c in calls if c["index"] == index) for index in (0, 1)]
    assert [json.loads(piece) for piece in pieces] == [{"city": "Jakarta"}, {}]
    assert sum("id" in call for call in calls) == 2
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("sequence", "stop"),
        ("length", "length"),
        ("call", "tool_calls"),
        ("filter", "content_filter"),
    ],
)
def test_f1_s30_finish_reasons(reason: Any, word: str) -> None:
    """F1, S30."""
    assert chunks_of(encode([Start(), Stop(reason)]))[-1]["choices"][0]["finish_reason"] == word
    body = json.loads(CHAT.encode_reply(Reply([], Stop(reason), Usage()), answer()))
    assert body["choices"][0]["finish_reason"] == word


def test_s27_s49_s50_d3_usage_once_on_the_finish_chunk() -> None:
    """S27, S49, S50, D3: late usage still finds its place, whatever `stream_options` says; no chunk without choices."""
    for options in (None, {"include_usage": True}, {"include_usage": False}):
        chunks = chunks_of(encode(COUNTING, stream_options=options))
        assert [bool(chunk.get("usage")) for chunk in chunks] == [False, False, False, True]
        assert all(chunk["choices"] for chunk in chunks)


@pytest.mark.parametrize("usage", [Usage(), Usage(fresh=0, output=0)])
def test_s47_no_usage_when_it_is_zero(usage: Usage) -> None:
    data = encode([Start(usage), Stop("stop"), Meter(usage)])
    assert b"usage" not in data
    assert b"usage" not in CHAT.encode_reply(Reply([], Stop("stop"), usage), answer())


def test_s48_u2_cached_tokens_are_inside_the_prompts_and_named_only_when_any() -> None:
    usage = Usage(fresh=25, cache_read=75, cache_write_5m=10, output=5, reasoning=2)
    [*_, last] = chunks_of(encode([Start(), Stop("stop"), Meter(usage)]))
    assert last["usage"] == {
        "prompt_tokens": 110,
        "completion_tokens": 5,
        "total_tokens": 115,
        "prompt_tokens_details": {"cached_tokens": 75},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    [*_, last] = chunks_of(encode([Start(), Stop("stop"), Meter(Usage(fresh=25, cache_read=0, output=5))]))
    assert "prompt_tokens_details" not in last["usage"]


def test_s31_s53_s54_s176_failure_after_start() -> None:
    """S31, S53, S54, S176: a chunk with an error and without choices, then `[DONE]`."""
    encoder = CHAT.encoder(answer())
    encoder.encode(COUNTING[:3])
    data = encoder.fail(interrupted())
    assert data == (
        b'data: {"error":{"message":"' + INTERRUPTED.encode() + b'","type":"upstream_error","param":null,'
        b'"code":"stream_interrupted"}}\n\ndata: [DONE]\n\n'
    )
    assert CHAT.encoder(answer()).encode([Failure(interrupted())]) == data


def test_s164_e1_the_error_envelope_has_four_keys() -> None:
    body = json.loads(CHAT.encode_error(bad_request("n must be 1", "n"), ID))
    assert body == {
        "error": {"message": "n must be 1", "type": "invalid_request_error", "param": "n", "code": "bad_request"}
    }
    error = KenariError("upstream_unavailable", "busy", retry_after=2)
    assert json.loads(CHAT.encode_error(error, ID))["error"]["param"] is None


def test_d15_a_noop_is_an_empty_delta_and_the_first_carries_the_role() -> None:
    encoder = CHAT.encoder(answer())
    assert not encoder.started
    first, second = encoder.noop(), encoder.noop()
    assert encoder.started
    data = first + second + encoder.encode(COUNTING) + encoder.finish()
    chunks = chunks_of(data)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[1]["choices"][0]["delta"] == {}
    assert deltas(chunks, "role") == ["assistant"]


def test_an_answer_that_says_nothing_is_still_a_stream() -> None:
    chunks = chunks_of(encode([Start(), Stop("stop")]))
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [{"role": "assistant", "content": ""}, {}]


def test_d8_logprobs_reach_a_chat_client() -> None:
    chunks = chunks_of(encode(decode(stream("logprobs"))))
    tokens = [c["choices"][0]["logprobs"]["content"][0]["token"] for c in chunks if "logprobs" in c["choices"][0]]
    assert tokens == ["ok", "!"]
    body = json.loads(CHAT.encode_reply(fold(decode(stream("logprobs"))), answer()))
    assert [one["token"] for one in body["choices"][0]["logprobs"]["content"]] == ["ok", "!"]


def test_s39_the_plain_answer() -> None:
    reply = fold([*CALLING, Meter(USED)])
    body = json.loads(CHAT.encode_reply(reply, answer()))
    assert {key: body[key] for key in ("id", "object", "created", "model")} == {
        "id": ID,
        "object": "chat.completion",
        "created": 1790000000,
        "model": "step-3-7-flash:free",
    }
    [choice] = body["choices"]
    assert choice["message"]["content"] == "let me see"
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == ['{"city":"Jakarta"}', "{}"]
    assert choice["finish_reason"] == "tool_calls"
    assert body["usage"]["total_tokens"] == 20


def test_the_content_of_a_plain_answer_is_null_with_calls_alone() -> None:
    call = Block("call", b"{}", "call_a", "f")
    body = json.loads(CHAT.encode_reply(Reply([call], Stop("call"), USED), answer()))
    assert body["choices"][0]["message"]["content"] is None
    body = json.loads(CHAT.encode_reply(Reply([], Stop("stop"), USED), answer()))
    assert body["choices"][0]["message"]["content"] == ""


ESCAPED = st.text(max_size=8).map(lambda text: json.dumps(text).encode()[1:-1])
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.text(max_size=4), max_size=2).map(
    lambda value: json.dumps(json.dumps(value)).encode()[1:-1]
)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Whole answers that a provider might give, without what chat cannot say (LOSES)."""
    blocks: list[Block] = []
    if draw(st.booleans()):
        blocks.append(Block("reasoning", draw(ESCAPED.filter(bool))))
    if draw(st.booleans()):
        blocks.append(Block("text", draw(ESCAPED.filter(bool))))
    for at in range(draw(st.integers(0, 3))):
        blocks.append(Block("call", draw(ARGUMENTS), f"call_{at}", draw(st.sampled_from(["f", "get_time"]))))
    called = any(block.kind == "call" for block in blocks)
    reason = draw(st.sampled_from(["call", "length"] if called else ["stop", "length", "filter"]))
    usage = Usage(
        fresh=draw(st.integers(1, 9)),
        cache_read=draw(st.sampled_from([None, 5])),
        output=draw(st.integers(0, 9)),
        reasoning=draw(st.sampled_from([None, 3])),
    )
    return Reply(blocks, Stop(reason), usage)  # type: ignore[arg-type]


def said(reply: Reply) -> object:
    """A reply without the provider's own word for its end."""
    return [(block.kind, json.loads(b'"' + block.text + b'"'), block.call_id, block.name) for block in reply.blocks], (
        reply.stop.reason,
        reply.usage,
    )


@settings(max_examples=60, deadline=None)
@given(replies())
def test_events_to_bytes_and_back_keep_the_fold(reply: Reply) -> None:
    """Laws L2 and L6: what is said in a stream is read back, and the plain answer says the same."""
    assert said(fold(decode(encode(unfold(reply))))) == said(reply)
    body = CHAT.encode_reply(reply, answer())
    assert said(fold(CHAT.decode_reply(body, Profile(), ID))) == said(reply)


@pytest.mark.parametrize("name", STREAMS)
def test_what_a_provider_says_survives_a_second_reading(name: str) -> None:
    """Law L2 on real quirks: the client's stream is itself a clean chat stream."""
    events = decode(stream(name), profile(name))
    if isinstance(events[-1], Failure):
        return
    first = fold(events)
    second = fold(decode(encode(events)))
    for kind in ("text", "reasoning", "call"):
        assert [b"".join(block.text for block in reply.blocks if block.kind == kind) for reply in (first, second)] == (
            [b"".join(block.text for block in first.blocks if block.kind == kind)] * 2
        )
    assert second.usage.total == first.usage.total
