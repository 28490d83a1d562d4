"""Idempotency-Key (F14): attach while in flight, 409 afterwards, charged once."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import virtual_time
from gateway_kit import (
    COMPLETION,
    DONE,
    FORMATS,
    GOOD,
    KEY,
    LOST,
    PATHS,
    ROLE,
    STOP,
    Exchange,
    Rig,
    Script,
    chunk,
    error,
)
from money_kit import paid

from kenari.core.caller import Caller
from kenari.core.errors import key_was_used
from kenari.gateway import repeats
from kenari.keys.bootstrap import BootstrapKeys

HEADERS = {b"authorization": b"Bearer " + KEY.encode(), b"idempotency-key": b"once"}
SLOW = Script(
    [(0, ROLE), (0.05, chunk({"content": "one "})), (0.1, chunk({"content": "two"})), (0.05, STOP + DONE), (0, None)]
)


def ask(client: str = "chat", number: int = 1, stream: bool = True, headers: Any = HEADERS, **more: Any) -> Exchange:
    body: dict[str, Any] = {"model": "m", "stream": stream, **more}
    body["input" if client == "responses" else "messages"] = [{"role": "user", "content": "hi"}]
    exchange = Exchange(PATHS[client], json.dumps(body).encode(), dict(headers))
    exchange.id = f"{number:016x}"
    return exchange


def play(rig: Rig, steps: Callable[[Callable[[Exchange], "asyncio.Task[None]"]], Coroutine[Any, Any, None]]) -> None:
    """Run steps that send exchanges to one door."""

    async def run() -> None:
        door = rig.build()
        loop = asyncio.get_running_loop()
        await asyncio.wait_for(steps(lambda exchange: loop.create_task(door.serve(exchange))), 10)

    virtual_time.run(run())


@pytest.mark.parametrize("client", FORMATS)
def test_f14_a_stream_in_flight_is_shared_from_its_beginning(client: str) -> None:
    rig, books = paid(SLOW)
    first, second = ask(client, 1), ask(client, 2)

    async def steps(send: Any) -> None:
        one = send(first)
        await asyncio.sleep(0.1)
        two = send(second)
        await asyncio.gather(one, two)

    play(rig, steps)
    assert first.out == second.out
    assert first.ended
    assert second.ended
    assert second.header["x-request-id"] == first.id
    assert len(rig.upstream.requests) == 1
    lines = {line.id: line for line in books.lines}
    assert (lines[first.id].charge, lines[second.id].charge) == (15, 0)  # charged once
    assert lines[second.id].notices[0].name == "idempotency-key"
    assert books.open == 0


def test_f14_a_plain_answer_in_flight_is_shared() -> None:
    script = Script([(0.1, json.dumps(COMPLETION).encode()), (0, None)], 200, {b"content-type": b"application/json"})
    rig, books = paid(script)
    first, second = ask(number=1, stream=False), ask(number=2, stream=False)

    async def steps(send: Any) -> None:
        await asyncio.gather(send(first), send(second))

    play(rig, steps)
    assert first.json == second.json
    assert sum(line.charge for line in books.lines) == 15


def test_f14_an_error_is_shared_and_the_key_may_be_used_again() -> None:
    rig, books = paid([error(500), GOOD])
    first, second, third = ask(number=1), ask(number=2), ask(number=3)

    async def steps(send: Any) -> None:
        await asyncio.gather(send(first), send(second))
        await send(third)

    play(rig, steps)
    assert (first.status, second.status, third.status) == (502, 502, 200)
    assert [line.charge for line in books.lines] == [0, 0, 15]


@pytest.mark.parametrize("client", FORMATS)
def test_f14_afterwards_it_is_409_with_the_request_id(client: str) -> None:
    rig, _ = paid([GOOD, GOOD])
    first, second, other, fresh = (ask(client, number) for number in range(1, 5))
    other.body = other.body.replace(b"hi", b"ho")
    fresh.headers[b"idempotency-key"] = b"another"

    async def steps(send: Any) -> None:
        for exchange in (first, second, other, fresh):
            await send(exchange)

    play(rig, steps)
    assert [one.status for one in (first, second, other, fresh)] == [200, 409, 409, 200]
    assert second.json["error"]["message"] == key_was_used(first.id).message  # as the store says it
    assert other.json["error"]["message"] == key_was_used(first.id, "with another body").message
    assert first.id in key_was_used(first.id).message
    assert second.header["x-should-retry"] == "false"
    if client != "messages":
        assert second.json["error"]["code"] == "idempotency_conflict"


def test_f14_another_body_is_409_while_in_flight() -> None:
    rig, _ = paid(SLOW)
    first, other = ask(number=1), ask(number=2, temperature=0)

    async def steps(send: Any) -> None:
        one = send(first)
        await asyncio.sleep(0.02)
        await send(other)
        assert other.status == 409
        await one

    play(rig, steps)
    assert first.status == 200


def test_f14_the_key_belongs_to_one_key_of_an_account() -> None:
    rig, _ = paid([GOOD, GOOD])
    rig.keys = BootstrapKeys({KEY: Caller(account="a", key="1"), "kn-two": Caller(account="a", key="2")})
    other = ask(number=2, headers=HEADERS | {b"authorization": b"Bearer kn-two"})

    async def steps(send: Any) -> None:
        await send(ask(number=1))
        await send(other)

    play(rig, steps)
    assert other.status == 200


def test_the_first_client_may_leave_while_another_is_there() -> None:
    rig, books = paid(SLOW)
    first, second = ask(number=1), ask(number=2)

    async def steps(send: Any) -> None:
        one = send(first)
        await asyncio.sleep(0.02)
        two = send(second)
        await asyncio.sleep(0.06)
        first.leave()
        await asyncio.gather(one, two)

    play(rig, steps)
    assert second.out.endswith(DONE)
    assert b"two" in second.out
    assert {line.ending for line in books.lines} == {"done"}


def test_with_the_last_client_the_request_is_over() -> None:
    rig, books = paid(Script([(0, ROLE), (0, chunk({"content": "one "})), (30, None)]))
    first, second = ask(number=1), ask(number=2)

    async def steps(send: Any) -> None:
        one = send(first)
        await asyncio.sleep(0.02)
        two = send(second)
        await asyncio.sleep(0.02)
        second.leave()
        await asyncio.sleep(0.02)
        assert not rig.upstream.calls[0].aborted
        first.leave()
        await asyncio.gather(one, two)

    play(rig, steps)
    assert rig.upstream.calls[0].aborted
    assert {line.ending for line in books.lines} == {"client_closed"}
    assert sum(line.charge > 0 for line in books.lines) == 1


def test_the_slowest_client_sets_the_pace() -> None:
    rig, _ = paid(SLOW)
    first, second = ask(number=1), ask(number=2)

    async def steps(send: Any) -> None:
        one = send(first)
        await asyncio.sleep(0.02)
        two = send(second)
        await asyncio.sleep(0.01)
        for exchange, pause in ((first, True), (second, True), (second, True), (first, False), (second, False)):
            assert exchange.watcher is not None
            (exchange.watcher.on_pause if pause else exchange.watcher.on_resume)()
        second.watcher.on_pause()  # type: ignore[union-attr]
        second.leave()  # a slow client that leaves holds nobody up
        await asyncio.gather(one, two)

    play(rig, steps)
    assert rig.upstream.calls[0].pauses == [True, False, True, False]


def test_an_answer_that_is_too_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MAX_SENT", 100)
    rig, _ = paid(SLOW)
    first, second = ask(number=1), ask(number=2)

    async def steps(send: Any) -> None:
        one = send(first)
        await asyncio.sleep(0.1)
        await send(second)
        assert second.status == 409
        await one

    play(rig, steps)
    assert first.out.endswith(DONE)


def test_a_broken_answer_breaks_for_all() -> None:
    rig, books = paid(Script([(0, ROLE), (0.05, chunk({"content": "one "})), (0.05, LOST)]))
    first, second = ask(number=1), ask(number=2)

    async def steps(send: Any) -> None:
        await asyncio.gather(send(first), send(second))

    play(rig, steps)
    assert first.out == second.out
    assert b"stream_interrupted" in second.out
    assert sum(line.charge > 0 for line in books.lines) == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "REMEMBERED", 2)

    async def run() -> None:
        now = [0.0]
        known = repeats.Repeats(lambda: now[0])
        for number in range(5):
            known.claim(bytes([number]), b"body", ask(number=number))
            known.end(bytes([number]), again=False)
        assert len(vars(known)["_past"]) == 2
        with pytest.raises(Exception, match="0000000000000004"):
            known.claim(bytes([4]), b"body", ask())
        now[0] = repeats.REMEMBERED_SECONDS + 1
        assert not known.claim(bytes([4]), b"body", ask()).late

    virtual_time.run(run())
