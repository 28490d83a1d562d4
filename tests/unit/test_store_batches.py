"""Moves of money that meet in one batch do what they would have done one after another (U5, F8, F14), on both databases."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from store_kit import Clock, differences, line_of, opened, settlement_of, wanted

from kenari.core.caller import Budget, Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Repeat
from kenari.store.database import Database
from kenari.store.lane import Job
from kenari.store.moves import Adopt, Extend, Move, Release, Reserve, Settle
from kenari.store.records import Account, HoldRow, NewAccount
from kenari.store.store import Store

TOKEN = 2000
"""What a token costs, in units."""
CREDIT = 100 * TOKEN
REQUESTS = 4
"""So few that moves of one request meet in one batch."""


class World:
    """Accounts and requests of one run of an example. Every id ends with the run's name."""

    def __init__(self, name: str, accounts: Sequence[str]) -> None:
        self._name, self._accounts = name, accounts

    def caller(self, request: int) -> Caller:
        """Two keys of one account with budgets, one of another, and one that pays nothing."""
        if request == 3:
            return Caller(account="operator" + self._name, key="bootstrap" + self._name, unlimited=True)
        return Caller(
            account=self._accounts[request // 2],
            key=f"key_{request}{self._name}",
            budget=Budget(40 * TOKEN, "day"),
            account_budget=Budget(90 * TOKEN, "total"),
        )

    def id(self, request: int) -> str:
        """A request's id."""
        return f"{request}{self._name}"

    def plain(self, value: Any) -> Any:
        """A row, or what came of a move, without the name of the run."""
        if isinstance(value, Hold):
            return ("hold", self.plain(value.id), value.amount)
        if isinstance(value, KenariError):
            return value.code
        if isinstance(value, BaseException):
            raise value
        if isinstance(value, str):
            for number, account in enumerate(self._accounts):
                value = value.replace(account, f"account {number}")
            return value.replace(self._name, "")
        if isinstance(value, (list, tuple)):
            return [self.plain(one) for one in cast("Sequence[Any]", value)]
        return value


class Step(NamedTuple):
    """One move of one of a few requests."""

    kind: str
    request: int
    amount: int
    least: int
    repeat: tuple[bytes, bytes] | None
    failed: bool
    ago: float
    """Seconds: how old a line is."""

    def move(self, world: World, now: float) -> Move:
        """The move, in a world."""
        id, caller = world.id(self.request), world.caller(self.request)
        if self.kind == "reserve":
            repeat = None if self.repeat is None else Repeat(self.repeat[0] * 32, self.repeat[1] * 32)
            least = min(self.least, self.amount)
            return Reserve(wanted(caller, self.amount, least, id=id, repeat=repeat), "node")
        if self.kind == "extend":
            return Extend(Hold(id, caller), self.amount, min(self.least, self.amount))
        if self.kind == "release":
            return Release(id, caller.account, caller.unlimited)
        whose: Any = {
            "id": id,
            "account": caller.account,
            "key": caller.key,
            "model": "m",
            "unlimited": caller.unlimited,
        }
        if self.kind == "adopt":
            return Adopt(HoldRow(**whose, amount=self.amount))
        hold = Hold(id, caller)
        how: Any = {"status": 502, "ending": "failed"} if self.failed else {"output": self.amount // TOKEN}
        return Settle(settlement_of(line_of(hold, **how), hold, now - self.ago))


_AMOUNTS = st.integers(0, 60).map(lambda tokens: tokens * TOKEN)
_KINDS = ["reserve", "extend", "adopt", "settle", "release"]
_STEPS = st.builds(
    Step,
    kind=st.sampled_from(_KINDS),
    request=st.integers(0, REQUESTS - 1),
    amount=_AMOUNTS,
    least=_AMOUNTS,
    repeat=st.none() | st.tuples(st.sampled_from([b"k", b"l"]), st.sampled_from([b"a", b"b"])),
    failed=st.booleans(),
    ago=st.sampled_from([0.0, 90_000.0]),
)


def _step(kind: str) -> Step:
    return Step(kind, request=0, amount=10 * TOKEN, least=0, repeat=(b"k", b"a"), failed=False, ago=0.0)


def possible(batches: list[list[Step]]) -> list[list[Step]]:
    """Without what cannot be: a request reserves first of all and once, for its id is new."""
    seen: set[int] = set()
    kept: list[list[Step]] = []
    for batch in batches:
        kept.append([])
        for step in batch:
            if step.kind != "reserve" or step.request not in seen:
                kept[-1].append(step)
            seen.add(step.request)
    return kept


def moved(store: Store, moves: Sequence[Move]) -> list[Any]:
    """What came of moves that the writer finds together."""
    loop = asyncio.get_running_loop()
    jobs: list[Job[Any]] = [Job(move, loop.create_future()) for move in moves]
    done = {future: result if error is None else error for future, result, error in store._move(jobs)}  # pyright: ignore[reportPrivateUsage]
    return [done[job.future] for job in jobs]


def tables(database: Database, world: World) -> dict[str, Any]:
    """What the store holds of a run."""
    accounts = [world.caller(0).account, world.caller(2).account]
    names = [*accounts, world.caller(3).account]
    subjects = ["account:" + one for one in accounts] + ["key:" + world.caller(one).key for one in range(REQUESTS)]
    asked = {
        "accounts": ("SELECT id, balance, reserved FROM accounts WHERE id IN (?,?)", accounts),
        "holds": ("SELECT id, account, key_id, amount, repeat FROM holds WHERE account IN (?,?,?)", names),
        "repeats": ("SELECT account, digest, body, request FROM repeats WHERE account IN (?,?,?)", names),
        "entries": (
            "SELECT id, account, key_id, charge, amount, time FROM entries WHERE account IN (?,?,?) AND kind = 'request'",
            names,
        ),
        "spending": (
            "SELECT subject, span, started, amount, reserved FROM spending WHERE subject IN (?,?,?,?,?,?)",
            subjects,
        ),
    }
    return {name: sorted(world.plain(database.run(*sql)), key=repr) for name, sql in asked.items()}


def check_sums(state: dict[str, Any]) -> None:
    """What is set aside is what open holds set aside, and balances are what credits and lines add up to."""
    for account, balance, reserved in state["accounts"]:
        assert reserved == sum(row[3] for row in state["holds"] if row[1] == account)
        assert balance == CREDIT + sum(row[4] for row in state["entries"] if row[1] == account)
    for subject, span, started, amount, reserved in state["spending"]:
        column, name = (1, subject.removeprefix("account:")) if subject.startswith("account:") else (2, subject[4:])
        assert reserved == sum(row[3] for row in state["holds"] if row[column] == name), (subject, span)
        spent = sum(row[3] for row in state["entries"] if row[column] == name and row[5] >= started)
        assert amount == spent, (subject, span)


@pytest.mark.timeout(200)
def test_U5_moves_in_one_batch_do_what_they_would_do_one_by_one(store_url: str) -> None:
    names = (f"#{number}" for number in itertools.count())

    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            database = store._database  # pyright: ignore[reportPrivateUsage]
            loop = asyncio.get_running_loop()

            def world() -> World:
                new = NewAccount(name="a", credit=CREDIT)

                def open_account(database: Database) -> Account:
                    return store._changes(database).create_account(new, "test")  # pyright: ignore[reportPrivateUsage]

                jobs: list[Job[Any]] = [Job(open_account, loop.create_future()) for _ in range(2)]
                made: Any = []
                store._work(jobs, made)  # pyright: ignore[reportPrivateUsage]
                return World(next(names), [account.id for _, account, _ in made])

            @example([[_step("reserve")], [_step("adopt"), _step("settle")]])  # a commit that could not say so
            @example([[_step("reserve")], [_step("adopt"), _step("release"), _step("adopt")]])
            @example([[_step("adopt"), _step("extend"), _step("settle")]])
            @settings(max_examples=150 if store_url.startswith("sqlite") else 40)
            @given(st.lists(st.lists(_STEPS, max_size=8), max_size=3))
            def check(batches: list[list[Step]]) -> None:
                together, alone = world(), world()
                for batch in possible(batches):
                    clock.now += 50_000.0
                    came = moved(store, [step.move(together, clock.now) for step in batch])
                    expected = [moved(store, [step.move(alone, clock.now)])[0] for step in batch]
                    assert together.plain(came) == alone.plain(expected)
                    state = tables(database, together)
                    assert state == tables(database, alone)
                    check_sums(state)

            check()
        assert differences(store_url) == []

    asyncio.run(play())
