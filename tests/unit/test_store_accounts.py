"""Accounts, keys, credits, the audit log and reports, on both databases (A1-A4, section 4)."""

import asyncio
import ipaddress

import pytest
from store_kit import Clock, customer, differences, line_of, opened, settlement_of, wanted

from kenari.core.caller import Budget, Rates, Scope
from kenari.core.price import UNIT
from kenari.store.records import AccountChange, Conflict, KeyChange, NewAccount, NewKey, Unknown


def digest(number: int) -> bytes:
    return bytes([number]) * 32


def test_an_account_is_made_changed_closed_and_opened(store_url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            new = NewAccount(name="Toko", plan="pro", budget=Budget(5, "month"), rates=Rates(rpm=3), credit=UNIT)
            made = await store.create_account(new, actor="admin")
            assert made.id.startswith("acc_")
            assert made == await store.account(made.id)
            assert (made.name, made.plan, made.balance, made.reserved) == ("Toko", "pro", UNIT, 0)
            assert (made.budget, made.rates, made.created_at) == (Budget(5, "month"), Rates(rpm=3), clock())
            changed = await store.change_account(made.id, AccountChange(plan="", budget=None), actor="admin")
            assert (changed.name, changed.plan, changed.budget, changed.rates) == ("Toko", "", None, Rates(rpm=3))
            closed = await store.change_account(made.id, AccountChange(closed=True), actor="admin")
            assert closed.closed_at == clock()
            with pytest.raises(Conflict, match="closed"):
                await store.add_credit(made.id, 1, "", actor="admin")
            with pytest.raises(Conflict, match="closed"):
                await store.create_key(NewKey(account=made.id, name="k", digest=digest(1)), actor="admin")
            assert (await store.change_account(made.id, AccountChange(closed=False), actor="admin")).closed_at is None
            with pytest.raises(Unknown, match="acc_none"):
                await store.account("acc_none")
        assert differences(store_url) == []

    asyncio.run(play())


def test_credits_are_entries_and_may_be_taken_back(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            account = await store.create_account(NewAccount(name="a"), actor="admin")
            assert (await store.add_credit(account.id, 5 * UNIT, "first", actor="admin")).balance == 5 * UNIT
            assert (await store.add_credit(account.id, -2 * UNIT, "back", actor="admin")).balance == 3 * UNIT
            with pytest.raises(Conflict, match="larger"):
                await store.add_credit(account.id, 2**62, "", actor="admin")
        assert differences(store_url) == []

    asyncio.run(play())


def test_A2_a_key_and_what_a_verifier_needs_of_it(store_url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            account = await store.create_account(NewAccount(name="a"), actor="admin")
            scope = Scope(("gpt-*",), ("chat/completions",), (ipaddress.ip_network("10.0.0.0/8"),))
            new = NewKey(account=account.id, name="k", digest=digest(1), scope=scope, budget=Budget(7, "week"))
            before = await store.sequence()
            key = await store.create_key(new, actor="admin")
            assert key.id.startswith("key_")
            assert key == await store.key(key.id)
            assert (key.scope, key.budget, key.account) == (scope, Budget(7, "week"), account.id)
            sequence, known = await store.snapshot_keys()
            assert sequence == await store.sequence() > before
            assert [(one.key, one.account, [secret.digest for secret in one.secrets]) for one in known] == [
                (key, account, [digest(1)])
            ]
            other = await store.create_key(NewKey(account=account.id, name="l", digest=digest(2)), actor="admin")
            await store.change_key(other.id, KeyChange(expires_at=clock() + 10), actor="admin")
            clock.now += 11
            assert [one.key.id for one in (await store.snapshot_keys())[1]] == [key.id]
            assert {one.id for one in await store.keys(account.id)} == {key.id, other.id}
            assert await store.keys("acc_none") == []
            first = (await store.keys(limit=1))[0]
            assert len([first, *await store.keys(after=first.id)]) == 2

    asyncio.run(play())


def test_A2_two_secrets_live_at_once_for_a_rotation(store_url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            account = await store.create_account(NewAccount(name="a"), actor="admin")
            key = await store.create_key(NewKey(account=account.id, name="k", digest=digest(1)), actor="admin")
            clock.now += 1
            await store.rotate_key(key.id, digest(2), 60.0, actor="admin")
            assert [one.digest for one in await store.secrets(key.id)] == [digest(2), digest(1)]
            assert len((await store.snapshot_keys())[1][0].secrets) == 2
            clock.now += 30
            await store.rotate_key(key.id, digest(3), 600.0, actor="admin")
            clock.now += 31  # the first secret keeps its own end
            assert [one.digest for one in await store.secrets(key.id)] == [digest(3), digest(2)]
            clock.now += 600
            assert [one.digest for one in await store.secrets(key.id)] == [digest(3)]

    asyncio.run(play())


def test_a_revoked_key_is_gone_from_the_snapshot_and_stays_so(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            account = await store.create_account(NewAccount(name="a"), actor="admin")
            key = await store.create_key(NewKey(account=account.id, name="k", digest=digest(1)), actor="admin")
            before = await store.sequence()
            revoked = await store.revoke_key(key.id, actor="admin")
            assert revoked.revoked_at is not None
            assert await store.sequence() > before
            assert (await store.snapshot_keys())[1] == []
            assert await store.secrets(key.id) == []
            assert await store.revoke_key(key.id, actor="admin") == revoked
            with pytest.raises(Conflict, match="revoked"):
                await store.rotate_key(key.id, digest(2), 1.0, actor="admin")
            with pytest.raises(Unknown, match="key_none"):
                await store.revoke_key("key_none", actor="admin")

    asyncio.run(play())


def test_each_change_is_in_the_audit_log_with_what_it_changed(store_url: str) -> None:
    async def play() -> None:
        async with opened(store_url) as store:
            account = await store.create_account(NewAccount(name="a"), actor="one")
            await store.change_account(account.id, AccountChange(plan="pro"), actor="two")
            key = await store.create_key(NewKey(account=account.id, name="k", digest=digest(1)), actor="two")
            await store.rotate_key(key.id, digest(2), 5.0, actor="two")
            await store.revoke_key(key.id, actor="two")
            await store.audit("nobody", "token.refused", "127.0.0.1")
            log = await store.audit_log()
            assert [one.action for one in log] == [
                "token.refused",
                "key.revoke",
                "key.rotate",
                "key.create",
                "account.change",
                "account.create",
            ]
            assert log[4].detail == b'{"plan":{"before":"","after":"pro"}}'
            assert [one.number for one in log] == [6, 5, 4, 3, 2, 1]
            assert [one.number for one in await store.audit_log(limit=2, before=5)] == [4, 3]
            assert [one.action for one in await store.audit_log(subject=account.id)] == [
                "account.change",
                "account.create",
            ]
            assert all(digest(1).hex().encode() not in one.detail for one in log)

    asyncio.run(play())


def test_requests_are_listed_newest_first_page_by_page(store_url: str) -> None:
    async def play() -> None:
        clock = Clock()
        async with opened(store_url, clock) as store:
            one, two = await customer(store, UNIT, "key_1"), await customer(store, UNIT, "key_2")
            made: list[str] = []
            for caller in (one, two, one, one):
                hold = await store.reserve(wanted(caller, 1000), "node")
                await store.settle(settlement_of(line_of(hold, output=100), hold, clock()))
                made.append(hold.id)
                clock.now += 1
            assert [line.id for line in await store.requests()] == made[::-1]
            assert [line.id for line in await store.requests(account=two.account)] == [made[1]]
            assert [line.id for line in await store.requests(account=one.account, key="key_1", limit=2)] == [
                made[3],
                made[2],
            ]
            assert [line.id for line in await store.requests(before=made[2])] == [made[1], made[0]]
            assert await store.request("none") is None
            with pytest.raises(Unknown):
                await store.requests(before="none")

    asyncio.run(play())


def test_usage_is_summed_by_day_of_the_time_zone_account_key_and_model(store_url: str) -> None:
    async def play() -> None:
        clock = Clock(1_800_000_000.0)  # 2027-01-15 08:00 UTC, 15:00 in Jakarta
        async with opened(store_url, clock, time_zone="Asia/Jakarta") as store:
            caller = await customer(store, UNIT, "key_1")
            for hours in (0, 8, 10):  # 15:00, 23:00, and 01:00 of the next day
                hold = await store.reserve(wanted(caller, 1000), "node")
                await store.settle(settlement_of(line_of(hold, prompt=5, output=100), hold, clock() + hours * 3600))
            sums = await store.usage(("day", "model"), 0, 2e9)
            assert [(one.day, one.model, one.requests, one.input, one.output, one.charge) for one in sums] == [
                ("2027-01-15", "m", 2, 10, 200, 410_000),
                ("2027-01-16", "m", 1, 5, 100, 205_000),
            ]
            (total,) = await store.usage((), 0, 2e9, account=caller.account)
            assert (total.requests, total.charge, total.account) == (3, 615_000, "")
            (by_key,) = await store.usage(("key", "account"), clock(), clock() + 1, key="key_1")
            assert (by_key.key, by_key.account, by_key.requests) == ("key_1", caller.account, 1)
            assert await store.usage(("key",), 0, 1) == []

    asyncio.run(play())
