"""The store: what the rest of kenari asks of what it keeps."""

import asyncio
import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from kenari.core.caller import Caller
from kenari.core.entries import Sealing
from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Reservation
from kenari.core.windows import zone_of
from kenari.store import answers, provider_keys
from kenari.store.accounts import Changes
from kenari.store.chain import Chain, is_foreign
from kenari.store.database import Broken, Database
from kenari.store.lane import Done, Job, Lane, Waiter
from kenari.store.money import Batch
from kenari.store.moves import Adopt, Extend, Move, Release, Reserve, Settle, Terms
from kenari.store.records import (
    Account,
    AccountChange,
    Audited,
    BillLine,
    Conflict,
    Grouping,
    HoldRow,
    KeyChange,
    KeyRow,
    KnownKey,
    NewAccount,
    NewKey,
    ProviderKeyRow,
    Repeated,
    SecretRow,
    Settlement,
    Spent,
    StoreDown,
    UsageSum,
)
from kenari.store.reports import Reports
from kenari.store.schema import migrate
from kenari.store.sqlite import SqliteDatabase
from kenari.store.upkeep import Upkeep

_log = logging.getLogger("kenari.store")
T = TypeVar("T")
CLAIM_TRIES, CLAIM_PAUSE = 10, 0.2
_Change: TypeAlias = Callable[[Database], Any]


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which store, and how. `node` names this process's chain: no two living processes have the same one."""

    url: str
    node: str = "node"
    currency: str = "USD"
    time_zone: str = "UTC"
    enforce: bool = True
    sync: str = "normal"

    def __repr__(self) -> str:
        return f"StoreSettings(node={self.node!r})"


def file_of(url: str) -> Path | None:
    """The file of a database, None where it is not in one."""
    return Path(url.removeprefix("sqlite:///")).expanduser() if url.startswith("sqlite:///") else None


def open_database(url: str, sync: str = "normal", readonly: bool = False) -> Database:
    """The database of an address, not connected yet. Raises Conflict when the extra that it needs is not installed."""
    path = file_of(url)
    if path is not None:
        return SqliteDatabase(path, sync, readonly)
    try:
        # psycopg costs memory and start-up time, and is only there with the extra: who needs it pays for it
        postgres = importlib.import_module("kenari.store.postgres")
    except ImportError:
        raise Conflict('postgresql:// needs the extra "postgres": pip install "kenari[postgres]"') from None
    return postgres.PostgresDatabase(url, readonly)


class Store:
    """All that kenari keeps. Every method raises StoreDown when the store cannot say now; those that name an account or
    a key raise Unknown when there is none. A method with `actor` leaves a line in the audit log, in the same
    transaction as the change. `now` is a clock of Unix seconds, `entropy` gives random bytes for ids."""

    def __init__(
        self,
        settings: StoreSettings,
        sealing: Sealing,
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
    ) -> None:
        self.settings = settings
        self._zone = zone_of(settings.time_zone)
        self._terms = Terms(enforce=settings.enforce, zone=self._zone)
        self._now, self._entropy, self._sealing = now, entropy, sealing
        self._chain = Chain(settings.node, sealing)
        self._prices: set[str] = set()
        self._database = open_database(settings.url, settings.sync)
        self._reading = open_database(settings.url, readonly=True)
        self._writer: Lane[Move | _Change] = Lane(self._database, self._prepare, self._work, self._late)
        self._reader: Lane[Callable[[Reports], Any]] = Lane(self._reading, _nothing, self._read, _nothing, again=True)

    async def start(self) -> None:
        """Connect, claim the node's name, bring the tables up to date. Raises StoreDown, or Conflict where waiting does
        not help: another process, a newer release, another currency."""
        self._writer.start()
        self._reader.start()
        try:
            await self.ping()
        except StoreDown as error:
            if isinstance(error.__cause__, Conflict):
                raise error.__cause__ from None
            raise

    async def close(self) -> None:
        """Write what waits and a last checkpoint, then disconnect."""
        with contextlib.suppress(StoreDown):  # the next process continues the chain without this checkpoint
            await self._change(lambda database: self._chain.stamp(database, self._now()))
        await self._reader.close()
        await (
            self._writer.close()
        )  # SQLite folds its log of recent writes into the file where a writer is the last to leave

    # accounts and keys

    async def create_account(self, new: NewAccount, *, actor: str) -> Account:
        """A new account `acc_...`."""
        return await self._change(lambda database: self._changes(database).create_account(new, actor))

    async def account(self, account: str) -> Account:
        """One account."""
        return await self._report(lambda reports: reports.account(account))

    async def accounts(self, limit: int = 100, after: str = "") -> list[Account]:
        """Accounts in the order of their ids, from the one after `after`."""
        return await self._report(lambda reports: reports.accounts(limit, after))

    async def change_account(self, account: str, change: AccountChange, *, actor: str) -> Account:
        """Change what is given. Closing refuses every key of the account; it can be opened again."""
        return await self._change(lambda database: self._changes(database).change_account(account, change, actor))

    async def add_credit(self, account: str, amount: int, note: str, *, actor: str) -> Account:
        """Add to the balance (or take from it, below 0): an entry of the ledger. Raises Conflict when it is closed."""
        return await self._change(lambda database: self._changes(database).add_credit(account, amount, note, actor))

    async def create_key(self, new: NewKey, *, actor: str) -> KeyRow:
        """A new key `key_...` whose secret has this HMAC. Raises Conflict when the account is closed."""
        return await self._change(lambda database: self._changes(database).create_key(new, actor))

    async def key(self, key: str) -> KeyRow:
        """One key."""
        return await self._report(lambda reports: reports.key(key))

    async def keys(self, account: str = "", limit: int = 100, after: str = "") -> list[KeyRow]:
        """Keys in the order of their ids, of one account or of all, revoked ones too."""
        return await self._report(lambda reports: reports.keys(account, limit, after))

    async def secrets(self, key: str) -> list[SecretRow]:
        """The secrets of a key that are not past their grace period, the newest first."""
        return await self._report(lambda reports: reports.secrets(key))

    async def change_key(self, key: str, change: KeyChange, *, actor: str) -> KeyRow:
        """Change what is given."""
        return await self._change(lambda database: self._changes(database).change_key(key, change, actor))

    async def revoke_key(self, key: str, *, actor: str) -> KeyRow:
        """Refuse the key from now on; a second time changes nothing."""
        return await self._change(lambda database: self._changes(database).revoke_key(key, actor))

    async def rotate_key(self, key: str, digest: bytes, grace: float, *, actor: str) -> KeyRow:
        """A second secret; the older ones end after `grace` seconds. Raises Conflict when the key is revoked."""
        return await self._change(lambda database: self._changes(database).rotate_key(key, digest, grace, actor))

    async def snapshot_keys(self) -> tuple[int, list[KnownKey]]:
        """Every key that may still be used, with its account and secrets, and the sequence number of this state."""
        return await self._report(lambda reports: reports.snapshot_keys())

    async def sequence(self) -> int:
        """A number that every change of an account, a key or a secret raises (not money that moves)."""
        return await self._report(lambda reports: reports.sequence())

    # reports

    async def request(self, request: str) -> BillLine | None:
        """The bill line of a request, None when there is none (yet)."""
        return await self._report(lambda reports: reports.request(request))

    async def requests(self, account: str = "", key: str = "", limit: int = 100, before: str = "") -> list[BillLine]:
        """Bill lines, the newest first, from the one before the request `before`."""
        return await self._report(lambda reports: reports.requests(account, key, limit, before))

    async def usage(
        self, by: Sequence[Grouping], since: float, until: float, account: str = "", key: str = ""
    ) -> list[UsageSum]:
        """Sums over the requests that ended in [since, until), in groups."""
        return await self._report(lambda reports: reports.usage(by, since, until, account, key))

    async def spent(self, caller: Caller) -> tuple[Spent | None, Spent | None]:
        """How the budgets of a caller's key and account stand now; None where there is no budget."""
        return await self._report(lambda reports: reports.spent(caller))

    async def audit(self, actor: str, action: str, subject: str, detail: bytes = b"{}") -> None:
        """Note something that changed nothing in the store."""
        await self._change(lambda database: self._changes(database).audit(actor, action, subject, detail))

    async def audit_log(self, limit: int = 100, before: int | None = None, subject: str = "") -> list[Audited]:
        """The audit log, the newest first, from the one before the number `before`."""
        return await self._report(lambda reports: reports.audit_log(limit, before, subject))

    async def ping(self) -> None:
        """Return when the store can write."""
        await self._change(lambda database: database.run("SELECT 1"))

    def beside(self, suffix: str) -> Path | None:
        """A file beside the database's, for this process alone once the store has started; None where the database is no
        file."""
        path = file_of(self.settings.url)
        return None if path is None else Path(f"{path}{suffix}")

    @property
    def waiting(self) -> int:
        """How many writes wait for the writer thread (a gauge for metrics)."""
        return self._writer.waiting

    @property
    def slowest(self) -> float:
        """Seconds of the slowest batch so far (a gauge for metrics)."""
        return self._writer.slowest

    # money

    def reserve(self, reservation: Reservation, owner: str) -> "asyncio.Future[Hold]":
        """Open a hold (U5, F8). Raises KenariError: 402, or 409 for a repeat. Cancelling it opens none, or closes it
        again."""
        return self._writer.do(Reserve(reservation, owner))

    def extend(self, hold: Hold, amount: int, least: int) -> "asyncio.Future[Hold]":
        """Set more aside for an open hold; the hold as it is then. Raises KenariError as `reserve` does. What is set aside for
        somebody who gave up waiting goes back with the rest of the hold."""
        return self._writer.do(Extend(hold, amount, least))

    def adopt(self, hold: HoldRow) -> "asyncio.Future[bool]":
        """Open a hold that was granted while the store was down. False when it or its line is there already."""
        return self._writer.do(Adopt(hold))

    def settle(self, settlement: Settlement) -> "asyncio.Future[bool]":
        """Close a hold with its line, in one transaction, within a few milliseconds. False when the line is there already."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.settle_later(lambda: Settle(settlement), future)
        return future

    def settle_later(self, make: "Callable[[], Settle | Release]", waiter: Waiter) -> None:
        """The same for a move that is made with those of the same moment; who hears of it is no future."""
        self._writer.do_later(make, waiter)

    def release(self, request: str, account: str, unlimited: bool) -> "asyncio.Future[bool]":
        """Close a hold without a line; False when there is none."""
        return self._writer.do(Release(request, account, unlimited))

    async def note(self, estimates: dict[str, int]) -> None:
        """What open holds would cost if they ended now."""
        await self._change(lambda database: Upkeep(database, self._now()).note(estimates))

    async def open_holds(self, owner: str = "") -> list[HoldRow]:
        """Open holds, of an owner and of those below it (`node` and `node/...`), or all."""
        return await self._change(lambda database: self._reports(database).open_holds(owner))

    async def keep(self, owner: str, lease: float) -> list[HoldRow]:
        """Renew the lease of an owner for `lease` seconds and forget what is past; the holds of owners whose lease has
        run out, which anybody may settle."""
        return await self._change(lambda database: Upkeep(database, self._now()).keep(owner, lease))

    async def leave(self, owner: str) -> None:
        """End the lease of an owner that has no holds."""
        await self._change(lambda database: Upkeep(database, self._now()).leave(owner))

    async def prune(self, before: float) -> int:
        """Take entries that are older than a time out of the ledger, whole stretches between checkpoints, at most some
        thousands at once; how many. Their sums stay."""
        return await self._change(lambda database: Upkeep(database, self._now()).prune(before, self._sealing))

    # answers of requests that come again

    def keep_answer(self, request: str, sealed: bytes, seconds: float) -> "asyncio.Future[None]":
        """Keep an answer for so many seconds. What is asked of the store afterwards is done afterwards."""
        until = self._now() + seconds
        return self._writer.do(lambda database: answers.keep(database, request, sealed, until))

    async def repeated(self, account: str, digest: bytes) -> Repeated | None:
        """The first request under an Idempotency-Key; None when there is none."""
        return await self._change(lambda database: answers.repeated(database, account, digest.hex(), self._now()))

    async def notify(self, channel: str, text: str) -> None:
        """Tell the processes that listen on a channel of a PostgreSQL server (`notices.py`)."""
        await self._change(lambda database: database.run("SELECT pg_notify(?, ?)", (channel, text)))

    # callers' own provider keys

    async def put_provider_key(self, row: ProviderKeyRow, *, actor: str) -> None:
        """Keep an account's own key for a provider, in the place of an earlier one."""
        await self._change(lambda database: self._changes(database).put_provider_key(row, actor))

    async def drop_provider_key(self, account: str, provider: str, *, actor: str) -> bool:
        """Forget it; False when there was none."""
        return await self._change(lambda database: self._changes(database).drop_provider_key(account, provider, actor))

    async def provider_keys(self, account: str = "") -> list[ProviderKeyRow]:
        """Those of an account, or all."""
        return await self._change(lambda database: provider_keys.rows(database, account))

    async def rewrap_provider_keys(self, rewrap: Callable[[ProviderKeyRow], ProviderKeyRow], *, actor: str) -> int:
        """Change how every one is sealed, all or none; how many."""
        return await self._change(lambda database: self._changes(database).rewrap_provider_keys(rewrap, actor))

    # how it is done

    async def _report(self, ask: Callable[[Reports], T]) -> T:
        await self._writer.catch_up()
        return await self._reader.do(ask)

    async def _change(self, change: Callable[[Database], T]) -> T:
        return await self._writer.do(change)

    def _changes(self, database: Database) -> Changes:
        return Changes(database, self._chain, self._now(), self._zone, self._entropy)

    def _reports(self, database: Database) -> Reports:
        return Reports(database, self._now(), self._zone)

    def _prepare(self, database: Database) -> None:
        """On each new connection of the writer."""
        tries = CLAIM_TRIES
        while not database.claim(self.settings.node):
            tries -= 1
            if tries:  # a server may need a moment to see that a process has died
                time.sleep(CLAIM_PAUSE)
                continue
            raise Conflict(
                f"another process already runs as node {self.settings.node} on this store. stop it. "
                "(several processes may share PostgreSQL, each with its own [store] node; SQLite serves one)"
            )
        migrate(database, self.settings.currency)
        self._chain.load(database)
        if is_foreign(database, self._sealing):
            _log.error(
                "the secret is not the one that this store was kept under: no key of a customer opens, and the ledger does "
                "not verify. put kenari.secret, or KENARI_SECRET, back as it was"
            )

    def _work(self, batch: list[Job[Move | _Change]], done: Done) -> None:
        """Moves that follow one another go into one transaction; every other change has its own."""
        moves: list[Job[Any]] = []
        for job in batch:
            if isinstance(job.what, (Reserve, Extend, Adopt, Settle, Release)):
                moves.append(job)
                continue
            done += self._move(moves)
            moves = []
            done.append(self._alone(job, job.what))
        done += self._move(moves)

    def _move(self, jobs: list[Job[Any]]) -> Done:
        """All in one transaction; when the database refuses that, each in one of its own, so that the one at fault is
        the only one to fail."""
        if not jobs:
            return []
        try:
            batch = Batch(self._database, self._chain, self._terms, self._now())
            outcomes = self._transaction(lambda: batch.run([job.what for job in jobs], self._prices))
            self._prices |= batch.prices.keys()
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001 - a constraint, or a value that the driver cannot take
            if len(jobs) == 1 and _is_careful(jobs[0].what):
                return [(jobs[0].future, None, error)]
            return [one for job in jobs for one in self._move([Job(_careful(job.what), job.future)])]
        return [
            (job.future, None, outcome) if isinstance(outcome, KenariError) else (job.future, outcome, None)
            for job, outcome in zip(jobs, outcomes, strict=True)
        ]

    def _alone(self, job: Job[Any], change: _Change) -> tuple[Waiter, Any, BaseException | None]:
        try:
            return job.future, self._transaction(lambda: change(self._database)), None
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to the one who asked
            return job.future, None, error

    def _transaction(self, act: Callable[[], T]) -> T:
        database = self._database
        database.begin()
        try:
            result = act()
            database.commit()
        except BaseException:
            database.rollback()
            self._reload()
            raise
        return result

    def _reload(self) -> None:
        """After a rollback the chain's head is what the database has; a database that is gone is read when it is back."""
        try:
            self._chain.load(self._database)
        except Exception:  # noqa: BLE001 - what made the rollback necessary is on its way to who waits
            return

    def _read(self, batch: list[Job[Callable[[Reports], Any]]], done: Done) -> None:
        for job in batch:
            self._reading.begin(read=True)
            try:
                done.append((job.future, job.what(self._reports(self._reading)), None))
            except Broken:
                raise
            except Exception as error:  # noqa: BLE001 - it belongs to the one who asked
                done.append((job.future, None, error))
            self._reading.rollback()

    def _late(self, what: Any, result: Any) -> None:
        """A hold for somebody who gave up waiting is closed again."""
        if isinstance(what, Reserve) and isinstance(result, Hold):
            self.release(result.id, result.caller.account, result.caller.unlimited).add_done_callback(_forget)


def _is_careful(move: Move) -> bool:
    return not isinstance(move, Settle) or move.held


def _careful(move: Move) -> Move:
    """The same, asking the tables for what need not be there."""
    return move if _is_careful(move) else msgspec.structs.replace(move, held=True)


def _forget(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for it; its failure is not news (the hold is settled as crashed when the process has ended)."""
    if not future.cancelled():
        future.exception()


def _nothing(*_: object) -> None:
    """Reads need no preparation, and nobody has to undo one."""
