"""What holds for every stream of the Responses dialect, on our fixtures, on hostile input and on real servers' bytes.

The laws over all dialects (tests/laws) draw their own streams; these add the habits of real providers.
"""

import base64
import json
from typing import Any

import pytest
from events_kit import essence
from hypothesis import given, settings
from hypothesis import strategies as st
from responses_kit import ID, SCHEMAS, SHARED, SPEC, STREAMS, answer, decode, encode, faults, frames_of, stream

from kenari.core.events import Failure, Seal, Stop, StopReason
from kenari.core.fold import Block, Reply, fold, unfold
from kenari.core.grammar import check
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.dialects.responses import RESPONSES
from kenari.wire import jsonx


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(STREAMS), st.data())
def test_any_cut(name: str, data: st.DataObject) -> None:
    """L1."""
    whole = stream(name)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    events = decode(whole)
    assert decode(whole, cuts)[:-1] == events[:-1]
    assert essence(decode(whole, cuts)) == essence(events)


@pytest.mark.parametrize("name", STREAMS)
def test_every_line_end_and_no_names(name: str) -> None:
    """L1: CRLF and CR; and without event lines, as some servers send them."""
    whole = stream(name)
    events = decode(whole)
    for line_end in (b"\r\n", b"\r"):
        assert essence(decode(whole.replace(b"\n", line_end), range(0, len(whole), 7))) == essence(events)
    nameless = b"\n".join(line for line in whole.split(b"\n") if not line.startswith(b"event:"))
    assert essence(decode(nameless)) == essence(events)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(STREAMS), st.integers(0, 6000))
def test_truncated_streams_obey_the_grammar(name: str, length: int) -> None:
    """L5, D6: and never look like a finished answer."""
    whole = stream(name)
    events = decode(whole[:length])
    assert check(events) is None
    if b"response.completed" not in whole[:length] and b"response.incomplete" not in whole[:length]:
        assert isinstance(events[-1], Failure)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(STREAMS), st.randoms(use_true_random=False))
def test_shuffled_streams_obey_the_grammar(name: str, chance: Any) -> None:
    """L5: hostile order; what comes of it can be encoded."""
    frames = stream(name).split(b"\n\n")
    chance.shuffle(frames)
    events = decode(b"\n\n".join(frames) + b"\n\n")
    assert check(events) is None
    frames_of(encode(events[:-1]))


MEMBERS = (
    "type id item item_id output_index summary_index delta arguments response status output usage error call_id name "
    "summary content text encrypted_content"
).split()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["", "x", "message", "reasoning", "function_call"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [*SCHEMAS, "response.incomplete", "response.reasoning_text.delta", "response.refusal.delta", "error", "x"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(NAMES, st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=5)), max_size=10))
def test_hostile_frames_obey_the_grammar(frames: list[tuple[str, dict[str, Any]]]) -> None:
    """L5: any members of any type in any event."""
    data = b"".join(b"data: " + json.dumps(body | {"type": name}).encode() + b"\n\n" for name, body in frames)
    events = decode(data)
    assert check(events) is None
    RESPONSES.encoder(answer()).encode(events)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_hostile_bodies(body: Any) -> None:
    """L5, E4: any JSON as a plain answer."""
    assert check(RESPONSES.decode_reply(json.dumps(body).encode(), Profile(), ID)) is None


TEXT = st.text(min_size=1, max_size=12).map(jsonx.escape)
WORD = st.text(alphabet="abcXYZ_-09", min_size=1, max_size=12)


def a_text(text: bytes) -> Block:
    return Block("text", text)


def a_thought(text: bytes) -> Block:
    return Block("reasoning", text)


def a_call(call_id: str, name: str, text: bytes) -> Block:
    return Block("call", jsonx.embed(b'{"a":"' + text + b'"}'), call_id, name)


def merged(blocks: list[Block]) -> list[tuple[str, bytes]]:
    """Blocks as this format can say them: thoughts in a row are one (its LOSES)."""
    out: list[tuple[str, bytes]] = []
    for block in blocks:
        if out and out[-1][0] == block.kind == "reasoning":
            out[-1] = ("reasoning", out[-1][1] + block.text)
        else:
            out.append((block.kind, block.text))
    return out


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.builds(a_text, TEXT) | st.builds(a_thought, TEXT) | st.builds(a_call, WORD, WORD, TEXT), max_size=6),
    st.sampled_from(["stop", "length", "filter"]),
    st.integers(1, 10**9),
    st.integers(0, 10**9),
)
def test_round_trip(blocks: list[Block], reason: StopReason, fresh: int, reasoning: int) -> None:
    """L2, S78: events -> bytes -> events keeps the fold minus LOSES, in any order of thoughts, texts and calls."""
    called = any(block.kind == "call" for block in blocks)
    stop: StopReason = "call" if called and reason != "length" else reason
    usage = Usage(fresh=fresh, cache_read=3, output=reasoning + 1, reasoning=reasoning)
    data = encode(unfold(Reply(blocks, Stop(stop), usage)))
    back = fold(decode(data))
    assert merged(back.blocks) == merged(blocks)
    assert (back.stop.reason, back.usage) == (stop, usage)
    assert [frame["output_index"] for frame in frames_of(data) if frame["type"].endswith("item.added")] == list(
        range(len(merged(blocks)))
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STREAMS), st.data())
def test_how_events_are_batched_changes_nothing(name: str, data: st.DataObject) -> None:
    """L4."""
    events = decode(stream(name))[:-1]
    encoder = RESPONSES.encoder(answer())
    out: list[bytes] = []
    rest = events
    while rest:
        size = data.draw(st.integers(1, 9))
        out.append(encoder.encode(rest[:size]))
        rest = rest[size:]
    assert b"".join(out) + encoder.finish() == encode(events)


@pytest.mark.parametrize("name", STREAMS)
def test_a_plain_answer_is_what_the_stream_completes_with(name: str) -> None:
    """L6, S160."""
    events = decode(stream(name))
    if isinstance(events[-1], Failure):
        return
    body = json.loads(RESPONSES.encode_reply(fold(events), answer()))
    assert body == frames_of(encode(events))[-1]["response"]


def recordings() -> list[Any]:
    folder = SHARED / "recordings"
    out: list[Any] = []
    for path in sorted(folder.glob("*responses*.json")) if folder.is_dir() else ():
        recording = json.loads(path.read_bytes())
        if recording["status"] == 200:
            data = b"".join(base64.b64decode(chunk["b64"]) for chunk in recording["chunks"])
            out.append(pytest.param(data, recording["transport_error"], id=path.stem))
    return out


@pytest.mark.skipif(not recordings(), reason="the shared recordings are not here")
@pytest.mark.parametrize(("data", "broken"), recordings())
def test_real_servers(data: bytes, broken: str | None) -> None:
    """L1, L5, U1, D2 on what llama-server, vLLM and transformers really send."""
    if data.startswith(b"{"):
        events = RESPONSES.decode_reply(data, Profile(), ID)
        theirs = json.loads(data)
    else:
        events = decode(data)
        assert decode(data, range(0, len(data), 3)) == events
        theirs = json.loads(data.rstrip().rpartition(b"data: ")[2]).get("response", {})
    assert check(events) is None
    assert isinstance(events[-1], Failure) == bool(broken)
    if broken:
        return
    reply = fold(events)
    assert (reply.usage.prompt, reply.usage.output) == (
        theirs["usage"]["input_tokens"],
        theirs["usage"]["output_tokens"],
    )
    said = "".join(part["text"] for item in theirs["output"] for part in item.get("content") or ())
    assert jsonx.unescape(b"".join(block.text for block in reply.blocks if block.kind != "call")) == said
    again = encode(events)
    assert fold(decode(again)).blocks == [
        Block(block.kind, block.text, block.call_id, block.name, seals=seals(block)) for block in reply.blocks
    ]
    if SPEC.is_file():
        assert [fault for frame in frames_of(again) for fault in faults(SCHEMAS[frame["type"]], frame)] == []


def seals(block: Block) -> list[Seal]:
    """What our own encoder puts beside a thought that has no proof: our mark."""
    return [Seal(0, "encrypted", f"kn1.mark::{len(jsonx.unescape(block.text))}")] if block.kind == "reasoning" else []
