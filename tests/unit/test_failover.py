"""From candidate to candidate: what moves on, what is remembered, what is said when all are out."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import virtual_time
from gateway_kit import (
    COMPLETION,
    DONE,
    FORMATS,
    GOOD,
    PATHS,
    ROLE,
    STOP,
    Exchange,
    Rig,
    Script,
    chunk,
    error,
    remembered,
)
from gateway_kit import plain as answer

from kenari.catalog.models import Catalog, Model, Price, Route, TargetRef
from kenari.core.errors import KenariError
from kenari.core.profile import Profile
from kenari.dialects.failures import failure_of_status, retry_after
from kenari.gateway.pins import MemoryPins
from kenari.gateway.routing import Routing
from kenari.gateway.serve import Gateway
from kenari.providers.rows import ROWS

T = TypeVar("T")
REFUSED = KenariError("upstream_unavailable", "x")
TEXT = chunk({"content": "Hello"})


class Town:
    """A rig that lives through several requests: the health of its providers is remembered."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.gateway: Gateway

    async def __aenter__(self) -> "Town":
        self.door = self.rig.build()
        self.gateway = self.door._gateway  # pyright: ignore[reportPrivateUsage]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.services.ticker.close()

    @property
    def services(self) -> Any:
        return self.gateway._services  # pyright: ignore[reportPrivateUsage]

    @property
    def routing(self) -> Routing:
        return self.services.routing

    async def ask(self, client: str = "chat", headers: dict[bytes, bytes] | None = None, **more: Any) -> Exchange:
        body: dict[str, Any] = {"model": "m", "stream": True, **more}
        body.setdefault(
            *(("input", "hi") if client == "responses" else ("messages", [{"role": "user", "content": "x"}]))
        )
        exchange = Exchange(PATHS[client], json.dumps(body).encode())
        exchange.headers |= headers or {}
        await asyncio.wait_for(self.door.serve(exchange), 10)
        await asyncio.sleep(0)
        return exchange

    @property
    def asked(self) -> list[str]:
        return [request.url.split("/")[2] for request in self.rig.upstream.requests]


def play(rig: Rig, story: Callable[[Town], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Town(rig) as town:
            return await story(town)

    return virtual_time.run(run())


def test_a_providers_retry_after_excludes_it_until_then_m2() -> None:
    """Asked once, then left alone; the others serve; and it is asked again when the time is over."""

    async def story(town: Town) -> None:
        await town.ask()
        await town.ask()
        assert town.asked == ["p1", "p2", "p2"]
        await asyncio.sleep(0.25)
        await town.ask()
        assert town.asked[-1] == "p1"

    play(Rig([error(429, retry_after_ms="200"), GOOD], [GOOD, GOOD]), story)


@pytest.mark.parametrize("status", [429, 503, 500])
def test_all_excluded_says_when_e2(status: int) -> None:
    """No call is made; the wait is what is left of the shortest Retry-After; 429 only when all said 429."""

    async def story(town: Town) -> None:
        first = await town.ask()
        second = await town.ask()
        assert len(town.asked) == 2
        for got in (first, second):
            assert got.status == (429 if status == 429 else 503)
            assert 4 <= int(got.header["retry-after"]) <= 5
            assert got.header["x-should-retry"] == "true"
        assert second.json["error"]["code"] == ("upstream_rate_limited" if status == 429 else "upstream_unavailable")

    play(Rig(error(status, retry_after="30"), error(status, retry_after="5")), story)


@pytest.mark.parametrize(
    ("scripts", "status", "code"),
    [
        ([error(429), error(429)], 429, "upstream_rate_limited"),
        ([error(429), error(500)], 503, "upstream_unavailable"),
        ([error(500), REFUSED], 503, "upstream_unavailable"),
        ([error(401), error(403)], 502, "upstream_error"),
        ([error(401), error(500)], 503, "upstream_unavailable"),
        ([error(400, "audio is not supported"), error(400, "unknown parameter: seed")], 400, "bad_request"),
        ([error(400, "audio is not supported"), error(401)], 502, "upstream_error"),
        ([error(400, "audio is not supported"), error(503)], 503, "upstream_unavailable"),
        ([error(413), error(500, "temperature is wrong")], 503, "upstream_unavailable"),
    ],
)
def test_what_is_said_when_all_are_out(scripts: list[Any], status: int, code: str) -> None:
    """E2, E3, E7."""
    rig = Rig(*scripts)
    got = rig.ask("chat")
    assert (got.status, got.json["error"]["code"]) == (status, code)
    assert ("retry-after" in got.header) == (status in (429, 503))
    assert [(leg.target, leg.billed, leg.usage.total) for leg in rig.books.lines[0].legs] == [
        ("p1/vendor-model", False, 0),
        ("p2/vendor-model", False, 0),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "image input is not supported",
        'Unknown name "seed"',
        "Extra inputs are not permitted",
        "Unrecognized request argument",
    ],
)
def test_what_only_this_provider_refuses_moves_on_e7(words: str) -> None:
    rig = Rig(error(400, words), GOOD)
    assert rig.ask("chat").status == 200
    assert play(Rig([error(400, words)] * 4, [GOOD] * 4), _asked_four_times) == ["p1", "p2"] * 4  # and is no failure


async def _asked_four_times(town: Town) -> list[str]:
    for _ in range(4):
        assert (await town.ask()).status == 200
    return town.asked


def test_too_long_for_one_window_goes_to_a_larger_one_only_e7() -> None:
    """A route of two windows; a provider without a larger window is not asked in vain."""
    small = Model(id="small", targets=(TargetRef("p1", "a"),), context_window=10)
    same = Model(id="same", targets=(TargetRef("p2", "b"),), context_window=10)
    large = Model(id="large", targets=(TargetRef("p3", "c"),), context_window=20)

    async def story(town: Town) -> tuple[int, list[str]]:
        models = {model.id: model for model in (small, same, large)}
        town.services.catalog = Catalog(models, {"r": Route(("small", "same", "large")), "s": Route(("small", "same"))})
        first = await town.ask(model="r")
        second = await town.ask(model="s")
        assert second.json["error"]["code"] == "context_length_exceeded"
        return first.status, town.asked

    long = error(400, "maximum context length is 10")
    assert play(Rig([long, long], [long], GOOD), story) == (200, ["p1", "p3", "p1"])


def test_three_failures_in_a_row_move_a_candidate_back_and_a_probe_brings_it_back() -> None:
    """M2: breakers only reorder."""

    async def story(town: Town) -> None:
        for _ in range(3):
            await town.ask()
        await town.ask()
        assert town.asked == ["p1", "p2", "p1", "p2", "p1", "p2", "p2"]
        later = town.services.clock() + 10
        town.routing._clock = lambda: later  # pyright: ignore[reportPrivateUsage]
        await town.ask()
        await town.ask()
        assert town.asked[-2:] == ["p1", "p1"]

    play(Rig([*[error(500)] * 3, GOOD, GOOD], [GOOD] * 4), story)


def test_when_all_breakers_are_open_the_least_bad_one_is_tried_m2() -> None:
    async def story(town: Town) -> None:
        for _ in range(3):
            assert (await town.ask()).status == 502
        assert (await town.ask()).status == 200

    play(Rig([*[error(500)] * 3, GOOD]), story)


def test_a_refused_key_is_set_aside_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Once, by its number, never by itself; the provider's other key goes on alone."""
    rig = Rig([error(401), GOOD, GOOD])
    rig.provider_keys = ("sk-old", "sk-new")

    async def story(town: Town) -> list[str]:
        for _ in range(2):
            assert (await town.ask()).status == 200
        assert remembered(town.routing)["p1/vendor-model#1"].refused_until > 0
        return [request.headers.decode() for request in town.rig.upstream.requests]

    with caplog.at_level(logging.ERROR, "kenari.routing"):
        sent = play(rig, story)
    assert ["sk-old" in headers for headers in sent] == [True, False, False]
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("p1/vendor-model#1: its provider refused the key (status 401)")
    assert "sk-" not in said


@pytest.mark.parametrize("client", FORMATS)
def test_the_deadline_holds_over_all_candidates(client: str) -> None:
    """The second has what the first left of it; then 504, and nobody's breaker counts it."""

    async def story(town: Town) -> None:
        town.services.deadline = 0.3
        began = town.services.clock()
        got = await town.ask(client)
        assert 0.25 < town.services.clock() - began < 1.0
        assert got.status == 504
        assert town.rig.upstream.calls[-1].aborted
        assert remembered(town.routing) == {}

    play(Rig(Script(head_after=5)), story)
    play(Rig(Script([(0.1, None)]), Script([(0, ROLE), (5, TEXT)])), _two_within_the_deadline)


async def _two_within_the_deadline(town: Town) -> None:
    town.services.deadline = 0.3
    began = town.services.clock()
    got = await town.ask()
    assert town.services.clock() - began < 1.0
    assert got.status == 503
    assert town.asked == ["p1", "p2"]


def test_content_in_time_is_not_cut_by_the_deadline() -> None:
    async def story(town: Town) -> None:
        town.services.deadline = 0.2
        assert (await town.ask()).data[-1] == "[DONE]"

    play(Rig(Script([(0, ROLE + TEXT), (0.4, STOP + DONE), (0, None)])), story)


@pytest.mark.parametrize("client", FORMATS)
def test_the_answer_says_who_served_it_after_how_many_attempts(client: str) -> None:
    for stream in (True, False):
        good = GOOD if stream else answer(COMPLETION)
        got = Rig(error(500), good).ask(client, stream=stream)
        assert (got.header_lines["x-kenari-target"], got.header_lines["x-kenari-attempts"]) == ("p2/vendor-model", "2")


def test_only_who_may_see_it_is_told_the_target() -> None:
    async def story(town: Town) -> None:
        town.services._show_target = "nobody"
        assert "x-kenari-target" not in (await town.ask()).header_lines

    play(Rig(GOOD), story)


def test_attempts_stand_in_the_line_u5() -> None:
    """Each with its outcome; only the one that answered is billed."""
    rig = Rig(REFUSED, error(503), GOOD)
    rig.ask("chat")
    legs = rig.books.lines[0].legs
    assert [(leg.target, leg.outcome, leg.billed) for leg in legs] == [
        ("p1/vendor-model", "upstream_unavailable", False),
        ("p2/vendor-model", "upstream_unavailable", False),
        ("p3/vendor-model", "ok", True),
    ]
    assert rig.books.lines[0].usage == legs[-1].usage


def test_keepalives_go_out_while_candidates_are_still_tried_s15() -> None:
    """Silent, then 503, then the second answers: comments, then a normal stream."""
    body = b'{"error":{"message":"busy"}}'
    for client in FORMATS:
        rig = Rig(Script([(0, body), (0, None)], 503, {}, 0.42), GOOD)
        rig.silence = (0.15, 60)
        got = rig.ask(client)
        assert got.out.count(b": keepalive\n\n") == 2
        assert got.out.startswith(b": keepalive\n\n: keepalive\n\n")
        assert b"error" not in got.out.replace(b'"error":null', b"")


def test_a_route_serves_each_member_with_its_own_abilities() -> None:
    """The second member's cap and efforts, not the first's."""
    first = Model(id="a", targets=(TargetRef("p1", "x"),), max_output_tokens=100, reasoning=False)
    second = Model(id="b", targets=(TargetRef("p2", "y"),), max_output_tokens=700, reasoning=True, efforts=("low",))

    async def story(town: Town) -> list[dict[str, Any]]:
        town.services.catalog = Catalog({"a": first, "b": second}, {"r": Route(("a", "b"))})
        assert (await town.ask(model="r", max_tokens=5000, reasoning_effort="high")).status == 200
        return town.rig.upstream.sent

    one, two = play(Rig(error(500), GOOD), story)
    assert (one["model"], one["max_tokens"], one.get("reasoning_effort")) == ("x", 100, None)
    assert (two["model"], two["max_tokens"], two["reasoning_effort"]) == ("y", 700, "low")


def test_an_image_goes_to_the_member_that_sees() -> None:
    """What a member cannot take is no attempt: it is not called, and its health is untouched."""
    blind = Model(id="a", targets=(TargetRef("p1", "x"),), vision=False)
    sees = Model(id="b", targets=(TargetRef("p2", "y"),), vision=True)
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}

    async def story(town: Town) -> list[str]:
        town.services.catalog = Catalog({"a": blind, "b": sees}, {"r": Route(("a", "b"))})
        got = await town.ask(model="r", messages=[{"role": "user", "content": [part]}])
        assert (got.status, got.header_lines["x-kenari-attempts"]) == (200, "1")
        return town.asked

    assert play(Rig(GOOD, GOOD), story) == ["p2"]


def test_cheapest_is_by_the_request_s_own_size() -> None:
    """A dear input with a cheap output loses on a long prompt and wins on a short one."""
    reader = Model(id="a", targets=(TargetRef("p1", "x"),), price=Price("0.1", "9"))
    writer = Model(id="b", targets=(TargetRef("p2", "y"),), price=Price("3", "1"))

    async def story(town: Town) -> list[str]:
        town.services.catalog = Catalog({"a": reader, "b": writer}, {"r": Route(("b", "a"), (), "cheapest")})
        long = [{"role": "user", "content": "word " * 20000}]
        await town.ask(model="r", messages=long)
        await town.ask(model="r")
        return town.asked

    assert play(Rig(GOOD, GOOD), story) == ["p1", "p2"]


@pytest.mark.parametrize(
    ("client", "member"),
    [("chat", "prompt_cache_key"), ("chat", "session_id"), ("responses", "prompt_cache_key"), ("messages", "")],
)
def test_a_conversation_stays_with_its_provider_m3(client: str, member: str) -> None:
    """Also after the first choice works again; the header serves every format; others are not moved."""
    mine: dict[str, Any] = {member: "conversation 1"} if member else {}
    headers = {} if member else {b"x-session-id": b"conversation 1"}

    async def story(town: Town) -> list[str]:
        for _ in range(3):
            assert (await town.ask(client, headers, **mine)).status == 200
        assert (await town.ask(client)).status == 200
        return town.asked

    assert play(Rig([error(500), GOOD], [GOOD, GOOD, GOOD]), story) == ["p1", "p2", "p2", "p2", "p1"]


def test_a_pin_lasts_ten_minutes_of_use_m3() -> None:
    """Each use begins them anew; the ones unused for longest are forgotten when there are too many."""
    times = [0.0]
    pins = MemoryPins(lambda: times[0], limit=2)
    pins.put("a", "p1")
    for now, name in ((599.0, "p1"), (1198.0, "p1"), (1797.9, "p1"), (2398.0, None)):
        times[0] = now
        assert virtual_time.run(pins.get("a")) == name
    for key in ("a", "b", "a", "c"):
        pins.put(key, key)
    assert [pins.look(key) for key in ("a", "b", "c")] == ["a", None, "c"]


def test_a_session_travels_as_an_hmac_m3() -> None:
    rig = Rig(GOOD, profile=Profile(prompt_cache_key=True))

    async def story(town: Town) -> None:
        await town.ask(headers={b"x-session-id": b"conversation 1"})

    play(rig, story)
    sent = rig.upstream.sent[0]["prompt_cache_key"]
    assert len(sent) == 32
    assert "conversation" not in json.dumps(rig.upstream.sent[0])


def test_retry_after_as_seconds_milliseconds_and_dates() -> None:
    """A date counts from the answer's own date; without one from our clock."""
    date = b"Mon, 30 Nov 2026 08:00:10 GMT"
    assert retry_after({b"retry-after": b"7"}) == 7
    assert retry_after({b"retry-after": b"9", b"retry-after-ms": b"250"}) == 0.25
    assert retry_after({b"retry-after": date, b"date": b"Mon, 30 Nov 2026 08:00:00 GMT"}) == 10
    assert retry_after({b"retry-after": date}, 1796025605.0) == 5
    assert retry_after({b"retry-after": date, b"date": b"Mon, 30 Nov 2026 09:00:00 GMT"}) == 0
    for nonsense in (b"", b"soon", b"-1", b"1e99", b"nan", b"Mon, 99 Nov 2026 08:00:00 GMT"):
        assert retry_after({b"retry-after": nonsense}, 0.0) is None
    error = failure_of_status(429, {b"retry-after": date}, b"", secrets=(), names=("", ""), now=1796025605.0)
    assert error.retry_after == 5


def test_a_key_of_the_same_provider_is_tried_after_a_pause_of_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of one provider have jitter; another provider is asked at once."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noting(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    rig = Rig([error(503), error(503), error(503)], GOOD)
    rig.provider_keys = ("sk-1", "sk-2", "sk-3")
    monkeypatch.setattr("kenari.gateway.failover.asyncio.sleep", noting)
    got = rig.ask("chat")
    assert got.status == 200
    waits = [one for one in pauses if one]
    assert len(waits) >= 2
    assert all(0 < one <= 0.1 for one in waits)


def test_tokens_are_counted_where_a_target_can_and_nobodys_health_is_touched_m4() -> None:
    """The first candidate in order that counts; what fails there goes on, and at last we estimate."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    number = answer({"input_tokens": 4321})

    async def story(town: Town) -> list[Any]:
        counted: list[Any] = []
        for _ in range(4):
            exchange = Exchange("/v1/messages/count_tokens", body)
            await town.door.serve(exchange)
            counted.append((exchange.status, exchange.json["input_tokens"]))
        assert remembered(town.routing) == {}
        assert town.rig.books.lines == []
        return counted

    rig = Rig([number, error(500), error(429, retry_after="60"), REFUSED], [number, error(400), error(404)])
    rig.dialect = "messages"
    counted = play(rig, story)
    assert counted[:2] == [(200, 4321), (200, 4321)]
    assert all(status == 200 and 0 < count < 100 for status, count in counted[2:])


def test_a_responses_provider_counts_exactly_where_it_can_m4() -> None:
    """OpenAI's counting endpoint gets what it knows of the request, and no more."""
    ask = {"model": "m", "system": "be brief", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
    for profile, count in ((ROWS["openai"].profile, 77), (Profile(), None)):
        rig = Rig(
            [answer({"object": "response.input_tokens", "input_tokens": 77})], dialect="responses", profile=profile
        )
        got = rig.post("/v1/messages/count_tokens", json.dumps(ask).encode())
        assert got.status == 200
        assert (got.json["input_tokens"] == 77) == (count == 77)
        assert len(rig.upstream.requests) == (1 if count else 0)
        for request in rig.upstream.requests:
            assert request.url == "http://p1/v1/responses/input_tokens"
            sent = json.loads(request.body)
            assert (sent["model"], sent["instructions"]) == ("vendor-model", "be brief")
            assert not {"stream", "store", "max_output_tokens", "include"} & set(sent)


def hedged(first: list[Script], second: list[Script]) -> tuple[list[Any], Any, list[bool]]:
    """Twenty quick answers of p1, then one request that finds it late; what came of it."""

    async def story(town: Town) -> tuple[list[Any], Any, list[bool]]:
        models = {
            "a": Model(id="a", targets=(TargetRef("p1", "x"),)),
            "b": Model(id="b", targets=(TargetRef("p2", "y"),)),
        }
        town.services.catalog = Catalog(models, {"r": Route(("a", "b"), hedge=True)})
        for _ in range(20):
            await town.ask(model="r")
        assert town.asked == ["p1"] * 20
        got = await town.ask(model="r")
        return (
            [got, town.asked[20:], remembered(town.routing)],
            town.rig.books.lines[-1],
            [call.aborted for call in town.rig.upstream.calls[20:]],
        )

    return play(Rig([GOOD] * 20 + first, second), story)


LATE = Script([(0.3, ROLE + TEXT + STOP + DONE), (0, None)])


def test_hedging_starts_a_second_candidate_after_the_usual_time_and_the_loser_costs_nothing() -> None:
    """The first to have content answers; the other is broken off and nobody's bill."""
    (got, asked, health), line, aborted = hedged([LATE], [GOOD])
    assert (got.status, got.data[-1]) == (200, "[DONE]")
    assert (asked, aborted) == (["p1", "p2"], [True, False])
    assert got.header_lines["x-kenari-target"] == "p2/y"
    assert [(leg.target, leg.outcome, leg.billed, leg.usage.total) for leg in line.legs] == [
        ("p1/x", "hedged", False, 0),
        ("p2/y", "ok", True, 12),
    ]
    assert (line.target, line.ending, line.usage.total) == ("p2/y", "done", 12)
    assert health["p1/x"].failures == 0


def test_hedging_when_the_rival_is_slower_or_fails() -> None:
    slower = Script([(2, ROLE + TEXT + STOP + DONE), (0, None)])
    (got, _, _), line, aborted = hedged([LATE], [slower])
    assert (got.data[-1], aborted) == ("[DONE]", [False, True])
    assert got.header_lines["x-kenari-target"] == "p1/x"
    assert [(leg.target, leg.outcome) for leg in line.legs] == [("p2/y", "hedged"), ("p1/x", "ok")]
    (got, _, _), line, _ = hedged([LATE], [error(500)])
    assert got.data[-1] == "[DONE]"
    assert [(leg.target, leg.outcome) for leg in line.legs] == [("p2/y", "upstream_error"), ("p1/x", "ok")]


def test_hedging_does_not_change_a_failure() -> None:
    """A first that fails at once is followed by the second alone; two that fail are all out."""
    (got, asked, _), line, _ = hedged([error(500)], [GOOD])
    assert (got.data[-1], asked) == ("[DONE]", ["p1", "p2"])
    assert [leg.outcome for leg in line.legs] == ["upstream_error", "ok"]
    (got, asked, _), line, _ = hedged([Script([(0.2, None)])], [error(503)])
    assert (got.status, asked, line.ending) == (503, ["p1", "p2"], "failed")


async def leave_a_race(town: Town) -> None:
    """A hedged route whose usual time is known after 20 calls; then a client that leaves while both its members are at it."""
    town.services.catalog = Catalog(
        {"a": Model(id="a", targets=(TargetRef("p1", "x"),)), "b": Model(id="b", targets=(TargetRef("p2", "y"),))},
        {"r": Route(("a", "b"), hedge=True)},
    )
    for _ in range(20):
        await town.ask(model="r")
    body = {"model": "r", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    exchange = Exchange(PATHS["chat"], json.dumps(body).encode())
    task = asyncio.get_running_loop().create_task(town.door.serve(exchange))
    await asyncio.sleep(0.1)
    exchange.leave()
    await asyncio.wait_for(task, 2)


def test_a_client_that_goes_ends_both_sides_of_a_race() -> None:
    async def story(town: Town) -> None:
        await leave_a_race(town)
        assert [call.aborted for call in town.rig.upstream.calls[20:]] == [True, True]
        assert town.rig.books.lines[-1].ending == "client_closed"

    play(Rig([GOOD] * 20 + [Script(head_after=5)], [Script(head_after=5)]), story)


@pytest.mark.parametrize("moment", ["no winner yet", "after the winner's first word"])
def test_a_client_that_leaves_a_race_pays_one_of_its_sides_u6(moment: str) -> None:
    """What the loser used is nobody's bill, also when the client goes later; before there is a winner one side is paid."""
    slow = Script([(0, ROLE), (5, None)])
    word = slow if moment == "no winner yet" else Script([(0, ROLE + TEXT), (5, None)])

    async def story(town: Town) -> None:
        await leave_a_race(town)
        line = town.rig.books.lines[-1]
        assert line.ending == "client_closed"
        paid = "p1/x" if moment == "no winner yet" else "p2/y"
        assert [leg.target for leg in line.legs if leg.billed] == [paid]
        assert sorted(leg.outcome for leg in line.legs) == ["client_closed", "hedged"]

    play(Rig([GOOD] * 20 + [slow], [word]), story)
