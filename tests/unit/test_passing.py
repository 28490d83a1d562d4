"""A request that passes is served as any other (gateway/passing.py): the same bytes at both ends, the same line."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import gateway_kit as kit
import pytest
import virtual_time
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_direct import SCRIPTS, heard, untimed

from kenari.catalog.models import Model
from kenari.core.caller import Caller, Rates
from kenari.core.errors import KenariError
from kenari.core.ports import Leg, Take
from kenari.core.price import Price
from kenari.doors.public import PublicDoor
from kenari.gateway import lane, passing
from kenari.gateway.services import Pricing
from kenari.gateway.tab import Tab
from kenari.keys.bootstrap import BootstrapKeys

ANSWER = kit.plain(kit.COMPLETION)
CUT = kit.plain(
    {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hel"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    }
)
UNCOUNTED = kit.plain({"choices": [{"index": 0, "message": {"content": "Hello"}, "finish_reason": "stop"}]})
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLS = kit.plain({"choices": [{"message": {"content": None, "tool_calls": [CALL]}, "finish_reason": "tool_calls"}]})
TYPED = kit.Script(ANSWER.steps, 200, {b"content-type": b"text/plain"})
LATE = kit.Script(ANSWER.steps, 200, ANSWER.headers, head_after=0.4)
"""Still awaited when a client acts, however busy the machine is."""
WHOLE = json.dumps(kit.COMPLETION).encode()


def in_pieces(*steps: Any, pause: float = 0.0) -> kit.Script:
    """The same answer, its head by itself and its body in two pieces, and what comes then."""
    return kit.Script([(0, WHOLE[:20]), (pause, WHOLE[20:]), *(steps or [(0, None)])], 200, ANSWER.headers)


PIECES = in_pieces()
SLOW_PIECES = in_pieces(pause=0.4)
BROKEN_PIECES = in_pieces((0, KenariError("upstream_error", "x")))
HANGING = kit.Script([*kit.GOOD.steps[:2], (0.4, kit.STOP), (0, None)])
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PRICE = Price(version="p", input=1000, output=2000, cache_read=1, cache_write=1, cache_write_1h=1)
Act = Callable[[Any], None]


PAYING = Caller(account="acc", key="key", rates=Rates(rpm=100, tpm=10_000_000, concurrent=5))


def price_of(model: Model) -> Price:
    """Every model costs the same."""
    return PRICE


def charge(legs: Sequence[Leg], price: Price) -> int:
    """As many units as tokens."""
    return sum(leg.usage.total for leg in legs)


def pause(exchange: Any) -> None:
    """The client stops to read, and reads again."""
    if exchange.watcher is not None:
        exchange.watcher.on_pause()
        exchange.watcher.on_resume()


def leave(exchange: Any) -> None:
    """The client goes."""
    exchange.leave()


async def asked(
    door: PublicDoor, body: bytes, headers: dict[bytes, bytes] | None, act: Act | None = None, take: Take | None = None
) -> kit.Exchange:
    """One request to its end, which `take` may take; `act` while it is under way."""
    exchange = kit.Exchange(kit.PATHS["chat"], body, headers)
    taken = take is not None and take(exchange)
    answer = None if taken is True else taken or door.begin(exchange)
    if answer is not None:
        waiting = asyncio.get_running_loop().create_task(answer)
        if act is not None:
            await asyncio.sleep(0.02)
            act(exchange)
        await waiting
    elif act is not None:
        await asyncio.sleep(0.02)
        act(exchange)
    while not (exchange.ended or exchange.aborted or exchange.gone):  # noqa: ASYNC110 - step by step
        await asyncio.sleep(0.001)
    return exchange


KINDS = ("free", "booked", "paying", "poor")
"""Who asks: a caller without limits, the same where the books keep everybody waiting, one that pays, one with little left."""


def served(
    script: kit.Script | KenariError,
    passes: bool,
    body: bytes,
    act: Act | None = None,
    headers: dict[bytes, bytes] | None = None,
    *,
    rig: kit.Rig | None = None,
    kind: str = "free",
    first: dict[str, Any] | None = None,
    led: bool = False,
) -> tuple[tuple[Any, ...], int]:
    """What the client and the books hear of the last request to a model, and how many passed. The one before is a
    minimal one, or the `first` ones are two that ask for more. `led`: there is one more with the same head before it, on the same
    connection."""
    streams = b'"stream": true' in body
    came = [kit.GOOD if streams else ANSWER] * (2 if first or led else 1)
    rig = rig or kit.Rig([*came, script])
    rig.services |= {"pricing": Pricing(price_of, charge)}
    if kind != "free":
        rig.books.at_once, rig.books.grants_least = False, kind == "poor"
    if kind in ("paying", "poor"):
        rig.keys = BootstrapKeys({kit.KEY: PAYING})

    async def run() -> tuple[tuple[Any, ...], int]:
        door = rig.build()
        know: Any = door._gateway._passing  # pyright: ignore[reportPrivateUsage]
        before_it = BODY | ({"stream": True} if streams else {}) | (first or {})
        leader: Take | None = None
        for _ in came:
            leader = (await asked(door, json.dumps(before_it).encode(), headers if led else None)).leader
        if not passes:
            know._patterns.clear()
        ways = [pattern.way for pattern in know._patterns.values() if pattern is not None]
        before = sum(way.sent for way in ways)
        got = await asked(door, body, headers, act, leader if passes and led else None)
        await asyncio.sleep(0.005)
        line = rig.books.lines[-1]
        assert rig.books.open == 0
        assert not know._waiting.passages
        assert len(rig.books.lines) == len(came) + 1
        services: Any = door._gateway._services  # pyright: ignore[reportPrivateUsage]
        assert services.limits.in_flight == 0
        assert not [one for one in services.ticker._items if isinstance(one, Tab)]
        health = kit.remembered(door._gateway._services.routing)  # pyright: ignore[reportPrivateUsage]
        fared = [
            (one.failures, one.excluded_until > 0, one.refused_until > 0, len(one.samples)) for one in health.values()
        ]
        return (
            *heard(got),
            untimed(line),
            (line.charge, line.counted, line.client_format, line.provider_format, line.key, line.method, line.path),
            line.peer,
            rig.upstream.sent,
            [request.headers for request in rig.upstream.requests],
            [call.aborted for call in rig.upstream.calls],
            fared,
            rig.books.notes[-1:],  # how often depends on the time
        ), sum(way.sent for way in ways) - before

    return virtual_time.run(run())


BODIES: st.SearchStrategy[Any] = st.sampled_from(
    [
        {},
        {"stream": False},
        {"model": "none"},
        {"messages": "x"},
        {"messages": []},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"max_tokens": 5},
        {"prompt_cache_key": "conversation"},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": 3},
        {"stream": True, "temperature": 0},
    ]
)
HEADERS: st.SearchStrategy[Any] = st.sampled_from(
    [{}, {}, {b"x-session-id": b"s"}, {b"authorization": b"Bearer kn-wrong"}]
)


PLAYS: st.SearchStrategy[Any] = st.tuples(
    SCRIPTS | st.sampled_from([ANSWER, CUT, UNCOUNTED, CALLS, TYPED, PIECES, SLOW_PIECES, BROKEN_PIECES]), st.none()
) | st.tuples(st.sampled_from([LATE, HANGING, SLOW_PIECES]), st.sampled_from([leave, pause]))
"""What the provider does, and the client meanwhile."""


@given(play=PLAYS, more=BODIES, headers=HEADERS, kind=st.sampled_from(KINDS))
@settings(max_examples=60, deadline=None)
@example((ANSWER, None), {}, {}, "free")
@example((ANSWER, None), {}, {}, "booked")
@example((ANSWER, None), {}, {}, "paying")
@example((ANSWER, None), {}, {}, "poor")
@example((CUT, None), {"stream": False}, {}, "free")
@example((CUT, None), {}, {}, "paying")
@example((UNCOUNTED, None), {}, {}, "free")
@example((UNCOUNTED, None), {}, {}, "paying")
@example((CALLS, None), {}, {}, "free")
@example((CALLS, None), {}, {}, "paying")
@example((TYPED, None), {}, {}, "booked")
@example((LATE, None), {}, {}, "free")
@example((PIECES, None), {}, {}, "free")
@example((PIECES, None), {}, {}, "paying")
@example((SLOW_PIECES, None), {}, {}, "free")
@example((BROKEN_PIECES, None), {}, {}, "free")
@example((SLOW_PIECES, leave), {}, {}, "free")
@example((SLOW_PIECES, leave), {}, {}, "paying")
@example((SLOW_PIECES, pause), {}, {}, "booked")
@example((kit.GOOD, None), {"stream": True}, {}, "free")
@example((kit.GOOD, None), {"stream": True, "stream_options": {"include_usage": True}}, {}, "free")
@example((kit.error(500), None), {"stream": True}, {}, "free")
@example((HANGING, leave), {"stream": True}, {}, "free")
@example((HANGING, leave), {"stream": True}, {}, "booked")
@example((LATE, leave), {}, {}, "free")
@example((LATE, leave), {}, {}, "booked")
@example((LATE, leave), {}, {}, "paying")
@example((LATE, pause), {}, {}, "paying")
@example((kit.error(429, retry_after="7"), None), {}, {}, "free")
@example((kit.error(401), None), {}, {}, "free")
@example((kit.error(500), None), {}, {}, "paying")
@example((KenariError("upstream_unavailable", "x"), None), {}, {}, "booked")
def test_what_passes_is_as_any_other(
    play: tuple[kit.Script | KenariError, Act | None], more: dict[str, Any], headers: dict[bytes, bytes], kind: str
) -> None:
    """D7, D14, E1, E4, F7, U1, U5: whatever becomes of it, both ends and the books see the same."""
    body = json.dumps(BODY | more).encode()
    lines = {b"authorization": b"Bearer " + kit.KEY.encode()} | headers
    script, act = play
    for led in (False, True):
        seen = served(script, True, body, act, lines, kind=kind, led=led)[0]
        assert seen == served(script, False, body, act, lines, kind=kind, led=led)[0]


def passed(
    script: kit.Script,
    more: dict[str, Any] | None = None,
    rig: kit.Rig | None = None,
    first: dict[str, Any] | None = None,
    **headers: str,
) -> bool:
    """Whether a request goes the short way after one like it, or after another `first` one."""
    lines = {b"authorization": b"Bearer " + kit.KEY.encode()}
    lines |= {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    body = json.dumps(BODY | (more or {})).encode()
    return served(script, True, body, None, lines, rig=rig, first=(more or {}) if first is None else first)[1] == 1


def test_which_pass() -> None:
    """Nothing but texts, for one provider of the same format, without a word on how it is to be treated."""
    assert passed(ANSWER)
    assert passed(ANSWER, {"stream": False})
    assert passed(kit.error(500))  # it was sent before that was known
    assert passed(kit.GOOD, {"stream": True})
    assert passed(kit.GOOD, {"stream": True, "stream_options": {"include_usage": True}})
    others: list[dict[str, Any]] = [
        {"temperature": 1},
        {"prompt_cache_key": "c"},
        {"user": "u"},
        {"unheard": 1},
        {"tools": []},
    ]
    for other in others:
        assert not passed(ANSWER, other, first={})  # another request than the one before
    for same in (
        {"temperature": 0.5, "max_tokens": 9, "stop": ["a]"]},
        {"messages": [{"role": "user", "content": "]"}]},
    ):
        assert passed(ANSWER, same)
        assert passed(ANSWER, same | {"messages": [{"role": "system", "content": "x"}]}, first=same)
    for special in (
        {"prompt_cache_key": "c"},
        {"user": "u"},
        {"metadata": {"a": "b"}},
        {"reasoning_effort": "low"},
        {"response_format": {"type": "json_object"}},
        {"user_id": "u" * passing.MAX_AROUND},
    ):
        assert not passed(ANSWER, special)
    assert not passed(ANSWER, x_session_id="s")
    assert not passed(ANSWER, idempotency_key="once")
    two = kit.Rig([ANSWER, ANSWER], ANSWER)
    assert not passed(ANSWER, rig=two)
    hasty = kit.Rig([ANSWER, ANSWER])
    hasty.timing["header_timeout"] = 0.5
    assert not passed(ANSWER, rig=hasty)
    for kind in KINDS:
        assert served(ANSWER, True, json.dumps(BODY).encode(), kind=kind)[1] == (kind != "poor")
        assert served(kit.GOOD, True, json.dumps(BODY | {"stream": True}).encode(), kind=kind)[1] == (
            kind in ("free", "booked")
        )


def test_an_answer_whose_head_comes_by_itself_passes_when_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never becomes a request like others, unless there is too much of it."""

    def refuse(*words: Any) -> None:
        raise AssertionError("it became one")

    whole = served(PIECES, True, json.dumps(BODY).encode())[0]
    monkeypatch.setattr(lane, "Direct", refuse)
    assert served(PIECES, True, json.dumps(BODY).encode())[0] == whole
    assert served(BROKEN_PIECES, True, json.dumps(BODY).encode())[0][0] == 500
    monkeypatch.undo()
    monkeypatch.setattr(lane, "MAX_BODY", 30)
    assert served(PIECES, True, json.dumps(BODY).encode())[0] == whole


def test_what_a_model_or_its_provider_needs_is_in_the_pattern() -> None:
    """D23, F12: a cap that fit sets stands in the provider's request, and no pattern is made where fit changes more."""
    for profile in (
        kit.Profile(default_max_tokens=True),
        kit.Profile(stream_always=True),
        kit.Profile(system_first_only=True),
        kit.Profile(think_tags=True),
    ):
        seen = [
            served(ANSWER, passes, json.dumps(BODY).encode(), rig=kit.Rig([ANSWER, ANSWER], profile=profile))[0]
            for passes in (True, False)
        ]
        assert seen[0] == seen[1]


def test_who_waits_for_long_is_one_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its provider's time-outs hold (D7): a head that does not come in time is a 504."""
    monkeypatch.setattr(lane, "PATIENCE", 0.02)
    rig = kit.Rig([ANSWER, kit.Script(ANSWER.steps, 200, ANSWER.headers, head_after=5.0)])
    rig.timing["header_timeout"] = 1.0
    (got, sent) = served(ANSWER, True, json.dumps(BODY).encode(), rig=rig)
    assert (got[0], sent) == (504, 1)
    late = kit.Rig([ANSWER, LATE])
    (got, sent) = served(ANSWER, True, json.dumps(BODY).encode(), rig=late)
    assert (got[0], sent) == (200, 1)


@pytest.mark.parametrize("kind", ["booked", "paying"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_books_refuse_or_a_client_does_not_wait_for(kind: str, stream: bool) -> None:
    """E1, F7, U5: nothing is sent, and the line says why."""
    body = json.dumps(BODY | {"stream": stream}).encode()
    for refuses, act in ((KenariError("budget_exceeded", "no"), None), (ValueError("ours"), None), (None, leave)):
        seen: list[tuple[Any, ...]] = []
        for passes in (True, False):
            rig = kit.Rig([kit.GOOD if stream else ANSWER, ANSWER])
            rig.books.refuses, rig.books.takes = refuses, 0.05 if act else 0.0
            got, sent = served(ANSWER, passes, body, act, rig=rig, kind=kind)
            assert sent == 0
            seen.append(got)
        assert seen[0] == seen[1]
        assert seen[0][5][4] == (499 if act else 402 if isinstance(refuses, KenariError) else 500)


def test_a_request_that_ends_with_its_process_while_the_books_are_asked_leaves_its_line() -> None:
    """U5: as one that goes the long way does."""

    async def run(passes: bool) -> tuple[Any, ...]:
        rig = kit.Rig([ANSWER, ANSWER])
        rig.books.at_once = False
        door = rig.build()
        know: Any = door._gateway._passing  # pyright: ignore[reportPrivateUsage]
        await asked(door, json.dumps(BODY).encode(), None)
        if not passes:
            know._patterns.clear()
        rig.books.takes = 5.0
        answer = door.begin(kit.Exchange(kit.PATHS["chat"], json.dumps(BODY).encode()))
        assert answer is not None
        task = asyncio.get_running_loop().create_task(answer)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert rig.books.open == 0
        return untimed(rig.books.lines[1])

    assert virtual_time.run(run(passes=True)) == virtual_time.run(run(passes=False))


def test_a_candidate_in_trouble_is_looked_at() -> None:
    """M2: after a failure requests are like others until it works again."""
    rig = kit.Rig([ANSWER, kit.error(500), ANSWER, ANSWER])

    async def run() -> list[int]:
        door = rig.build()
        know: Any = door._gateway._passing  # pyright: ignore[reportPrivateUsage]
        sent: list[int] = []
        for _ in range(4):
            await asked(door, json.dumps(BODY).encode(), None)
            sent.append(sum(pattern.way.sent for pattern in know._patterns.values()))
        return sent

    assert virtual_time.run(run()) == [0, 1, 1, 2]


def test_a_fault_of_ours_is_told_and_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3: the client is answered and the hold is closed, wherever it fails."""

    def fails(*words: Any) -> None:
        raise RuntimeError("a fault")

    for thing, name, script in (
        (lane.Passage, "_answer", ANSWER),
        (lane, "Run", CALLS),
        (lane.Direct, "adopt", CALLS),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(thing, name, fails)
            (got, sent) = served(script, True, json.dumps(BODY).encode())
            assert (got[0], sent) == (500, 1)
    monkeypatch.setattr(kit.FakeWay, "send", fails)
    assert served(ANSWER, True, json.dumps(BODY).encode())[0][0] == 500


def test_requests_that_are_others_each_time_are_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that came once may never come again; what does not pass is not tried anew; and nothing grows without bound."""
    monkeypatch.setattr(passing, "MAX_PATTERNS", 4)
    rig = kit.Rig([ANSWER] * 40)
    tried: list[bytes] = []
    make = passing.Passing._pattern  # pyright: ignore[reportPrivateUsage]

    def noted(self: passing.Passing, cut: Any, plan: Any) -> passing.Pattern | None:
        tried.append(cut.after)
        return make(self, cut, plan)

    monkeypatch.setattr(passing.Passing, "_pattern", noted)

    async def run() -> None:
        door = rig.build()
        know: Any = door._gateway._passing  # pyright: ignore[reportPrivateUsage]
        for seed in range(10):
            await asked(door, json.dumps(BODY | {"seed": seed}).encode(), None)
        assert (tried, know._patterns) == ([], {})
        assert len(know._once) <= 4
        for _ in range(5):
            await asked(door, json.dumps(BODY | {"metadata": {"a": "b"}}).encode(), None)
        assert len(tried) == 1  # it does not pass, and that is known
        for seed in range(8):
            for _ in range(2):
                await asked(door, json.dumps(BODY | {"seed": seed}).encode(), None)
            assert len(know._patterns) <= 4
        assert len(tried) == 9

    virtual_time.run(run())


def test_a_lane_takes_requests_that_are_like_the_last_one() -> None:
    """A1, M2: with the same head, about the same model, while nothing of what was found out has changed."""
    rig = kit.Rig([ANSWER] * 6)

    async def run() -> list[bool | str]:
        door = rig.build()
        services: Any = door._gateway._services  # pyright: ignore[reportPrivateUsage]
        whole = json.dumps(BODY).encode()
        first = await asked(door, whole, None)
        assert first.leader is None  # nothing was known yet
        take = (await asked(door, whole, None)).leader
        assert take is not None
        seen: list[bool | str] = []

        async def takes(body: bytes) -> None:
            exchange = kit.Exchange(kit.PATHS["chat"], body)
            taken = take(exchange)
            assert isinstance(taken, bool)
            while taken and not exchange.ended:  # noqa: ASYNC110 - step by step
                await asyncio.sleep(0.001)
            seen.append(taken)

        await takes(json.dumps(BODY | {"messages": [{"role": "system", "content": "é\n"}] * 2}).encode())
        others: list[dict[str, Any]] = [
            {"model": "n"},
            {"temperature": 1},
            {"messages": []},
            {"messages": [{"role": "tool", "content": "x"}]},
        ]
        for other in others:
            await takes(json.dumps(BODY | other).encode())
        for odd in (b"", whole[:-1], whole + b" ", whole[:14], whole[:12] + whole[:-13], whole.replace(b"[", b"", 1)):
            await takes(odd)
        for spaced in (whole.replace(b"[", b" [", 1), whole.replace(b"]", b"]\n", 1)):  # the provider is not sent that
            await takes(spaced)
        keys, services.keys = services.keys, BootstrapKeys({})
        await takes(whole)
        services.keys = BootstrapKeys({kit.KEY: Caller(account="b", key="b", unlimited=True)})
        await takes(whole)
        services.keys = keys
        catalog, services.catalog = services.catalog, object()
        await takes(whole)
        services.catalog = catalog
        await takes(whole)
        seen.append("again")
        rig.upstream.scripts["p1"][:] = [kit.error(500), ANSWER]
        await takes(whole)
        await takes(whole)  # its candidate is in trouble
        return seen

    found = virtual_time.run(run())
    assert found == [True, *[False] * 12, False, False, False, True, "again", True, False]
    assert [line.account for line in rig.books.lines] == ["operator"] * len(rig.books.lines)
