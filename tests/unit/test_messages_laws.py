"""What holds for every stream of the messages dialect: L1, L2, L5, on our fixtures and on real servers' recordings."""

import base64
import json
from typing import Any

import pytest
from events_kit import essence
from hypothesis import given, settings
from hypothesis import strategies as st
from messages_kit import ID, SHARED, STREAMS, decode, encode, frames_of, stream

from kenari.core.events import Failure, Seal, Stop, StopReason
from kenari.core.fold import Block, Reply, fold, unfold
from kenari.core.grammar import check
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.dialects.messages import MESSAGES
from kenari.wire import jsonx


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STREAMS), st.data())
def test_any_cut(name: str, data: st.DataObject) -> None:
    """L1."""
    whole = stream(name)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    assert essence(decode(whole, cuts)) == essence(decode(whole))


@pytest.mark.parametrize("name", STREAMS)
def test_every_cut_of_line_ends(name: str) -> None:
    """L1: CRLF and CR too."""
    whole = stream(name)
    for line_end in (b"\r\n", b"\r"):
        assert essence(decode(whole.replace(b"\n", line_end), range(0, len(whole), 7))) == essence(decode(whole))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(STREAMS), st.integers(0, 5000))
def test_truncated_streams_obey_the_grammar(name: str, length: int) -> None:
    """L5."""
    assert check(decode(stream(name)[:length])) is None


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(STREAMS), st.randoms(use_true_random=False))
def test_shuffled_streams_obey_the_grammar(name: str, chance: Any) -> None:
    """L5: hostile order."""
    frames = stream(name).split(b"\n\n")
    chance.shuffle(frames)
    assert check(decode(b"\n\n".join(frames) + b"\n\n")) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "index",
                    "delta",
                    "content_block",
                    "message",
                    "usage",
                    "error",
                    "text",
                    "thinking",
                    "input",
                    "id",
                    "name",
                    "stop_reason",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
        "x",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(NAMES, JSON), max_size=8))
def test_hostile_frames_obey_the_grammar(frames: list[tuple[str, Any]]) -> None:
    """L5: any JSON under any name."""
    data = b"".join(f"event: {name}\ndata: {json.dumps(body)}\n\n".encode() for name, body in frames)
    assert check(decode(data)) is None


TEXT = st.text(max_size=12).filter(lambda text: bool(text.strip())).map(jsonx.escape)
WORD = st.text(alphabet="abcXYZ_-09", min_size=1, max_size=12)


def a_text(text: bytes) -> Block:
    return Block("text", text)


def a_thought(text: bytes, signature: str) -> Block:
    return Block("reasoning", text, seals=[Seal(0, "signature", signature)])


def a_call(call_id: str, name: str, text: bytes) -> Block:
    return Block("call", jsonx.embed(b'{"a":"' + text + b'"}'), call_id, name)


BLOCKS = st.lists(
    st.builds(a_text, TEXT) | st.builds(a_thought, TEXT, WORD) | st.builds(a_call, WORD, WORD, TEXT), max_size=5
).filter(
    lambda blocks: len({block.call_id for block in blocks if block.call_id}) == sum(bool(b.call_id) for b in blocks)
)
COUNT = st.integers(1, 10**9)


@settings(max_examples=100, deadline=None)
@given(BLOCKS, st.sampled_from(["stop", "length", "filter"]), COUNT, COUNT, COUNT)
def test_round_trip(blocks: list[Block], reason: StopReason, fresh: int, read: int, output: int) -> None:
    """L2: events -> bytes -> events keeps the fold, streamed and plain."""
    called = any(block.kind == "call" for block in blocks)
    stop: StopReason = "call" if called and reason != "length" else reason
    usage = Usage(fresh=fresh, cache_read=read, output=output)
    whole = Reply(blocks, Stop(stop), usage)
    data = encode(unfold(whole), raw_signatures=True)
    back = fold(decode(data))
    assert [(block.kind, block.text, block.call_id, block.name) for block in back.blocks] == [
        (block.kind, block.text, block.call_id, block.name) for block in blocks
    ]
    assert [[seal.value for seal in block.seals] for block in back.blocks] == [
        [seal.value for seal in block.seals] for block in blocks
    ]
    assert (back.stop.reason, back.usage) == (stop, usage)
    indexes = [frame["index"] for frame in frames_of(data) if frame["type"] == "content_block_start"]
    assert indexes == list(range(len(blocks)))


def recordings() -> list[Any]:
    folder = SHARED / "recordings"
    out: list[Any] = []
    for path in sorted(folder.glob("*messages*.json")) if folder.is_dir() else ():
        recording = json.loads(path.read_bytes())
        if recording["status"] == 200 and recording["path"].endswith("/messages"):
            data = b"".join(base64.b64decode(chunk["b64"]) for chunk in recording["chunks"])
            out.append(pytest.param(data, recording["transport_error"], id=path.stem))
    return out


@pytest.mark.skipif(not recordings(), reason="the shared recordings are not here")
@pytest.mark.parametrize(("data", "broken"), recordings())
def test_real_servers(data: bytes, broken: str | None) -> None:
    """L1, L5 on what llama-server and vLLM really send."""
    if data.startswith(b"{"):
        events = MESSAGES.decode_reply(data, Profile(), ID)
        theirs = json.loads(data)
        assert fold(events).usage.output == theirs["usage"]["output_tokens"]
    else:
        events = decode(data)
        assert essence(decode(data, range(0, len(data), 3))) == essence(events)
    assert check(events) is None
    assert isinstance(events[-1], Failure) == bool(broken)
    if not broken:
        assert essence(decode(encode(events, True)))[0] == essence(events)[0] or b'"signature":""' in data
