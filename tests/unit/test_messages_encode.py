"""Events -> a Messages client's stream and JSON."""

import json
from typing import Any

import pytest
from messages_kit import FIXTURES, ID, STREAMS, answer, decode, encode, frames_of, stream

from kenari.core.errors import KenariError, interrupted
from kenari.core.events import Args, Close, Event, Failure, Foreign, Meter, Open, Ping, Reason, Seal, Start, Stop, Text
from kenari.core.fold import fold, unfold
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.dialects.messages import MESSAGES

PAGE = b"""event: message_start
data: {"type":"message_start","message":{"id":"4f1c9a2e7b3d5a60","type":"message","role":"assistant","model":"step-3-7-flash:free","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"1, 2, 3"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":14,"output_tokens":6}}

event: message_stop
data: {"type":"message_stop"}

"""
"""The page's own example, byte for byte."""


def answered(*middle: Event, stop: Stop | None = None) -> list[Event]:
    return [Start(Usage(fresh=14)), *middle, Meter(Usage(fresh=14, output=6)), stop or Stop("stop")]


def deltas(data: bytes) -> list[dict[str, Any]]:
    return [frame["delta"] for frame in frames_of(data) if frame["type"] == "content_block_delta"]


def test_the_frames_of_the_page() -> None:
    """S7, S10, S12, S13, S60, S61, S62, S63, S64, S65, S66, S76."""
    assert encode(answered(Open(0, "text"), Text(0, b"1, 2, 3"), Close(0))) == PAGE


def test_the_frames_of_the_page_are_understood() -> None:
    """S20, S28, S30, S60."""
    assert encode(decode(PAGE)) == PAGE


def test_thinking_comes_with_a_signature() -> None:
    """S22, S69, D20: without a proof of the maker one of ours, never empty."""
    data = encode(answered(Open(0, "reasoning"), Reason(0, b"a\\n"), Reason(0, b"b"), Close(0)))
    assert [frame["type"] for frame in frames_of(data)][1:5] == [
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
    ]
    start = frames_of(data)[1]
    assert start["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert deltas(data) == [
        {"type": "thinking_delta", "thinking": "a\n"},
        {"type": "thinking_delta", "thinking": "b"},
        {"type": "signature_delta", "signature": "kn1.mark::3"},
    ]


@pytest.mark.parametrize(("raw", "shown"), [(True, "c2ln"), (False, "kn1.signature:c2ln:1")])
def test_a_makers_signature(raw: bool, shown: str) -> None:
    """D5: raw where the model has one maker, else in an envelope."""
    events = answered(Open(0, "reasoning"), Reason(0, b"a"), Seal(0, "signature", "c2ln"), Close(0))
    assert deltas(encode(events, raw))[-1] == {"type": "signature_delta", "signature": shown}
    reply = json.loads(MESSAGES.encode_reply(fold(events), answer(raw)))
    assert reply["content"] == [{"type": "thinking", "thinking": "a", "signature": shown}]


def test_a_signature_without_words() -> None:
    """B016, S69."""
    events = answered(Open(0, "reasoning"), Seal(0, "signature", "c2ln"), Close(0))
    frames = frames_of(encode(events, True))
    assert [frame["type"] for frame in frames][1:4] == [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ]
    assert frames[1]["content_block"]["type"] == "thinking"


@pytest.mark.parametrize(("raw", "data"), [(True, "EmwK"), (False, "kn1.redacted:EmwK:0")])
def test_redacted_thoughts(raw: bool, data: str) -> None:
    """D5."""
    events = answered(Open(0, "reasoning"), Seal(0, "redacted", "EmwK"), Close(0))
    block = {"type": "redacted_thinking", "data": data}
    frames = frames_of(encode(events, raw))
    assert frames[1]["content_block"] == block
    assert frames[2]["type"] == "content_block_stop"
    assert json.loads(MESSAGES.encode_reply(fold(events), answer(raw)))["content"] == [block]


def test_encrypted_reasoning_of_another_format_travels_in_an_envelope() -> None:
    """D5: also where signatures are raw."""
    events = answered(Open(0, "reasoning"), Reason(0, b"ab"), Seal(0, "encrypted", "gAAA"), Close(0))
    assert deltas(encode(events, True))[-1]["signature"] == "kn1.encrypted:gAAA:2"


def test_empty_blocks_are_not_written() -> None:
    """S33, S77: indexes stay dense."""
    events = answered(
        Open(0, "reasoning"),
        Close(0),
        Open(1, "text"),
        Text(1, b""),
        Close(1),
        Open(2, "text"),
        Text(2, b"x"),
        Close(2),
    )
    frames = frames_of(encode(events))
    assert [frame["index"] for frame in frames if "index" in frame] == [0, 0, 0]
    assert len(json.loads(MESSAGES.encode_reply(fold(events), answer()))["content"]) == 1


def test_interleaved_calls_are_put_in_a_row() -> None:
    """S25, S71, S72, S77."""
    events = answered(
        Open(0, "call", "t0", "f"),
        Open(1, "call", "t1", 'g"'),
        Args(1, b"{}"),
        Args(0, b'{\\"a\\":'),
        Args(0, b"1}"),
        Close(0),
        Close(1),
        stop=Stop("call"),
    )
    frames = frames_of(encode(events))
    assert [(frame["type"], frame["index"]) for frame in frames if "index" in frame] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
    ]
    assert frames[1]["content_block"] == {"type": "tool_use", "id": "t0", "name": "f", "input": {}}
    assert [delta["partial_json"] for delta in deltas(encode(events))] == ['{"a":', "1}", "{}"]
    assert frames[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("stop", "word", "sequence"),
    [
        (Stop("stop"), "end_turn", None),
        (Stop("sequence", sequence="END"), "stop_sequence", "END"),
        (Stop("length"), "max_tokens", None),
        (Stop("call"), "tool_use", None),
        (Stop("filter"), "refusal", None),
    ],
)
def test_stop_reasons(stop: Stop, word: str, sequence: str | None) -> None:
    """F1, S65."""
    delta = frames_of(encode(answered(stop=stop)))[-2]["delta"]
    assert delta == {"stop_reason": word, "stop_sequence": sequence}


def test_usage_excludes_the_cache_and_is_always_there() -> None:
    """S28, U2, F12."""
    frames = frames_of(encode([Start(), Stop("stop"), Meter(Usage(fresh=3, cache_read=9, cache_write_5m=2, output=1))]))
    assert frames[0]["message"]["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert frames[1]["usage"] == {
        "input_tokens": 3,
        "output_tokens": 1,
        "cache_read_input_tokens": 9,
        "cache_creation_input_tokens": 2,
    }
    hour = frames_of(encode([Start(Usage(cache_write_5m=1, cache_write_1h=4)), Stop("stop")]))[0]["message"]["usage"]
    assert hour["cache_creation_input_tokens"] == 5
    assert hour["cache_creation"] == {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 4}


def test_noop_is_a_comment_and_then_a_ping() -> None:
    """D15, S15, S67."""
    encoder = MESSAGES.encoder(answer())
    assert encoder.noop() == b": keepalive\n\n"
    assert not encoder.started
    encoder.encode([Start()])
    assert encoder.started
    assert encoder.noop() == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert encoder.encode([Ping()]) == encoder.noop()


def test_failure_ends_the_stream() -> None:
    """S18, S31, S54, S68, S73, S176: one error event, nothing after it."""
    encoder = MESSAGES.encoder(answer())
    encoder.encode([Start(), Open(0, "text"), Text(0, b"half")])
    assert encoder.fail(interrupted()) == (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"the model\'s provider interrupted '
        b'the response before it finished. send the request again as a new request"}}\n\n'
    )
    assert b"event: error" in MESSAGES.encoder(answer()).encode([Failure(interrupted())])


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("bad_request", "invalid_request_error"),
        ("context_length_exceeded", "invalid_request_error"),
        ("upstream_unavailable", "api_error"),
        ("upstream_rate_limited", "api_error"),
        ("internal_error", "api_error"),
    ],
)
def test_only_two_error_types_in_a_stream(code: str, kind: str) -> None:
    """S73, D7."""
    body = frames_of(MESSAGES.encoder(answer()).fail(KenariError(code, "no")))[0]
    assert set(body) == {"type", "error"}
    assert body["error"]["type"] == kind


def test_error_envelope() -> None:
    """E6, E5: with request_id; an overflow is said in words that clients look for."""
    body = json.loads(MESSAGES.encode_error(KenariError("model_not_found", "no such model"), ID))
    assert body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "no such model"},
        "request_id": ID,
    }
    overflow = KenariError("context_length_exceeded", "the input is too large")
    assert json.loads(MESSAGES.encode_error(overflow, ID))["error"]["message"].startswith("prompt is too long")
    assert frames_of(MESSAGES.encoder(answer()).fail(overflow))[0]["error"]["message"].startswith("prompt is too long")


def test_foreign_blocks_by_the_relay_table() -> None:
    """D12, D15: what SDKs know passes with our index, anything else does not."""
    frames = frames_of(encode(decode(stream("server_tool"))))
    starts = [frame["content_block"]["type"] for frame in frames if frame["type"] == "content_block_start"]
    assert starts == ["text", "server_tool_use", "web_search_tool_result", "text"]
    kinds = [frame["delta"]["type"] for frame in frames if frame["type"] == "content_block_delta"]
    assert kinds == ["text_delta", "input_json_delta", "citations_delta", "text_delta"]
    assert [frame["index"] for frame in frames if frame["type"] == "content_block_stop"] == [0, 1, 2, 3]
    content = json.loads(MESSAGES.encode_reply(fold(decode(stream("server_tool"))), answer()))["content"]
    assert content[1]["input"] == {"query": "cuaca"}
    assert [block["type"] for block in content] == starts


def test_foreign_frames_of_others_are_dropped() -> None:
    events = answered(
        Foreign("chat", "citations_delta", b"{}", 0),
        Open(0, "opaque", raw=b'{"type":"web_search_call"}'),
        Close(0),
        Open(1, "opaque", raw=b"nonsense"),
        Close(1),
    )
    assert len(frames_of(encode(events))) == 3


def test_model_and_id_are_ours() -> None:
    """S61, D14, B105."""
    encoder = MESSAGES.encoder(answer(model='a "route"'))
    message = frames_of(encoder.encode([Start()]))[0]["message"]
    assert (message["id"], message["model"]) == (ID, 'a "route"')


def test_plain_reply() -> None:
    """S2, S61: the same message as one object."""
    events = MESSAGES.decode_reply((FIXTURES / "reply.json").read_bytes(), Profile(), ID)
    reply = json.loads(MESSAGES.encode_reply(fold(events), answer(True)))
    theirs = json.loads((FIXTURES / "reply.json").read_bytes())
    assert reply == theirs | {"id": ID, "model": "step-3-7-flash:free"}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [(b"", {}), (b'{\\"a\\":1}', {"a": 1}), (b'{\\"a\\":', {"arguments": '{"a":'}), (b"[1]", {"arguments": "[1]"})],
)
def test_input_is_always_an_object(arguments: bytes, shown: object) -> None:
    """S71: also where the model was cut off inside its arguments."""
    events = answered(Open(0, "call", "t", "f"), Args(0, arguments), Close(0), stop=Stop("length"))
    assert json.loads(MESSAGES.encode_reply(fold(events), answer()))["content"][0]["input"] == shown


@pytest.mark.parametrize("name", [name for name in STREAMS if name not in ("error", "server_tool")])
def test_plain_is_the_fold_of_the_stream(name: str) -> None:
    """L6: what a stream says, the object says."""
    events = decode(stream(name))
    streamed = fold(decode(encode(events, True)))
    plain = MESSAGES.decode_reply(MESSAGES.encode_reply(fold(events), answer(True)), Profile(), ID)
    assert fold(plain).blocks == streamed.blocks
    assert fold(plain).stop == streamed.stop
    assert encode(unfold(fold(events)), True).count(b"content_block_stop\n") == len(streamed.blocks)


def test_late_reasoning_is_a_further_block() -> None:
    """D4, S32: in the order of the model's thoughts, never merged."""
    events = answered(
        Open(0, "reasoning"),
        Reason(0, b"a"),
        Close(0),
        Open(1, "text"),
        Text(1, b"b"),
        Close(1),
        Open(2, "reasoning"),
        Reason(2, b"c"),
        Close(2),
    )
    starts = [frame["content_block"]["type"] for frame in frames_of(encode(events)) if "content_block" in frame]
    assert starts == ["thinking", "text", "thinking"]


def test_estimated_usage_is_shown_like_any_other() -> None:
    """U3: a snapshot that comes after the finish still finds its place."""
    events: list[Event] = [Start(), Stop("stop"), Meter(Usage(fresh=7, output=2, estimated=True))]
    assert frames_of(encode(events))[-2]["usage"] == {"input_tokens": 7, "output_tokens": 2}
