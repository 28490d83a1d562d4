"""What the tests of store, ledger and books share: stores with a clock that is set, callers."""

import itertools
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kenari.core.caller import Caller
from kenari.core.ports import Hold, Leg, Line, Reservation
from kenari.core.price import Price
from kenari.core.usage import Usage
from kenari.ledger.chain import Seals
from kenari.ledger.lines import bill_of, encode_body
from kenari.ledger.price import charge, make_price
from kenari.ledger.verify import verify
from kenari.store.records import NewAccount, Settlement
from kenari.store.store import Store, StoreSettings, open_database
from kenari.store.walk import walk

SEALS = Seals(b"a key of the tests")
PRICE = make_price("1", "2")
"""1 and 2 of the currency per million tokens."""
ENDLESS = itertools.count(1)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def opened(url: str, clock: Callable[[], float] | None = None, **settings: Any) -> AsyncGenerator[Store]:
    """A store at an address."""
    store = Store(StoreSettings(url=url, **settings), SEALS, clock or Clock(), os.urandom)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def customer(store: Store, credit: int, key: str = "key_test", **more: Any) -> Caller:
    """A caller of a new account with a balance of units."""
    account = await store.create_account(NewAccount(name="a", credit=credit), actor="test")
    return Caller(account=account.id, key=key, **more)


def wanted(
    caller: Caller, amount: int = 0, least: int | None = None, price: Price | None = PRICE, **more: Any
) -> Reservation:
    """A reservation with an id of its own."""
    id = more.pop("id", f"{next(ENDLESS):016x}")
    return Reservation(
        id=id,
        caller=caller,
        model="m",
        amount=amount,
        least=amount if least is None else least,
        price=price,
        **more,
    )


def line_of(hold: Hold, prompt: int = 0, output: int = 0, price: Price | None = PRICE, **more: Any) -> Line:
    """The line of a request that used these tokens."""
    legs = [Leg("p/m", Usage(fresh=prompt, output=output), "ok", 1.0)]
    line = Line(
        id=hold.id,
        account=hold.caller.account,
        key=hold.caller.key,
        model="m",
        target="p/m",
        status=200,
        ending="done",
        usage=legs[0].usage,
        legs=legs,
        price=price,
    )
    line.charge = charge(legs, price)
    for name, value in more.items():
        setattr(line, name, value)
    return line


def settlement_of(line: Line, hold: Hold, now: float) -> Settlement:
    """What the store gets of a line."""
    bill = bill_of(line, hold, now)
    return Settlement(
        id=line.id,
        account=line.account,
        key=line.key,
        model=line.model,
        time=now,
        status=line.status,
        usage=line.usage,
        charge=bill.charge,
        body=encode_body(bill),
        unlimited=hold.caller.unlimited,
        price=line.price,
    )


def differences(url: str) -> list[str]:
    """What the ledger's verification finds."""
    database = open_database(url, readonly=True)
    database.connect()
    try:
        with walk(database) as (figures, entries):
            return list(verify(entries, figures, SEALS, "USD"))
    finally:
        database.close()
