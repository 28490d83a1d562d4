"""Events -> a Responses client's stream and JSON: what the page shows, and what real clients need beyond it."""

import json
from typing import Any

import pytest
from responses_kit import ID, SCHEMAS, SPEC, STREAMS, answer, decode, encode, faults, frames_of, stream

from kenari.core.errors import KINDS, KenariError, interrupted
from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.fold import fold
from kenari.core.usage import Usage
from kenari.dialects.responses import RESPONSES
from kenari.dialects.responses.encode import ResponsesEncoder

EVENTS = {*SCHEMAS, "keepalive"}
CUSTOM = {"response.custom_tool_call_input.delta", "response.custom_tool_call_input.done"}


def answered(*middle: Event, stop: str = "stop") -> list[Event]:
    return [Start(), *middle, Meter(Usage(fresh=9, output=12)), Stop(stop)]  # type: ignore[arg-type]


def output(data: bytes) -> list[dict[str, Any]]:
    """The output of a client's stream, which must equal the items of the done events (S90)."""
    frames = frames_of(data)
    items = [frame["item"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert frames[-1]["response"]["output"] == items
    return items


def kinds(data: bytes) -> list[str]:
    return [frame["type"].removeprefix("response.") for frame in frames_of(data)]


def test_s99_the_pages_failed_frame() -> None:
    """S91, S98, S99, S100, S54, S176: the page's frame is contained in ours, its members in its order."""
    encoder = RESPONSES.encoder(answer())
    encoder.encode([Start(), Open(0, "text"), Text(0, b"a"), Text(0, b"b")])
    raw = encoder.fail(interrupted())
    page = {
        "type": "response.failed",
        "response": {
            "id": "resp_4f1c9a2e7b3d5a60",
            "status": "failed",
            "model": "step-3-7-flash:free",
            "error": {
                "code": "stream_interrupted",
                "message": "the model's provider interrupted the response before it finished. "
                "send the request again as a new request",
            },
        },
        "sequence_number": 4,
    }
    frame = json.loads(raw.split(b"data: ")[1])
    assert raw.startswith(b"event: response.failed\n")
    assert [name for name in frame if name in page] == list(page)
    assert {name: frame["response"][name] for name in page["response"]} == page["response"]  # type: ignore[attr-defined]
    assert frame["sequence_number"] == 4


def test_the_pages_response_object() -> None:
    """S147, S148, S149, S150, S151, S153: every member of the example, with its value."""
    page: dict[str, Any] = {
        "id": "resp_4f1c9a2e7b3d5a60",
        "object": "response",
        "created_at": 1790000000,
        "status": "completed",
        "model": "step-3-7-flash:free",
        "usage": {
            "input_tokens": 9,
            "output_tokens": 12,
            "total_tokens": 21,
            "input_tokens_details": {"cached_tokens": 0},
        },
    }
    text = "Halo! Ada yang bisa dibantu?"
    reply = fold(answered(Open(0, "text"), Text(0, text.encode()), Close(0)))
    body = json.loads(RESPONSES.encode_reply(reply, answer()))
    assert body | page | {"usage": body["usage"] | page["usage"]} == body
    (item,) = body["output"]
    assert (item["type"], item["role"], item["id"][:4]) == ("message", "assistant", "msg_")
    assert item["content"] == [{"type": "output_text", "text": text, "annotations": []}]
    assert body["completed_at"] == 1790000002


@pytest.mark.parametrize("name", STREAMS)
def test_only_the_pages_events(name: str) -> None:
    """S8, S11, S78, S79, S80, S92, S94, D1: whatever the provider sends, first created, last completed or failed."""
    events = decode(stream(name))
    encoder = RESPONSES.encoder(answer())
    data = b"".join(encoder.encode([event]) for event in events)
    if not isinstance(events[-1], Failure):
        data += encoder.finish()
    frames = frames_of(data)
    types = [frame["type"] for frame in frames]
    assert set(types) <= EVENTS
    assert types[0] == "response.created"
    assert types[-1] == ("response.failed" if isinstance(events[-1], Failure) else "response.completed")
    assert len({frame["response"]["id"] for frame in frames if "response" in frame}) == 1  # D14
    assert all(frame["item_id"] for frame in frames if "output_index" in frame)
    assert all(frame["content_index"] == 0 for frame in frames if frame["type"] == "response.output_text.delta")
    kinds_ = [item["type"] for item in frames[-1]["response"]["output"]]
    assert not any(a == b == "reasoning" for a, b in zip(kinds_, kinds_[1:], strict=False))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.skipif(not SPEC.is_file(), reason="the specification is not here")
def test_d2_all_validates_against_the_specification(name: str) -> None:
    """D2: every event of every fixture, translated; failures and signs of life in between too."""
    events = decode(stream(name))
    encoder = RESPONSES.encoder(answer(tools=[{"type": "function", "name": "now"}]))
    data = encoder.noop() + b"".join(encoder.encode([event]) + encoder.noop() for event in events[:-1])
    data += encoder.encode(events[-1:])
    if not isinstance(events[-1], Failure):
        data += encoder.finish()
    for frame in frames_of(data):
        if frame["type"] == "keepalive":
            continue
        assert faults(SCHEMAS[frame["type"]], frame) == []
        if "response" in frame:
            assert faults("ResponseResource", frame["response"]) == []
        if "item" in frame:
            assert faults("ItemField", frame["item"]) == []


def test_empty_blocks_are_no_items() -> None:
    """S33: indexes stay dense, and reasoning around an empty text is one item (S94)."""
    events = answered(
        Open(0, "reasoning"),
        Reason(0, b""),
        Close(0),
        Open(1, "text"),
        Text(1, b""),
        Close(1),
        Open(2, "reasoning"),
        Reason(2, b"a"),
        Close(2),
        Open(3, "text"),
        Close(3),
        Open(4, "reasoning"),
        Reason(4, b"b"),
        Close(4),
        Open(5, "text"),
        Text(5, b"x"),
        Close(5),
    )
    items = output(encode(events))
    assert [item["type"] for item in items] == ["reasoning", "message"]
    assert items[0]["summary"][0]["text"] == "ab"
    assert json.loads(RESPONSES.encode_reply(fold(events), answer()))["output"] == items
    assert kinds(encode(answered())) == ["created", "completed"]


def test_all_proofs_of_a_thought_in_one_envelope() -> None:
    """D5, S94: thinking blocks in a row are one item; each proof with the length, in characters, that it covers."""
    events = answered(
        Open(0, "reasoning"),
        Reason(0, b"\\u00e9\\n"),
        Reason(0, "é".encode()),
        Seal(0, "signature", "one"),
        Close(0),
        Open(1, "reasoning"),
        Seal(1, "redacted", "two"),
        Close(1),
        Open(2, "reasoning"),
        Reason(2, b"abc"),
        Seal(2, "signature", "three"),
        Close(2),
        Open(3, "text"),
        Text(3, b"x"),
        Close(3),
    )
    (thought, _) = output(encode(events))
    assert thought["encrypted_content"] == "kn1.signature:one:3,redacted:two:0,signature:three:3"
    assert thought["summary"] == [{"type": "summary_text", "text": "é\néabc"}]
    assert json.loads(RESPONSES.encode_reply(fold(events), answer()))["output"][0] == thought


def test_a_thought_without_a_proof_has_our_mark() -> None:
    """D5, D20: so that stateless clients give it back."""
    (thought,) = output(encode(answered(Open(0, "reasoning"), Reason(0, b"abc"), Close(0))))
    assert thought["encrypted_content"] == "kn1.mark::3"


def test_a_redacted_thought_is_an_item_without_a_summary() -> None:
    """D5, S33: no summary events where there are no words."""
    data = encode(answered(Open(0, "reasoning"), Seal(0, "redacted", "blob"), Close(0)))
    assert kinds(data) == ["created", "output_item.added", "output_item.done", "completed"]
    assert output(data)[0]["summary"] == []


def test_late_reasoning_is_a_further_item() -> None:
    """D4."""
    data = encode(decode(stream("late_reasoning")))
    assert [item["type"] for item in output(data)] == ["reasoning", "message", "reasoning", "message"]


def test_parallel_calls_follow_each_other() -> None:
    """S87, S88, S96: pieces that interleave at the provider do not at the client."""
    data = encode(decode(stream("interleaved")))
    places = [frame["output_index"] for frame in frames_of(data) if "output_index" in frame]
    assert places == sorted(places)
    items = output(data)
    assert [(item["call_id"], json.loads(item["arguments"])) for item in items] == [
        ("call_1", {"city": "Jakarta"}),
        ("call_2", {"zone": "WIB"}),
    ]
    assert all(item["status"] == "completed" for item in items)


def test_d15_signs_of_life() -> None:
    """D15: in the middle of an item too, counted on, and only once the response was created."""
    encoder = RESPONSES.encoder(answer())
    assert not encoder.started
    data = encoder.noop()
    assert encoder.started
    data += encoder.encode([Start(), Open(0, "text"), Text(0, b"a")]) + encoder.noop()
    data += encoder.encode([Text(0, b"b"), Close(0), Stop("stop")]) + encoder.finish()
    assert kinds(data) == [
        "created",
        "keepalive",
        "output_item.added",
        "output_text.delta",
        "keepalive",
        "output_text.delta",
        "output_item.done",
        "completed",
    ]


def test_a_freeform_call_with_other_arguments() -> None:
    """D10: arguments that do not hold `input` are handed over as they are, never lost."""
    for arguments, shown in (
        (b'{\\"input\\":\\"a\\\\nb\\"}', "a\nb"),
        (b"*** Begin Patch", "*** Begin Patch"),
        (b'{\\"patch\\":1}', '{"patch":1}'),
    ):
        events = answered(Open(0, "call", "c", "apply", None, True), Args(0, arguments), Close(0), stop="call")
        data = encode(events)
        (item,) = output(data)
        assert (item["type"], item["input"]) == ("custom_tool_call", shown)
        assert {kind["type"] for kind in frames_of(data)} - EVENTS == CUSTOM


def test_a_namespace_stands_in_all_places() -> None:
    """D18: item.added, item.done and output."""
    frames = frames_of(encode(answered(Open(0, "call", "c", "read", "mcp__x"), Args(0, b"{}"), Close(0))))
    items = [frame["item"] for frame in frames if "item" in frame] + frames[-1]["response"]["output"]
    assert [(item["name"], item["namespace"]) for item in items] == [("read", "mcp__x")] * 3


def test_the_resource_repeats_the_request() -> None:
    """D2, S38, S109: model, instructions, tools, choice and settings as the client gave them; store says what is true."""
    tool = {"type": "function", "name": "f", "description": "é", "parameters": {"type": "object"}, "strict": False}
    more: dict[str, Any] = {
        "instructions": "brief\n",
        "tools": [tool, {"type": "custom", "name": "p"}],
        "tool_choice": {"type": "function", "name": "f"},
        "temperature": 0.5,
        "max_output_tokens": 7,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "high"},
        "store": True,
        "prompt_cache_key": "mine",
    }
    response = frames_of(encode(answered(), **more))[-1]["response"]
    for name in ("instructions", "tool_choice", "temperature", "max_output_tokens", "metadata", "prompt_cache_key"):
        assert response[name] == more[name]
    assert response["tools"] == [tool]
    assert response["reasoning"]["effort"] == "high"
    assert (response["store"], response["background"], response["previous_response_id"]) == (False, False, None)


def test_ids_differ_between_the_turns_of_a_conversation() -> None:
    """F12: the request's id is in every item's id."""
    for item in output(encode(decode(stream("full")))):
        assert ID in item["id"]


@pytest.mark.parametrize("code", sorted(KINDS))
def test_errors_have_the_openai_envelope(code: str) -> None:
    """S164, S165: all four keys, param null when unknown."""
    body = json.loads(RESPONSES.encode_error(KenariError(code, "no"), ID))
    assert body == {"error": {"message": "no", "type": KINDS[code].type, "param": None, "code": code}}


def test_a_long_run_is_numbered_on() -> None:
    """S78: pieces that come together have the numbers that they have one by one, however many they are."""
    pieces: list[Event] = [Text(0, b"%d" % number) for number in range(1500)]
    opening: list[Event] = [Start(), Open(0, "text"), Text(0, b"a")]
    together, apart, halves = (RESPONSES.encoder(answer()) for _ in range(3))
    for encoder in (together, apart, halves):
        encoder.encode(opening)
    one_by_one = b"".join(apart.encode([piece]) for piece in pieces)
    assert together.encode(pieces) == one_by_one
    speaker = halves.speaker(Text, 0)
    assert speaker is not None
    texts = [piece.delta for piece in pieces if isinstance(piece, Text)]
    assert speaker.many(texts[:900]) + speaker.many(texts[900:]) == one_by_one
    assert one_by_one.endswith(b'"sequence_number":1502}\n\n')


WORDS: list[Event] = [Open(0, "text"), Text(0, b"a"), Text(0, b"b"), Close(0)]
THOUGHTS: list[Event] = [Open(0, "reasoning"), Reason(0, b"t"), Close(0)]
CALLED: list[Event] = [Open(0, "call", "call_1", "f"), Args(0, b"{}"), Close(0)]


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize(
    "middle",
    [
        WORDS,
        THOUGHTS,
        CALLED,
        [*THOUGHTS, Open(1, "text"), Text(1, b"a"), Close(1), Open(2, "text"), Text(2, b"b"), Close(2)],
        [Open(0, "reasoning"), Close(0), Open(1, "text"), Text(1, b"a"), Text(1, b"b"), Close(1)],
        [],
    ],
)
def test_what_was_foreseen_is_what_would_have_been_written(middle: list[Event], silent: bool) -> None:
    """S78, S80: the first frames of an answer, be it a text or not, after a sign of life or not; one event after the other."""
    foreseen, written = ResponsesEncoder(answer()).foresee(), ResponsesEncoder(answer())
    for encoder in (foreseen, written):
        assert not encoder.started
    if silent:
        assert foreseen.noop() == written.noop()
    for event in answered(*middle):
        assert foreseen.encode([event]) == written.encode([event])
        assert (foreseen.speaker(Text, 0) is None) is (written.speaker(Text, 0) is None)
    assert foreseen.finish() == written.finish()


def test_what_was_foreseen_may_fail() -> None:
    """S98: nothing was said."""
    foreseen, written = ResponsesEncoder(answer()).foresee(), ResponsesEncoder(answer())
    assert foreseen.fail(interrupted()) == written.fail(interrupted())
