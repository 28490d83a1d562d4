"""Nothing is lost and nothing is charged twice: kill -9 at random points, any interleaving, two nodes on one database."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_kit import Clock, customer, differences, line_of, opened, settlement_of, wanted
from test_ledger_books import books

from kenari.core.caller import Budget, Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Hold
from kenari.core.price import UNIT
from kenari.core.usage import Usage
from kenari.ledger.lines import crashed_bill, encode_body
from kenari.store.records import NewAccount, Settlement
from kenari.store.store import Store

HERE = Path(__file__).resolve().parent
KILLS = {"sqlite": 40, "postgresql": 24}
ANSWERS = {"sqlite": (5, 35), "postgresql": (15, 45)}
"""How many answers are seen before a kill: 500 and more in all."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_at_any_point_leaves_no_hold_and_no_request_without_its_line(
    store_url: str, tmp_path: Path
) -> None:
    credit = 10**6 * UNIT
    dice = random.Random(20261130)
    kind = store_url.partition(":")[0]

    async def begin() -> str:
        async with opened(store_url, time.time, node="node") as store:
            return (await store.create_account(NewAccount(name="a", credit=credit), actor="test")).id

    account = asyncio.run(begin())
    mother = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(HERE / "ledger_child.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))},
        text=True,
    )
    assert mother.stdin is not None
    assert mother.stdout is not None
    answered: list[str] = []
    try:
        for round in range(KILLS[kind]):
            print(store_url, tmp_path, account, round, file=mother.stdin, flush=True)
            pid = int(mother.stdout.readline().split()[1])
            # one in four dies before it is ready: while it recovers from the death before
            left = dice.randrange(*ANSWERS[kind]) if round % 4 else 0
            while left:
                line = mother.stdout.readline().strip()
                assert line == "ready" or line.startswith("answered"), line
                if line != "ready":
                    answered.append(line.split()[1])
                    left -= 1
            time.sleep(dice.random() * (0.01 if round % 4 else 0.03))
            os.kill(pid, signal.SIGKILL)
            while (line := mother.stdout.readline().strip()) != "ended":
                if line.startswith("answered"):
                    answered.append(line.split()[1])
    finally:
        mother.stdin.close()
        mother.wait(20)
        mother.stdout.close()
    assert len(answered) >= 500

    async def check() -> None:
        async with books(store_url, tmp_path, time.time, journal=kind == "sqlite") as rig:
            found = await rig.store.account(account)
            assert await rig.store.open_holds() == []
            lines = await rig.store.requests(limit=100_000)
            assert set(answered) <= {line.id for line in lines}
            assert len({line.id for line in lines}) == len(lines)
            assert found.balance == credit - sum(line.charge for line in lines if line.account == account)
            assert found.reserved == 0
            assert {line.account for line in lines} == {account, "operator"}

    asyncio.run(check())
    assert differences(store_url) == []


# any interleaving

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "reserve", "settle", "note", "release", "crash", "credit", "again"]),
        st.integers(0, 30),
        st.integers(0, 3000),
    ),
    max_size=40,
)


async def play(store: Store, clock: Clock, script: list[Step]) -> None:
    """Requests of two keys of one account, in any order, many at once."""
    account = await store.create_account(NewAccount(name="a", credit=20_000), actor="test")
    callers = [
        Caller(account=account.id, key="key_1", budget=Budget(9_000, "day"), account_budget=Budget(15_000, "total")),
        Caller(account=account.id, key="key_2", account_budget=Budget(15_000, "total")),
    ]
    credited, holds, waiting = 20_000, list[Hold](), list[asyncio.Future[Hold]]()
    settled: list[Settlement] = []

    async def gathered() -> None:
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        waiting.clear()
        for one in outcomes:
            assert isinstance(one, Hold) or (isinstance(one, KenariError) and one.status == 402), one
            if isinstance(one, Hold):
                holds.append(one)

    for what, which, amount in script:
        clock.now += amount * 13
        if what == "reserve":
            waiting.append(store.reserve(wanted(callers[which % 2], amount, least=amount // 2), "node"))
            continue
        await gathered()
        if what == "credit":
            await store.add_credit(account.id, amount, "", actor="test")
            credited += amount
        elif what == "again" and settled:
            assert await store.settle(settled[which % len(settled)]) is False
        elif what == "crash":
            for row in await store.open_holds():
                bill = crashed_bill(row, clock())
                one = Settlement(
                    id=row.id,
                    account=row.account,
                    key=row.key,
                    model=row.model,
                    time=bill.time,
                    status=0,
                    usage=Usage(),
                    charge=bill.charge,
                    body=encode_body(bill),
                    price=row.price,
                )
                assert await store.settle(one)
            holds.clear()
        elif holds:
            hold = holds.pop(which % len(holds))
            if what == "note":
                await store.note({hold.id: amount})
                holds.append(hold)
            elif what == "release":
                await store.release(hold.id, account.id, False)
            else:
                settled.append(settlement_of(line_of(hold, prompt=amount, output=which), hold, clock()))
                assert await store.settle(settled[-1])
    await gathered()
    found = await store.account(account.id)
    lines = await store.requests(account=account.id, limit=1000)
    assert found.balance == credited - sum(line.charge for line in lines)
    assert found.reserved == sum(hold.amount for hold in await store.open_holds() if hold.account == account.id)


def test_any_interleaving_adds_up(store_url: str) -> None:
    """Sum of the lines = credits - balance, after each script and for all of them together."""

    async def run(script: list[Step]) -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            await play(store, clock, script)
            for row in await store.open_holds():
                await store.release(row.id, row.account, False)

    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
    @given(steps)
    def scripts(script: list[Step]) -> None:
        asyncio.run(run(script))
        assert differences(store_url) == []

    scripts()


def test_two_nodes_on_one_database_do_not_overdraw(new_postgres: Callable[[], str]) -> None:
    """A hundred requests on a balance for ten, half of them at each node, and a budget that both share."""
    url = new_postgres()

    async def run() -> None:
        async with opened(url, node="one") as one, opened(url, node="two") as two:
            caller = await customer(one, 10 * UNIT)
            asked = [
                node.reserve(wanted(caller, UNIT), name)
                for _ in range(50)
                for name, node in (("one", one), ("two", two))
            ]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            granted = [one for one in outcomes if isinstance(one, Hold)]
            assert len(granted) == 10
            assert all(
                isinstance(one, Hold) or (isinstance(one, KenariError) and one.status == 402) for one in outcomes
            )
            settling = [
                (one, two)[number % 2].settle(settlement_of(line_of(hold, output=500_000), hold, 1.0))
                for number, hold in enumerate(granted)
            ]
            # both nodes may come upon the same line, when a spool is drained after a lease ran out
            settling += [two.settle(settlement_of(line_of(hold, output=500_000), hold, 1.0)) for hold in granted]
            assert sum(await asyncio.gather(*settling)) == 10
            account = await one.account(caller.account)
            assert (account.balance, account.reserved) == (0, 0)
            limited = Caller(account=caller.account, key="key_2", budget=Budget(7 * UNIT, "day"))
            await one.add_credit(caller.account, 50 * UNIT, "", actor="test")
            asked = [node.reserve(wanted(limited, UNIT), "n") for _ in range(20) for node in (one, two)]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert sum(isinstance(one, Hold) for one in outcomes) == 7
        assert differences(url) == []

    asyncio.run(run())


def test_many_accounts_at_two_nodes_neither_deadlock_nor_lose_an_update(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()

    async def run() -> None:
        async with opened(url, node="one") as one, opened(url, node="two") as two:
            callers = [await customer(one, 1000 * UNIT, f"key_{number}") for number in range(8)]
            dice = random.Random(7)

            async def client(node: Store) -> None:
                for _ in range(25):
                    hold = await node.reserve(wanted(dice.choice(callers), UNIT), "n")
                    await node.settle(settlement_of(line_of(hold, output=dice.randrange(10_000)), hold, 1.0))
                    if dice.random() < 0.2:
                        await node.add_credit(dice.choice(callers).account, UNIT, "", actor="test")

            await asyncio.gather(*(client(node) for _ in range(6) for node in (one, two)))
            assert len(await one.requests(limit=1000)) == 300
        assert differences(url) == []

    asyncio.run(run())
