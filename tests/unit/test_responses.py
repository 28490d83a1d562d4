"""The Responses dialect: the page's events and objects, the requests it takes and refuses, providers' quirks."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from responses_kit import SCHEMAS

from kenari.core.errors import KenariError, interrupted
from kenari.core.events import Args, Close, Event, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.fold import fold
from kenari.core.ids import Envelopes
from kenari.core.profile import Profile
from kenari.core.request import CallPart, ImagePart, ReasoningPart, Request, ResultPart, TextPart
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Proof
from kenari.dialects.fit import Target, fit
from kenari.dialects.responses import RESPONSES
from kenari.wire.sse import Frames

FORBIDDEN = {
    "response.in_progress",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.done",
    "response.incomplete",
}
SPEC = Path(__file__).resolve().parents[3] / "shared" / "open-responses-2026-04-24.openapi.json"
USAGE = Meter(Usage(fresh=5, cache_read=4, output=12, reasoning=3))
ALL: list[Event] = [
    Start(),
    Open(0, "reasoning"),
    Reason(0, b"think "),
    Reason(0, b"more"),
    Seal(0, "signature", "sig-1"),
    Close(0),
    Open(1, "reasoning"),
    Reason(1, b"!"),
    Close(1),
    Open(2, "text"),
    Text(2, b"1, 2"),
    Text(2, b", 3"),
    Close(2),
    Open(3, "call", "call_a", "get_weather", "mcp__x"),
    Args(3, b'{\\"city\\":'),
    Args(3, b'\\"J\\"}'),
    Close(3),
    Open(4, "call", "call_b", "now"),
    Args(4, b"{}"),
    Close(4),
    USAGE,
    Stop("call"),
]


def request(**more: Any) -> Request:
    """A small decoded request."""
    return RESPONSES.decode_request(json.dumps({"model": "m", "input": "hi", **more}).encode())


def answer(**more: Any) -> Answer:
    """What the encoder needs; the envelope shows what was sealed."""

    def seal(proofs: list[Proof]) -> str:
        return "kn1." + "+".join(f"{p.kind}:{p.value}:{p.length}" for p in proofs)

    return Answer(
        id="4f1c9a2e7b3d5a60",
        created=1790000000,
        model="m",
        request=request(**more),
        seal=seal,
        now=lambda: 1790000002.0,
    )


def stream(events: list[Event], error: KenariError | None = None, **more: Any) -> list[dict[str, Any]]:
    """The data of each frame; event names are checked on the way (S8, S79)."""
    encoder = RESPONSES.encoder(answer(**more))
    raw = encoder.encode(events) + (encoder.finish() if error is None else encoder.fail(error))
    out: list[dict[str, Any]] = []
    for frame in Frames().feed(raw):
        event = json.loads(frame.data)
        assert frame.event.decode() == event["type"]
        out.append(event)
    return out


def decode(*frames: dict[str, Any], named: bool = True) -> list[Event]:
    """The events of a provider's stream."""
    decoder, out = RESPONSES.decoder(Profile(), "feed"), list[Event]()
    for one in frames:
        name = f"event: {one['type']}\n" if named else ""
        for frame in Frames().feed(f"{name}data: {json.dumps(one)}\n\n".encode()):
            out += decoder.feed(frame)
    return out + decoder.finish()


def refusal(**body: Any) -> KenariError:
    """The 400 of a request."""
    with pytest.raises(KenariError) as caught:
        RESPONSES.decode_request(json.dumps({"model": "m", "input": "hi", **body}).encode())
    assert caught.value.status == 400
    return caught.value


def test_the_events_of_a_whole_answer() -> None:
    """S78-S90, S92, S94-S97, S100, D1, D18: exactly the page's events, numbered from 0, reasoning as one item."""
    events = stream(ALL)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "output_text.delta",
        "output_text.delta",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert not FORBIDDEN & {event["type"] for event in events}
    created, completed = events[0]["response"], events[-1]["response"]
    assert created["id"] == completed["id"] == "resp_4f1c9a2e7b3d5a60"
    assert (created["status"], completed["status"]) == ("in_progress", "completed")
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert completed["output"] == done  # S90
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    assert done[0]["summary"] == [{"type": "summary_text", "text": "think more!"}]  # S152
    assert done[0]["encrypted_content"] == "kn1.signature:sig-1:10"  # D5
    assert done[1]["content"] == [{"type": "output_text", "text": "1, 2, 3", "annotations": []}]
    assert (done[2]["name"], done[2]["namespace"], json.loads(done[2]["arguments"])) == (
        "get_weather",
        "mcp__x",
        {"city": "J"},
    )
    assert "namespace" not in done[3]
    assert len({item["id"] for item in done}) == 4  # F12
    added = next(event["item"] for event in events if event.get("item", {}).get("type") == "message")
    assert added["content"] == [{"type": "output_text", "text": "", "annotations": []}]  # D1
    assert all("item_id" in event for event in events if "output_index" in event)
    assert completed["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 21,
    }


def test_no_reasoning_no_item() -> None:
    """S33."""
    events = stream([Start(), Open(0, "text"), Text(0, b"x"), Close(0), Stop("stop")])
    assert not any("reasoning" in event["type"] for event in events)
    assert events[-1]["response"]["usage"]["input_tokens_details"] == {"cached_tokens": 0}  # S151


@pytest.mark.parametrize(
    ("reason", "status", "details"),
    [
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("filter", "incomplete", {"reason": "content_filter"}),
        ("stop", "completed", None),
    ],
)
def test_a_cut_answer_ends_with_completed(reason: Any, status: str, details: Any) -> None:
    """S93, S156, F1: the event is response.completed, the status says incomplete."""
    last = stream([Start(), Open(0, "text"), Text(0, b"x"), Close(0), Stop(reason)])[-1]
    assert last["type"] == "response.completed"
    assert (last["response"]["status"], last["response"]["incomplete_details"]) == (status, details)


def test_a_failure_is_the_last_event() -> None:
    """S91, S98, S99: code and message, the sequence goes on, the items that were done stay."""
    events = stream([Start(), Open(0, "text"), Text(0, b"x")], interrupted())
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["sequence_number"] == len(events) - 1
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"], failed["output"]) == ("failed", "stream_interrupted", [])
    first = stream([], interrupted())
    assert [event["type"] for event in first] == ["response.created", "response.failed"]


def test_noops_go_on_counting() -> None:
    """D15: a keepalive event after response.created."""
    encoder = RESPONSES.encoder(answer())
    raw = encoder.noop() + encoder.noop()
    events = [json.loads(frame.data) for frame in Frames().feed(raw)]
    assert [event["type"] for event in events] == ["response.created", "keepalive", "keepalive"]
    assert events[2] == {"type": "keepalive", "sequence_number": 2}


def test_a_freeform_call() -> None:
    """D10: a custom tool's call comes back as a custom_tool_call item."""
    events = stream(
        [
            Start(),
            Open(0, "call", "c1", "apply", None, True),
            Args(0, b'{\\"input\\":\\"a\\\\nb\\"}'),
            Close(0),
            Stop("call"),
        ]
    )
    item = events[-1]["response"]["output"][0]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply", "a\nb")
    assert [event["type"] for event in events][2:4] == [
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
    ]


def test_plain_equals_the_completed_response() -> None:
    """S147-S160: the plain object is the streamed one."""
    body = json.loads(RESPONSES.encode_reply(fold(ALL), answer()))
    assert body == stream(ALL)[-1]["response"]


def validator(schema: str) -> Any:
    """A validator of one schema of the specification."""
    spec = json.loads(SPEC.read_text())
    return Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": spec["components"]})


@pytest.mark.skipif(not SPEC.is_file(), reason="the specification lies beside the project only where it is developed")
@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_every_object_validates_against_the_specification(effort: str) -> None:
    """D2: every event, item and response object, for requests with everything in them."""
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "function", "name": "g"}]
    more: dict[str, Any] = {
        "tools": tools,
        "tool_choice": {"type": "function", "name": "f"},
        "instructions": "be brief",
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 99,
        "reasoning": {"effort": effort, "summary": "auto"},
        "prompt_cache_key": "k",
    }
    events = [*stream(ALL, **more), stream([Start()], interrupted(), **more)[-1]]
    for event in events:
        faults = [fault.message for fault in validator(SCHEMAS[event["type"]]).iter_errors(event)]
        assert faults == [], event["type"]
    body = json.loads(RESPONSES.encode_reply(fold(ALL), answer(**more)))
    assert [fault.message for fault in validator("ResponseResource").iter_errors(body)] == []


RESOURCE = (
    "id object created_at completed_at status model output usage error incomplete_details instructions tools tool_choice "
    "parallel_tool_calls truncation text reasoning temperature top_p presence_penalty frequency_penalty top_logprobs "
    "max_output_tokens max_tool_calls store background service_tier metadata safety_identifier prompt_cache_key previous_response_id"
).split()


def test_every_response_object_is_whole() -> None:
    """D2: all members, numbers never null, the tier a string."""
    for event in [*stream(ALL), *stream([], interrupted())]:
        if "response" not in event:
            continue
        response = event["response"]
        assert [name for name in RESOURCE if name not in response] == []
        assert all(
            isinstance(response[n], (int, float))
            for n in ("temperature", "top_p", "presence_penalty", "frequency_penalty")
        )
        assert isinstance(response["service_tier"], str)


# -- requests


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": 5}, "model"),
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"stream": "yes"}, "stream"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": 3}, "reasoning"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"instructions": ["x"]}, "instructions"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "kenari:web_serch"}]}, "tools[0].type"),
        ({"tools": "all"}, "tools"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"input": [{"role": "critic", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "hologram"}]}]}, "input[0].content[0].type"),
        (
            {"input": [{"role": "developer", "content": [{"type": "input_image", "image_url": "https://x/y"}]}]},
            "input[0].content[0].type",
        ),
        (
            {"input": [{"role": "system", "content": [{"type": "input_image", "image_url": "https://x/y"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": ["x"]}, "input[0]"),
    ],
)
def test_what_is_refused(body: dict[str, Any], param: str) -> None:
    """S19, S105, S108, S110, S115, S119, S121, S126, S141, S143, S144, S146, S166-S172, D9, D17: 400 with the path."""
    error = refusal(**body)
    assert (error.code, error.param) == ("bad_request", param)


def test_text_format_points_to_chat_completions_and_references_to_store() -> None:
    """S126, D17: the message says what to do."""
    assert "/v1/chat/completions" in refusal(text={"format": {"type": "json_object"}}).message
    assert "store: false" in refusal(input=[{"type": "item_reference", "id": "msg_1"}]).message


def test_what_is_accepted_and_ignored() -> None:
    """S106, S122, S126, S130-S133, F2: whatever their type."""
    bodies: list[dict[str, Any]] = [
        {"store": 5, "include": "x", "metadata": [], "parallel_tool_calls": "no", "truncation": {}, "service_tier": 1},
        {
            "user": [],
            "client_metadata": 1,
            "background": "x",
            "max_tool_calls": [],
            "safety_identifier": {},
            "stream_options": 0,
        },
        {"text": {}, "reasoning": {"summary": 9}},
        {"text": {"verbosity": "low"}, "reasoning": None, "tools": None, "tool_choice": None, "instructions": None},
        {"text": {"format": {"type": "text"}}, "top_logprobs": "x", "previous_response_id": None},
    ]
    for body in bodies:
        assert request(**body).notices == []


def test_prompt_cache_key_length() -> None:
    """S127, S128: bytes, not characters; too long or empty is ignored."""
    assert request(prompt_cache_key="k").cache_key == "k"
    assert request(prompt_cache_key="é" * 256).cache_key == "é" * 256
    for key in ("", "é" * 257, "k" * 513, 5):
        assert request(prompt_cache_key=key).cache_key is None


def test_input_items_become_turns() -> None:
    """S111, S112, S134-S140, D26, B067: grouped by who speaks, unknown kinds dropped."""
    got = request(
        input=[
            {"role": "developer", "content": "rules"},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "a"},
                    {"type": "input_image", "image_url": "data:image/png;base64,QQ=="},
                ],
            },
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": None},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply", "input": "x"},
            {"type": "web_search_call", "id": "ws"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}]},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
            {"type": "item_reference", "id": "rs_1"},
            {
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "b"},
                    {"type": "unknown"},
                    {"type": "refusal", "refusal": "no"},
                ],
            },
        ]
    )
    assert [turn.role for turn in got.turns] == ["system", "user", "assistant", "user", "assistant"]
    assert isinstance(got.turns[1].parts[1], ImagePart)
    assert [type(part) for part in got.turns[2].parts] == [ReasoningPart, CallPart, CallPart]
    assert [part.call_id for part in got.turns[3].parts if isinstance(part, ResultPart)] == ["c1", "c2"]
    assert [part.text for part in got.turns[4].parts if isinstance(part, TextPart)] == [b"b", b"no"]


def test_tools_of_all_places() -> None:
    """S114, S117, D10, D18: containers flattened, additional_tools merged, other kinds dropped by name."""
    inner: dict[str, Any] = {"type": "function", "name": "read", "parameters": {}}
    got = request(
        tools=[
            {"type": "function", "name": "f"},
            {"type": "namespace", "name": "mcp__x", "tools": [inner]},
            {"type": "local_shell"},
            {"type": "custom", "name": "p"},
        ],
        input=[
            {"type": "additional_tools", "tools": [{"type": "namespace", "name": "mcp__y", "tools": [inner]}]},
            {"role": "user", "content": "hi"},
        ],
    )
    assert [(tool.namespace, tool.name, tool.custom) for tool in got.tools] == [
        (None, "f", False),
        ("mcp__x", "read", False),
        (None, "p", True),
        ("mcp__y", "read", False),
    ]
    assert [notice.name for notice in got.notices] == ["local_shell"]


def test_towards_a_responses_provider() -> None:
    """F3, S113, S123: stateless, the cap's default, instructions in front, nothing that keeps."""
    target = Target(dialect="responses", model="v", profile=Profile(), maker="x", envelopes=Envelopes(b"k"))
    got = request(instructions="I", store=True, background=True, metadata={"a": "b"}, prompt_cache_key="mine")
    sent = json.loads(RESPONSES.encode_request(fit(got, target, lambda key: "hmac-" + key), Profile()))
    assert sent["store"] is False
    assert (sent["instructions"], sent["input"], sent["max_output_tokens"]) == ("I", "hi", 65536)
    assert sent["prompt_cache_key"] == "hmac-mine"
    assert not {"background", "metadata", "previous_response_id", "conversation"} & set(sent)


# -- providers


def added(index: int | None, **item: Any) -> dict[str, Any]:
    """An output_item.added event; without an index as llama-server sends it."""
    at = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.added", "item": item, **at}


COMPLETED: dict[str, Any] = {
    "type": "response.completed",
    "response": {"status": "completed", "output": [], "usage": {"input_tokens": 5, "output_tokens": 2}},
}


def test_a_provider_without_indexes_and_with_late_dones() -> None:
    """llama-server: no output_index, reasoning_text, all dones at the end: the text still streams."""
    events = decode(
        {"type": "response.created", "response": {}},
        added(None, type="reasoning", id="rs_1"),
        {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "t"},
        added(None, type="message", id="msg_1"),
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "x"},
        {"type": "response.output_item.done", "item": {"type": "reasoning", "id": "rs_1"}},
        {
            "type": "response.output_item.done",
            "item": {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "x"}]},
        },
        COMPLETED,
    )
    assert events == [
        Start(),
        Open(0, "reasoning"),
        Reason(0, b"t"),
        Close(0),
        Open(1, "text"),
        Text(1, b"x"),
        Close(1),
        Meter(Usage(fresh=5, output=2)),
        Stop("stop", "completed"),
    ]


def test_arguments_that_come_only_with_the_item() -> None:
    """Arguments in output_item.done, or none at all."""
    events = decode(
        added(0, type="function_call", id="fc", call_id="c", name="f"),
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {"type": "function_call", "id": "fc", "arguments": '{"a":1}'},
        },
        added(1, type="function_call", id="fd", call_id="d", name="g"),
        {"type": "response.output_item.done", "output_index": 1, "item": {"type": "function_call", "id": "fd"}},
        COMPLETED,
        named=False,
    )
    assert [event.delta for event in events if isinstance(event, Args)] == [b'{\\"a\\":1}', b"{}"]
    assert events[-1] == Stop("call", "completed")  # F1


def test_reasoning_without_words_or_proof_is_nothing() -> None:
    """S33, B024; with a proof it is kept (D5)."""
    item: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": []}
    done = {"type": "response.output_item.done", "output_index": 0}
    assert not any(isinstance(event, Open) for event in decode(added(0, **item), {**done, "item": item}, COMPLETED))
    kept = decode(added(0, **item), {**done, "item": {**item, "encrypted_content": "blob"}}, COMPLETED)
    assert Seal(0, "encrypted", "blob") in kept


@pytest.mark.parametrize("kind", ["response.completed", "response.incomplete"])
def test_incomplete_in_both_spellings(kind: str) -> None:
    """F1: vLLM says completed with status incomplete, the vendor response.incomplete."""
    last = decode(
        {"type": kind, "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}}
    )[-1]
    assert isinstance(last, Stop)
    assert last.reason == "length"


@pytest.mark.parametrize(
    "frame", [{"type": "response.failed", "response": {"error": {"message": "x"}}}, {"type": "error", "message": "x"}]
)
def test_a_providers_failure(frame: dict[str, Any]) -> None:
    """E4: an error event is a failure, and the end is one without a finish (D6)."""
    for events in (decode(frame), decode({"type": "response.created", "response": {}})):
        assert type(events[-1]).__name__ == "Failure"


def test_plain_answers_of_a_provider() -> None:
    """The object of a plain answer, and bodies that are none (E4)."""
    body: dict[str, Any] = {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    assert Text(0, b"x") in RESPONSES.decode_reply(json.dumps(body).encode(), Profile(), "feed")
    for bad in (
        b"<html>",
        b"{}",
        b'{"error":{"message":"x"}}',
        b'{"status":"failed","output":[],"error":{"message":"x"}}',
    ):
        assert type(RESPONSES.decode_reply(bad, Profile(), "feed")[0]).__name__ == "Failure"
