"""Setting more aside for a request that goes on (U5, F8): in the store, in the books, while the store is down."""

import asyncio
from pathlib import Path

import pytest
from store_kit import PRICE, customer, differences, line_of, opened, settlement_of, wanted
from test_ledger_books import books, reason, until

from kenari.core.caller import Budget, Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Hold
from kenari.core.price import UNIT
from kenari.store.records import StoreDown
from kenari.store.store import Store


def refused(outcome: object, code: str) -> bool:
    return isinstance(outcome, KenariError) and outcome.code == code


def test_u5_more_is_set_aside_and_goes_back_with_the_rest(store_url: str) -> None:
    async def run() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 10 * UNIT)
            hold = await store.reserve(wanted(caller, UNIT), "node")
            larger = await store.extend(hold, 4 * UNIT, 0)
            assert larger == Hold(hold.id, caller, 5 * UNIT)
            assert (await store.account(caller.account)).reserved == 5 * UNIT
            assert [row.amount for row in await store.open_holds()] == [5 * UNIT]
            partly = await store.extend(larger, 9 * UNIT, UNIT)
            assert partly.amount == 10 * UNIT
            with pytest.raises(KenariError, match="balance"):
                await store.extend(partly, UNIT, 0)
            other = await asyncio.gather(store.reserve(wanted(caller, 1), "node"), return_exceptions=True)
            assert refused(other[0], "insufficient_balance")
            assert await store.settle(settlement_of(line_of(hold, output=1_000_000), hold, 1.0))
            account = await store.account(caller.account)
            assert (account.balance, account.reserved) == (8 * UNIT, 0)
            with pytest.raises(KenariError, match="not open any more"):
                await store.extend(partly, UNIT, 0)
        assert differences(store_url) == []

    asyncio.run(run())


def test_a2_budgets_bound_what_is_added(store_url: str) -> None:
    async def run() -> None:
        async with opened(store_url) as store:
            rich = await customer(store, 100 * UNIT)
            caller = Caller(account=rich.account, key="key_b", budget=Budget(6 * UNIT, "day"))
            hold = await store.reserve(wanted(caller, 2 * UNIT), "node")
            assert (await store.extend(hold, 3 * UNIT, 3 * UNIT)).amount == 5 * UNIT
            with pytest.raises(KenariError, match="budget"):
                await store.extend(hold, 3 * UNIT, 2 * UNIT)
            assert (await store.extend(hold, 3 * UNIT, UNIT)).amount == 6 * UNIT
            spent, _ = await store.spent(caller)
            assert spent is not None
            assert differences(store_url) == []
            plain = Caller(account=rich.account, key="key_b")
            # a budget that is asked for the first time in the very batch in which a hold grows
            other = Caller(account=rich.account, key="key_b", account_budget=Budget(50 * UNIT, "month"))
            grown = await asyncio.gather(
                store.extend(Hold(hold.id, plain), UNIT, UNIT), store.reserve(wanted(other, UNIT), "node")
            )
            assert grown[0].amount == 7 * UNIT
        assert differences(store_url) == []

    asyncio.run(run())


def test_any_order_of_one_batch_adds_up(store_url: str) -> None:
    """A request that is settled, or released, in the batch in which it asked for more."""

    async def run() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 100 * UNIT)
            for turn in range(6):
                hold = await store.reserve(wanted(caller, UNIT), "node")
                settlement = settlement_of(line_of(hold, output=500_000), hold, 1.0)
                asked: list[asyncio.Future[object]] = [store.extend(hold, UNIT, 0) for _ in range(turn % 3)]  # type: ignore[misc]
                asked.append(store.settle(settlement) if turn % 2 else store.release(hold.id, caller.account, False))  # type: ignore[arg-type]
                asked.append(store.extend(hold, UNIT, 0))  # type: ignore[arg-type]
                outcomes = await asyncio.gather(*asked, return_exceptions=True)
                assert refused(outcomes[-1], "upstream_unavailable")
                assert (await store.account(caller.account)).reserved == 0
            assert (await store.account(caller.account)).balance == 100 * UNIT - 3 * UNIT
        assert differences(store_url) == []

    asyncio.run(run())


def test_what_nobody_waits_for_goes_back_with_the_hold(store_url: str) -> None:
    async def run() -> None:
        async with opened(store_url) as store:
            caller = await customer(store, 10 * UNIT)
            hold = await store.reserve(wanted(caller, UNIT), "node")
            asking = store.extend(hold, UNIT, 0)
            await store.ping()
            asking.cancel()
            given_up = store.extend(hold, UNIT, 0)
            given_up.cancel()
            await store.release(hold.id, caller.account, False)
            assert (await store.account(caller.account)).reserved == 0
        assert differences(store_url) == []

    asyncio.run(run())


def test_a_crash_is_billed_up_to_what_was_set_aside_by_then(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(store_url, node="node") as store:
            caller = await customer(store, UNIT)
            hold = await store.reserve(wanted(caller, 1000), "node")
            await store.extend(hold, 1000, 1000)
            await store.note({hold.id: 1700})
        async with books(store_url, tmp_path) as rig:
            await until(lambda: _done(rig.store, hold.id))
            assert await reason(rig.store, hold.id) == ("crashed", 1700)
        assert differences(store_url) == []

    asyncio.run(play())


async def _done(store: Store, id: str) -> bool:
    return await store.request(id) is not None


def test_the_bill_says_what_was_held_in_the_end(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path) as rig:
            caller = await customer(rig.store, UNIT)
            hold = await rig.books.reserve(wanted(caller, 1000))
            larger = await rig.books.extend(hold, 500, 500)
            assert larger.amount == 1500
            rig.books.settle(hold, line_of(hold, output=100))
            await rig.store.ping()
            bill = await rig.store.request(hold.id)
            assert bill is not None
            assert b'"held":1500' in bill.body
        assert differences(store_url) == []

    asyncio.run(play())


def test_while_the_store_is_down_more_counts_against_the_allowance(store_url: str, tmp_path: Path) -> None:
    """8.: what cannot be guaranteed is refused, never guessed."""

    async def play() -> None:
        async with books(store_url, tmp_path, offline_allowance=3000) as rig:
            caller = await customer(rig.store, UNIT)
            operator = Caller(account="operator", key="bootstrap", unlimited=True)
            before = await rig.books.reserve(wanted(caller, 1000))
            free = await rig.books.reserve(wanted(operator, 1000))
            rig.books._go_offline(StoreDown("no"))  # pyright: ignore[reportPrivateUsage]
            hold = await rig.books.reserve(wanted(caller, 1000))
            assert (await rig.books.extend(hold, 1500, 0)).amount == 2500
            assert (await rig.books.extend(before, 1500, 0)).amount == 1500  # what was left of the allowance
            with pytest.raises(KenariError) as told:
                await rig.books.extend(hold, 1, 1)
            assert told.value.status == 503
            assert (await rig.books.extend(free, 10**12, 10**12)).amount == 10**12 + 1000
            rig.books.settle(hold, line_of(hold, output=0))
            assert (await rig.books.reserve(wanted(caller, 2500))).amount == 2500
            for one in (before, free):
                rig.books.settle(one, line_of(one, output=0))
        assert PRICE.output

    asyncio.run(play())


def test_a_store_that_fails_meanwhile_is_an_outage(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path, offline_allowance=100) as rig:
            caller = await customer(rig.store, UNIT)
            hold = await rig.books.reserve(wanted(caller, 1000))
            extend = rig.store.extend

            def broken(hold: Hold, amount: int, least: int) -> "asyncio.Future[Hold]":
                future: asyncio.Future[Hold] = asyncio.get_running_loop().create_future()
                future.set_exception(StoreDown("no"))
                return future

            rig.store.extend = broken  # type: ignore[method-assign]
            assert (await rig.books.extend(hold, 60, 0)).amount == 1060
            assert rig.books.outage is not None
            rig.store.extend = extend  # type: ignore[method-assign]
            await until(lambda: rig.books.outage is None)
            rig.books.settle(hold, line_of(hold, output=10))
        assert differences(store_url) == []

    asyncio.run(play())
