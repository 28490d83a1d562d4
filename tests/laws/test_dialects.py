"""The laws over all dialects: L1 to L6 and L10. A new dialect is held to them by standing in the registry."""

import json
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kenari.core.events import Event
from kenari.core.fold import Fold, Reply, fold, unfold
from kenari.core.grammar import Grammar, check
from kenari.core.ids import Envelopes
from kenari.core.profile import Profile
from kenari.dialects.base import Answer
from kenari.dialects.fit import Target, fit
from kenari.dialects.registry import DIALECTS
from kenari.wire import jsonx
from kenari.wire.sse import Frames
from tests.strategies import cuts, request_body, streams

NAMES = tuple(DIALECTS)
PROFILE = Profile(reasoning_content_roundtrip=True)


def answer_for(name: str) -> Answer:
    """What an encoder of this dialect needs."""
    request = DIALECTS[name].decode_request(request_body(name))
    return Answer(
        id="0123456789abcdef",
        created=1790000000,
        model="m",
        request=request,
        seal=lambda proofs: "kn1.x",
        now=lambda: 1790000001.0,
    )


def to_bytes(name: str, events: list[Event]) -> bytes:
    """The whole stream of a client."""
    encoder = DIALECTS[name].encoder(answer_for(name))
    return b"".join(encoder.encode([event]) for event in events) + encoder.finish()


def to_events(name: str, pieces: list[bytes]) -> list[Event]:
    """What a provider's decoder makes of bytes that come in these pieces."""
    frames, decoder = Frames(), DIALECTS[name].decoder(PROFILE, "feed")
    events: list[Event] = []
    for piece in pieces:
        for frame in frames.feed(piece):
            events += decoder.feed(frame)
    for frame in frames.flush():
        events += decoder.feed(frame)
    return events + decoder.finish()


def essence(reply: Reply) -> dict[str, Any]:
    """What every format can say: texts, thoughts, calls, how it ended, what it used."""

    def joined(*kinds: str) -> str:
        return jsonx.unescape(b"".join(block.text for block in reply.blocks if block.kind in kinds))

    calls = [(b.call_id, b.name, json.loads(jsonx.unescape(b.text))) for b in reply.blocks if b.kind == "call"]
    reason = "stop" if reply.stop.reason == "sequence" else reply.stop.reason
    used = (reply.usage.prompt, reply.usage.cache_read or 0, reply.usage.output)
    return {
        "text": joined("text", "refusal"),
        "thought": joined("reasoning"),
        "calls": calls,
        "stop": reason,
        "used": used,
    }


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), events=streams())
@settings(max_examples=40, deadline=None)
def test_l1_cutting_anywhere_changes_nothing(name: str, data: st.DataObject, events: list[Event]) -> None:
    """L1: any cut, and CRLF line ends, give the same events."""
    raw = to_bytes(name, events)
    places = [0, *data.draw(cuts(len(raw))), len(raw)]
    pieces = [raw[a:b] for a, b in pairwise(places)]
    whole = to_events(name, [raw])
    assert to_events(name, pieces) == whole
    other = raw.replace(b"\n", b"\r\n")
    assert to_events(name, [other[at : at + 3] for at in range(0, len(other), 3)]) == whole


@pytest.mark.parametrize("name", NAMES)
@given(events=streams())
@settings(max_examples=60, deadline=None)
def test_l2_events_to_bytes_to_events_keeps_the_fold(name: str, events: list[Event]) -> None:
    """L2."""
    back = to_events(name, [to_bytes(name, events)])
    assert check(back) is None
    assert essence(fold(back)) == essence(fold(events))


@pytest.mark.parametrize("second", NAMES)
@pytest.mark.parametrize("first", NAMES)
@given(events=streams())
@settings(max_examples=25, deadline=None)
def test_l3_all_pairs(first: str, second: str, events: list[Event]) -> None:
    """L3: a provider of any format in front of a client of any format."""
    crossed = to_events(first, [to_bytes(first, events)])
    assert essence(fold(to_events(second, [to_bytes(second, crossed)]))) == essence(fold(events))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), events=streams())
@settings(max_examples=40, deadline=None)
def test_l4_batches_do_not_matter(name: str, data: st.DataObject, events: list[Event]) -> None:
    """L4: the same frames, however the events were batched on their way (there is one encoder, relay included)."""
    places = [0, *data.draw(cuts(len(events))), len(events)]
    encoder = DIALECTS[name].encoder(answer_for(name))
    batched = b"".join(encoder.encode(events[a:b]) for a, b in pairwise(places) if a < b) + encoder.finish()
    assert batched == to_bytes(name, events)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), events=streams())
@settings(max_examples=60, deadline=None)
def test_l5_decoders_obey_the_grammar_on_cut_and_damaged_input(
    name: str, data: st.DataObject, events: list[Event]
) -> None:
    """L5: truncated anywhere, with bytes overwritten anywhere: legal events, and never an exception."""
    raw = bytearray(to_bytes(name, events))
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[place] = data.draw(st.integers(0, 255))
    got = to_events(name, [bytes(raw[: data.draw(st.integers(0, len(raw)))])])
    grammar = Grammar()
    assert [fault for fault in map(grammar.check, got) if fault] == []


@pytest.mark.parametrize("name", NAMES)
@given(raw=st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_l5_on_noise(name: str, raw: bytes) -> None:
    """L5: whatever comes, a decoder does not fall over."""
    to_events(name, [raw])
    DIALECTS[name].decode_reply(raw, PROFILE, "feed")
    to_events(name, [b"data: " + raw.replace(b"\n", b"") + b"\n\n"])


@pytest.mark.parametrize("name", NAMES)
@given(events=streams())
@settings(max_examples=60, deadline=None)
def test_l6_a_plain_answer_is_a_folded_stream(name: str, events: list[Event]) -> None:
    """L6, S160: the plain answer says what the stream says, and unfolding it says it again."""
    dialect, reply = DIALECTS[name], fold(events)
    body = dialect.encode_reply(reply, answer_for(name))
    again = dialect.decode_reply(body, PROFILE, "feed")
    assert check(again) is None
    assert essence(fold(again)) == essence(reply)
    assert essence(fold(unfold(reply))) == essence(reply)


def test_a_stream_that_just_ends_is_an_error_when_folded() -> None:
    """D6: nothing is taken for a whole answer that was not finished."""
    with pytest.raises(Exception, match="interrupted"):
        Fold().reply()


ODD = b'{"type": "object", "properties": {"a": {"type": "number", "minimum": 1.50, "x": 12345678901234567890}}, "z": "\\u0041\\/"}'
REQUESTS: dict[str, tuple[bytes, list[bytes]]] = {
    "chat": (
        b'{"model":"m","temperature": 0.70,"stop": ["\\u0041"],"seed":12345678901234567890,"x_vendor": {"k" : [1.0]},'
        b'"messages":[{"role": "user", "name":"n", "content": [{"type": "text", "text": "\\u00e9\\/\\ud83d\\ude00"}]},'
        b'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{ \\"a\\" :1.0}"}}]},'
        b'{"role":"tool","tool_call_id":"c","content":"\\u0041"}],'
        b'"tools":[{"type": "function", "function": {"name":"f","parameters": ' + ODD + b"}}]}",
        [
            b'"temperature":0.70',
            b'["\\u0041"]',
            b"12345678901234567890",
            b'{"k" : [1.0]}',
            ODD,
            b'"{ \\"a\\" :1.0}"',
            b'{"role": "user", "name":"n"',
        ],
    ),
    "messages": (
        b'{"model":"m","max_tokens":50,"temperature": 0.70,"system":[{"type": "text", "text":"\\u0041"}],"metadata": {"user_id" :"u"},'
        b'"messages":[{"role":"user","content":[{"type":"text",  "text":"\\u00e9"}]},'
        b'{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a" :1.0}}]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content": "\\/"}]}],'
        b'"tools":[{"name":"f","input_schema": ' + ODD + b"}]}",
        [
            b'"temperature":0.70',
            b'[{"type": "text", "text":"\\u0041"}]',
            b'{"user_id" :"u"}',
            b'{"a" :1.0}',
            ODD,
            b'"content": "\\/"',
        ],
    ),
    "responses": (
        b'{"model":"m","temperature": 0.70,"input":[{"role": "user", "content":[{"type":"input_text", "text":"\\u00e9"}]},'
        b'{"type":"function_call","call_id":"c","name":"f","arguments":"{ \\"a\\" :1.0}"},'
        b'{"type":"function_call_output","call_id":"c","output": "\\u0041"}],'
        b'"tools":[{"type": "function", "name":"f", "parameters": ' + ODD + b"}]}",
        [b'"temperature":0.70', b'{"role": "user", "content"', b'"{ \\"a\\" :1.0}"', b'"output": "\\u0041"', ODD],
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_l10_what_no_rule_names_reaches_the_provider_byte_equal(name: str) -> None:
    """L10: numbers, escapes, white space and key order survive from a client to a provider of its own format."""
    body, kept = REQUESTS[name]
    dialect = DIALECTS[name]
    target = Target(dialect=name, model="vendor", profile=Profile(), maker="x", envelopes=Envelopes(b"k"))
    out = dialect.encode_request(fit(dialect.decode_request(body), target), Profile())
    for piece in kept:
        assert piece in out, piece
    assert json.loads(out)["model"] == "vendor"


@pytest.mark.parametrize("second", NAMES)
@pytest.mark.parametrize("first", NAMES)
def test_l10_schemas_cross_untouched(first: str, second: str) -> None:
    """L10, S114: a schema is opaque data on every way."""
    target = Target(dialect=second, model="vendor", profile=Profile(), maker="x", envelopes=Envelopes(b"k"))
    out = DIALECTS[second].encode_request(fit(DIALECTS[first].decode_request(REQUESTS[first][0]), target), Profile())
    assert ODD in out


@pytest.mark.parametrize("name", NAMES)
def test_a_later_turn_begins_with_the_bytes_of_the_earlier_one(name: str) -> None:
    """L10: prompt caches keep hitting, through every translation."""
    for origin in NAMES:
        body = json.loads(REQUESTS[origin][0])
        key = "input" if origin == "responses" else "messages"
        later = dict(body)
        later[key] = [*body[key], {"role": "assistant", "content": "ok"}, {"role": "user", "content": "more"}]
        target = Target(dialect=name, model="v", profile=Profile(), maker="x", envelopes=Envelopes(b"k"))
        sent = [
            json.loads(
                DIALECTS[name].encode_request(
                    fit(DIALECTS[origin].decode_request(json.dumps(one).encode()), target), Profile()
                )
            )
            for one in (body, later)
        ]
        place = "input" if name == "responses" else "messages"
        first, second = ([_unmarked(one) for one in body[place]] for body in sent)
        assert second[: len(first)] == first
        assert _unmarked(sent[0].get("tools")) == _unmarked(sent[1].get("tools"))


def _unmarked(value: Any) -> Any:
    """Cache marks say where to cache and move on; a text that has one is a block, which means the same."""
    if isinstance(value, list):
        items = [_unmarked(one) for one in cast("list[Any]", value)]
        if len(items) == 1 and isinstance(items[0], dict) and items[0].keys() == {"type", "text"}:  # pyright: ignore[reportUnknownMemberType]
            return items[0]["text"]  # pyright: ignore[reportUnknownVariableType]
        return items
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: _unmarked(one) for name, one in members.items() if name != "cache_control"}
    return value
