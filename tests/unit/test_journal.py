"""Holds of callers without limits: in a file beside the store's until their lines are in the ledger (U5, docs/money.md)."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from store_kit import PRICE, Clock, customer, differences, line_of, opened, settlement_of, wanted
from test_ledger_books import OPERATOR, Flaky, Rig, books, come_back, flaky, reason, until

from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Line, Repeat
from kenari.core.price import UNIT
from kenari.keeper.journal import LARGEST, Journal
from kenari.keeper.ledger_books import PATIENCE
from kenari.keeper.spool import SpooledHold, SpooledRelease
from kenari.store.moves import Release, Settle
from kenari.store.records import HoldRow

assert callable(flaky)  # the fixture


def admitted(rig: Rig) -> Hold:
    """An operator's request that goes on without a wait."""
    hold = rig.books.admit(wanted(OPERATOR, 0))
    assert hold is not None
    return hold


def left_in(path: Path) -> list[str]:
    """The ids of the holds that a file has."""
    return [one.hold.id for one in Journal(path).left("node") if isinstance(one, SpooledHold)]


def row(id: str) -> SpooledHold:
    return SpooledHold(
        HoldRow(id=id, account="operator", key="bootstrap", model="m", amount=0, price=PRICE, unlimited=True)
    )


def test_U5_who_has_no_limits_does_not_wait_and_has_one_line_and_no_row_of_a_hold(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"

    async def play() -> None:
        async with books(url, tmp_path, journal=True) as rig:
            now, later = admitted(rig), admitted(rig)
            assert left_in(rig.path) == [now.id, later.id]  # before anybody could call a provider
            assert rig.books.open_requests == 2
            assert await rig.store.open_holds() == []
            line = line_of(now, output=100)
            line.charge, line.price = 0, None
            rig.books.settle(now, line)
            assert line.charge == 200_000  # at the price it was admitted at
            rig.books.settle_later(later, partial(line_of, later, output=7))
            assert rig.books.open_requests == 0
            assert await reason(rig.store, now.id) == ("done", 200_000)  # a report sees what ended before it
            assert await reason(rig.store, later.id) == ("done", 14_000)
        assert not rig.path.exists()
        assert rig.out.getvalue().count("\n") == 2
        assert differences(url) == []

    asyncio.run(play())


def test_who_pays_and_who_sends_an_idempotency_key_still_asks_the_store(tmp_path: Path) -> None:
    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            caller = await customer(rig.store, UNIT)
            assert rig.books.admit(wanted(caller, 5)) is None
            assert rig.books.admit(wanted(caller, 0)) is None
            again = wanted(OPERATOR, 0, repeat=Repeat(b"k", b"b"))
            assert rig.books.admit(again) is None
            held = await rig.books.reserve(again)
            assert [one.id for one in await rig.store.open_holds()] == [held.id]
            with pytest.raises(KenariError):  # 409
                await rig.books.reserve(wanted(OPERATOR, 0, repeat=Repeat(b"k", b"b")))
            rig.books.settle(held, line_of(held))

    asyncio.run(play())


def test_what_has_ended_is_in_the_log_when_somebody_looks(tmp_path: Path) -> None:
    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            hold = admitted(rig)
            rig.books.settle_later(hold, partial(line_of, hold, output=1))
            rig.books.flush()
            assert rig.out.getvalue().count(hold.id) == 1
            assert await reason(rig.store, hold.id) == ("done", 2_000)
        assert rig.out.getvalue().count(hold.id) == 1

    asyncio.run(play())


def test_who_finds_many_lines_waiting_for_the_store_waits_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kenari.keeper.ledger_books.MOST_SETTLING", 3)

    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            ended = [admitted(rig) for _ in range(4)]
            for hold in ended:
                rig.books.settle_later(hold, partial(line_of, hold, output=1))
            assert rig.books.admit(wanted(OPERATOR, 0)) is None
            held = await rig.books.reserve(wanted(OPERATOR, 0))  # behind those that waited
            assert await rig.store.open_holds() != []
            after = admitted(rig)
            rig.books.settle(after, line_of(after))
            rig.books.settle(held, line_of(held))
            assert await reason(rig.store, held.id) == ("done", 0)
            assert len(await rig.store.requests()) == 6

    asyncio.run(play())


def test_two_requests_of_one_id_are_not_both_let_in(tmp_path: Path) -> None:
    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            hold = await rig.books.reserve(wanted(OPERATOR, 0, id="same"))
            with pytest.raises(KenariError) as error:
                await rig.books.reserve(wanted(OPERATOR, 0, id="same"))
            assert error.value.code == "internal_error"
            rig.books.settle(hold, line_of(hold))

    asyncio.run(play())


def test_U5_what_a_dead_process_left_in_the_journal_is_settled_once_when_the_node_starts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"

    async def die() -> tuple[Hold, Hold, Hold, bytes]:
        rig = Rig(url, tmp_path, Clock(), journal=True)
        await rig.books.start(patient=True)
        done, refused, open = admitted(rig), admitted(rig), admitted(rig)
        worker = await rig.books.reserve(wanted(OPERATOR, 0), "worker-1")
        rig.books.settle(done, line_of(done, output=1))
        rig.books.settle(refused, line_of(refused, status=429, ending="refused", legs=[]))
        await rig.store.ping()
        journal = rig.path.read_bytes()
        rig.books.abandon("worker-1")
        assert await reason(rig.store, worker.id) == ("crashed", 0)
        await rig.books.close()
        assert left_in(rig.path) == [open.id]
        return done, refused, open, journal

    async def again(done: Hold, refused: Hold, open: Hold) -> None:
        async with books(url, tmp_path, node="another", journal=True) as rig:
            await until(lambda: _has_line(rig, open))
            assert await reason(rig.store, open.id) == ("crashed", 0)
            assert await reason(rig.store, done.id) == ("done", 2_000)
            assert await reason(rig.store, refused.id) is None
            assert len(await rig.store.requests()) == 3
            assert await rig.store.open_holds() == []
            assert not rig.spool.waiting
        assert differences(url) == []

    done, refused, open, journal = asyncio.run(die())
    (tmp_path / "kenari.db.holds").write_bytes(journal + journal[:20])  # killed before: nothing of it was taken out
    for _ in range(2):  # and once more, as if it had died before the journal was its own
        asyncio.run(again(done, refused, open))
        (tmp_path / "kenari.db.holds").write_bytes(journal)


async def _has_line(rig: Rig, hold: Hold) -> bool:
    return await rig.store.request(hold.id) is not None


def test_U7_a_request_that_ends_while_the_store_is_down_has_its_line_when_it_is_back(
    flaky: type[Flaky], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"

    async def play() -> None:
        async with books(url, tmp_path, journal=True) as rig:
            before, open = admitted(rig), admitted(rig)
            flaky.broken = True
            rig.books.settle_later(before, partial(line_of, before, output=1))  # found to be down by this
            await until(lambda: rig.books.outage is not None)
            assert rig.books.admit(wanted(OPERATOR, 0)) is None  # the spool has it from now on
            during = await rig.books.reserve(wanted(OPERATOR, 0))
            rig.books.settle_later(open, partial(line_of, open, output=2))
            await come_back(rig, flaky)
            rig.books.settle(during, line_of(during, output=3))
            for hold, charge in ((before, 2_000), (open, 4_000), (during, 6_000)):
                await until(partial(_has_line, rig, hold))
                assert await reason(rig.store, hold.id) == ("done", charge)
            assert (await rig.books.reserve(wanted(OPERATOR, 0))).id in left_in(rig.path)
        assert len(left_in(rig.path)) == 1  # what is in the spool or the ledger is not in the journal any more
        assert differences(url) == []

    asyncio.run(play())


def test_a_store_that_hangs_counts_as_down_although_nobody_waits_for_it(
    flaky: type[Flaky], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kenari.keeper.ledger_books.PATIENCE", PATIENCE / 8)
    hangs = asyncio.Event()

    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            loop = asyncio.get_running_loop()
            release = asyncio.run_coroutine_threadsafe

            def wait(self: Flaky, *, read: bool = False) -> None:
                if not read:
                    release(hangs.wait(), loop).result(10)
                super(flaky, self).begin(read=read)

            monkeypatch.setattr(flaky, "begin", wait)
            hold = admitted(rig)
            rig.books.settle(hold, line_of(hold, output=1))
            await until(lambda: rig.books.outage is not None)
            assert rig.spool.waiting
            hangs.set()
            await until(lambda: rig.books.outage is None)
            assert await reason(rig.store, hold.id) == ("done", 2_000)
            assert len(await rig.store.requests()) == 1

    asyncio.run(play())


def test_a_journal_that_cannot_be_written_leaves_holds_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/kenari.db"

    def full(file: int, data: bytes) -> None:
        os.write(file, data[:9])
        raise OSError(28, "No space left on device")

    async def play() -> None:
        async with books(url, tmp_path, journal=True) as rig:
            first = admitted(rig)
            with monkeypatch.context() as patch:
                patch.setattr("kenari.keeper.journal.write_all", full)
                assert rig.books.admit(wanted(OPERATOR, 0)) is None
                second = await rig.books.reserve(wanted(OPERATOR, 0))
            third = admitted(rig)  # what was half written is no part of it
            assert left_in(rig.path) == [first.id, third.id]
            assert [one.id for one in await rig.store.open_holds()] == [second.id]
            for hold in (first, second, third):
                rig.books.settle(hold, line_of(hold))
                assert await reason(rig.store, hold.id) == ("done", 0)
        assert differences(url) == []

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "the journal cannot be written: No space left on device" in caplog.text


def test_a_journal_that_cannot_be_begun_is_not_used(tmp_path: Path) -> None:
    async def play() -> None:
        (tmp_path / "kenari.db.holds").mkdir()
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            assert rig.books.admit(wanted(OPERATOR, 0)) is None
            hold = await rig.books.reserve(wanted(OPERATOR, 0))
            assert len(await rig.store.open_holds()) == 1
            rig.books.settle(hold, line_of(hold))

    asyncio.run(play())


def test_one_that_is_not_used_gives_back_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "holds"
    before = Journal(path)
    assert before.begin()
    before.append(row("a"))
    after = Journal(path, used=False)
    assert [one.hold.owner for one in after.left("me") if isinstance(one, SpooledHold)] == ["me"]
    assert not after.begin()
    assert not after.ready
    assert not path.exists()
    with pytest.raises(OSError, match="closed"):
        after.append(row("b"))


def test_it_stays_small_and_keeps_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "holds"
    journal = Journal(path)
    journal.begin()
    journal.append(row("long"))
    for number in range(12_000):
        journal.append(row(str(number)))
        journal.forget(str(number))
    assert path.stat().st_size < LARGEST + 1000
    assert left_in(path)[0] == "long"
    journal.append(row("other"))
    journal.give_back(SpooledRelease("other", "operator", True))
    assert list(journal.left("n"))[-1] == SpooledRelease("other", "operator", True)
    journal.tidy()
    assert left_in(path) == ["long"]
    assert path.stat().st_mode & 0o777 == 0o600
    journal.forget("long")
    journal.close()
    assert not path.exists()
    assert [one.name for one in tmp_path.iterdir()] == []


def test_more_is_set_aside_for_a_request_of_the_journal_without_asking(tmp_path: Path) -> None:
    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            hold = admitted(rig)
            assert (await rig.books.extend(hold, 40, 0)).amount == 40
            rig.books.settle(hold, line_of(hold, output=1))
            assert await reason(rig.store, hold.id) == ("done", 2_000)

    asyncio.run(play())


def test_a_line_that_cannot_be_made_is_said_and_the_others_are_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Line:
        raise ZeroDivisionError

    async def play() -> None:
        async with books(f"sqlite:///{tmp_path}/kenari.db", tmp_path, journal=True) as rig:
            bad, good = admitted(rig), admitted(rig)
            rig.books.settle_later(bad, broken)
            rig.books.settle_later(good, partial(line_of, good, output=1))
            assert await reason(rig.store, good.id) == ("done", 2_000)
            assert await reason(rig.store, bad.id) is None
        assert left_in(rig.path) == [bad.id]  # the next start gives it one

    with caplog.at_level(logging.ERROR):
        asyncio.run(play())
    assert "cannot be made: ZeroDivisionError" in caplog.text


def test_a_move_that_is_said_to_be_new_and_is_not_harms_nobody(store_url: str) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        async with opened(store_url) as store:
            lines = [settlement_of(line_of(Hold(id, OPERATOR)), Hold(id, OPERATOR), 1.0) for id in ("x", "y")]
            assert await store.settle(lines[0])
            makes: list[Callable[[], Settle | Release]] = [partial(Settle, one, held=False) for one in lines]
            found = [loop.create_future() for _ in makes]
            for make, future in zip(makes, found, strict=True):
                store.settle_later(make, future)
            assert await asyncio.gather(*found) == [False, True]
            assert len(await store.requests()) == 2
        assert differences(store_url) == []

    asyncio.run(play())
