"""Stored keys from the store into memory, and what callers read of themselves, with a real SQLite store (A1, A2)."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gateway_kit import GOOD, Exchange, Rig
from money_kit import PRICE

from kenari.core.caller import Budget, Caller, Rates, Scope
from kenari.core.ports import Hold, Leg, Line, Reservation
from kenari.core.usage import Usage
from kenari.doors.public import PublicDoor
from kenari.keeper.caller_records import CallerRecords
from kenari.keeper.key_refresh import KeyRefresh, secrets_of
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.secrets import fingerprint, make_key
from kenari.keys.stored import Secret, StoredKeys
from kenari.ledger.chain import Seals
from kenari.ledger.lines import bill_of, encode_body
from kenari.store.records import AccountChange, KeyChange, NewAccount, NewKey, Settlement, StoreDown
from kenari.store.store import Store, StoreSettings

HMAC = b"h" * 32
UNIT = 10**9


class House:
    """A store, keys in memory and a door before them."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(StoreSettings(url=f"sqlite:///{folder}/kenari.db"), Seals(b"s" * 32), time.time, os.urandom)
        self.keys = StoredKeys(HMAC, time.time, BootstrapKeys({"kn-test": OPERATOR}))
        self.refresh = KeyRefresh(self.store, self.keys)

    async def make_key(self, account: str, **more: Any) -> tuple[str, str]:
        """(id, secret)"""
        secret = make_key(os.urandom(32))
        row = await self.store.create_key(
            NewKey(account=account, name="laptop", digest=fingerprint(HMAC, secret.encode()), **more), actor="test"
        )
        return row.id, secret

    def door(self) -> PublicDoor:
        rig = Rig(GOOD)
        rig.keys = self.keys
        door = rig.build()
        door.records = CallerRecords(self.store, "USD", 2)
        return door

    async def get(self, path: str, secret: str, method: str = "GET", query: str = "") -> Exchange:
        exchange = Exchange(path, b"", {b"authorization": b"Bearer " + secret.encode()}, method)
        exchange.query = query
        await self.door().serve(exchange)
        return exchange


def play(folder: Path, steps: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        house = House(folder)
        await house.store.start()
        try:
            await house.refresh.start()
            await steps(house)
        finally:
            await house.refresh.close()
            await house.store.close()

    asyncio.run(run())


def test_a1_a_stored_key_is_known_by_its_hmac_only(tmp_path: Path) -> None:
    made: list[bytes] = []

    async def steps(house: House) -> None:
        account = await house.store.create_account(NewAccount(name="team", plan="pro"), actor="test")
        id, secret = await house.make_key(account.id, scope=Scope(models=("m",)), rates=Rates(rpm=5))
        await house.refresh.refresh()
        caller = house.keys.verify(secret.encode())
        assert caller is not None
        assert (caller.account, caller.key, caller.plan, caller.unlimited) == (account.id, id, "pro", False)
        assert (caller.scope.models, caller.rates.rpm) == (("m",), 5)
        assert house.keys.verify(b"kn-test") is OPERATOR
        for wrong in (
            b"",
            b"kn-",
            b"\xff" * 52,
            secret[:-1].encode(),
            secret.encode() + b"x",
            make_key(b"x" * 32).encode(),
        ):
            assert house.keys.verify(wrong) is None
        made.append(secret.encode())

    play(tmp_path, steps)
    for file in tmp_path.iterdir():
        assert made[0] not in file.read_bytes(), file.name


def test_a2_changes_hold_within_two_seconds(tmp_path: Path) -> None:
    async def steps(house: House) -> None:
        account = await house.store.create_account(NewAccount(name="team"), actor="test")
        id, secret = await house.make_key(account.id)
        other, second = await house.make_key(account.id)
        await asyncio.sleep(1.6)
        assert house.keys.verify(secret.encode()) is not None
        await house.store.revoke_key(id, actor="test")
        await house.store.change_key(other, KeyChange(rates=Rates(rpm=1)), actor="test")
        await asyncio.sleep(1.6)
        assert house.keys.verify(secret.encode()) is None
        changed = house.keys.verify(second.encode())
        assert changed is not None
        assert changed.rates.rpm == 1
        await house.store.change_account(account.id, AccountChange(closed=True), actor="test")
        await house.refresh.refresh()
        assert house.keys.verify(second.encode()) is None

    play(tmp_path, steps)


def test_a2_two_secrets_live_while_a_key_is_rotated_and_expiry_ends_it(tmp_path: Path) -> None:
    async def steps(house: House) -> None:
        account = await house.store.create_account(NewAccount(name="team"), actor="test")
        id, old = await house.make_key(account.id, expires_at=time.time() + 3600)
        new = make_key(os.urandom(32))
        await house.store.rotate_key(id, fingerprint(HMAC, new.encode()), 0.5, actor="test")
        await house.refresh.refresh()
        assert house.keys.verify(old.encode()) is not None
        assert house.keys.verify(new.encode()) is not None
        await asyncio.sleep(0.6)
        assert house.keys.verify(old.encode()) is None  # its grace is over, without any refresh
        assert house.keys.verify(new.encode()) is not None
        await house.store.change_key(id, KeyChange(expires_at=time.time() - 1), actor="test")
        await house.refresh.refresh()
        got = await house.get("/v1/key", new)
        assert got.status == 401
        assert "expired" in got.json["error"]["message"]

    play(tmp_path, steps)


def test_keys_stay_while_the_store_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kenari.keeper.key_refresh.POLL_SECONDS", 0.02)

    async def steps(house: House) -> None:
        account = await house.store.create_account(NewAccount(name="team"), actor="test")
        _, secret = await house.make_key(account.id)
        await house.refresh.refresh()

        async def down() -> int:
            raise StoreDown("no")

        sequence = house.store.sequence
        monkeypatch.setattr(house.store, "sequence", down)
        await asyncio.sleep(0.1)
        assert house.refresh.stale
        assert house.keys.verify(secret.encode()) is not None
        monkeypatch.setattr(house.store, "sequence", sequence)
        await asyncio.sleep(0.1)
        assert not house.refresh.stale

    play(tmp_path, steps)


def test_an_older_snapshot_changes_nothing() -> None:
    keys = StoredKeys(HMAC, time.time, BootstrapKeys({}))
    secret = make_key(b"1" * 32)
    keys.replace(5, [Secret(fingerprint(HMAC, secret.encode()), Caller(account="a", key="k"))])
    keys.replace(4, [])
    assert (len(keys), keys.sequence) == (1, 5)
    assert keys.verify(secret.encode()) is not None
    assert secrets_of([]) == []


def test_a_caller_reads_its_key_its_credit_and_its_own_bills(tmp_path: Path) -> None:
    async def steps(house: House) -> None:
        account = await house.store.create_account(
            NewAccount(name="team", credit=5 * UNIT, rates=Rates(concurrent=9)), actor="test"
        )
        id, secret = await house.make_key(
            account.id, scope=Scope(models=("m*",)), rates=Rates(rpm=60), budget=Budget(2 * UNIT, "month")
        )
        stranger = await house.store.create_account(NewAccount(name="other"), actor="test")
        _, foreign = await house.make_key(stranger.id)
        await house.refresh.refresh()
        caller = house.keys.verify(secret.encode())
        assert caller is not None
        await bill(house.store, caller, "00000000000000aa")

        got = (await house.get("/v1/key", secret)).json
        assert (got["id"], got["name"], got["account"], got["models"]) == (id, "laptop", account.id, ["m*"])
        assert got["limits"] == {"rpm": 60, "tpm": None, "concurrent": None}
        assert got["account_limits"]["concurrent"] == 9
        assert got["budget"] == {"amount": "2.00", "window": "month", "spent": "0.00002", "remaining": "1.99998"}
        assert secret not in json.dumps(got)

        got = (await house.get("/v1/credits", secret)).json
        assert (got["balance"], got["reserved"], got["available"]) == ("4.99998", "0.00", "4.99998")
        assert got["currency"] == "USD"

        for asked in ("00000000000000aa", "resp_00000000000000aa"):
            got = (await house.get("/v1/generation", secret, query=f"id={asked}")).json
            assert (got["id"], got["model"], got["charge"], got["reason"]) == (
                "00000000000000aa",
                "m",
                "0.00002",
                "done",
            )
            assert got["tokens"]["output"] == 10
            assert "hidden-provider" not in json.dumps(got)
        assert (await house.get("/v1/generation", foreign, query="id=00000000000000aa")).status == 404
        assert (await house.get("/v1/generation", secret, query="id=00000000000000ab")).status == 404
        bad = await house.get("/v1/generation", secret, query="id=x")
        assert (bad.status, bad.json["error"]["param"]) == (400, "id")

    play(tmp_path, steps)


def test_the_bootstrap_key_has_no_balance_and_others_are_refused(tmp_path: Path) -> None:
    async def steps(house: House) -> None:
        assert (await house.get("/v1/key", "kn-test")).json["unlimited"] is True
        got = await house.get("/v1/credits", "kn-test")
        assert (got.json["unlimited"], got.json["balance"]) == (True, None)
        assert got.header["cache-control"] == "no-store"
        for path in ("/v1/key", "/v1/credits", "/v1/generation"):
            assert (await house.get(path, "kn-wrong")).status == 401
            wrong = await house.get(path, "kn-test", method="POST")
            assert (wrong.status, wrong.header["allow"]) == (405, "GET, HEAD")
        door = house.door()
        door.records = None
        exchange = Exchange("/v1/key", b"", {b"x-api-key": b"kn-test"}, "GET")
        await door.serve(exchange)
        assert exchange.status == 404

    play(tmp_path, steps)


async def bill(store: Store, caller: Caller, id: str) -> None:
    """One request that was paid: ten tokens of input, ten of output."""
    hold: Hold = await store.reserve(Reservation(id=id, caller=caller, model="m", amount=10**6, price=PRICE_1000), "n")
    usage = Usage(fresh=0, output=10)
    line = Line(
        id=id,
        account=caller.account,
        key=caller.key,
        model="m",
        target="hidden-provider/m",
        status=200,
        ending="done",
        usage=usage,
        legs=[Leg("hidden-provider/m", usage, "ok", 1.0)],
        price=PRICE_1000,
    )
    body = bill_of(line, hold, time.time())
    settlement = Settlement(
        id=id,
        account=caller.account,
        key=caller.key,
        model="m",
        time=time.time(),
        status=200,
        usage=usage,
        charge=body.charge,
        body=encode_body(body),
    )
    assert await store.settle(settlement)


PRICE_1000 = msgspec.structs.replace(PRICE, version="v1000", output=2_000 * 10**6)
"""Two thousandths of a millionth for a token."""
