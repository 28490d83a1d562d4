"""Reservations and settlements in the store: no overdraft, nothing lost, nothing twice (U4, U5, F8), on both databases."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator

import pytest
from store_kit import PRICE, Clock, customer, differences, line_of, opened, settlement_of, wanted

from kenari.core.caller import Budget, Caller
from kenari.core.errors import KenariError, key_was_used
from kenari.core.ports import Hold, Repeat
from kenari.core.price import UNIT
from kenari.store.records import AccountChange, HoldRow
from kenari.store.store import Store

OPERATOR = Caller(account="operator", key="bootstrap", unlimited=True)


async def refusal(store: Store, caller: Caller, amount: int, least: int | None = None) -> str:
    """The code with which a reservation is refused."""
    with pytest.raises(KenariError) as error:
        await store.reserve(wanted(caller, amount, least), "node")
    return error.value.code


def test_U5_a_hold_lowers_what_is_left_and_settling_it_releases_the_rest(store_url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            caller = await customer(store, 10 * UNIT)
            hold = await store.reserve(wanted(caller, 4 * UNIT), "node")
            assert hold == Hold(hold.id, caller, 4 * UNIT)
            account = await store.account(caller.account)
            assert (account.balance, account.reserved) == (10 * UNIT, 4 * UNIT)
            line = line_of(hold, prompt=1_000_000, output=500_000)
            assert await store.settle(settlement_of(line, hold, clock())) is True
            account = await store.account(caller.account)
            assert (account.balance, account.reserved) == (8 * UNIT, 0)
            assert await store.open_holds() == []
            bill = await store.request(hold.id)
            assert bill is not None
            assert (bill.charge, bill.account, bill.status) == (2 * UNIT, caller.account, 200)
        assert differences(store_url) == []

    asyncio.run(play())


def test_settling_twice_charges_once(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, UNIT)
            hold = await store.reserve(wanted(caller, UNIT), "node")
            settlement = settlement_of(line_of(hold, output=1000), hold, 5.0)
            first, second = await asyncio.gather(store.settle(settlement), store.settle(settlement))
            assert (first, second) == (True, False)
            assert await store.settle(settlement) is False
            assert (await store.account(caller.account)).balance == UNIT - 2_000_000
        assert differences(store_url) == []

    asyncio.run(play())


def test_S163_U5_of_a_hundred_parallel_requests_on_a_balance_for_ten_exactly_ten_pass(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 10 * UNIT)
            asked = [store.reserve(wanted(caller, UNIT), "node") for _ in range(100)]
            holds = [one for one in await asyncio.gather(*asked, return_exceptions=True)]
            granted = [one for one in holds if isinstance(one, Hold)]
            refused = [one for one in holds if isinstance(one, KenariError)]
            assert (len(granted), len(refused)) == (10, 90)
            assert {(one.code, one.status) for one in refused} == {("insufficient_balance", 402)}
            for hold in granted:
                await store.settle(settlement_of(line_of(hold, output=500_000), hold, 1.0))
            account = await store.account(caller.account)
            assert (account.balance, account.reserved) == (0, 0)
        assert differences(store_url) == []

    asyncio.run(play())


def test_F8_usage_above_the_reserve_is_charged_in_full(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, UNIT)
            hold = await store.reserve(wanted(caller, UNIT), "node")
            await store.settle(settlement_of(line_of(hold, output=1_500_000), hold, 1.0))
            assert (await store.account(caller.account)).balance == -2 * UNIT
            assert await refusal(store, caller, 1) == "insufficient_balance"
        assert differences(store_url) == []

    asyncio.run(play())


def test_F8_what_is_left_is_granted_when_it_is_enough(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, UNIT)
            hold = await store.reserve(wanted(caller, 5 * UNIT, least=UNIT // 2), "node")
            assert hold.amount == UNIT
            assert await refusal(store, caller, UNIT, least=0) == "insufficient_balance"
            free = await store.reserve(wanted(caller, 0), "node")
            assert free.amount == 0

    asyncio.run(play())


def test_nothing_is_refused_for_money_where_it_is_not_enforced(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url, enforce=False) as store:
            caller = await customer(store, 0)
            hold = await store.reserve(wanted(caller, UNIT), "node")
            assert hold.amount == UNIT
            await store.settle(settlement_of(line_of(hold, output=500_000), hold, 1.0))
            assert (await store.account(caller.account)).balance == -UNIT
        assert differences(store_url) == []

    asyncio.run(play())


def test_U7_an_unlimited_caller_has_lines_and_no_balance(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            hold = await store.reserve(wanted(OPERATOR, 0), "node")
            await store.settle(settlement_of(line_of(hold, output=500_000), hold, 1.0))
            bill = await store.request(hold.id)
            assert bill is not None
            assert (bill.charge, bill.account) == (UNIT, "operator")
        assert differences(store_url) == []

    asyncio.run(play())


def test_a_closed_account_gets_no_hold(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, UNIT)
            await store.change_account(caller.account, AccountChange(closed=True), actor="test")
            assert await refusal(store, caller, 1) == "invalid_api_key"
            await store.change_account(caller.account, AccountChange(closed=False), actor="test")
            assert (await store.reserve(wanted(caller, 1), "node")).amount == 1

    asyncio.run(play())


def test_A2_a_budget_counts_what_was_spent_and_what_is_set_aside(store_url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            caller = await customer(store, 100 * UNIT)
            hold = await store.reserve(wanted(caller, 2 * UNIT), "node")  # before there is a budget
            limited = Caller(account=caller.account, key=caller.key, budget=Budget(5 * UNIT, "day"))
            second = await store.reserve(wanted(limited, 2 * UNIT), "node")
            assert await refusal(store, limited, 2 * UNIT) == "budget_exceeded"
            await store.settle(settlement_of(line_of(hold, output=500_000), hold, clock()))
            key, account = await store.spent(limited)
            assert account is None
            assert key is not None
            assert (key.amount, key.reserved) == (UNIT, 2 * UNIT)
            third = await store.reserve(wanted(limited, 2 * UNIT), "node")
            assert await refusal(store, limited, 1) == "budget_exceeded"
            for one in (second, third):
                await store.settle(settlement_of(line_of(one, output=1_000_000), one, clock()))
            assert await refusal(store, limited, 1) == "budget_exceeded"
            clock.now += 24 * 3600
            await store.reserve(wanted(limited, 5 * UNIT), "node")
        assert differences(store_url) == []

    asyncio.run(play())


def test_A2_the_smaller_of_balance_and_budgets_decides_and_names_the_code(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 3 * UNIT)
            both = Caller(
                account=caller.account,
                key=caller.key,
                budget=Budget(5 * UNIT, "total"),
                account_budget=Budget(2 * UNIT, "month"),
            )
            assert await refusal(store, both, 3 * UNIT) == "budget_exceeded"
            other = Caller(account=caller.account, key=caller.key, budget=Budget(5 * UNIT, "total"))
            assert await refusal(store, other, 4 * UNIT) == "insufficient_balance"
        assert differences(store_url) == []

    asyncio.run(play())


def test_budgets_hold_within_one_batch(store_url: str) -> None:
    """Twenty reservations that arrive together on a budget for five."""

    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 100 * UNIT)
            limited = Caller(account=caller.account, key=caller.key, budget=Budget(5 * UNIT, "week"))
            asked = [store.reserve(wanted(limited, UNIT), "node") for _ in range(20)]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert sum(isinstance(one, Hold) for one in outcomes) == 5
        assert differences(store_url) == []

    asyncio.run(play())


def test_F14_an_idempotency_key_is_taken_once(store_url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            caller = await customer(store, 10 * UNIT)
            repeat = Repeat(b"k" * 32, b"b" * 32)
            first, second = await asyncio.gather(
                store.reserve(wanted(caller, UNIT, repeat=repeat), "node"),
                store.reserve(wanted(caller, UNIT, repeat=repeat), "node"),
                return_exceptions=True,
            )
            assert isinstance(first, Hold)
            assert isinstance(second, KenariError)
            assert (second.code, first.id in second.message) == ("idempotency_conflict", True)
            with pytest.raises(KenariError, match="another body"):
                await store.reserve(wanted(caller, UNIT, repeat=Repeat(b"k" * 32, b"c" * 32)), "node")
            other = await customer(store, UNIT)
            assert (await store.reserve(wanted(other, UNIT, repeat=repeat), "node")).amount == UNIT
            await store.settle(settlement_of(line_of(first, output=1), first, clock()))
            with pytest.raises(KenariError) as late:
                await store.reserve(wanted(caller, UNIT, repeat=repeat), "node")
            expected = key_was_used(first.id)  # the gateway's own words
            assert (late.value.message, late.value.param) == (expected.message, expected.param)
            clock.now += 25 * 3600
            await store.reserve(wanted(caller, UNIT, repeat=repeat), "node")

    asyncio.run(play())


def test_F14_a_request_that_failed_free_of_charge_may_be_made_again(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, UNIT)
            repeat = Repeat(b"k" * 32, b"b" * 32)
            hold = await store.reserve(wanted(caller, UNIT, repeat=repeat), "node")
            failed = line_of(hold, status=502, ending="failed", code="upstream_error", legs=[])
            await store.settle(settlement_of(failed, hold, 1.0))
            assert (await store.reserve(wanted(caller, UNIT, repeat=repeat), "node")).amount == UNIT
        assert differences(store_url) == []

    asyncio.run(play())


def test_one_refused_move_does_not_lose_the_others_of_its_batch(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 10 * UNIT)
            same = wanted(caller, UNIT)
            asked = [store.reserve(one, "node") for one in (wanted(caller, UNIT), same, same, wanted(caller, UNIT))]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert [isinstance(one, Hold) for one in outcomes].count(True) >= 3
            assert (await store.account(caller.account)).reserved == 3 * UNIT
        assert differences(store_url) == []

    asyncio.run(play())


@contextlib.asynccontextmanager
async def busy_writer(store: Store) -> AsyncGenerator[None]:
    """While it lasts the store's writer is busy: what is asked meanwhile is its next batch."""
    began, go_on = threading.Event(), threading.Event()

    def wait(database: object) -> None:
        began.set()
        go_on.wait(10)

    waiting = asyncio.ensure_future(store._change(wait))  # pyright: ignore[reportPrivateUsage]
    assert await asyncio.to_thread(began.wait, 10)
    yield
    go_on.set()
    await waiting


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one batch"])
def test_a_hold_that_was_granted_offline_and_refused_is_adopted_and_released(store_url: str, together: bool) -> None:
    """What the spool holds of a request that the limits refused: its hold, then its release, often in one batch (U5)."""

    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 10 * UNIT)
            repeat = Repeat(b"k" * 32, b"b" * 32)
            hold = HoldRow(id="gen_offline", account=caller.account, key=caller.key, model="m/one", amount=UNIT)
            async with busy_writer(store) if together else contextlib.nullcontext():
                adopted = store.adopt(hold)
                if not together:
                    assert await adopted
                released = store.release(hold.id, caller.account, False)
            assert await asyncio.gather(adopted, released) == [True, True]
            assert await store.open_holds() == []
            assert (await store.account(caller.account)).reserved == 0
            kept = await store.reserve(wanted(caller, UNIT, repeat=repeat), "node")
            assert await store.release(kept.id, caller.account, False)
            assert not await store.release(kept.id, caller.account, False)
            assert (await store.reserve(wanted(caller, UNIT, repeat=repeat), "node")).amount == UNIT
        assert differences(store_url) == []

    asyncio.run(play())


def test_what_ended_before_a_report_is_in_it(store_url: str) -> None:
    """A settlement is kept back for a moment, but not from who asks (F9)."""

    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, UNIT)
            for _ in range(5):
                hold = await store.reserve(wanted(caller, 1000), "node")
                store.settle(settlement_of(line_of(hold, output=10), hold, 1.0))
                assert await store.request(hold.id) is not None
                assert (await store.account(caller.account)).reserved == 0

    asyncio.run(play())


def test_a_reservation_that_nobody_waits_for_any_more_leaves_no_hold(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 10 * UNIT)
            futures = [store.reserve(wanted(caller, UNIT), "node") for _ in range(5)]
            await asyncio.sleep(0)
            for future in futures:
                future.cancel()
            for _ in range(100):
                await store.ping()
                if not await store.open_holds():
                    break
            assert await store.open_holds() == []
            assert (await store.account(caller.account)).reserved == 0
        assert differences(store_url) == []

    asyncio.run(play())


def test_noted_estimates_are_kept_with_the_holds(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 10 * UNIT)
            holds = [await store.reserve(wanted(caller, UNIT), "node/1") for _ in range(3)]
            await store.note({holds[0].id: 7, holds[1].id: 2**40, "gone": 1})
            found = {one.id: one for one in await store.open_holds("node")}
            assert [found[hold.id].estimate for hold in holds] == [7, 2**40, 0]
            assert {(one.owner, one.model, one.price) for one in found.values()} == {("node/1", "m", PRICE)}
            assert await store.open_holds("nod") == []

    asyncio.run(play())
