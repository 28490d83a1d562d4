"""Single rules of the contract that other tests only brush: each stands here by itself, so that nothing but its own
fault makes it fail."""

import json
from typing import Any

import pytest

from kenari.core.errors import KenariError
from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Start, Stop, Text
from kenari.core.fold import fold
from kenari.core.usage import Usage
from kenari.dialects.base import Answer
from kenari.dialects.registry import DIALECTS
from kenari.gateway.gate import Gate

TEXT: list[Event] = [Start(), Open(0, "text"), Text(0, b"hi"), Close(0)]
CALL: list[Event] = [Start(), Open(0, "call", "call_1", "f"), Args(0, b'{\\"a\\":1}'), Close(0)]
USED = Meter(Usage(fresh=4, output=2))


def _answer(name: str) -> Answer:
    turns = {"input": "hi"} if name == "responses" else {"messages": [{"role": "user", "content": "hi"}]}
    return Answer(
        id="0123456789abcdef",
        created=1790000000,
        model="m",
        request=DIALECTS[name].decode_request(json.dumps({"model": "m", **turns}).encode()),
        seal=lambda _: "kn1.x",
        now=lambda: 1790000001.0,
    )


def _frames(name: str, events: list[Event]) -> list[dict[str, Any]]:
    encoder = DIALECTS[name].encoder(_answer(name))
    data = (encoder.encode(events) + encoder.finish()).decode()
    lines = [line[6:] for line in data.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_usage_of_zero_is_absent_on_chat() -> None:
    """S27, S47: the key is left out, not null; with tokens it stands on the last chunk only."""
    nothing = _frames("chat", [*TEXT, Meter(Usage(fresh=0, output=0)), Stop("stop")])
    assert not any("usage" in chunk for chunk in nothing)
    some = _frames("chat", [*TEXT, USED, Stop("stop")])
    assert ["usage" in chunk for chunk in some] == [False] * (len(some) - 1) + [True]


def test_arguments_come_in_input_json_deltas() -> None:
    """S25."""
    [delta] = [
        frame["delta"]
        for frame in _frames("messages", [*CALL, USED, Stop("call")])
        if "index" in frame and "delta" in frame
    ]
    assert delta == {"type": "input_json_delta", "partial_json": '{"a":1}'}


def test_thoughts_come_in_thinking_deltas_and_text_in_text_deltas() -> None:
    """S20, S63."""
    kinds = [
        frame["delta"]["type"]
        for frame in _frames("messages", [*TEXT, USED, Stop("stop")])
        if "index" in frame and "delta" in frame
    ]
    assert kinds == ["text_delta"]


def test_a_function_call_item() -> None:
    """S154: call_id, name and the arguments as a string of JSON."""
    reply = fold([*CALL, USED, Stop("call")])
    [item] = json.loads(DIALECTS["responses"].encode_reply(reply, _answer("responses")))["output"]
    assert (item["type"], item["call_id"], item["name"]) == ("function_call", "call_1", "f")
    assert json.loads(item["arguments"]) == {"a": 1}


def test_a_file_part_is_refused_and_told_where_to_go() -> None:
    """S144, S170, S145."""
    part = {"type": "input_file", "file_data": "data:text/plain;base64,aGk="}
    body = {"model": "m", "input": [{"role": "user", "content": [part]}]}
    with pytest.raises(KenariError, match="/v1/chat/completions") as refused:
        DIALECTS["responses"].decode_request(json.dumps(body).encode())
    assert refused.value.code == "bad_request"


@pytest.mark.parametrize(("events", "code"), [(TEXT[:2], "upstream_unavailable"), (TEXT, "stream_interrupted")])
def test_a_failure_keeps_its_code_until_there_is_content(events: list[Event], code: str) -> None:
    """D7: before content it is the attempt's own error, after it the answer was interrupted."""
    gate = Gate({})
    gate.take(events)
    gate.take([Failure(KenariError("upstream_unavailable", "x", elsewhere=True))])
    assert gate.error is not None
    assert gate.error.code == code


def test_metadata_is_ignored_and_content_may_be_text_or_parts() -> None:
    """S131, S135: nothing of metadata reaches the turns; both spellings of content are one turn."""
    decode = DIALECTS["responses"].decode_request
    for content in ("hi", [{"type": "input_text", "text": "hi"}]):
        body = {"model": "m", "input": [{"role": "user", "content": content}], "metadata": {"a": "b"}}
        [turn] = decode(json.dumps(body).encode()).turns
        assert [getattr(part, "text", None) for part in turn.parts] == [b"hi"]
