"""What the management API and callers ask: reads of one state, on a connection of their own."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

import msgspec

from kenari.core.caller import Budget, Caller
from kenari.core.entries import Carried, Checkpoint, Entry, Figures, OpenHold, Spending, Standing
from kenari.core.price import Price
from kenari.core.windows import window_start
from kenari.store.database import Database, Value
from kenari.store.records import (
    Account,
    Audited,
    BillLine,
    Grouping,
    HoldRow,
    KeyRow,
    KnownKey,
    SecretRow,
    Spent,
    Unknown,
    UsageSum,
)
from kenari.store.rows import (
    ACCOUNT_COLUMNS,
    AUDIT_COLUMNS,
    BILL_COLUMNS,
    HOLD_COLUMNS,
    KEY_COLUMNS,
    account_of,
    audited_of,
    bill_of,
    hold_of,
    key_of,
    secret_of,
)

PAGE = 1000
"""Rows of a page when everything is read."""
_GROUPS: dict[Grouping, str] = {"day": "day", "account": "account", "key": "key_id", "model": "model"}


class Reports:
    """Reads within the transaction that is open."""

    def __init__(self, database: Database, now: float, zone: tzinfo) -> None:
        self._database, self._now, self._zone = database, now, zone

    def account(self, id: str) -> Account:
        """One account."""
        rows = self._database.run(f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE id = ?", (id,))
        if not rows:
            raise Unknown(f"there is no account {id[:80]!r}")
        return account_of(rows[0])

    def accounts(self, limit: int, after: str) -> list[Account]:
        """A page of accounts."""
        sql = f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE id > ? ORDER BY id LIMIT ?"
        return [account_of(row) for row in self._database.run(sql, (after, limit))]

    def key(self, id: str) -> KeyRow:
        """One key."""
        rows = self._database.run(f"SELECT {KEY_COLUMNS} FROM keys WHERE id = ?", (id,))
        if not rows:
            raise Unknown(f"there is no key {id[:80]!r}")
        return key_of(rows[0])

    def keys(self, account: str, limit: int, after: str) -> list[KeyRow]:
        """A page of keys."""
        which, values = (" AND account = ?", (after, account, limit)) if account else ("", (after, limit))
        sql = f"SELECT {KEY_COLUMNS} FROM keys WHERE id > ?{which} ORDER BY id LIMIT ?"
        return [key_of(row) for row in self._database.run(sql, values)]

    def secrets(self, key: str) -> list[SecretRow]:
        """The live secrets of a key, the newest first."""
        self.key(key)
        sql = (
            "SELECT digest, created_at, expires_at FROM secrets WHERE key_id = ? AND (expires_at IS NULL OR expires_at > ?)"
            " ORDER BY created_at DESC, expires_at IS NULL DESC"
        )
        return [secret_of(row) for row in self._database.run(sql, (key, self._now))]

    def sequence(self) -> int:
        """The number of the last change."""
        return int(self._database.run("SELECT sequence FROM changes WHERE id = 1")[0][0])

    def snapshot_keys(self) -> tuple[int, list[KnownKey]]:
        """Everything that verifies callers."""
        run = self._database.run
        sequence = self.sequence()
        accounts = {row[0]: account_of(row) for row in run(f"SELECT {ACCOUNT_COLUMNS} FROM accounts")}
        secrets: dict[str, list[SecretRow]] = {}
        for digest, created_at, expires_at, key in run(
            "SELECT digest, created_at, expires_at, key_id FROM secrets WHERE expires_at IS NULL OR expires_at > ?",
            (self._now,),
        ):
            secrets.setdefault(key, []).append(SecretRow(bytes.fromhex(digest), created_at, expires_at))
        live = run(
            f"SELECT {KEY_COLUMNS} FROM keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)",
            (self._now,),
        )
        return sequence, [
            KnownKey(key_of(row), accounts[row[1]], tuple(secrets.get(row[0], ())))
            for row in live
            if row[1] in accounts
        ]

    def request(self, id: str) -> BillLine | None:
        """One bill line."""
        rows = self._database.run(f"SELECT {BILL_COLUMNS} FROM entries WHERE id = ? AND kind = 'request'", (id,))
        return bill_of(rows[0]) if rows else None

    def requests(self, account: str, key: str, limit: int, before: str) -> list[BillLine]:
        """A page of bill lines, the newest first."""
        where, values = ["kind = 'request'"], list[Value]()
        if key and not account:
            account = self._account_of_key(key)
        if account:
            where.append("account = ?")
            values.append(account)
        if key:
            where.append("key_id = ?")
            values.append(key)
        if before:
            last = self.request(before)
            if last is None:
                raise Unknown(f"there is no request {before[:80]!r}")
            where.append("(time, id) < (?, ?)")
            values += [last.time, last.id]
        sql = f"SELECT {BILL_COLUMNS} FROM entries WHERE {' AND '.join(where)} ORDER BY time DESC, id DESC LIMIT ?"
        return [bill_of(row) for row in self._database.run(sql, [*values, limit])]

    def usage(self, by: Sequence[Grouping], since: float, until: float, account: str, key: str) -> list[UsageSum]:
        """Sums over requests in groups, in the order of the groups."""
        groups = list(dict.fromkeys(by))
        columns = "".join(f"{_GROUPS[name]}, " for name in groups)
        where, values = "kind = 'request' AND time >= ? AND time < ?", list[Value]((since, until))
        for column, value in (("account", account), ("key_id", key)):
            if value:
                where += f" AND {column} = ?"
                values.append(value)
        sums = ", ".join(
            f"CAST(COALESCE(SUM({one}), 0) AS BIGINT)"
            for one in ("input", "cache_read", "cache_write", "output", "charge")
        )
        sql = f"SELECT {columns}COUNT(*), {sums} FROM entries WHERE {where}"
        if groups:
            words = ", ".join(_GROUPS[name] for name in groups)
            sql += f" GROUP BY {words} ORDER BY {words}"
        names = [*groups, "requests", "input", "cache_read", "cache_write", "output", "charge"]
        found: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in self._database.run(sql, values)]
        return [msgspec.convert(row, UsageSum) for row in found]

    def spent(self, caller: Caller) -> tuple[Spent | None, Spent | None]:
        """How the key's and the account's budgets stand."""
        key = self._spent("key:" + caller.key, caller, caller.budget)
        return key, self._spent("account:" + caller.account, caller, caller.account_budget)

    def audit_log(self, limit: int, before: int | None, subject: str) -> list[Audited]:
        """A page of the audit log, the newest first."""
        where, values = "number < ?", list[Value]((2**62 if before is None else before,))
        if subject:
            where += " AND subject = ?"
            values.append(subject)
        sql = f"SELECT {AUDIT_COLUMNS} FROM audit WHERE {where} ORDER BY number DESC LIMIT ?"
        return [audited_of(row) for row in self._database.run(sql, [*values, limit])]

    def open_holds(self, owner: str) -> list[HoldRow]:
        """Open holds of an owner and of those below it, or all."""
        sql = f"SELECT {HOLD_COLUMNS} FROM holds"
        found = [hold_of(row) for row in self._database.run(sql + " ORDER BY created_at, id")]
        return [one for one in found if not owner or one.owner == owner or one.owner.startswith(owner + "/")]

    def figures(self) -> Figures:
        """Everything that the entries must add up to."""
        run = self._database.run
        return Figures(
            standings=[
                Standing(account=row[0], balance=row[1], reserved=row[2])
                for row in run("SELECT id, balance, reserved FROM accounts ORDER BY id")
            ],
            spending=[
                Spending(subject=row[0], window=row[1], started=row[2], amount=row[3], reserved=row[4])
                for row in run("SELECT subject, span, started, amount, reserved FROM spending ORDER BY subject, span")
            ],
            holds=[
                OpenHold(id=row[0], account=row[1], key=row[2], amount=row[3])
                for row in run("SELECT id, account, key_id, amount FROM holds WHERE unlimited = 0 ORDER BY id")
            ],
            prices=[
                Price(
                    version=row[0],
                    input=row[1],
                    output=row[2],
                    cache_read=row[3],
                    cache_write=row[4],
                    cache_write_1h=row[5],
                )
                for row in run(
                    "SELECT version, input, output, cache_read, cache_write, cache_write_1h FROM prices ORDER BY version"
                )
            ],
            checkpoints=[
                Checkpoint(writer=row[0], seq=row[1], hash=row[2], time=row[3], mac=row[4])
                for row in run("SELECT writer, seq, hash, time, mac FROM checkpoints ORDER BY writer, seq")
            ],
            carried=[
                Carried(subject=row[0], amount=row[1], charge=row[2], mac=row[3])
                for row in run("SELECT subject, amount, charge, mac FROM carried ORDER BY subject")
            ],
        )

    def entries(self, writer: str, seq: int) -> list[Entry]:
        """A page of entries in the order of the chains, behind a place."""
        return [
            Entry(
                writer=row[0],
                seq=row[1],
                id=row[2],
                kind=row[3],
                account=row[4],
                key=row[5],
                time=row[6],
                amount=row[7],
                charge=row[8],
                body=row[9].encode(),
                hash=row[10],
                model=row[11],
                status=row[12],
                tokens=row[13:17],
            )
            for row in self._database.run(
                "SELECT writer, seq, id, kind, account, key_id, time, amount, charge, body, hash, model, status, input,"
                " cache_read, cache_write, output FROM entries"
                " WHERE (writer, seq) > (?, ?) ORDER BY writer, seq LIMIT ?",
                (writer, seq, PAGE),
            )
        ]

    def _account_of_key(self, key: str) -> str:
        rows = self._database.run("SELECT account FROM keys WHERE id = ?", (key,))
        return rows[0][0] if rows else ""

    def _spent(self, subject: str, caller: Caller, budget: Budget | None) -> Spent | None:
        if budget is None:
            return None
        started = window_start(budget.window, self._now, self._zone)
        rows = self._database.run(
            "SELECT amount, reserved, started FROM spending WHERE subject = ? AND span = ?", (subject, budget.window)
        )
        if rows:
            amount, reserved, began = rows[0]
            return Spent(amount if began >= started else 0, reserved, started)
        column = "key_id = ?" if subject.startswith("key:") else "account = ?"
        id = caller.key if subject.startswith("key:") else caller.account
        spent = self._database.run(
            f"SELECT COALESCE(SUM(charge), 0) FROM entries WHERE account = ? AND {column} AND time >= ?",
            (caller.account, id, started),
        )
        if started == 0.0:
            spent += self._database.run("SELECT charge FROM carried WHERE subject = ?", (subject,))
        held = self._database.run(f"SELECT COALESCE(SUM(amount), 0) FROM holds WHERE {column}", (id,))
        return Spent(sum(int(row[0]) for row in spent), int(held[0][0]), started)
