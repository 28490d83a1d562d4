"""The ledger's verification: every amount, every chain and every standing figure, worked out again (U4, U5)."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from kenari.core.entries import Checkpoint, Entry, Figures, Sealing
from kenari.core.price import PER, Price, format_amount
from kenari.ledger.lines import Bill, BillLeg, read_bill, read_credit
from kenari.ledger.price import numbers_of, price_version
from kenari.wire import jsonx


def verify(entries: Iterable[Entry], figures: Figures, sealing: Sealing, currency: str) -> Iterator[str]:
    """Every difference as a line of text; nothing when all is right. `entries` come in the order of their chains."""
    sums = Sums(figures)
    for carried in figures.carried:
        if sealing.stamp_carried(carried.subject, carried.amount, carried.charge) != carried.mac:
            yield f"carried {carried.subject}: the sum of pruned entries has a wrong mac"
    chains = Chains(figures.checkpoints, sealing)
    prices = {price.version: price for price in figures.prices}
    for version, price in prices.items():
        if price_version(numbers_of(price), currency) != version:
            yield f"price {version}: the numbers are not those that its version names"
    for entry in entries:
        yield from chains.follow(entry)
        yield from _check(entry, prices)
        sums.add(entry)
    yield from chains.end()
    yield from sums.compare(figures)


class Chains:
    """Follows the chains, writer by writer."""

    def __init__(self, checkpoints: list[Checkpoint], sealing: Sealing) -> None:
        self._sealing = sealing
        self._stamps: dict[str, dict[int, Checkpoint]] = {}
        for one in checkpoints:
            self._stamps.setdefault(one.writer, {})[one.seq] = one
        self._writer, self._seq, self._hash = "", 0, ""
        self._ends: dict[str, int] = {}

    def follow(self, entry: Entry) -> Iterator[str]:
        """The next entry."""
        where = f"entry {entry.writer} {entry.seq} ({entry.id})"
        if entry.writer != self._writer:
            self._writer, self._seq, self._hash = entry.writer, 0, self._sealing.genesis(entry.writer)
            before = self._stamps.get(entry.writer, {}).get(entry.seq - 1)
            if entry.seq != 1 and before is not None:  # what was before it was pruned
                self._seq, self._hash = before.seq, before.hash
        if entry.seq != self._seq + 1:
            yield f"{where}: follows {self._seq}, so entries are missing"
            self._hash = ""
        if self._hash and self._sealing.link(self._hash, entry.body) != entry.hash:
            yield f"{where}: its hash is not that of its content and of the entry before it"
        self._seq, self._hash = entry.seq, entry.hash
        stamp = self._stamps.get(entry.writer, {}).get(entry.seq)
        if stamp is not None and stamp.hash != entry.hash:
            yield f"{where}: the checkpoint here has another hash"
        self._ends[entry.writer] = entry.seq

    def end(self) -> Iterator[str]:
        """What the checkpoints say of themselves, and of what should have come."""
        for writer, stamps in self._stamps.items():
            for one in stamps.values():
                if self._sealing.stamp(writer, one.seq, one.hash, one.time) != one.mac:
                    yield f"checkpoint {writer} {one.seq}: its mac is wrong"
            last = self._ends.get(writer)
            if last is not None and max(stamps) > last:
                yield f"chain {writer}: ends at {last}, but there is a checkpoint at {max(stamps)}"
            elif last is None and len(stamps) > 1:
                yield f"chain {writer}: has checkpoints, but no entries"


class Sums:
    """Adds entries up, by account and by what has a budget."""

    def __init__(self, figures: Figures) -> None:
        self._balances: dict[str, int] = {}
        self._spent = {(row.subject, row.window): [row.started, 0] for row in figures.spending}
        self._windows: dict[str, list[list[float | int]]] = {}
        for (subject, _), row in self._spent.items():
            self._windows.setdefault(subject, []).append(row)
        for carried in figures.carried:
            kind, _, id = carried.subject.partition(":")
            if kind == "account":
                self._balances[id] = carried.amount
            total = self._spent.get((carried.subject, "total"))
            if total is not None:
                total[1] += carried.charge

    def add(self, entry: Entry) -> None:
        """One entry."""
        self._balances[entry.account] = self._balances.get(entry.account, 0) + entry.amount
        if entry.amount == 0 and entry.charge:
            return  # an unlimited caller's
        for subject in ("account:" + entry.account, "key:" + entry.key):
            for row in self._windows.get(subject, ()):
                if entry.time >= row[0]:
                    row[1] += entry.charge

    def compare(self, figures: Figures) -> Iterator[str]:
        """The sums against what stands."""
        held: dict[str, int] = {}
        for hold in figures.holds:
            for subject in ("account:" + hold.account, "key:" + hold.key):
                held[subject] = held.get(subject, 0) + hold.amount
        for one in figures.standings:
            total, reserved = self._balances.get(one.account, 0), held.get("account:" + one.account, 0)
            if total != one.balance:
                yield f"account {one.account}: the balance is {_shown(one.balance)}, its entries make {_shown(total)}"
            if reserved != one.reserved:
                yield f"account {one.account}: reserved is {_shown(one.reserved)}, its holds make {_shown(reserved)}"
        known = {one.account for one in figures.standings}
        for account, total in self._balances.items():
            if total and account not in known:
                yield f"account {account}: is not there, but its entries make {_shown(total)}"
        for row in figures.spending:
            spent, reserved = int(self._spent[row.subject, row.window][1]), held.get(row.subject, 0)
            if (spent, reserved) != (row.amount, row.reserved):
                yield (
                    f"spending of {row.subject} in its {row.window}: {_shown(row.amount)} and {_shown(row.reserved)} "
                    f"reserved, its entries and holds make {_shown(spent)} and {_shown(reserved)}"
                )


def _check(entry: Entry, prices: dict[str, Price]) -> Iterator[str]:
    """One entry against its own body."""
    where = f"entry {entry.writer} {entry.seq} ({entry.id})"
    try:
        if entry.kind == "credit":
            credit = read_credit(entry.body)
            said = (credit.id, credit.account, credit.amount, credit.time, "", 0, (0, 0, 0, 0))
            if said != (entry.id, entry.account, entry.amount, entry.time, entry.model, entry.status, entry.tokens):
                yield f"{where}: its columns are not those of its body"
            return
        bill = read_bill(entry.body)
    except jsonx.Malformed as error:
        yield f"{where}: its body cannot be read: {error}"
        return
    amount = 0 if bill.unlimited else -bill.charge
    tokens = bill.tokens
    counted = (tokens.input, tokens.cache_read, tokens.cache_write, tokens.output)
    said = (
        bill.kind,
        bill.id,
        bill.account,
        bill.key,
        bill.charge,
        amount,
        bill.time,
        bill.model,
        bill.status,
        counted,
    )
    if said != (
        entry.kind,
        entry.id,
        entry.account,
        entry.key,
        entry.charge,
        entry.amount,
        entry.time,
        entry.model,
        entry.status,
        entry.tokens,
    ):
        yield f"{where}: its columns are not those of its body"
    price = bill.price
    if price is not None:
        with suppress(KeyError):
            if prices[price.version] != price:
                yield f"{where}: its price is not that of version {price.version}"
        if price.version not in prices:
            yield f"{where}: its price version {price.version} is not known"
    due = recomputed(bill)
    if due != bill.charge:
        yield f"{where}: the charge is {_shown(bill.charge)}, its tokens and price make {_shown(due)}"


def recomputed(bill: Bill) -> int:
    """What a bill line should charge, from its tokens and its own price; a crashed one what was noted, at most what was
    held."""
    if bill.reason == "crashed":
        return min(bill.noted, bill.held)
    products = sum(_products(leg, bill.price) for leg in bill.legs if leg.billed)
    return -(-products // PER) + sum(leg.fee for leg in bill.legs if leg.billed)


def _products(leg: BillLeg, price: Price | None) -> int:
    if price is None:
        return 0
    tokens = leg.tokens
    return (
        tokens.input * price.input
        + tokens.cache_read * price.cache_read
        + tokens.cache_write_5m * price.cache_write
        + tokens.cache_write_1h * price.cache_write_1h
        + tokens.output * price.output
    )


def _shown(units: int) -> str:
    return format_amount(units, 0)
