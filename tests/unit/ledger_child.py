"""A process that bills until it is killed: run by test_ledger_faults.py.

It reads `URL FOLDER ACCOUNT SEED` lines; for each it forks a child that opens the books and makes requests without end, and
tells of what a client would have seen: `answered ID` when a request was served.
"""

import asyncio
import os
import random
import sys
import time
from functools import partial
from io import StringIO
from pathlib import Path

from store_kit import SEALS, line_of, wanted

from kenari.core.caller import Caller
from kenari.core.ports import Line
from kenari.keeper.books import LogBooks
from kenari.keeper.journal import Journal
from kenari.keeper.ledger_books import BooksSettings, StoreBooks
from kenari.keeper.spool import Spool
from kenari.ledger.price import make_price
from kenari.store.store import Store, StoreSettings


def tell(text: str) -> None:
    """A line that is out when this returns."""
    os.write(1, text.encode() + b"\n")


async def serve(url: str, folder: str, account: str, seed: int) -> None:
    """Requests of five kinds, twelve at a time, until the process is killed."""
    dice = random.Random(seed)
    loop = asyncio.get_running_loop()
    store = Store(StoreSettings(url=url, node="node"), SEALS, time.time, os.urandom)
    log = LogBooks("json", time.time, loop.call_later, StringIO())
    holds = store.beside(".holds")
    journal = None if holds is None else Journal(holds)
    books = StoreBooks(store, log, Spool(Path(folder) / "kenari.spool"), BooksSettings(node="node"), time.time, journal)
    await books.start(patient=False)
    paying = Caller(account=account, key="key_1")
    operator = Caller(account="operator", key="bootstrap", unlimited=True)
    price = make_price("1", "2")

    async def client(number: int) -> None:
        caller = operator if number % 4 == 1 else paying
        while True:
            id = os.urandom(8).hex()
            amount = 0 if caller.unlimited else 1_000_000
            hold = await books.reserve(wanted(caller, amount, id=id, price=price))
            for charge in range(dice.randrange(4)):
                await asyncio.sleep(dice.random() * 0.004)
                books.note(hold, charge * 1000)
            tell(f"answered {id}")
            line = line_of(hold, prompt=dice.randrange(1000), output=dice.randrange(100))
            if number % 2:
                books.settle_later(hold, partial(_same, line))
            else:
                books.settle(hold, line)
            if number % 3 == 0:
                await store.note({hold.id: 5})  # a write that has nothing to do with the others

    tell("ready")
    await asyncio.gather(*(client(number) for number in range(12)))


def _same(line: Line) -> Line:
    return line


def main() -> None:
    """Fork for each line."""
    for line in sys.stdin:
        url, folder, account, seed = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(serve(url, folder, account, int(seed)))
            finally:
                os._exit(3)
        tell(f"child {pid}")
        os.waitpid(pid, 0)
        tell("ended")


if __name__ == "__main__":
    main()
