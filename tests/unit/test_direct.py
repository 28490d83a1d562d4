"""A request that is served by callback is served as by a task (gateway/direct.py): the same bytes, the same line."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import gateway_kit as kit
import pytest
import virtual_time
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kenari.core.errors import KenariError
from kenari.core.ports import Line
from kenari.gateway import serve as serving

TEXT = kit.chunk({"content": "Hello"})
OPEN = KenariError("upstream_unavailable", "x")
STEPS: st.SearchStrategy[Any] = st.lists(
    st.sampled_from(
        [
            (0, kit.ROLE),
            (0, TEXT),
            (0.002, TEXT),
            (0, kit.STOP),
            (0, kit.DONE),
            (0, TEXT + kit.STOP + kit.DONE),
            (0, b'data: {"error":{"message":"boom","code":503}}\n\n'),
            (0, b"data: x"),
        ]
    ),
    max_size=5,
)
ENDS: st.SearchStrategy[Any] = st.sampled_from([(0, None), (0, kit.LOST), (1, None)])


def script_of(steps: list[Any], end: Any) -> kit.Script:
    """A stream with its end."""
    return kit.Script([*steps, end])


STREAMS: st.SearchStrategy[Any] = st.builds(script_of, STEPS, ENDS)
SCRIPTS = (
    STREAMS
    | st.sampled_from([kit.plain(kit.COMPLETION), kit.plain({"odd": 1}), OPEN, kit.GOOD])
    | st.sampled_from([400, 401, 404, 413, 429, 500, 503]).map(kit.error)
)
ACTS: st.SearchStrategy[Any] = st.sampled_from([None, None, None, lambda exchange: exchange.leave()])  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
BODIES: st.SearchStrategy[Any] = st.sampled_from(
    [
        {},
        {"model": "none"},
        {"messages": "x", "input": 3},
        {"max_tokens": 5, "max_output_tokens": 5},
        {"prompt_cache_key": "conversation"},
        {"response_format": {"type": "json_object"}},
    ]
)


def served(
    script: kit.Script | KenariError,
    client: str,
    body: dict[str, Any],
    act: Callable[[Any], None] | None,
    at_once: bool,
) -> tuple[Any, ...]:
    """What the client and the books hear of a request. Times are left out."""
    rig = kit.Rig(script)
    rig.timing = dict.fromkeys(("header_timeout", "first_event_timeout", "idle_timeout"), 0.1)
    rig.books.at_once = at_once
    got = rig.ask(client, act=act, **body)
    (line,) = rig.books.lines
    assert rig.books.open == 0
    return *heard(got), untimed(line), rig.upstream.sent


def heard(got: kit.Exchange) -> tuple[Any, ...]:
    """What a client hears, without its time."""
    return got.status, got.head + got.extra_headers, undated(got.out), got.aborted, got.gone


def undated(out: bytes) -> list[bytes]:
    """An answer's lines without its time."""
    return [
        piece
        for line in out.split(b"\n")
        for piece in line.split(b",")
        if b"created" not in piece and b"_at" not in piece
    ]


def untimed(line: Line) -> tuple[Any, ...]:
    """A line without its times."""
    legs = [(leg.target, leg.usage, leg.outcome, leg.billed) for leg in line.legs]
    named = line.id, line.account, line.model, line.target, line.status, line.code, line.ending, line.stream, line.usage
    return *named, legs, line.first_content_ms is None, line.notices, line.price


@given(
    script=SCRIPTS,
    client=st.sampled_from(kit.FORMATS),
    body=BODIES,
    stream=st.booleans(),
    act=ACTS,
)
@settings(max_examples=60, deadline=None)
@example(kit.GOOD, "chat", {}, True, None)
@example(kit.plain(kit.COMPLETION), "chat", {}, False, None)
@example(kit.plain(kit.COMPLETION), "responses", {}, False, lambda exchange: exchange.leave())  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
@example(kit.Script([(0, TEXT), (1, None)]), "messages", {}, True, lambda exchange: exchange.leave())  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
def test_by_callback_is_as_by_a_task(
    script: kit.Script | KenariError, client: str, body: dict[str, Any], stream: bool, act: Callable[[Any], None] | None
) -> None:
    """D7, D14, E1, E4, F7, U5: whoever waits, the answer and the line are the same."""
    body = body | {"stream": stream}
    assert served(script, client, body, act, at_once=True) == served(script, client, body, act, at_once=False)


def began(body: dict[str, Any], rig: kit.Rig, headers: dict[bytes, bytes] | None = None) -> bool:
    """Whether a request was taken up without a task."""

    async def run() -> bool:
        exchange = kit.Exchange(kit.PATHS["chat"], json.dumps(body).encode(), headers)
        answer = rig.build().begin(exchange)
        if answer is not None:
            await answer
        await asyncio.sleep(0.02)
        assert exchange.ended
        return answer is None

    return virtual_time.run(run())


REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


def test_what_is_served_by_callback() -> None:
    """A request that waits for its provider only; no other."""
    assert began(REQUEST, kit.Rig(kit.GOOD))
    assert not began(REQUEST, kit.Rig(kit.GOOD, kit.GOOD))  # two candidates
    assert not began(REQUEST | {"response_format": {"type": "json_object"}}, kit.Rig(kit.GOOD))
    repeated = {b"authorization": b"Bearer " + kit.KEY.encode(), b"idempotency-key": b"once"}
    assert not began(REQUEST, kit.Rig(kit.GOOD), repeated)
    waiting = kit.Rig(kit.GOOD)
    waiting.books.at_once = False
    assert not began(REQUEST, waiting)


def test_a_fault_of_ours_is_told_and_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: whatever fails at the end of a request that no task serves, the client is answered and the hold is closed."""

    def fails(self: serving.Run, error: KenariError | None) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(serving.Run, "conclude", fails)
    for stream in (True, False):
        rig = kit.Rig(kit.error(500))
        got = rig.ask("chat", stream=stream)
        assert (got.status, rig.books.lines[0].code, rig.books.open) == (500, "internal_error", 0)
