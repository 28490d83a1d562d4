"""Chat providers' answers -> events: quirks of real servers, legal order, any cut."""

import base64
import json
from typing import Any

import pytest
from chat_kit import ID, SHARED, STREAMS, calls, decode, profile, said, stream, text
from hypothesis import given, settings
from hypothesis import strategies as st

from kenari.core.errors import KenariError
from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Stop, Text
from kenari.core.fold import Fold, fold
from kenari.core.grammar import check
from kenari.core.profile import Profile
from kenari.dialects.chat import CHAT
from kenari.dialects.chat.think import ThinkTags
from kenari.wire.sse import Frame

JAKARTA = {"city": "Jakarta"}


@pytest.mark.parametrize("name", ["text", "llama_server", "vllm", "transformers", "mistral_parts", "crlf", "noise"])
def test_real_servers_text(name: str) -> None:
    """S20, S21, D6: the answer and the reasoning under either name, with `[DONE]` or without, whatever the line ends."""
    reply = said(name)
    assert text(reply) == b"1, 2, 3"
    assert text(reply, "reasoning") in (b"", b"count up")
    assert (reply.usage.prompt, reply.usage.output) == (14, 6)


@pytest.mark.parametrize("name", ["llama_server", "vllm", "mistral_parts", "think_tags"])
def test_reasoning_stands_before_the_text(name: str) -> None:
    """S32, R3: reasoning is a block of its own."""
    reply = said(name)
    assert [block.kind for block in reply.blocks] == ["reasoning", "text"]
    assert reply.blocks[0].text == b"count up"


def test_s33_an_answer_without_reasoning_has_no_such_block() -> None:
    assert [block.kind for block in said("text").blocks] == ["text"]


def test_s43_the_same_reasoning_under_both_names_counts_once() -> None:
    assert text(said("both_names"), "reasoning") == b"abc"


def test_d4_late_reasoning_is_a_further_block() -> None:
    assert [block.kind for block in said("late_reasoning").blocks] == ["text", "reasoning", "text"]


@pytest.mark.parametrize(
    "name",
    [
        "llama_server_tool",
        "vllm_tool",
        "llama_cpp_python",
        "other_id_without_name",
        "name_in_pieces",
        "arguments_before_name",
        "object_arguments",
    ],
)
def test_one_call_however_it_is_cut(name: str) -> None:
    """S45: one call whose arguments are whole; F1: its reason is call, whatever the provider says."""
    reply = said(name)
    [(call_id, called, arguments)] = calls(reply)
    assert (called, arguments) == ("get_weather", JAKARTA)
    assert call_id
    assert reply.stop.reason == "call"


@pytest.mark.parametrize("name", ["parallel_interleaved", "same_index_new_id", "index_gap"])
def test_two_calls_however_they_are_numbered(name: str) -> None:
    assert calls(said(name)) == [("call_a", "get_weather", JAKARTA), ("call_b", "read_file", {"path": "a.txt"})]


def test_calls_without_index_and_id_are_told_apart_and_get_ids() -> None:
    found = calls(said("no_index_no_id"))
    assert [arguments["city"] for _, _, arguments in found] == ["Jakarta", "Bandung"]
    assert len({call_id for call_id, _, _ in found}) == 2
    assert all(ID in call_id for call_id, _, _ in found)


def test_an_id_that_comes_twice_is_made_unique() -> None:
    found = calls(said("same_id_twice"))
    assert found[0][0] == "call_a"
    assert found[1][0] not in ("", "call_a")


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    assert calls(said("no_arguments")) == [("call_a", "get_time", {})]


def test_a_call_opens_when_its_arguments_start() -> None:
    events = decode(stream("name_in_pieces"))
    opened = next(at for at, event in enumerate(events) if isinstance(event, Open))
    assert isinstance(events[opened + 1], Args)


def test_calls_stand_in_the_order_in_which_they_began() -> None:
    events: list[Event] = []
    decoder = CHAT.decoder(Profile(), ID)
    for tool in (
        {"index": 0, "id": "a", "function": {"name": "first"}},
        {"index": 1, "id": "b", "function": {"name": "second", "arguments": "{}"}},
    ):
        events += decoder.feed(chunk({"tool_calls": [tool]}))
    events += decoder.feed(chunk({}, "tool_calls"))
    assert [event.name for event in events if isinstance(event, Open)] == ["first", "second"]
    assert check(events) is None


def chunk(delta: dict[str, Any], finish: str | None = None) -> Frame:
    """A provider's chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Frame(b"", json.dumps({"choices": [choice]}).encode())


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "filter"),
        ("tool_calls", "stop"),
        ("eos", "stop"),
        ("max_tokens", "length"),
    ],
)
def test_f1_finish_reasons_without_calls(word: str, reason: str) -> None:
    """F1: an unknown reason is a stop, and `tool_calls` without calls is one too."""
    decoder = CHAT.decoder(Profile(), ID)
    events = decoder.feed(chunk({"content": "x"})) + decoder.feed(chunk({}, word))
    assert events[-1] == Stop(reason, word)  # type: ignore[arg-type]


def test_f1_length_wins_over_calls() -> None:
    reply = fold(decode(stream("length_in_call")))
    assert reply.stop.reason == "length"
    assert reply.blocks[0].text == b'{\\"city\\":\\"Jak'


def test_f1_the_stop_sequence_that_vllm_names() -> None:
    stop = said("vllm").stop
    assert (stop.reason, stop.sequence) == ("sequence", "END")


def test_u1_the_last_report_that_is_not_zero_wins() -> None:
    """U1, U2: later usage completes earlier one, zeros never take back, cached tokens are not fresh."""
    usage = said("usage_twice").usage
    assert (usage.fresh, usage.cache_read, usage.output) == (25, 75, 5)


def test_u1_not_reported_is_not_zero() -> None:
    assert said("text").usage.cache_read is None
    assert said("llama_server").usage.cache_read == 10
    decoder = CHAT.decoder(Profile(), ID)
    [_, meter] = decoder.feed(
        Frame(b"", b'{"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}')
    )
    assert isinstance(meter, Meter)
    assert meter.usage.cache_read == 0


@pytest.mark.parametrize("name", ["llama_cpp_python", "odd_usage"])
def test_u3_usage_that_never_came_is_none(name: str) -> None:
    """U3: nothing is made up here; who counts is the gateway. Odd usage costs no content."""
    assert not any(isinstance(event, Meter) for event in decode(stream(name)))


@pytest.mark.parametrize(
    ("usage", "fresh", "cached", "output"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 60}, 40, 60, 5),
        ({"prompt_tokens": 100, "completion_tokens": 5, "cached_tokens": 60}, 40, 60, 5),
        ({"prompt_tokens": "100", "completion_tokens": "5"}, 100, None, 5),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}}, 0, 60, 5),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 55,
                "completion_tokens_details": {"reasoning_tokens": 40},
            },
            10,
            None,
            45,
        ),
    ],
)
def test_u1_vendors_ways_to_say_usage(usage: dict[str, Any], fresh: int, cached: int | None, output: int) -> None:
    decoder = CHAT.decoder(Profile(), ID)
    [_, meter] = decoder.feed(Frame(b"", json.dumps({"choices": [], "usage": usage}).encode()))
    assert isinstance(meter, Meter)
    assert (meter.usage.fresh, meter.usage.cache_read, meter.usage.output) == (fresh, cached, output)


def test_groq_has_its_own_place_for_usage() -> None:
    assert said("groq_usage").usage.output == 6


def test_f5_stop_comes_with_the_finish_and_usage_after_it() -> None:
    """F5: the gateway waits for usage, so it has to hear of the finish at once."""
    events = decode(stream("text"))
    assert [type(event) for event in events[-2:]] == [Stop, Meter]


def test_d6_chunks_after_the_finish_say_nothing_more() -> None:
    events = decode(stream("chunks_after_finish"))
    assert check(events) is None
    assert text(fold(events)) == b"ok"
    assert fold(events).usage.output == 6


@pytest.mark.parametrize("name", ["cut", "done_without_finish"])
def test_d6_an_end_without_a_finish_is_an_interruption(name: str) -> None:
    with pytest.raises(KenariError) as caught:
        said(name)
    assert caught.value.code == "stream_interrupted"


def test_d6_done_is_known_with_done_only() -> None:
    for name, done in (("text", True), ("transformers", False)):
        decoder = CHAT.decoder(Profile(), ID)
        for block in stream(name).split(b"\n\n"):
            decoder.feed(Frame(b"", block.removeprefix(b"data: ")))
        assert decoder.done is done
        assert decoder.finish() == []


@pytest.mark.parametrize("name", ["error_first", "error_midstream", "error_beside_choices"])
def test_e4_an_error_in_a_stream_of_status_200_is_a_failure(name: str) -> None:
    events = decode(stream(name))
    assert check(events) is None
    assert isinstance(events[-1], Failure)
    assert events[-1].error.code == "upstream_error"


def test_e4_an_error_in_an_array_is_a_failure() -> None:
    [event] = CHAT.decoder(Profile(), ID).feed(Frame(b"", b'[{"error":{"code":429,"message":"slow down"}}]'))
    assert isinstance(event, Failure)
    assert event.error.code == "upstream_rate_limited"


def test_d6_an_error_after_the_finish_is_no_loss() -> None:
    assert text(said("error_after_finish")) == b"ok"


def test_e5_a_context_overflow_in_a_stream_keeps_its_code() -> None:
    body = b'{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}'
    [event] = CHAT.decoder(Profile(), ID).feed(Frame(b"", body))
    assert isinstance(event, Failure)
    assert event.error.code == "context_length_exceeded"


def test_d8_only_the_first_choice_is_read() -> None:
    reply = said("two_choices")
    assert text(reply) == b"1, 2, 3"


def test_d8_logprobs_travel_raw_beside_their_text() -> None:
    raw = [event.logprobs for event in decode(stream("logprobs")) if isinstance(event, Text)]
    assert [json.loads(one)["content"][0]["token"] for one in raw] == ["ok", "!"]


def test_f2_halves_of_a_surrogate_pair_meet_again() -> None:
    """F2: joined over two deltas, and replaced when the mate never comes."""
    assert text(said("split_surrogate")).decode() == "ok \U0001f600! \ufffd"
    assert calls(said("split_surrogate_in_call"))[0][2] == {"t": "\U0001f600"}


def test_f2_invalid_utf8_is_replaced() -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"content":"a\xffb"},"finish_reason":"stop"}]}\n\n'
    assert text(fold(decode(data))).decode() == "a\ufffdb"


def test_text_is_copied_with_the_escapes_of_its_author() -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"content":"\\u00e9\\n\\/"},"finish_reason":"stop"}]}\n\n'
    assert text(fold(decode(data))) == b"\\u00e9\\n\\/"


def test_think_tags_only_with_the_flag_and_only_in_front() -> None:
    reply = fold(decode(stream("think_tags")))
    assert text(reply) == b"<think>count up</think>1, 2, 3 <think>"
    assert text(said("think_tags")) == b"1, 2, 3 <think>"


def test_think_tags_that_never_close_are_reasoning() -> None:
    reply = said("think_tags_only")
    assert [(block.kind, block.text) for block in reply.blocks] == [("reasoning", b"count up</")]


def test_what_waits_for_a_tag_comes_before_a_call() -> None:
    decoder = CHAT.decoder(Profile(think_tags=True), ID)
    events = decoder.feed(chunk({"content": "<thi"}))
    events += decoder.feed(
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]})
    )
    events += decoder.feed(chunk({}, "tool_calls"))
    assert [block.kind for block in fold(events).blocks] == ["text", "call"]


@given(st.text("<think>/ab ", max_size=30), st.data())
def test_think_tags_do_not_depend_on_the_cut(words: str, data: st.DataObject) -> None:
    def split(pieces: list[str]) -> tuple[str, str]:
        tags = ThinkTags()
        out = [pair for piece in pieces for pair in tags.feed(piece)] + tags.flush()
        return "".join(t for r, t in out if r), "".join(t for r, t in out if not r)

    at = data.draw(st.integers(0, len(words)))
    to = data.draw(st.integers(at, len(words)))
    assert split([words[:at], words[at:to], words[to:]]) == split([words])


def outcome(events: list[Event]) -> object:
    """What a client would make of these events."""
    folded = Fold()
    folded.add(events)
    try:
        return folded.reply()
    except KenariError as error:
        return error.code


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_cutting_the_bytes_anywhere_changes_nothing(name: str, data: st.DataObject) -> None:
    """Law L1."""
    raw = stream(name)
    cut = data.draw(st.lists(st.integers(0, len(raw)), max_size=6))
    assert outcome(decode(raw, profile(name), cut)) == outcome(decode(raw, profile(name)))


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_input_gives_a_legal_stream(name: str, data: st.DataObject) -> None:
    """Law L5: whole, truncated and with bytes overwritten."""
    raw = bytearray(stream(name))
    assert check(decode(bytes(raw), profile(name))) is None
    end = data.draw(st.integers(0, len(raw)))
    assert check(decode(bytes(raw[:end]), profile(name))) is None
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at : at + 3] = data.draw(st.binary(min_size=3, max_size=3))
    assert check(decode(bytes(raw), profile(name))) is None


NONE: dict[str, Any] = {}
PARTS: Any = [{"type": "text", "text": "p"}]
TOOL: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    NONE,
    optional={
        "index": st.sampled_from([0, 1, None]),
        "id": st.sampled_from(["a", "b", "", None, 7]),
        "function": st.fixed_dictionaries(
            NONE,
            optional={
                "name": st.sampled_from(["f", "g", "", None]),
                "arguments": st.sampled_from(["{}", '{"a":', "1}", "", None]),
            },
        ),
    },
)
DELTA: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    NONE,
    optional={
        "content": st.sampled_from(["x", "", None, "<think>", "</think>", PARTS, 5]),
        "reasoning_content": st.sampled_from(["r", "", None]),
        "tool_calls": st.one_of(st.none(), st.lists(TOOL, max_size=2)),
    },
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(DELTA, st.sampled_from([None, None, None, "stop", "tool_calls", "error"])), max_size=6),
    st.booleans(),
)
def test_any_deltas_give_a_legal_stream(frames: list[tuple[dict[str, Any], str | None]], tags: bool) -> None:
    """Law L5, over what servers might send: unique ids, one Close for each Open, never a raise."""
    decoder = CHAT.decoder(Profile(think_tags=tags), ID)
    events = [event for delta, finish in frames for event in decoder.feed(chunk(delta, finish))] + decoder.finish()
    assert check(events) is None
    ids = [event.call_id for event in events if isinstance(event, Open) and event.kind == "call"]
    assert len(set(ids)) == len(ids)
    if isinstance(events[-1], Stop):
        assert sum(isinstance(event, Open) for event in events) == sum(isinstance(event, Close) for event in events)


REPLY: dict[str, Any] = {
    "id": "up-1",
    "object": "chat.completion",
    "model": "vendor/real",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "4",
                "reasoning_content": "2+2",
                "tool_calls": [
                    {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                    {"id": "call_b", "type": "function", "function": {"name": "f", "arguments": ""}},
                ],
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 6, "total_tokens": 15},
}


def test_a_plain_answer_is_a_folded_stream() -> None:
    events = CHAT.decode_reply(json.dumps(REPLY).encode(), Profile(), ID)
    assert check(events) is None
    reply = fold(events)
    assert [block.kind for block in reply.blocks] == ["reasoning", "text", "call", "call"]
    assert calls(reply) == [("call_a", "f", {"a": 1}), ("call_b", "f", {})]
    assert (reply.stop.reason, reply.usage.fresh) == ("call", 9)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>busy</html>",
        b"{}",
        b"[]",
        b'{"choices":[]}',
        b'{"choices":[{"index":0}]}',
        b'{"error":{"message":"boom","code":500}}',
        b'{"choices":[{"message":{"content":""},"finish_reason":"error"}],"error":{"message":"boom"}}',
    ],
)
def test_e4_a_plain_body_that_is_no_answer_is_one_failure(body: bytes) -> None:
    [event] = CHAT.decode_reply(body, Profile(), ID)
    assert isinstance(event, Failure)
    assert event.error.status == 502


RECORDINGS = sorted((SHARED / "recordings").glob("*chat*.json")) if SHARED.is_dir() else []


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recordings_of_real_servers(path: Any) -> None:
    """Every recorded answer is legal, whole and cut after each byte of its first half kilobyte."""
    record = json.loads(path.read_bytes())
    if record["status"] != 200:
        pytest.skip("an HTTP error, which is read elsewhere")
    data = b"".join(base64.b64decode(piece["b64"]) for piece in record["chunks"])
    if not data.lstrip().startswith((b"data:", b":", b"event:")):
        assert check(CHAT.decode_reply(data, Profile(), ID)) is None
        return
    whole = decode(data)
    assert check(whole) is None
    for at in range(0, min(len(data), 512), 7):
        assert outcome(decode(data, cut=[at])) == outcome(whole)
        assert check(decode(data[:at])) is None
