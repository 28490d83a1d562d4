"""A Messages provider's answers -> events."""

import json

import pytest
from messages_kit import FIXTURES, ID, STREAMS, decode, stream

from kenari.core.events import Args, Event, Failure, Foreign, Meter, Open, Ping, Seal, Start, Stop
from kenari.core.fold import fold
from kenari.core.grammar import check
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.dialects.messages import MESSAGES


def blocks(events: list[Event]) -> list[tuple[str, bytes]]:
    return [(block.kind, block.text) for block in fold(events).blocks]


def frame(name: str, **members: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **members})}\n\n".encode()


def test_text_with_ping_and_usage() -> None:
    """S20, S28, S30, S67, S76."""
    events = decode(stream("text"))
    assert blocks(events) == [("text", b"1, 2, 3")]
    assert events[0] == Start(Usage(fresh=14, output=1))
    assert [event for event in events if isinstance(event, Meter)] == [Meter(Usage(fresh=14, output=6))]
    assert any(isinstance(event, Ping) for event in events)
    assert fold(events).stop == Stop("stop", "end_turn")


def test_thinking_calls_and_cache() -> None:
    """S22, S25, S71, U1: proofs, parallel calls, empty arguments, cache lifetimes."""
    reply = fold(decode(stream("thinking_tool")))
    assert [block.kind for block in reply.blocks] == ["reasoning", "text", "call", "call"]
    assert reply.blocks[0].text == b'Mari \\"lihat\\" cuaca.\\n'
    assert reply.blocks[0].seals == [Seal(0, "signature", "EqQBCkYIBxgC+/==")]
    assert (reply.blocks[2].call_id, reply.blocks[2].name) == ("toolu_1", "get_weather")
    assert reply.blocks[2].text == b'{\\"city\\": \\"Jakarta\\"}'
    assert reply.blocks[3].text == b"{}"
    assert reply.stop == Stop("call", "tool_use")
    assert reply.usage == Usage(fresh=3, cache_read=4409, cache_write_5m=5, cache_write_1h=15, output=40)


def test_redacted_and_silent_thoughts_are_kept() -> None:
    """B016: a thought without words but with a proof is one."""
    reply = fold(decode(stream("redacted")))
    assert [(block.kind, block.text) for block in reply.blocks] == [
        ("reasoning", b""),
        ("reasoning", b""),
        ("text", b"31 C"),
    ]
    assert [seal for block in reply.blocks for seal in block.seals] == [
        Seal(0, "redacted", "EmwKAhgBEgy3va"),
        Seal(1, "signature", "c2ln"),
    ]


def test_empty_blocks_never_open() -> None:
    """S33: no reasoning and no empty text."""
    start = frame("message_start", message={"usage": {"input_tokens": 1}})
    end = frame("message_delta", delta={"stop_reason": "end_turn"}) + frame("message_stop")
    empty = b"".join(
        frame("content_block_start", index=index, content_block=block) + frame("content_block_stop", index=index)
        for index, block in enumerate(
            [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}]
        )
    )
    assert blocks(decode(start + empty + end)) == []


def test_foreign_blocks_and_deltas() -> None:
    """D12: a vendor's own tools travel whole, citations and unknown events as foreign frames."""
    events = decode(stream("server_tool"))
    opaque = [json.loads(event.raw) for event in events if isinstance(event, Open) and event.kind == "opaque"]
    assert [block["type"] for block in opaque] == ["server_tool_use", "web_search_tool_result", "hologram"]
    assert opaque[0]["input"] == {"query": "cuaca"}
    foreign = [event for event in events if isinstance(event, Foreign)]
    assert [(event.name, event.index) for event in foreign] == [("citations_delta", 4), ("message_annotation", -1)]
    assert blocks(events)[-1] == ("text", b"31 C")
    assert fold(events).stop.reason == "stop"


def test_error_event_is_a_failure() -> None:
    """S31, E7."""
    events = decode(stream("error"))
    assert isinstance(events[-1], Failure)
    assert events[-1].error.code == "upstream_unavailable"
    assert check(events) is None


@pytest.mark.parametrize("shape", [{"error": {"code": 500, "message": "boom"}}, {"type": "error", "error": {}}])
def test_error_without_event_line(shape: dict[str, object]) -> None:
    """E4: real servers use each other's envelopes."""
    events = decode(b"data: " + json.dumps(shape).encode() + b"\n\n")
    assert isinstance(events[0], Failure)


def test_end_without_message_stop_is_success() -> None:
    """D6: a stop reason was seen."""
    reply = fold(decode(stream("no_message_stop")))
    assert reply.stop == Stop("length", "max_tokens")


@pytest.mark.parametrize("cut", [b"event: message_delta", b"event: content_block_stop", b"1, 2"])
def test_end_without_stop_reason_is_interrupted(cut: bytes) -> None:
    """D6, B056: also in the middle of a frame."""
    data = stream("text")
    events = decode(data[: data.index(cut) + 6])
    assert isinstance(events[-1], Failure)
    assert events[-1].error.code == "stream_interrupted"
    assert check(events) is None


def test_message_stop_without_stop_reason_is_interrupted() -> None:
    """D6."""
    events = decode(frame("message_start", message={}) + frame("message_stop"))
    assert isinstance(events[-1], Failure)


def test_missing_usage() -> None:
    """B033, U1: not reported is not zero."""
    events = decode(stream("no_usage"))
    assert events[0] == Start(None)
    assert not any(isinstance(event, Meter) for event in events)
    assert fold(events).usage == Usage()


def test_usage_is_corrected_downward() -> None:
    """U1: the final usage replaces the first."""
    assert fold(decode(stream("usage_corrected"))).usage == Usage(fresh=50, cache_read=128, cache_write_5m=0, output=26)


def test_input_that_comes_at_once() -> None:
    """Some servers send the whole input with the opening of the block; F1: calls win over end_turn."""
    reply = fold(decode(stream("input_at_once")))
    assert json.loads(json.loads(b'"' + reply.blocks[0].text + b'"')) == {"city": "Jakarta", "n": 1}
    assert reply.stop == Stop("call", "end_turn")


def test_input_at_once_and_in_deltas_counts_once() -> None:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    delta = {"type": "input_json_delta", "partial_json": '{"a":1}'}
    data = frame("content_block_start", index=0, content_block=block)
    data += frame("content_block_delta", index=0, delta=delta) + frame("content_block_stop", index=0)
    data += frame("message_delta", delta={"stop_reason": "tool_use"})
    assert [event.delta for event in decode(data) if isinstance(event, Args)] == [b'{\\"a\\":1}']


def test_call_without_id_gets_one_of_the_answer() -> None:
    """F12: unique over the turns of a conversation."""
    data = frame("content_block_start", index=0, content_block={"type": "tool_use", "name": "f"})
    data += frame("message_delta", delta={"stop_reason": "tool_use"})
    opened = [event for event in decode(data) if isinstance(event, Open)]
    assert ID in opened[0].call_id


def test_data_lines_only() -> None:
    """A server that leaves the event lines out, with comments."""
    assert fold(decode(stream("data_lines_only"))) == fold(decode(stream("text")))


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("pause_turn", "stop"),
        ("something_new", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "filter"),
    ],
)
def test_stop_reasons(word: str, reason: str) -> None:
    """F1; `tool_use` without a call is a stop."""
    assert fold(decode(frame("message_delta", delta={"stop_reason": word}))).stop.reason == reason


def test_stop_sequence_and_refusal() -> None:
    """F1, B037."""
    assert fold(decode(stream("sequence"))).stop == Stop("sequence", "stop_sequence", "END")
    assert fold(decode(stream("refusal"))).stop == Stop("filter", "refusal")


def test_halves_of_a_pair_are_joined() -> None:
    """F2, B090."""
    assert blocks(decode(stream("halves"))) == [("text", "ok 😀!".encode())]


def test_blocks_that_interleave_or_lack_their_start() -> None:
    """L5: hostile order still gives a legal stream."""
    data = frame("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"})
    data += frame("content_block_start", index=1, content_block={"type": "tool_use", "id": "t", "name": "f"})
    data += frame("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "b"})
    data += frame("content_block_start", index=1, content_block={"type": "text", "text": "c"})
    data += frame("content_block_stop", index=7)
    data += frame("message_start", message={}) + frame("message_start", message={})
    data += frame("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 3})
    data += frame("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": "4"})
    data += frame("content_block_delta", index=1, delta={"type": "text_delta", "text": "late"})
    events = decode(data)
    assert check(events) is None
    assert blocks(events) == [("text", b"a"), ("call", b"{}"), ("reasoning", b"b"), ("text", b"c")]
    assert fold(events).usage.output == 4


def test_unreadable_frames() -> None:
    """Noise is skipped; a frame of ours that cannot be read is a failure, never a hole."""
    events = decode(b"data: <html>\n\n" + stream("text"))
    assert blocks(events) == [("text", b"1, 2, 3")]
    broken = stream("text").replace(b'"text":", 3"', b'"text":')
    assert isinstance(decode(broken)[-1], Failure)
    late = stream("text").replace(b'data: {"type":"message_stop"}', b'data: {"type":')
    assert fold(decode(late)).stop.reason == "stop"


@pytest.mark.parametrize("name", STREAMS)
def test_done_at_message_stop(name: str) -> None:
    decoder = MESSAGES.decoder(Profile(), ID)
    assert not decoder.done
    if b'"type":"message_stop"' in stream(name):
        assert fold(decode(stream(name) + stream(name))) == fold(decode(stream(name)))


def test_plain_reply() -> None:
    """L6: the same blocks as a stream."""
    events = MESSAGES.decode_reply((FIXTURES / "reply.json").read_bytes(), Profile(), ID)
    assert check(events) is None
    reply = fold(events)
    assert [(block.kind, block.text) for block in reply.blocks] == [
        ("reasoning", b"Mari."),
        ("reasoning", b""),
        ("text", b"Sebentar."),
        ("call", b'{\\"city\\":\\"Jakarta\\"}'),
    ]
    assert [seal.kind for block in reply.blocks for seal in block.seals] == ["signature", "redacted"]
    assert reply.stop == Stop("call", "tool_use")
    assert reply.usage == Usage(fresh=3, cache_read=7, output=9)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"[]",
        b"{}",
        b'{"type":"message"}',
        b'{"type":"message","content":null}',
        b'{"error":{"message":"no"}}',
        b'{"type":"error","error":{"type":"api_error","message":"no"}}',
        b"[" * 5000,
    ],
)
def test_a_body_that_is_no_answer(body: bytes) -> None:
    """E4."""
    events = MESSAGES.decode_reply(body, Profile(), ID)
    assert len(events) == 1
    assert isinstance(events[0], Failure)
    assert events[0].error.elsewhere


def test_invalid_utf8_is_replaced() -> None:
    """F2: what a client gets is always valid."""
    events = decode(stream("text").replace(b", 3", b"\xff"))
    assert blocks(events) == [("text", "1, 2\ufffd".encode())]
