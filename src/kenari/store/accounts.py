"""Changes of accounts and keys, each within one transaction: the change, its line in the audit log, and the sequence number
that tells every process of it. Rows are locked in one order: the account, then what stands below it, then `changes`."""

from collections.abc import Callable
from datetime import tzinfo
from typing import Any

import msgspec

from kenari.core.windows import day_of
from kenari.store.chain import Chain, NewEntry
from kenari.store.database import Database, Row, Value
from kenari.store.records import (
    UNSET,
    Account,
    AccountChange,
    Conflict,
    KeyChange,
    KeyRow,
    NewAccount,
    NewKey,
    Unknown,
)
from kenari.store.rows import (
    ACCOUNT_COLUMNS,
    KEY_COLUMNS,
    account_of,
    budget_text,
    key_of,
    rates_text,
    scope_text,
)
from kenari.wire import jsonx

MAX_BALANCE = 2**62
"""Units: no balance is larger (4.6 thousand million units of the currency)."""


class Credited(msgspec.Struct, frozen=True):
    """The body of a credit's entry: canonical JSON of the ledger."""

    kind: str
    id: str
    account: str
    time: float
    amount: int
    note: str


class Changes:
    """Changes within the transaction that is open. `entropy` gives random bytes for ids."""

    def __init__(
        self, database: Database, chain: Chain, now: float, zone: tzinfo, entropy: Callable[[int], bytes]
    ) -> None:
        self._database, self._chain = database, chain
        self._now, self._zone, self._entropy = now, zone, entropy

    def create_account(self, new: NewAccount, actor: str) -> Account:
        """A new account, with its first credit."""
        id = "acc_" + self._entropy(8).hex()
        row = (id, new.name, new.plan, self._now, None, 0, 0, budget_text(new.budget), rates_text(new.rates))
        self._database.run("INSERT INTO accounts VALUES (?,?,?,?,?,?,?,?,?)", row)
        if new.credit:
            self._credit(id, new.credit, "")
        account = self.account(id)
        self._record(actor, "account.create", id, msgspec.to_builtins(account))
        self._announce()
        return account

    def change_account(self, id: str, change: AccountChange, actor: str) -> Account:
        """Change what is given."""
        before = self.account(id, lock=True)
        columns: dict[str, Value] = {}
        if change.name is not UNSET:
            columns["name"] = change.name
        if change.plan is not UNSET:
            columns["plan"] = change.plan
        if change.budget is not UNSET:
            columns["budget"] = budget_text(change.budget)
        if change.rates is not UNSET:
            columns["rates"] = rates_text(change.rates)
        if change.closed is not UNSET:
            columns["closed_at"] = (before.closed_at or self._now) if change.closed else None
        self._update("accounts", id, columns)
        after = self.account(id)
        self._record(actor, "account.change", id, _differences(before, after))
        self._announce()
        return after

    def add_credit(self, id: str, amount: int, note: str, actor: str) -> Account:
        """Add to the balance: an entry of the ledger."""
        before = self.account(id, lock=True)
        if before.closed_at is not None:
            raise Conflict(f"the account {id} is closed. open it again before its balance is changed")
        if not -MAX_BALANCE < before.balance + amount < MAX_BALANCE:
            raise Conflict("the balance would be larger than it can be")
        self._credit(id, amount, note)
        self._record(actor, "account.credit", id, {"amount": amount, "note": note})
        return self.account(id)

    def account(self, id: str, lock: bool = False) -> Account:
        """One account, and its row locked when it is to be changed."""
        end = self._database.lock_rows if lock else ""
        return account_of(self._one(f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE id = ?{end}", id, "account"))

    def key(self, id: str) -> KeyRow:
        """One key."""
        return key_of(self._one(f"SELECT {KEY_COLUMNS} FROM keys WHERE id = ?", id, "key"))

    def create_key(self, new: NewKey, actor: str) -> KeyRow:
        """A new key with its first secret."""
        if self.account(new.account, lock=True).closed_at is not None:
            raise Conflict(f"the account {new.account} is closed. open it again before it gets a key")
        id = "key_" + self._entropy(8).hex()
        texts = (scope_text(new.scope), rates_text(new.rates), budget_text(new.budget))
        row = (id, new.account, new.name, *texts, self._now, new.expires_at, None)
        self._database.run("INSERT INTO keys VALUES (?,?,?,?,?,?,?,?,?)", row)
        self._add_secret(id, new.digest)
        key = self.key(id)
        self._record(actor, "key.create", id, _plain(key))
        self._announce()
        return key

    def change_key(self, id: str, change: KeyChange, actor: str) -> KeyRow:
        """Change what is given."""
        before = self._locked_key(id)
        columns: dict[str, Value] = {}
        if change.name is not UNSET:
            columns["name"] = change.name
        if change.scope is not UNSET:
            columns["scope"] = scope_text(change.scope)
        if change.rates is not UNSET:
            columns["rates"] = rates_text(change.rates)
        if change.budget is not UNSET:
            columns["budget"] = budget_text(change.budget)
        if change.expires_at is not UNSET:
            columns["expires_at"] = change.expires_at
        self._update("keys", id, columns)
        after = self.key(id)
        self._record(actor, "key.change", id, _differences(before, after))
        self._announce()
        return after

    def revoke_key(self, id: str, actor: str) -> KeyRow:
        """Refuse it from now on, and forget its secrets."""
        key = self._locked_key(id)
        if key.revoked_at is not None:
            return key
        self._update("keys", id, {"revoked_at": self._now})
        self._database.run("DELETE FROM secrets WHERE key_id = ?", (id,))
        self._record(actor, "key.revoke", id, {})
        self._announce()
        return self.key(id)

    def rotate_key(self, id: str, digest: bytes, grace: float, actor: str) -> KeyRow:
        """A second secret; the older ones end after the grace period, or earlier when they already had one."""
        key = self._locked_key(id)
        if key.revoked_at is not None:
            raise Conflict(f"the key {id} is revoked. make a new one")
        end = self._now + grace
        self._database.run("DELETE FROM secrets WHERE key_id = ? AND expires_at <= ?", (id, self._now))
        self._database.run(
            "UPDATE secrets SET expires_at = ? WHERE key_id = ? AND (expires_at IS NULL OR expires_at > ?)",
            (end, id, end),
        )
        self._add_secret(id, digest)
        self._record(actor, "key.rotate", id, {"grace": grace})
        self._announce()
        return key

    def audit(self, actor: str, action: str, subject: str, detail: bytes) -> None:
        """A line of the audit log."""
        counted = self._database.run("UPDATE changes SET audits = audits + 1 WHERE id = 1 RETURNING audits")
        row = (counted[0][0], self._now, actor, action, subject, detail.decode())
        self._database.run("INSERT INTO audit VALUES (?,?,?,?,?,?)", row)

    def _credit(self, account: str, amount: int, note: str) -> None:
        id = "cr_" + self._entropy(8).hex()
        self._database.run("UPDATE accounts SET balance = balance + ? WHERE id = ?", (amount, account))
        body = jsonx.encode(Credited("credit", id, account, self._now, amount, note))
        entry = NewEntry(
            id=id,
            kind="credit",
            account=account,
            time=self._now,
            day=day_of(self._now, self._zone),
            amount=amount,
            body=body,
        )
        self._chain.append(self._database, [entry], self._now)

    def _locked_key(self, id: str) -> KeyRow:
        key = self.key(id)
        self.account(key.account, lock=True)
        return self.key(id)

    def _add_secret(self, key: str, digest: bytes) -> None:
        self._database.run("INSERT INTO secrets VALUES (?,?,?,?)", (digest.hex(), key, self._now, None))

    def _update(self, table: str, id: str, columns: dict[str, Value]) -> None:
        if columns:
            names = ", ".join(f"{name} = ?" for name in columns)
            self._database.run(f"UPDATE {table} SET {names} WHERE id = ?", (*columns.values(), id))

    def _one(self, sql: str, id: str, what: str) -> Row:
        rows = self._database.run(sql, (id,))
        if not rows:
            raise Unknown(f"there is no {what} {id[:80]!r}")
        return rows[0]

    def _record(self, actor: str, action: str, subject: str, detail: Any) -> None:
        self.audit(actor, action, subject, jsonx.encode(detail))

    def _announce(self) -> None:
        self._database.run("UPDATE changes SET sequence = sequence + 1 WHERE id = 1")


def _plain(record: Account | KeyRow) -> dict[str, Any]:
    """A record as JSON values."""
    return msgspec.to_builtins(record, enc_hook=str)


def _differences(before: Account | KeyRow, after: Account | KeyRow) -> dict[str, Any]:
    """What a change changed, old and new."""
    old, new = _plain(before), _plain(after)
    return {name: {"before": old[name], "after": new[name]} for name in new if old[name] != new[name]}
