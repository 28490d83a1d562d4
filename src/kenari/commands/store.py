"""`kenari migrate` and `kenari ledger verify`."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kenari.commands.base import add_command, add_group
from kenari.config import Config
from kenari.core.entries import Entry
from kenari.core.ids import derive_key
from kenari.keeper.secrets import known_secret, store_folder
from kenari.ledger.chain import Seals
from kenari.ledger.verify import verify
from kenari.store.database import Broken, Database, Refused
from kenari.store.records import Conflict
from kenari.store.schema import STEPS, migrate, version
from kenari.store.store import open_database
from kenari.store.walk import walk

if TYPE_CHECKING:
    from kenari.commands.base import Commands


def add(commands: "Commands") -> None:
    """The commands and their options."""
    add_command(
        commands,
        "migrate",
        "bring the store's tables to this release (kenari serve does it too)",
        run_migrate,
        calls=False,
    )
    ledger = add_group(commands, "ledger", "look into the ledger")
    add_command(
        ledger, "verify", "work every amount, chain and balance out again; print what differs", run_verify, calls=False
    )


def run_migrate(options: argparse.Namespace, config: Config) -> int:
    """Run the steps that are missing."""
    if _no_store(config):
        return 1
    try:
        database = open_database(config.store_url, config.store_sync)
        database.connect()
        try:
            before, after = migrate(database, config.currency)
        finally:
            database.close()
    except (Broken, Refused, Conflict) as error:
        print(f"the store cannot be migrated: {error}", file=sys.stderr)
        return 1
    print(f"the store is at version {after}" + (f" (it was at {before})" if before != after else ""))
    return 0


def run_verify(options: argparse.Namespace, config: Config) -> int:
    """Print every difference; 1 when there is one. The server may run meanwhile."""
    if _no_store(config):
        return 1
    secret = known_secret(config.secret, store_folder(config.store_url))
    if secret is None:
        print(
            "there is no kenari.secret beside the store and no KENARI_SECRET: checkpoints cannot be checked",
            file=sys.stderr,
        )
        return 1
    try:
        database = open_database(config.store_url, readonly=True)
        database.connect()
        try:
            return _verify(database, Seals(derive_key(secret, "ledger")), config.currency)
        finally:
            database.close()
    except (Broken, Refused, Conflict) as error:
        print(f"the ledger cannot be read: {error}", file=sys.stderr)
        return 1


def _verify(database: Database, seals: Seals, currency: str) -> int:
    database.begin(read=True)
    found = version(database)
    database.rollback()
    if found != len(STEPS):
        raise Conflict(f"the store's version is {found}, this release wants {len(STEPS)}. run kenari migrate")
    count = _Count()
    differences = 0
    with walk(database) as (figures, entries):
        for difference in verify(count.through(entries), figures, seals, currency):
            print(difference)
            differences += 1
    if differences:
        print(f"{count.entries} entries, {differences} differences", file=sys.stderr)
        return 1
    print(f"{count.entries} entries of {len(count.writers)} chains, {len(figures.standings)} accounts: all is right")
    return 0


class _Count:
    """Counts what goes through."""

    def __init__(self) -> None:
        self.entries = 0
        self.writers: set[str] = set()

    def through(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            self.entries += 1
            self.writers.add(entry.writer)
            yield entry


def _no_store(config: Config) -> bool:
    if config.store_url == "none:":
        print('[store] url is "none:": nothing is kept', file=sys.stderr)
    return config.store_url == "none:"
