"""The three streams on the wire, byte by byte as a client without an SDK reads them."""

import json
from typing import Any

import pytest
from rig import PAGE_MODEL, Rig

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


def _body(client: str, model: str, **more: Any) -> dict[str, Any]:
    if client == "responses":
        return {"model": model, "stream": True, "input": "Halo!", **more}
    return {"model": model, "stream": True, "messages": [{"role": "user", "content": "Halo!"}], **more}


@pytest.mark.parametrize("client", PATHS)
def test_the_head_of_a_stream(rig: Rig, client: str) -> None:
    """S3, D14, F13: an event stream of status 200 that no proxy keeps back, with the id under both names."""
    answer = rig.gateway.call(PATHS[client], _body(client, PAGE_MODEL))
    assert answer.status == 200
    assert answer.headers["content-type"].split(";")[0] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert answer.headers["x-request-id"] in answer.body.decode()


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("model", ["talks-and-calls", "fails", "quiet"])
def test_the_frames_of_a_stream(rig: Rig, client: str, model: str) -> None:
    """S6, S7, S8, S12, S13, S14, S79: one event and one blank line each; chat has `data:` lines only, the others name
    each event as its type says."""
    body = rig.gateway.call(PATHS[client], _body(client, model)).body.decode()
    assert body.endswith("\n\n")
    for block in body[:-2].split("\n\n"):
        lines = block.split("\n")
        if lines == [": keepalive"]:
            continue
        if client == "chat":
            assert len(lines) == 1
            assert lines[0] == "data: [DONE]" or "choices" in json.loads(lines[0][6:]) or "error" in lines[0]
            continue
        event, data = lines
        assert event.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]


def test_a_whole_responses_stream(rig: Rig) -> None:
    """S81, S82, S83, S84, S85, S86, S87, S88, S89, S90, S95: a thought, words and a call, each with all its events."""
    frames = rig.gateway.call(PATHS["responses"], _body("responses", "talks-and-calls")).frames()
    events: list[dict[str, Any]] = [json.loads(data) for _, data in frames]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind] == [
        "created",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "output_text.delta",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert events[-1]["response"]["output"] == done
    pieces = [event["delta"] for event in events if event["type"] == "response.reasoning_summary_text.delta"]
    assert "".join(pieces) == done[0]["summary"][0]["text"] == "Look it up."
    assert next(event["text"] for event in events if event["type"].endswith("summary_text.done")) == "Look it up."


def test_cached_tokens_are_part_of_the_input(rig: Rig) -> None:
    """S157, S151: and 0 where nothing was cached."""
    usage = rig.gateway.call(PATHS["responses"], _body("responses", "cached", stream=False)).json()["usage"]
    assert (usage["input_tokens"], usage["input_tokens_details"]) == (120, {"cached_tokens": 100})
    usage = rig.gateway.call(PATHS["responses"], _body("responses", PAGE_MODEL, stream=False)).json()["usage"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": []}, "input"),  # S166
        ({"previous_response_id": "resp_1"}, "previous_response_id"),  # S167
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, "text.format"),  # S168
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),  # S169
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),  # S170
        ({"tools": [{"type": "function"}]}, "tools[0].name"),  # S171
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),  # S172
        ({"stream": "yes"}, "stream"),  # S19
    ],
)
def test_refusals_reach_no_provider(rig: Rig, more: dict[str, Any], param: str) -> None:
    """S164, S166-S172, S175: 400 with the field at fault, an ordinary answer even where a stream was asked for."""
    before = len(rig.provider.seen)
    answer = rig.gateway.call(PATHS["responses"], _body("responses", PAGE_MODEL) | more)
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["type"]) == (400, "bad_request", "invalid_request_error")
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["param"].startswith(param)
    assert len(rig.provider.seen) == before


def test_one_line_of_log_for_each_request(rig: Rig) -> None:
    """A structured line with the id and the tokens; no prompt and no secret in it."""
    answer = rig.gateway.call(
        PATHS["chat"], _body("chat", PAGE_MODEL) | {"messages": [{"role": "user", "content": "a secret"}]}
    )
    ident = answer.headers["x-request-id"]
    line = rig.gateway.line_of(ident)
    assert line["id"] == ident
    text = json.dumps(line)
    assert PAGE_MODEL in text
    assert "a secret" not in text
    assert "sk-upstream-key" not in text
