"""Money that moves: many reservations and settlements in one transaction, with a fixed number of statements.

The rows that a batch touches are read once (and locked, account by account in one order, so that writers of several
nodes neither lose an update nor wait for each other in a circle), the batch is worked out in memory in the order in which
it came, and what changed is written once.
"""

from collections.abc import Sequence

import msgspec

from kenari.core.caller import Budget, Caller
from kenari.core.errors import KenariError, key_was_used
from kenari.core.ports import Hold, Reservation
from kenari.core.price import Price
from kenari.core.windows import day_of, window_start
from kenari.store.chain import Chain, NewEntry
from kenari.store.database import Database, listed, rows_of
from kenari.store.moves import Adopt, Extend, Move, Outcome, Release, Reserve, Settle, Terms, closed_by, who_of
from kenari.store.records import HoldRow, Settlement
from kenari.store.rows import hold_values

REPEAT_SECONDS = 24 * 3600.0
"""How long an Idempotency-Key is remembered (F14)."""
_HOLD_COLUMNS = 11


class _Standing(msgspec.Struct):
    """An account's row while a batch is worked out."""

    balance: int
    reserved: int
    closed: bool
    moved: int = 0
    held: int = 0


class _Spending(msgspec.Struct):
    """A row of spending while a batch is worked out."""

    started: float
    amount: int
    reserved: int
    changed: bool = False


class _Open(msgspec.Struct, frozen=True):
    """A hold that the batch closes."""

    account: str
    key: str
    amount: int
    repeat: str
    unlimited: bool


class _Made(msgspec.Struct, frozen=True):
    """A hold that the batch opens, and the digest of its Idempotency-Key."""

    hold: HoldRow
    repeat: str


class Batch:
    """One batch within one transaction."""

    def __init__(self, database: Database, chain: Chain, terms: Terms, now: float) -> None:
        self._database, self._chain, self._terms, self._now = database, chain, terms, now
        self._accounts: dict[str, _Standing] = {}
        self._spending: dict[tuple[str, str], _Spending] = {}
        self._subjects: dict[str, list[_Spending]] = {}
        self._open: dict[str, _Open] = {}
        self._done: set[str] = set()
        self._repeats: dict[tuple[str, str], tuple[str, str]] = {}
        self._made: dict[str, _Made] = {}
        self._larger: dict[str, int] = {}  # holds that may be extended, and how large they are
        self._extended: list[tuple[str, str, str, int]] = []  # hold, account, key, by how much
        self._entries: list[NewEntry] = []
        self._new_repeats: dict[tuple[str, str], tuple[str, str]] = {}
        self._freed: list[tuple[str, str]] = []
        self._days: dict[int, str] = {}  # by the quarter of an hour: no zone begins a day within one
        self.prices: dict[str, Price] = {}
        """The prices of this batch, stored when it is committed."""

    def run(self, moves: Sequence[Move], known_prices: set[str]) -> list[Outcome]:
        """Work the moves out in their order and write what changed. Raises Broken or Refused with nothing done."""
        self._load(moves)
        outcomes = [self._move(move) for move in moves]
        self._write(known_prices)
        return outcomes

    # what is read

    def _load(self, moves: Sequence[Move]) -> None:
        who = [who_of(move) for move in moves]
        accounts = sorted({account for account, _, unlimited in who if not unlimited})
        if accounts:
            self._load_accounts(accounts)
        closing = [
            closed_by(move) for move in moves if isinstance(move, Release) or (isinstance(move, Settle) and move.held)
        ]
        if closing:
            self._close_holds(closing)
        keys = {key for _, key, unlimited in who if key and not unlimited}
        keys |= {open.key for open in self._open.values() if not open.unlimited}
        if accounts:
            self._load_spending([*("account:" + id for id in accounts), *sorted("key:" + key for key in keys)])
        extending = [move.hold.id for move in moves if isinstance(move, Extend)]
        if extending:
            where = f"WHERE id IN {listed(len(extending))}"
            self._larger = dict(self._database.run(f"SELECT id, amount FROM holds {where}", extending))
        missing = [one for one in closing if one not in self._open]
        missing += [move.hold.id for move in moves if isinstance(move, Adopt)]
        if missing:
            found = self._database.run(f"SELECT id FROM entries WHERE id IN {listed(len(missing))}", missing)
            found += self._database.run(f"SELECT id FROM holds WHERE id IN {listed(len(missing))}", missing)
            self._done |= {row[0] for row in found}
        repeats = [move.reservation for move in moves if isinstance(move, Reserve) and move.reservation.repeat]
        if repeats:
            self._load_repeats(repeats)

    def _load_accounts(self, ids: list[str]) -> None:
        for id, balance, reserved, closed_at in self._database.run(
            f"SELECT id, balance, reserved, closed_at FROM accounts WHERE id IN {listed(len(ids))} ORDER BY id"
            + self._database.lock_rows,
            ids,
        ):
            self._accounts[id] = _Standing(balance, reserved, closed_at is not None)

    def _close_holds(self, ids: list[str]) -> None:
        """Take the holds out that the batch closes; which of them were there says what is still to be settled."""
        for id, account, key, amount, repeat, unlimited in self._database.run(
            f"DELETE FROM holds WHERE id IN {listed(len(ids))} RETURNING id, account, key_id, amount, repeat, unlimited",
            ids,
        ):
            self._open[id] = _Open(account, key, amount, repeat, bool(unlimited))

    def _load_spending(self, subjects: list[str]) -> None:
        for subject, span, started, amount, reserved in self._database.run(
            f"SELECT subject, span, started, amount, reserved FROM spending WHERE subject IN {listed(len(subjects))}",
            subjects,
        ):
            self._know(subject, span, _Spending(started, amount, reserved))

    def _load_repeats(self, reservations: list[Reservation]) -> None:
        digests = [one.repeat.key.hex() for one in reservations if one.repeat is not None]
        # a caller without limits has no account whose row is locked: nodes meet at the key itself
        self._database.lock(digests)
        for account, digest, body, request, expires_at in self._database.run(
            f"SELECT account, digest, body, request, expires_at FROM repeats WHERE digest IN {listed(len(digests))}",
            digests,
        ):
            if expires_at > self._now:
                self._repeats[account, digest] = (body, request)

    def _know(self, subject: str, span: str, row: _Spending) -> None:
        self._spending[subject, span] = row
        self._subjects.setdefault(subject, []).append(row)

    # what is worked out

    def _move(self, move: Move) -> Outcome:
        if isinstance(move, (Reserve, Extend)):
            try:
                return self._reserve(move) if isinstance(move, Reserve) else self._extend(move)
            except KenariError as refusal:
                return refusal
        if isinstance(move, Settle):
            return self._settle(move.settlement)
        if isinstance(move, Adopt):
            return self._adopt(move.hold)
        open = self._close(move.id)
        if open is not None:
            self._free(open, keep_repeat=False)
        return open is not None

    def _reserve(self, move: Reserve) -> Hold:
        wanted, caller = move.reservation, move.reservation.caller
        if wanted.id in self._made:
            raise KenariError("internal_error", "two requests have one id. send the request again; tell the operator")
        self._check_repeat(wanted)
        granted = wanted.amount
        if not caller.unlimited:
            granted = self._granted(caller, wanted.amount, wanted.least)
            self._hold(caller.account, caller.key, granted)
        repeat = ""
        if wanted.repeat is not None:
            repeat = wanted.repeat.key.hex()
            self._repeats[caller.account, repeat] = (wanted.repeat.body.hex(), wanted.id)
            self._new_repeats[caller.account, repeat] = (wanted.repeat.body.hex(), wanted.id)
        self._add_hold(
            HoldRow(
                id=wanted.id,
                account=caller.account,
                key=caller.key,
                model=wanted.model,
                amount=granted,
                owner=move.owner,
                created_at=self._now,
                price=wanted.price,
                unlimited=caller.unlimited,
            ),
            repeat,
        )
        return Hold(wanted.id, caller, granted)

    def _extend(self, move: Extend) -> Hold:
        """Set more aside for a hold that is open: in the table, or opened or closed in this very batch."""
        id, caller, granted = move.hold.id, move.hold.caller, move.amount
        open, made = self._open.get(id), self._made.get(id)
        if open is None and made is None and id not in self._larger:
            raise KenariError("upstream_unavailable", "this request is not open any more. send it again")
        if not caller.unlimited:
            granted = self._granted(caller, move.amount, move.least)
            self._hold(caller.account, caller.key, granted)
        if made is not None:
            amount = made.hold.amount + granted
            self._made[id] = _Made(msgspec.structs.replace(made.hold, amount=amount), made.repeat)
        elif open is not None:
            amount = open.amount + granted
            self._open[id] = msgspec.structs.replace(open, amount=amount)
        else:
            amount = self._larger[id] = self._larger[id] + granted
            self._extended.append((id, caller.account, caller.key, granted))
        return Hold(id, caller, amount)

    def _check_repeat(self, wanted: Reservation) -> None:
        if wanted.repeat is None:
            return
        known = self._repeats.get((wanted.caller.account, wanted.repeat.key.hex()))
        if known is None:
            return
        body, request = known
        raise key_was_used(request, "before" if body == wanted.repeat.body.hex() else "with another body")

    def _granted(self, caller: Caller, amount: int, least: int) -> int:
        """How much of an amount is set aside; raises the 402."""
        standing = self._accounts.get(caller.account)
        if standing is None or standing.closed:
            raise KenariError("invalid_api_key", "the account of this key is closed. ask the operator")
        left, code = standing.balance - standing.reserved, "insufficient_balance"
        for subject, budget in (
            ("key:" + caller.key, caller.budget),
            ("account:" + caller.account, caller.account_budget),
        ):
            if budget is not None:
                spent = self._spent(subject, budget, caller)
                rest = budget.amount - spent.amount - spent.reserved
                if rest < left:
                    left, code = rest, "budget_exceeded"
        if amount == 0 or not self._terms.enforce:
            return amount
        granted = min(amount, left)
        if granted < max(least, 1):
            raise KenariError(code, _POOR[code])
        return granted

    def _spent(self, subject: str, budget: Budget, caller: Caller) -> _Spending:
        """The row of a budget's window: as it is, begun anew, or made from the entries and holds that are there."""
        started = window_start(budget.window, self._now, self._terms.zone)
        row = self._spending.get((subject, budget.window))
        if row is None:
            row = _Spending(started, *self._summed(subject, started, caller), changed=True)
            self._know(subject, budget.window, row)
        elif row.started < started:
            row.started, row.amount, row.changed = started, 0, True
        return row

    def _summed(self, subject: str, started: float, caller: Caller) -> tuple[int, int]:
        """What a subject spent since a time, and what its open holds set aside, those of this batch included."""
        # a key's entries are found by its account: entries have no index of their own for keys
        of_key, which = subject.startswith("key:"), (caller.account, caller.key)
        column, values = (" AND key_id = ?", which) if of_key else ("", which[:1])
        carried = "COALESCE((SELECT charge FROM carried WHERE subject = ?), 0)" if started == 0.0 else "0"
        spent = self._database.run(  # one statement, for old entries may be carried at the same moment
            "SELECT (SELECT COALESCE(SUM(charge), 0) FROM entries "
            f"WHERE account = ?{column} AND time >= ?) + {carried}",
            (*values, started, subject) if started == 0.0 else (*values, started),
        )
        held = self._database.run(f"SELECT COALESCE(SUM(amount), 0) FROM holds WHERE account = ?{column}", values)
        amount, reserved = int(spent[0][0]), int(held[0][0])
        for made in self._made.values():
            if made.hold.account == caller.account and (not of_key or made.hold.key == caller.key):
                reserved += made.hold.amount
        for _, account, key, added in self._extended:  # not in the table yet
            if account == caller.account and (not of_key or key == caller.key):
                reserved += added
        for open in self._open.values():  # taken out of the table already, settled later in this batch
            if open.account == caller.account and (not of_key or open.key == caller.key):
                reserved += open.amount
        for entry in self._entries:
            if entry.account == caller.account and (not of_key or entry.key == caller.key) and entry.time >= started:
                amount += entry.charge
        return amount, reserved

    def _adopt(self, hold: HoldRow) -> bool:
        """Open a hold once. One that the batch closes later was taken out of the table, and is there all the same."""
        if hold.id in self._done or hold.id in self._made or hold.id in self._open:
            return False
        if not hold.unlimited:
            self._hold(hold.account, hold.key, hold.amount)
        self._add_hold(hold, "")
        return True

    def _settle(self, settlement: Settlement) -> bool:
        open = self._close(settlement.id)
        if open is None and settlement.id in self._done:
            return False
        self._done.add(settlement.id)
        if open is not None:
            self._free(open, keep_repeat=bool(settlement.charge) or settlement.status < 400)
        amount = 0
        if not settlement.unlimited:
            amount = -settlement.charge
            standing = self._accounts.get(settlement.account)
            if standing is not None:
                standing.balance += amount
                standing.moved += amount
            self._spend(settlement)
        if settlement.price is not None:
            self.prices[settlement.price.version] = settlement.price
        usage = settlement.usage
        self._entries.append(
            NewEntry(
                id=settlement.id,
                kind="request",
                account=settlement.account,
                key=settlement.key,
                model=settlement.model,
                time=settlement.time,
                day=self._day(settlement.time),
                status=settlement.status,
                tokens=(usage.fresh or 0, usage.cache_read or 0, usage.cache_write, usage.output or 0),
                charge=settlement.charge,
                amount=amount,
                body=settlement.body,
            )
        )
        return True

    def _day(self, time: float) -> str:
        quarter = int(time // 900)
        day = self._days.get(quarter)
        if day is None:
            day = self._days[quarter] = day_of(time, self._terms.zone)
        return day

    def _close(self, id: str) -> _Open | None:
        """Take out an open hold: one that the table had, or one that was opened earlier in this very batch."""
        made = self._made.pop(id, None)
        if made is None:
            return self._open.pop(id, None)
        hold = made.hold
        return _Open(hold.account, hold.key, hold.amount, made.repeat, hold.unlimited)

    def _spend(self, settlement: Settlement) -> None:
        for subject in ("account:" + settlement.account, "key:" + settlement.key):
            for span in ("day", "week", "month", "total"):
                row = self._spending.get((subject, span))
                if row is None:
                    continue
                started = window_start(span, settlement.time, self._terms.zone)
                if row.started < started:
                    row.started, row.amount, row.changed = started, 0, True
                if settlement.time >= row.started and settlement.charge:
                    row.amount += settlement.charge
                    row.changed = True

    def _hold(self, account: str, key: str, amount: int) -> None:
        """Set aside; below 0 it gives back."""
        if not amount:
            return
        standing = self._accounts.get(account)
        if standing is not None:
            standing.reserved += amount
            standing.held += amount
        for subject in ("account:" + account, "key:" + key):
            for row in self._subjects.get(subject, ()):
                row.reserved += amount
                row.changed = True

    def _free(self, open: _Open, keep_repeat: bool) -> None:
        if not open.unlimited:
            self._hold(open.account, open.key, -open.amount)
        if open.repeat and not keep_repeat:  # nothing was made and nothing charged: the same key may try again
            self._freed.append((open.account, open.repeat))
            self._repeats.pop((open.account, open.repeat), None)
            self._new_repeats.pop((open.account, open.repeat), None)

    def _add_hold(self, hold: HoldRow, repeat: str) -> None:
        if hold.price is not None:
            self.prices[hold.price.version] = hold.price
        self._made[hold.id] = _Made(hold, repeat)

    # what is written

    def _write(self, known_prices: set[str]) -> None:
        run = self._database.run
        for version in self.prices.keys() - known_prices:
            price = self.prices[version]
            run(
                "INSERT INTO prices VALUES (?,?,?,?,?,?,?) ON CONFLICT DO NOTHING",
                (
                    version,
                    price.input,
                    price.output,
                    price.cache_read,
                    price.cache_write,
                    price.cache_write_1h,
                    self._now,
                ),
            )
        moved = [(id, one.moved, one.held) for id, one in self._accounts.items() if one.moved or one.held]
        if moved:
            run(
                "UPDATE accounts SET balance = balance + v.column2, reserved = reserved + v.column3 "
                f"FROM (VALUES {rows_of(len(moved), 3)}) AS v WHERE accounts.id = v.column1",
                [value for row in moved for value in row],
            )
        spent = [
            (subject, span, row.started, row.amount, row.reserved)
            for (subject, span), row in self._spending.items()
            if row.changed
        ]
        if spent:
            run(
                f"INSERT INTO spending VALUES {rows_of(len(spent), 5)} ON CONFLICT (subject, span) DO UPDATE SET "
                "started = excluded.started, amount = excluded.amount, reserved = excluded.reserved",
                [value for row in spent for value in row],
            )
        self._write_repeats()
        if self._made:
            values = [value for made in self._made.values() for value in hold_values(made.hold, made.repeat)]
            run(f"INSERT INTO holds VALUES {rows_of(len(self._made), _HOLD_COLUMNS)}", values)
        larger = [(id, self._larger[id]) for id in sorted({one[0] for one in self._extended})]
        if larger:
            run(
                f"UPDATE holds SET amount = v.column2 FROM (VALUES {rows_of(len(larger), 2)}) AS v WHERE holds.id = v.column1",
                [value for row in larger for value in row],
            )
        if self._entries:
            self._chain.append(self._database, self._entries, self._now)

    def _write_repeats(self) -> None:
        for account, digest in self._freed:
            self._database.run("DELETE FROM repeats WHERE account = ? AND digest = ?", (account, digest))
        for (account, digest), (body, request) in self._new_repeats.items():
            self._database.run(
                "INSERT INTO repeats VALUES (?,?,?,?,?) ON CONFLICT (account, digest) DO UPDATE SET "
                "body = excluded.body, request = excluded.request, expires_at = excluded.expires_at",
                (account, digest, body, request, self._now + REPEAT_SECONDS),
            )


_POOR = {
    "insufficient_balance": "the balance of this account does not cover the request. ask the operator for credit, or lower the output cap",
    "budget_exceeded": "the budget of this key or account does not cover the request. wait for its next window, or lower the output cap",
}
