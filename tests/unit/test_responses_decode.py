"""A Responses provider's answers -> events, with the habits of real servers (fixtures/responses)."""

import json
from typing import Any

import pytest
from responses_kit import ID, blocks, calls, decode, said, stream

from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.fold import fold
from kenari.core.grammar import check
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.dialects.responses import RESPONSES
from kenari.wire.sse import Frames

USAGE = Usage(fresh=20, cache_read=10, output=12, reasoning=5)


def events_of(*bodies: dict[str, Any]) -> list[Event]:
    return decode(b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies))


def plain(**members: Any) -> list[Event]:
    """The events of a plain body."""
    return RESPONSES.decode_reply(json.dumps(members).encode(), Profile(), ID)


def test_the_vendors_own_stream() -> None:
    """S20, S23, S26, S29, S30, S101, U1, U2: everything in it, each thing once."""
    reply = said("full")
    assert blocks(reply)[:2] == [
        ("reasoning", "Think once.\n\nThink twice."),
        ("text", 'Halo, é — "dunia"\n'),
    ]
    assert [(seal.kind, seal.value) for seal in reply.blocks[0].seals] == [("encrypted", "gAAAA-blob")]  # D5
    assert calls(reply) == [("call_1", "get_weather", {"city": "Jakarta"}), ("call_2", "now", {})]
    assert (reply.stop.reason, reply.usage) == ("call", USAGE)  # F1


def test_pieces_stay_pieces() -> None:
    """S4: one event for each delta, its text byte for byte as the provider escaped it."""
    events = decode(stream("full"))
    assert [event.delta for event in events if isinstance(event, Text)] == [
        b"Halo, ",
        "é — ".encode() + b'\\"dunia\\"\\n',
    ]
    assert [event.delta for event in events if isinstance(event, Args)] == [
        b'{\\"city\\":',
        b' \\"Jakarta\\"}',
        b"{}",
    ]


def test_llama_server() -> None:
    """No sequence numbers and indexes, reasoning_text, all dones at the end: nothing waits for them (S4)."""
    events = decode(stream("llama_server"))
    assert [type(event) for event in events] == [
        Start,
        Open,
        Reason,
        Reason,
        Close,
        Open,
        Text,
        Text,
        Close,
        Meter,
        Stop,
    ]
    before_dones = stream("llama_server").split(b"event: response.output_item.done")[0]
    assert Text(1, b", 2") in decode(before_dones)
    assert blocks(fold(events)) == [("reasoning", "Hitung"), ("text", "1, 2")]


def test_vllm() -> None:
    """content_part and reasoning_part events, the cut told by the status of response.completed (S93, F1)."""
    reply = said("vllm")
    assert blocks(reply) == [("reasoning", "Saya hitung"), ("text", "1, 2")]
    assert (reply.stop.reason, reply.stop.raw) == ("length", "max_output_tokens")


def test_transformers() -> None:
    """data lines only, status queued, arguments only in the item's end, no call id: one of ours."""
    reply = said("transformers")
    assert blocks(reply)[0] == ("text", "Baik.")
    assert calls(reply) == [(f"call_{ID}1", "get_weather", {"city": "Jakarta"})]
    assert reply.stop.reason == "call"


@pytest.mark.parametrize(
    ("name", "reason", "said_"),
    [
        ("incomplete", "length", [("text", "cut of")]),
        ("length_in_call", "length", [("call", '{"city": "Ja')]),
        ("refusal", "filter", [("text", "I cannot do that.")]),
        ("no_words", "stop", [("text", "Halo")]),
        ("two_messages", "stop", [("text", "a"), ("text", "b"), ("text", "c")]),
        ("late_reasoning", "stop", [("reasoning", "first"), ("text", "a"), ("reasoning", "second"), ("text", "b")]),
        ("unknown_items", "stop", [("text", "Halo")]),
        ("only_completed", "call", None),
    ],
)
def test_how_answers_end_and_what_they_say(name: str, reason: str, said_: list[tuple[str, str]] | None) -> None:
    """F1, S33, S140, D4, B024: cuts, refusals, empty thoughts, items that interleave, kinds that nobody knows."""
    reply = said(name)
    assert reply.stop.reason == reason
    assert reply.usage == USAGE
    if said_ is None:
        assert [kind for kind, _ in blocks(reply)] == ["reasoning", "text", "call"]
    else:
        assert blocks(reply) == said_


def test_a_late_thought_keeps_its_proof() -> None:
    """D4, D5."""
    assert [[seal.value for seal in block.seals] for block in said("late_reasoning").blocks] == [[], [], ["blob-2"], []]


def test_calls_that_interleave() -> None:
    """Two calls at once: both blocks open, each piece in its own."""
    events = decode(stream("interleaved"))
    assert [event.index for event in events if isinstance(event, Args)] == [1, 0, 1, 0]
    assert calls(fold(events)) == [("call_1", "get_weather", {"city": "Jakarta"}), ("call_2", "now", {"zone": "WIB"})]


def test_item_ids_that_change_with_every_event() -> None:
    """Some servers encrypt the id anew each time: the index says which item it is, and nothing comes twice."""
    reply = said("changing_ids")
    assert blocks(reply) == [("text", "Halo!"), ("call", "{}")]


def test_one_call_id_for_two_calls() -> None:
    """Ids of calls are unique in an answer."""
    assert [call[0] for call in calls(said("same_call_id"))] == ["call_1", f"call_{ID}1"]


def test_halves_of_surrogate_pairs_meet_again() -> None:
    """F2, B090: over two deltas of one item; one that stays alone is replaced, in ids too."""
    reply = said("halves")
    assert blocks(reply)[0] == ("text", "ok \U0001f600! �x")
    assert calls(reply) == [("c�", "say", {"t": "\U0001f600"})]
    body = (
        rb'{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"\ud83dx"}]},'
        rb'{"type":"function_call","call_id":"a","name":"f","arguments":"{\"a\":\"\ude00\"}"}]}'
    )
    whole = fold(RESPONSES.decode_reply(body, Profile(), ID))
    assert blocks(whole) == [("text", "�x"), ("call", '{"a":"�"}')]


def test_invalid_utf8_is_replaced() -> None:
    """F2: what goes on is valid."""
    reply = fold(decode(stream("llama_server").replace(b"Hit", b"H\xff")))
    assert blocks(reply)[0][1] == "H�ung"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("failed", "upstream_error"),
        ("failed_first", "upstream_rate_limited"),
        ("error_event", "upstream_error"),
        ("error_object", "context_length_exceeded"),
        ("status_failed", "upstream_error"),
        ("cut", "stream_interrupted"),
    ],
)
def test_failures(name: str, code: str) -> None:
    """D6, E4, E5, S18: in every spelling; a stream that just ends was interrupted. Nothing comes after."""
    events = decode(stream(name) + b'data: {"type":"response.completed","response":{}}\n\n' * (name != "cut"))
    last = events[-1]
    assert isinstance(last, Failure)
    assert last.error.code == code
    assert "10.0.0.7" not in last.error.message
    assert check(events) is None


def test_nothing_is_heard_after_the_last_word() -> None:
    """D6: response.completed or response.incomplete is the end, and only they are; `done` says so."""
    decoder, frames = RESPONSES.decoder(Profile(), ID), Frames().feed(stream("incomplete"))
    for frame in frames:
        assert not decoder.done
        decoder.feed(frame)
    assert decoder.done
    assert [decoder.feed(frame) for frame in Frames().feed(stream("failed"))] == [[]] * 7
    assert decoder.finish() == []
    for nothing in (b"", b"data: [DONE]\n\n", b": a comment\n\n"):
        assert isinstance(decode(nothing)[-1], Failure)


def test_usage_in_odd_forms() -> None:
    """U1: numbers as strings are read; what cannot be read costs no finish; zeros say nothing (U3)."""
    assert said("odd_usage").usage == Usage(fresh=30, output=12)
    assert said("unreadable_usage").usage == Usage()
    zeros = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    events = events_of({"type": "response.completed", "response": {"status": "completed", "usage": zeros}})
    assert not any(isinstance(event, Meter) for event in events)


def test_cache_writes_are_their_own_class() -> None:
    """U1, U2: input_tokens hold what was read from and written to a cache."""
    details = {"cached_tokens": 10, "cache_write_tokens": 5}
    usage = {"input_tokens": 40, "output_tokens": 2, "input_tokens_details": details}
    assert fold(plain(status="completed", output=[], usage=usage)).usage == Usage(
        fresh=25, cache_read=10, cache_write_5m=5, output=2
    )


def test_a_summary_is_not_told_twice() -> None:
    """S94: a server that sends both the thought and its summary: the one that came first."""
    events = events_of(
        {"type": "response.reasoning_text.delta", "item_id": "r", "delta": "long thought"},
        {"type": "response.reasoning_summary_text.delta", "item_id": "r", "delta": "summary"},
        {"type": "response.completed", "response": {"status": "completed"}},
    )
    assert [event.delta for event in events if isinstance(event, Reason)] == [b"long thought"]


def test_arguments_as_an_object() -> None:
    """Arguments that are no string but the object itself."""
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}}
    assert calls(fold(plain(status="completed", output=[item]))) == [("c", "f", {"a": 1})]


def test_a_plain_answer_is_the_folded_stream() -> None:
    """L6: the response object of the last event, read as a plain body, says what the stream said."""
    for name in ("full", "vllm", "incomplete", "transformers"):
        last = stream(name).rstrip().rpartition(b"data: ")[2]
        body = json.dumps(json.loads(last)["response"]).encode()
        whole, streamed = fold(RESPONSES.decode_reply(body, Profile(), ID)), said(name)
        assert blocks(whole) == blocks(streamed)
        assert (whole.stop.reason, whole.usage) == (streamed.stop.reason, streamed.usage)
        assert [block.seals for block in whole.blocks] == [block.seals for block in streamed.blocks]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"error": {"message": "x", "code": "rate_limit_exceeded"}}, "upstream_rate_limited"),
        ({"status": "failed", "output": [], "error": {"message": "prompt is too long"}}, "context_length_exceeded"),
        ({"status": "failed", "error": {"code": "invalid_prompt", "message": "was flagged"}}, "bad_request"),
        ({"status": "failed", "error": {"code": "image_too_large", "message": "is large"}}, "bad_request"),
        ({"status": "failed", "error": {"code": "server_error", "message": "image_too_large"}}, "upstream_error"),
        ({"status": "queued", "output": []}, "upstream_error"),
        ({"status": "cancelled", "output": []}, "upstream_error"),
        ({"object": "list"}, "upstream_error"),
        ({"status": "completed", "output": "none"}, "upstream_error"),
    ],
)
def test_bodies_that_are_no_answer(members: dict[str, Any], code: str) -> None:
    """E4: status 200 alone is no success."""
    events = plain(**members)
    assert [type(event) for event in events] == [Failure]
    assert isinstance(events[0], Failure)
    assert events[0].error.code == code


def test_a_proof_alone_is_a_thought() -> None:
    """D5: an encrypted thought without a summary, in a stream and plain."""
    item: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "blob/1"}
    for events in (
        plain(status="completed", output=[item]),
        events_of(
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
        ),
    ):
        assert [event for event in events if isinstance(event, (Open, Seal))] == [
            Open(0, "reasoning"),
            Seal(0, "encrypted", "blob/1"),
        ]


def _message(text: str, identity: str = "m") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "id": identity, "role": "assistant", "content": content}


def _call(call_id: str, identity: str = "fc") -> dict[str, Any]:
    return {"type": "function_call", "id": identity, "call_id": call_id, "name": "f", "arguments": "{}"}


THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("streamed", "output", "told"),
    [
        ([THOUGHT], [THOUGHT, _message("Hi"), _call("c")], ["hm", "Hi", "{}"]),
        ([_message("Hi")], [THOUGHT, _message("Hi", "other"), _call("c")], ["Hi", "{}"]),
        ([_call("c")], [_call("c", "other")], ["{}"]),
    ],
)
def test_items_that_only_the_last_event_tells_of(
    streamed: list[dict[str, Any]], output: list[dict[str, Any]], told: list[str]
) -> None:
    """L6: what was not streamed is told at the end, once, but no thought behind what it led to."""
    dones = [
        {"type": "response.output_item.done", "output_index": number, "item": item}
        for number, item in enumerate(streamed)
    ]
    last = {"type": "response.completed", "response": {"status": "completed", "output": output}}
    assert [text for _, text in blocks(fold(events_of(*dones, last)))] == told


@pytest.mark.parametrize("indexes", [(0, 1), (0, 0), (None, None)])
@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([_message("A", "1"), _message("B", "2")], ["A", "B"]),
        ([_call("c1", "1"), _call("c2", "2")], ["{}", "{}"]),
    ],
)
def test_items_that_share_an_id_or_an_index(
    items: list[dict[str, Any]], told: list[str], indexes: tuple[int | None, int | None]
) -> None:
    """Servers that give all items one id, or one index: none of them is lost, nor told twice."""
    if indexes == (0, 1):
        items = [item | {"id": "same"} for item in items]
    last = {"type": "response.completed", "response": {"status": "completed", "output": items}}
    dones = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in zip(indexes, items, strict=True)
    ]
    for events in (events_of(*dones, last), plain(status="completed", output=items)):
        assert [text for _, text in blocks(fold(events))] == told


def test_a_reason_of_incompleteness_counts_under_any_status() -> None:
    """F1: a server that says why an answer is cut, but calls it completed or gives no status."""
    details = {"incomplete_details": {"reason": "max_output_tokens"}}
    for status in ("completed", None):
        response = {"status": status, "output": [_message("A")], **details}
        for events in (plain(**response), events_of({"type": "response.completed", "response": response})):
            assert fold(events).stop.reason == "length"
