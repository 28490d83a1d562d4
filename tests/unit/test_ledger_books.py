"""The books of a node: holds, lines, crashes, leases, and a store that is down (U5, section 3.4; docs/money.md)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from store_kit import PRICE, SEALS, Clock, customer, differences, line_of, opened, wanted

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Repeat
from kenari.core.price import UNIT
from kenari.keeper.books import LogBooks
from kenari.keeper.journal import Journal
from kenari.keeper.ledger_books import BooksSettings, StoreBooks
from kenari.keeper.spool import Spool, SpooledHold, SpooledNotes
from kenari.ledger.lines import read_bill
from kenari.store.database import Broken
from kenari.store.records import Conflict, HoldRow, StoreDown
from kenari.store.sqlite import SqliteDatabase
from kenari.store.store import Store, StoreSettings

OPERATOR = Caller(account="operator", key="bootstrap", unlimited=True)


class Rig:
    """Books over a store, and what they wrote to the log."""

    def __init__(self, url: str, folder: Path, clock: Callable[[], float], node: str = "node", **settings: Any) -> None:
        self.out = StringIO()
        log = LogBooks("json", clock, asyncio.get_running_loop().call_later, self.out)
        self.store = Store(StoreSettings(url=url, node=node), SEALS, clock, lambda count: bytes(count - 1) + b"\1")
        self.spool = Spool(folder / "kenari.spool")
        self.path = folder / "kenari.db.holds"
        self.journal = Journal(self.path) if settings.pop("journal", False) else None
        self.books = StoreBooks(self.store, log, self.spool, BooksSettings(node=node, **settings), clock, self.journal)


@asynccontextmanager
async def books(url: str, folder: Path, clock: Callable[[], float] | None = None, **more: Any) -> AsyncGenerator[Rig]:
    rig = Rig(url, folder, clock or Clock(), **more)
    await rig.books.start(patient=True)
    try:
        yield rig
    finally:
        await rig.books.close()


async def until(true: Callable[[], Awaitable[bool] | bool], seconds: float = 15.0) -> None:
    """Wait for something that comes soon."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        found = true()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come")


async def reason(store: Store, id: str) -> tuple[str, int] | None:
    """How a request's line says that it ended, and its charge."""
    bill = await store.request(id)
    return None if bill is None else (read_bill(bill.body).reason, bill.charge)


def test_U5_each_admitted_request_has_one_line_and_one_line_in_the_log(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path) as rig:
            caller = await customer(rig.store, UNIT)
            hold = await rig.books.reserve(wanted(caller, 1000))
            line = line_of(hold, output=100)
            line.charge = 0  # the books work it out
            rig.books.settle(hold, line)
            assert line.charge == 200_000
            refused = line_of(Hold("refused", caller), status=402, ending="refused", legs=[])
            rig.books.settle(None, refused)
            await rig.store.ping()
            assert await reason(rig.store, hold.id) == ("done", 200_000)
            assert await rig.store.request("refused") is None
        assert rig.out.getvalue().count("\n") == 2
        assert differences(store_url) == []

    asyncio.run(play())


def test_what_a_dead_process_left_open_is_billed_its_last_note_when_the_node_starts(
    store_url: str, tmp_path: Path
) -> None:
    async def play() -> None:
        async with opened(store_url, node="node") as store:  # a process that dies without a word
            caller = await customer(store, UNIT)
            holds = [await store.reserve(wanted(caller, 1000), owner) for owner in ("node", "node/7", "node", "other")]
            await store.note({holds[0].id: 300, holds[1].id: 5000})
        async with books(store_url, tmp_path) as rig:
            await until(lambda: _no_holds_of(rig.store, "node"))
            assert await reason(rig.store, holds[0].id) == ("crashed", 300)
            assert await reason(rig.store, holds[1].id) == ("crashed", 1000)
            assert await reason(rig.store, holds[2].id) == ("crashed", 0)
            assert await reason(rig.store, holds[3].id) is None  # somebody else's, alive for all we know
            account = await rig.store.account(caller.account)
            assert (account.balance, account.reserved) == (UNIT - 1300, 1000)
        assert differences(store_url) == []

    asyncio.run(play())


async def _no_holds_of(store: Store, owner: str) -> bool:
    return await store.open_holds(owner) == []


def test_a_node_whose_lease_ran_out_is_settled_by_another_one(new_postgres: Callable[[], str], tmp_path: Path) -> None:
    async def play() -> None:
        url, clock = new_postgres(), Clock()
        async with opened(url, clock, node="dead") as store:
            caller = await customer(store, UNIT)
            await store.keep("dead", 30.0)
            hold = await store.reserve(wanted(caller, 1000), "dead/3")
            await store.note({hold.id: 400})
        async with books(url, tmp_path, clock, node="alive") as rig:
            await asyncio.sleep(0.6)
            assert await reason(rig.store, hold.id) is None
            clock.now += 41
            rig.books._next["renew"] = 0.0  # pyright: ignore[reportPrivateUsage]
            await until(lambda: _settled(rig.store, hold.id))
            assert await reason(rig.store, hold.id) == ("crashed", 400)
        assert differences(url) == []

    asyncio.run(play())


async def _settled(store: Store, id: str) -> bool:
    return await store.request(id) is not None


def test_a_worker_that_died_is_settled_at_once_and_the_others_are_not(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path) as rig:
            caller = await customer(rig.store, UNIT)
            dead = await rig.books.reserve(wanted(caller, 1000), "worker-1")
            alive = await rig.books.reserve(wanted(caller, 1000), "worker-2")
            rig.books.note(dead, 77)
            rig.books.abandon("worker-1")
            await rig.store.ping()
            assert await reason(rig.store, dead.id) is None or await reason(rig.store, dead.id) == ("crashed", 77)
            await until(lambda: _settled(rig.store, dead.id))
            assert await reason(rig.store, dead.id) == ("crashed", 77)
            assert await reason(rig.store, alive.id) is None
            rig.books.settle(alive, line_of(alive, output=1))
        assert differences(store_url) == []

    asyncio.run(play())


def test_notes_reach_the_store_about_once_a_second(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path) as rig:
            hold = await rig.books.reserve(wanted(OPERATOR, 0))
            for charge in range(1, 50):
                rig.books.note(hold, charge)

            async def noted() -> bool:
                return [one.estimate for one in await rig.store.open_holds()] == [49]

            await until(noted)
            rig.books.settle(hold, line_of(hold, output=1))

    asyncio.run(play())


def test_two_processes_never_run_as_one_node(store_url: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with books(store_url, tmp_path):
            with pytest.raises(Conflict, match="another process"):
                async with opened(store_url, node="node"):
                    pass
        async with opened(store_url, node="node") as store:  # it has ended: its name is free
            await store.ping()

    asyncio.run(play())


# a store that is down


class Flaky(SqliteDatabase):
    """A database that breaks when it is told to."""

    broken = False
    slow = 0.0

    def connect(self) -> None:
        if self.broken:
            raise Broken("the disk is away")
        super().connect()

    def begin(self, *, read: bool = False) -> None:
        if self.broken:
            raise Broken("disk I/O error")
        super().begin(read=read)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> type[Flaky]:
    """All stores of the test use a database that breaks on demand."""

    class Mine(Flaky):
        """The test's own switch."""

    def open(url: str, sync: str = "normal", readonly: bool = False) -> Mine:
        return Mine(Path(url.removeprefix("sqlite:///")), sync, readonly)

    monkeypatch.setattr("kenari.store.store.open_database", open)
    return Mine


async def go_down(rig: Rig, flaky: type[Flaky]) -> None:
    flaky.broken = True
    hold = await rig.books.reserve(wanted(OPERATOR, 0))
    assert rig.books.outage is not None
    rig.books.settle(hold, line_of(hold, output=1))


async def come_back(rig: Rig, flaky: type[Flaky]) -> None:
    flaky.broken = False
    await until(lambda: rig.books.outage is None)


def test_U7_when_the_store_is_down_free_and_unlimited_requests_go_on_and_their_lines_come_later(
    flaky: type[Flaky], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"

    async def play() -> None:
        async with books(url, tmp_path) as rig:
            caller = await customer(rig.store, UNIT)
            before = await rig.books.reserve(wanted(caller, 1000))
            await go_down(rig, flaky)
            rig.books.settle(before, line_of(before, output=100))  # admitted before, ends while it is down
            free = await rig.books.reserve(wanted(caller, 0))
            unlimited = await rig.books.reserve(wanted(OPERATOR, 5))
            with pytest.raises(KenariError) as error:
                await rig.books.reserve(wanted(caller, 1))
            assert (error.value.status, error.value.retry_after) == (503, 5.0)
            rig.books.settle(free, line_of(free, output=0))
            await come_back(rig, flaky)
            rig.books.settle(unlimited, line_of(unlimited, output=3))
            await until(lambda: _settled(rig.store, unlimited.id))
            assert await reason(rig.store, before.id) == ("done", 200_000)
            assert await reason(rig.store, free.id) == ("done", 0)
            account = await rig.store.account(caller.account)
            assert (account.balance, account.reserved) == (UNIT - 200_000, 0)
            assert await rig.store.open_holds() == []
            assert not rig.spool.waiting
        assert differences(url) == []

    asyncio.run(play())


def test_prepaid_requests_go_on_up_to_the_offline_allowance_of_their_account(
    flaky: type[Flaky], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"

    async def play() -> None:
        async with books(url, tmp_path, offline_allowance=2_000_000) as rig:
            one, two = await customer(rig.store, UNIT), OPERATOR
            assert two.unlimited
            await go_down(rig, flaky)
            first = await rig.books.reserve(wanted(one, 1_500_000))
            with pytest.raises(KenariError):
                await rig.books.reserve(wanted(one, 1_000_000))
            part = await rig.books.reserve(wanted(one, 1_000_000, least=500_000))
            assert part.amount == 500_000
            with pytest.raises(KenariError):  # whether it was used already is not known
                await rig.books.reserve(wanted(one, 1, repeat=Repeat(b"k", b"b")))
            rig.books.settle(first, line_of(first, output=100))  # 200,000: the rest is there again
            second = await rig.books.reserve(wanted(one, 1_300_000))
            rig.books.settle(second, line_of(second, output=1))
            await come_back(rig, flaky)
            rig.books.settle(part, line_of(part, output=2))
            await until(lambda: _settled(rig.store, part.id))
            account = await rig.store.account(one.account)
            assert (account.balance, account.reserved) == (UNIT - 206_000, 0)
        assert differences(url) == []

    asyncio.run(play())


def test_a_spool_that_is_left_is_drained_first_when_the_node_starts(flaky: type[Flaky], tmp_path: Path) -> None:
    """The process dies in an outage: what it admitted and did not finish is billed its last note."""
    url = f"sqlite:///{tmp_path}/kenari.db"

    async def die() -> tuple[str, list[Hold]]:
        rig = Rig(url, tmp_path, Clock(), offline_allowance=UNIT)
        await rig.books.start(patient=True)
        caller = await customer(rig.store, UNIT)
        await go_down(rig, flaky)
        holds = [await rig.books.reserve(wanted(caller, 1000)) for _ in range(2)]
        rig.books.settle(holds[0], line_of(holds[0], output=7))
        rig.books.note(holds[1], 55)
        await until(lambda: b'"notes"' in (tmp_path / "kenari.spool").read_bytes())
        await rig.books.close()
        return caller.account, holds

    async def again(account: str, holds: list[Hold]) -> None:
        flaky.broken = False
        async with books(url, tmp_path) as rig:
            await until(lambda: _settled(rig.store, holds[1].id))
            assert await reason(rig.store, holds[0].id) == ("done", 14_000)
            assert await reason(rig.store, holds[1].id) == ("crashed", 55)
            found = await rig.store.account(account)
            assert (found.balance, found.reserved) == (UNIT - 14_055, 0)
        assert differences(url) == []

    account, holds = asyncio.run(die())
    spool = (tmp_path / "kenari.spool").read_bytes()
    asyncio.run(again(account, holds))
    (tmp_path / "kenari.spool").write_bytes(spool)  # drained, but the process died before it could be emptied
    asyncio.run(again(account, holds))


def test_a_store_that_hangs_counts_as_down_and_leaves_no_hold_of_what_it_was_asked(
    flaky: type[Flaky], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"
    monkeypatch.setattr("kenari.keeper.ledger_books.PATIENCE", 0.3)

    async def play() -> None:
        async with books(url, tmp_path) as rig:
            caller = await customer(rig.store, UNIT)
            other = SqliteDatabase(tmp_path / "kenari.db")
            other.connect()
            other.begin()  # another program has the write lock
            with pytest.raises(KenariError) as error:
                await rig.books.reserve(wanted(caller, 1000))
            assert error.value.status == 503
            free = await rig.books.reserve(wanted(caller, 0))
            rig.books.settle(free, line_of(free, output=0))
            other.rollback()
            other.close()
            await until(lambda: rig.books.outage is None)
            await until(lambda: _no_holds_of(rig.store, ""))
            assert (await rig.store.account(caller.account)).reserved == 0
        assert differences(url) == []

    asyncio.run(play())


def test_an_outage_at_the_start_is_waited_for_only_where_that_is_wanted(flaky: type[Flaky], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"

    async def play() -> None:
        flaky.broken = True
        rig = Rig(url, tmp_path, Clock())
        with pytest.raises(StoreDown, match="disk is away"):
            await rig.books.start(patient=False)
        await rig.store.close()
        async with books(url, tmp_path) as rig:
            hold = await rig.books.reserve(wanted(OPERATOR, 0))
            await come_back(rig, flaky)
            rig.books.settle(hold, line_of(hold, output=1))
            await until(lambda: _settled(rig.store, hold.id))
        assert differences(url) == []

    asyncio.run(play())


def test_a_connection_that_is_cut_comes_back_and_nothing_is_lost(
    new_postgres: Callable[[], str], tmp_path: Path
) -> None:
    url = new_postgres()

    def cut() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'kenari' AND datname = current_database()"
            )

    async def play() -> None:
        async with books(url, tmp_path, offline_allowance=UNIT) as rig:
            caller = await customer(rig.store, UNIT)
            before = await rig.books.reserve(wanted(caller, 1000))
            await asyncio.to_thread(cut)
            rig.books.settle(before, line_of(before, output=100))
            while_cut = await rig.books.reserve(wanted(caller, 1000))
            rig.books.settle(while_cut, line_of(while_cut, output=100))
            await until(lambda: rig.books.outage is None)
            await until(lambda: _settled(rig.store, before.id))
            await until(lambda: _settled(rig.store, while_cut.id))
            after = await rig.books.reserve(wanted(caller, 1000))
            rig.books.settle(after, line_of(after, output=100))
            await until(lambda: _settled(rig.store, after.id))
            account = await rig.store.account(caller.account)
            assert (account.balance, account.reserved) == (UNIT - 600_000, 0)
            with pytest.raises(Conflict):  # the name was claimed again with the new connection
                async with opened(url, node="node"):
                    pass
        assert differences(url) == []

    asyncio.run(play())


# the spool itself


def test_the_spool_keeps_lines_in_order_and_survives_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "kenari.spool"
    path.write_bytes(b'{"do":"notes","estimates":{"a":1}}\n{"do":"no')
    spool = Spool(path)
    assert spool.waiting
    spool.append(SpooledNotes({"b": 2}))
    records, end = spool.read(0, 10)
    assert [record for record, _ in records] == [SpooledNotes({"a": 1}), None, SpooledNotes({"b": 2})]
    assert spool.read(end, 10) == ([], end)
    first, middle = spool.read(0, 1)
    assert [record for record, _ in first] == [SpooledNotes({"a": 1})]
    assert len(spool.read(middle, 10)[0]) == 2
    assert path.stat().st_mode & 0o777 in (0o600, 0o644)
    spool.set_aside(b"x")
    assert (tmp_path / "kenari.spool.refused").read_bytes() == b"x\n"
    spool.clear()
    assert not spool.waiting
    spool.append(SpooledNotes({}))
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_hold_row_is_what_the_spool_gives_back(tmp_path: Path) -> None:
    row = HoldRow(id="r", account="a", key="k", model="m", amount=5, estimate=3, owner="n/1", price=PRICE)
    spool = Spool(tmp_path / "s")
    spool.append(SpooledHold(row))
    assert spool.read(0, 1)[0][0][0] == SpooledHold(row)
