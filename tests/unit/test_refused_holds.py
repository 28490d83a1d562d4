"""A request that the limits refuse while its hold is being made: the hold is given back, and there is no line (U5)."""

import asyncio
from pathlib import Path

from store_kit import customer, differences, line_of, wanted
from test_ledger_books import books

from kenari.core.ports import Hold, Repeat
from kenari.core.price import UNIT as BALANCE
from kenari.store.records import StoreDown


def test_U5_a_hold_of_a_refused_request_is_given_back(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path) as rig:
            caller = await customer(rig.store, BALANCE)
            repeat = Repeat(b"key", b"body")
            hold = await rig.books.reserve(wanted(caller, 1000, repeat=repeat))
            assert (await rig.store.account(caller.account)).reserved == 1000
            rig.books.settle(hold, line_of(hold, status=429, ending="refused", legs=[]))
            await rig.store.ping()
            account = await rig.store.account(caller.account)
            assert (account.balance, account.reserved) == (BALANCE, 0)
            assert await rig.store.request(hold.id) is None
            assert rig.books.open_requests == 0
            again = await rig.books.reserve(wanted(caller, 1000, repeat=repeat))  # F14: its key is free again
            rig.books.settle(again, line_of(again, output=10))
            await rig.store.ping()
        assert rig.out.getvalue().count("\n") == 2
        assert differences(store_url) == []

    asyncio.run(play())


def test_while_the_store_is_down_it_is_given_back_later(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path) as rig:
            caller = await customer(rig.store, BALANCE)
            holds: list[Hold] = [await rig.books.reserve(wanted(caller, 1000)) for _ in range(2)]
            release = rig.store.release

            def broken(request: str, account: str, unlimited: bool) -> "asyncio.Future[bool]":
                future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                future.set_exception(StoreDown("no"))
                return future

            rig.store.release = broken  # type: ignore[method-assign]
            for hold in holds:
                rig.books.settle(hold, line_of(hold, status=429, ending="refused", legs=[]))
                await asyncio.sleep(0.05)
            rig.store.release = release  # type: ignore[method-assign]
            for _ in range(200):
                if rig.books.outage is None and not rig.spool.waiting:
                    break
                await asyncio.sleep(0.05)
            account = await rig.store.account(caller.account)
            assert (account.balance, account.reserved) == (BALANCE, 0)
        assert differences(store_url) == []

    asyncio.run(play())


def test_what_a_refused_request_held_of_the_offline_allowance_is_given_back(tmp_path: Path) -> None:
    """U5: the limits refused it while the store was down; the next request may use all of the allowance."""

    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, offline_allowance=1000) as rig:
            caller = await customer(rig.store, BALANCE)
            rig.books._go_offline(StoreDown("no"))  # pyright: ignore[reportPrivateUsage]
            for _ in range(3):
                hold = await rig.books.reserve(wanted(caller, 1000))
                rig.books.settle(hold, line_of(hold, status=429, ending="refused", legs=[]))
            for _ in range(200):
                if rig.books.outage is None and not rig.spool.waiting:
                    break
                await asyncio.sleep(0.05)
            account = await rig.store.account(caller.account)
            assert (account.balance, account.reserved) == (BALANCE, 0)

    asyncio.run(play())
