"""Pieces of text that are cut out of their frames unread are what reading makes of them (gateway/runs.py, attempt.py)."""

import json
from typing import Any
from unittest import mock

import gateway_kit as kit
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from money_kit import paid
from texts_kit import BROKEN, SPELLED, WHOLE, may_stand, spelled

from kenari.core.events import Text
from kenari.core.profile import Profile
from kenari.dialects.base import Steady
from kenari.dialects.chat.decode import ChatDecoder
from kenari.dialects.chat.splice import Splice
from kenari.gateway.runs import opening_of, run_of, text_of
from kenari.wire.jsonx import are_texts, is_text
from kenari.wire.sse import Frame

PIECE: st.SearchStrategy[str] = st.text('ab é"\\\n', min_size=1, max_size=3) | st.sampled_from(
    ["word ", "x", "", "%", "%b"]
)


def delta_of(name: str, text: str) -> dict[str, str]:
    """A delta of one member."""
    return {name: text}


DELTAS: st.SearchStrategy[Any] = st.one_of(
    st.builds(delta_of, st.sampled_from(["content", "content", "reasoning_content"]), PIECE),
    st.just({"content": "many words "}),
    st.just({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}),
    st.just({}),
)
USAGE: dict[str, Any] = {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}
AROUND = b'data: {"choices":[{"delta":{"content":"'
BEHIND = b'"},"index":0}]}\n\n'


def asked(client: str, pieces: list[bytes], at_once: bool = True, payer: bool = False) -> tuple[bytes, Any, int]:
    """What a client and the bill are told when the provider's bytes come in these pieces, and the number of writes."""
    script = kit.Script([*((0, piece) for piece in pieces), (0, None)])
    rig = paid(script)[0] if payer else kit.Rig(script)
    rig.books.at_once = at_once
    got = rig.ask(client)
    (line,) = rig.books.lines
    lines = [piece for piece in got.out.split(b",") if b'"created' not in piece and b"_at" not in piece]
    return b",".join(lines), (line.ending, line.usage, got.ended, got.aborted), len(got.writes)


@given(
    client=st.sampled_from(kit.FORMATS),
    deltas=st.lists(DELTAS, max_size=12),
    times=st.sampled_from([1, 1, 12]),
    said=st.booleans(),
    spelling=st.sampled_from([",", ", "]),
    end=st.sampled_from([b"data: [DONE]\n\n", b"", b"data: x\n\n", b": comment\n\n"]),
)
@settings(max_examples=40, deadline=None)
@example("responses", [{"content": "many words "}] * 12, 12, False, ",", b"")
@example(
    "chat", [{"content": "a%b"}, {"content": "word "}, {"content": 'q"'}, {"content": "word "}], 12, True, ",", b""
)
@example("messages", [{"content": "word "}, {"reasoning_content": "word "}], 12, False, ",", b": comment\n\n")
def test_how_the_bytes_come_changes_nothing(
    client: str, deltas: list[Any], times: int, said: bool, spelling: str, end: bytes
) -> None:
    """L1, S14, U3: in one reading, frame by frame, or cut in the middle of frames: the same answer and the same usage."""
    frames: list[bytes] = []
    for delta in deltas * times:
        chunk: dict[str, Any] = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        frames.append(b"data: " + json.dumps(chunk, separators=(spelling, ":")).encode() + b"\n\n")
    frames += [kit.chunk({}, "stop", **(USAGE if said else {})), end]
    whole = b"".join(frames)
    together, apart = asked(client, [whole]), asked(client, [frame for frame in frames if frame])
    halves = asked(client, [whole[at : at + 97] for at in range(0, len(whole), 97)])
    assert together[:2] == apart[:2] == halves[:2]
    assert together[2] == 1 or b"[DONE]" not in end  # one write for one reading; without a last word the end is another


def nothing(self: Splice, data: bytes, text: bytes) -> None:
    """Learn nothing: each frame is read."""


@given(
    client=st.sampled_from(kit.FORMATS),
    texts=st.lists(SPELLED, max_size=8),
    times=st.sampled_from([1, 4]),
    name=st.sampled_from(["content", "content", "reasoning_content"]),
    said=st.booleans(),
    payer=st.booleans(),
)
@settings(max_examples=60, deadline=None)
@example("chat", [*WHOLE], 2, "content", True, False)
@example("responses", [*WHOLE], 2, "content", False, False)
@example("messages", [*WHOLE], 2, "content", False, True)
@example("chat", [b"word ", *BROKEN], 1, "content", False, False)
@example("chat", [b"word ", *[b"a"] * 9, b"\\", b'","', *[b"a"] * 9], 1, "content", False, True)
@example("chat", [b"word ", b"word ", b"\\ud83d", b"\\ude00", b"\xc3", b"\xa9"] * 3, 1, "content", False, False)
def test_how_texts_are_spelled_changes_nothing(
    client: str, texts: list[bytes], times: int, name: str, said: bool, payer: bool
) -> None:
    """L1, F2, U3: what escapes or bytes a text has, broken ones too, a client gets what reading each frame gives."""
    frames = [kit.ROLE, *(spelled(name, text) for text in texts * times)]
    frames += [kit.chunk({}, "stop", **(USAGE if said else {})), kit.DONE]
    whole = b"".join(frames)
    ways = [whole], frames, [whole[at : at + 97] for at in range(0, len(whole), 97)]
    heard = [asked(client, way, payer=payer)[:2] for way in ways]
    with mock.patch.object(Splice, "learn", nothing):
        read = asked(client, frames, payer=payer)[:2]
    assert heard == [read] * 3


NAMED_BEFORE = b'event: delta\ndata: {"delta":{"text":"'
ODD_ENDS: list[bytes] = [
    b'data: {"delta":{"text":"lost"}}\n\n',  # the same end without the name
    b'event: delta\nid: 1\ndata: {"delta":{"text":"lost"}}\n\n',
    b': comment\nevent: delta\ndata: {"delta":{"text":"lost"}}\n\n',
    b'data: x\ndata: {"delta":{"text":"lost"}}\n\n',
    b"\n\n",
    b'"}}\n\n',
    b"",
]


@given(
    texts=st.lists(SPELLED, max_size=6),
    odd=st.lists(st.tuples(st.integers(0, 6), st.sampled_from(ODD_ENDS)), max_size=2),
    named=st.booleans(),
)
@settings(max_examples=500, deadline=None)
@example([b"a", b"b"], [(2, ODD_ENDS[0])], True)
@example([b"a", b"b"], [(2, ODD_ENDS[1])], True)
@example([b"a", b"b"], [(1, ODD_ENDS[2])], True)
@example([b"a", b"b"], [(2, ODD_ENDS[3])], False)
def test_a_run_is_what_it_is_put_together_from(texts: list[bytes], odd: list[tuple[int, bytes]], named: bool) -> None:
    """L1: whatever other frames stand among them or behind them, what counts as read is these texts and nothing else."""
    before, after = (NAMED_BEFORE if named else b'data: {"delta":{"text":"'), b'"}}\n\n'
    frames = [before + text + after for text in texts]
    for at, other in odd:
        frames.insert(at, other)
    data = b"".join(frames)
    found, end = run_of(Steady(before, after, Text, 0), data)
    assert b"".join(before + text + after for text in found) == data[:end]
    assert all(map(is_text, found))
    assert bool(found) is bool(end)


@given(texts=st.lists(SPELLED, max_size=6))
@settings(max_examples=500, deadline=None)
@example([*WHOLE])
@example([b"a\\", b'","'])
@example([b"\\u00", b"e9"])
@example([b"\xc3", b"\xa9"])
@example([b"\\ud83d", b"\\ude00"])
def test_what_may_stand_in_a_string_is_seen(texts: list[bytes]) -> None:
    """F2: each alone, and all of them at once: none is saved or spoilt by what stands beside it."""
    each = [is_text(text) for text in texts]
    assert each == [may_stand(text) for text in texts]
    assert are_texts(texts) is all(each)


def with_role(delta: dict[str, Any]) -> dict[str, Any]:
    """As the first delta of many providers."""
    return {"role": "assistant", **delta}


def two_of(text: str) -> dict[str, Any]:
    """Two pieces in one delta."""
    return {"reasoning_content": "t", "content": text}


ROLED: st.SearchStrategy[Any] = st.builds(with_role, DELTAS)
BOTH: st.SearchStrategy[Any] = st.builds(two_of, PIECE)


@given(deltas=st.lists(DELTAS | ROLED | BOTH | SPELLED, max_size=12), times=st.integers(1, 3), together=st.booleans())
@settings(max_examples=300, deadline=None)
@example([{"role": "assistant", "content": "a"}], 3, False)
@example([{"reasoning_content": "t", "content": "a"}], 3, False)
def test_a_form_that_was_learned_changes_no_event(deltas: list[Any], times: int, together: bool) -> None:
    """L1: from the first piece of a block on, whatever else its frame brought."""
    frames = [
        Frame(b"", AROUND[6:] + delta + BEHIND[:-2])
        if isinstance(delta, bytes)
        else Frame(b"", json.dumps({"choices": [{"delta": delta}]}).encode())
        for delta in deltas
        for _ in range(times)
    ]
    learning, reading = ChatDecoder(Profile(), "x"), ChatDecoder(Profile(), "x")
    events = learning.feed_all(frames) if together else [event for frame in frames for event in learning.feed(frame)]
    with mock.patch.object(Splice, "learn", nothing):
        assert events == [event for frame in frames for event in reading.feed(frame)]


@given(texts=st.lists(SPELLED | st.sampled_from([b"word", b"", BEHIND, AROUND, BEHIND + AROUND]), max_size=8))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("name", [b"", b"event: delta\n"])
def test_a_run_is_what_its_frames_are(name: bytes, texts: list[bytes]) -> None:
    """Cut together is cut one by one; what looks otherwise is left."""
    steady = Steady(name + AROUND, BEHIND, Text, 0)
    frames = [name + AROUND + text + BEHIND for text in texts]
    found, end = run_of(steady, b"".join(frames) + b"data: [DONE]\n\n")
    one_by_one = [text_of(steady, frame) for frame in frames]
    if found:
        assert found == one_by_one == texts
        assert end == sum(map(len, frames))
    else:
        assert end == 0
        assert not texts or b"" in one_by_one


def test_the_opening_is_two_frames() -> None:
    """All, where there are fewer."""
    assert opening_of(b"a\n\nb\n\nc\n\nd\n\n") == 6
    assert opening_of(b"a\n\nb") == 4
    assert opening_of(b"") == 0
