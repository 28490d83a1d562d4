"""Prices and charges in whole numbers, rounded up once; the chain; and what verification finds (U1, U4, U5, U7, F8, F9)."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenari.core.caller import Caller
from kenari.core.entries import Carried, Checkpoint, Entry, Figures, OpenHold, Spending, Standing
from kenari.core.ports import Hold, Leg, Line
from kenari.core.price import UNIT, Price, format_amount, parse_amount
from kenari.core.usage import Usage
from kenari.ledger.chain import Seals
from kenari.ledger.lines import Credit, Tokens, bill_of, crashed_bill, encode_body, public_bill, read_bill
from kenari.ledger.price import affordable_output, arithmetic, charge, make_price, quote
from kenari.ledger.verify import verify
from kenari.store.records import HoldRow

SEALS = Seals(b"a key of the tests")
amounts = st.integers(0, 10**6).map(lambda number: f"{number // 1000}.{number % 1000:03d}")
counts = st.one_of(st.none(), st.integers(0, 10**7))
usages = st.builds(Usage, counts, counts, counts, counts, counts, counts, st.booleans())
legs = st.lists(
    st.builds(Leg, st.just("p/m"), usages, st.just("ok"), st.just(1.0), st.booleans(), st.integers(0, 10**9))
)


def test_U4_a_price_is_whole_numbers_and_its_version_names_exactly_these() -> None:
    price = make_price("0.15", "0.6", "0.015", "0.1875")
    assert (price.input, price.output) == (150_000_000, 600_000_000)
    assert (price.cache_read, price.cache_write, price.cache_write_1h) == (15_000_000, 187_500_000, 187_500_000)
    assert make_price("0.150", "0.60", "0.015", "0.1875") == price
    others = [
        make_price("0.16", "0.6", "0.015", "0.1875"),
        make_price("0.15", "0.6", "0.015", "0.1875", "0.3"),
        make_price("0.15", "0.6", "0.015", "0.1875", currency="IDR"),
        make_price("0.15", "0.6"),
    ]
    assert len({price.version, *(other.version for other in others)}) == 5


def test_S161_a_class_without_a_price_costs_what_input_costs() -> None:
    price = make_price("3", "15")
    assert {price.cache_read, price.cache_write, price.cache_write_1h} == {3 * UNIT}
    assert make_price("3", "15", cache_write="4").cache_write_1h == 4 * UNIT


@pytest.mark.parametrize("text", ["", "-1", "1.", ".5", "1e3", "0.0000000001", "1,5", "١"])
def test_what_is_no_amount_is_no_price(text: str) -> None:
    with pytest.raises(ValueError, match="amount"):
        make_price(text, "1")


def test_F9_a_line_is_rounded_up_once_not_leg_by_leg() -> None:
    price = make_price("0.000000001", "0")  # 1e-9 per million tokens
    leg = Leg("p/m", Usage(fresh=1), "ok", 1.0)
    assert charge([leg], price) == 1
    assert charge([leg] * 1_000_000, price) == 1
    assert charge([leg] * 1_000_001, price) == 2
    assert charge([], price) == 0


def test_U5_a_leg_that_failed_before_content_costs_nothing() -> None:
    price = make_price("1", "2")
    failed = Leg("a/m", Usage(fresh=1_000_000), "upstream_error", 1.0, billed=False, fee=5)
    good = Leg("b/m", Usage(fresh=1_000_000, output=500_000), "ok", 1.0)
    assert charge([failed, good], price) == 2 * UNIT


def test_S161_each_class_has_its_price_and_cached_tokens_count_once() -> None:
    price = make_price("1", "10", "0.1", "1.25", "2")
    usage = Usage(
        fresh=1_000_000, cache_read=2_000_000, cache_write_5m=4_000_000, cache_write_1h=8_000_000, output=100_000
    )
    assert charge([Leg("p/m", usage, "ok", 1.0)], price) == parse_amount("23.2")


def test_U7_S162_free_is_zero_and_without_a_price_there_are_only_fees() -> None:
    usage = Usage(fresh=10**6, output=10**6)
    assert charge([Leg("p/m", usage, "ok", 1.0)], make_price("0", "0")) == 0
    assert charge([Leg("p/m", usage, "ok", 1.0, fee=7)], None) == 7


@given(legs, st.tuples(amounts, amounts, amounts, amounts, amounts))
def test_F9_the_charge_is_the_exact_sum_rounded_up(parts: list[Leg], numbers: tuple[str, ...]) -> None:
    price = make_price(*numbers)
    exact = Fraction(0)
    for leg in parts:
        usage, per = leg.usage, Fraction(1, 10**6)
        if leg.billed:
            exact += (usage.fresh or 0) * price.input * per + (usage.output or 0) * price.output * per + leg.fee
            exact += (usage.cache_read or 0) * price.cache_read * per
            exact += (usage.cache_write_5m or 0) * price.cache_write * per
            exact += (usage.cache_write_1h or 0) * price.cache_write_1h * per
    assert 0 <= charge(parts, price) - exact < 1
    assert arithmetic(parts, price).charge == charge(parts, price)


@given(st.integers(0, 10**6), st.integers(0, 10**6), amounts, amounts)
def test_F8_a_quote_covers_its_request_and_what_it_affords(prompt: int, output: int, one: str, two: str) -> None:
    price = make_price(one, two)
    amount = quote(prompt, output, price)
    assert charge([Leg("p/m", Usage(fresh=prompt, output=output), "ok", 1.0)], price) == amount
    affordable = affordable_output(amount, prompt, price)
    assert affordable is None or affordable >= output
    if affordable:
        assert quote(prompt, affordable, price) <= amount
    assert affordable_output(0, 1, make_price("1", "1")) == 0


@given(st.integers(0, 10**15))
def test_amounts_read_back_as_they_were_written(units: int) -> None:
    assert parse_amount(format_amount(units, 0)) == units
    assert format_amount(-units - 1, 2).startswith("-")


# what verification finds


def line(id: str, price: Price, output: int = 1000) -> Line:
    parts = [Leg("p/m", Usage(fresh=10, cache_read=5, output=output), "ok", 3.0)]
    return Line(id=id, account="acc_1", key="key_1", model="m", status=200, ending="done", legs=parts, price=price)


class Book:
    """A small ledger in memory, right until it is spoiled."""

    def __init__(self) -> None:
        self.price = make_price("1", "2")
        self.entries: list[Entry] = []
        hold = Hold("r1", Caller(account="acc_1", key="key_1"), 10)
        credit = Credit(id="cr_1", account="acc_1", time=1.0, amount=UNIT)
        self._add("cr_1", "credit", credit.amount, 0, encode_body(credit), 1.0)
        for number in range(1, 4):
            bill = bill_of(line(f"r{number}", self.price), hold, 2.0)
            self._add(bill.id, "request", -bill.charge, bill.charge, encode_body(bill), 2.0)
        row = HoldRow(id="r4", account="acc_1", key="key_1", model="m", amount=10, estimate=50, price=self.price)
        crashed = crashed_bill(row, 3.0)
        self._add("r4", "request", -crashed.charge, crashed.charge, encode_body(crashed), 3.0)
        spent = sum(one.charge for one in self.entries)
        last = self.entries[-1]
        self.figures = Figures(
            standings=[Standing(account="acc_1", balance=UNIT - spent, reserved=7)],
            spending=[Spending(subject="key:key_1", window="day", started=0.0, amount=spent, reserved=7)],
            holds=[OpenHold(id="r5", account="acc_1", key="key_1", amount=7)],
            prices=[self.price],
            checkpoints=[
                Checkpoint(writer="n", seq=5, hash=last.hash, time=4.0, mac=SEALS.stamp("n", 5, last.hash, 4.0))
            ],
            carried=[],
        )

    def _add(self, id: str, kind: Any, amount: int, cost: int, body: bytes, time: float) -> None:
        previous = self.entries[-1].hash if self.entries else SEALS.genesis("n")
        reported: dict[str, Any] = {}
        if kind == "request":
            bill = read_bill(body)
            tokens = bill.tokens
            counts = (tokens.input, tokens.cache_read, tokens.cache_write, tokens.output)
            reported = {"model": bill.model, "status": bill.status, "tokens": counts}
        self.entries.append(
            Entry(
                writer="n",
                seq=len(self.entries) + 1,
                id=id,
                kind=kind,
                account="acc_1",
                key="key_1" if kind == "request" else "",
                time=time,
                amount=amount,
                charge=cost,
                body=body,
                hash=SEALS.link(previous, body),
                **reported,
            )
        )

    def found(self) -> list[str]:
        return list(verify(self.entries, self.figures, SEALS, "USD"))

    def replace(self, index: int, **fields: Any) -> None:
        self.entries[index] = msgspec.structs.replace(self.entries[index], **fields)

    def reform(self, **fields: Any) -> None:
        self.figures = msgspec.structs.replace(self.figures, **fields)


def test_a_ledger_that_is_right_has_no_differences() -> None:
    assert Book().found() == []


def _spoil_body(book: Book) -> None:
    book.replace(1, body=book.entries[1].body.replace(b'"output":1000', b'"output":1'))


def _rechained(book: Book) -> None:
    """Whoever can write may make the chain anew, but not the checkpoint's mac."""
    _spoil_body(book)
    entries, book.entries = book.entries, []
    for one in entries:
        book._add(one.id, one.kind, one.amount, one.charge, one.body, one.time)  # pyright: ignore[reportPrivateUsage]


SPOILED: list[tuple[Callable[[Book], object], str]] = [
    (_spoil_body, "hash is not that of its content"),
    (_spoil_body, "its tokens and price make"),
    (_rechained, "checkpoint here has another hash"),
    (lambda book: book.entries.pop(2), "entries are missing"),
    (lambda book: book.entries.pop(), "there is a checkpoint at 5"),
    (lambda book: book.replace(2, charge=1), "columns are not those of its body"),
    (lambda book: book.replace(0, amount=2 * UNIT), "columns are not those of its body"),
    (lambda book: book.replace(0, tokens=(1, 0, 0, 0)), "columns are not those of its body"),
    (lambda book: book.replace(2, tokens=(1, 0, 0, 0)), "columns are not those of its body"),
    (lambda book: book.replace(2, model="other"), "columns are not those of its body"),
    (lambda book: book.replace(2, status=500), "columns are not those of its body"),
    (lambda book: book.replace(0, amount=2 * UNIT), "the balance is"),
    (lambda book: book.replace(3, body=b"{"), "cannot be read"),
    (lambda book: book.reform(standings=[Standing(account="acc_1", balance=5, reserved=7)]), "the balance is"),
    (lambda book: book.reform(holds=[]), "reserved is"),
    (lambda book: book.reform(standings=[]), "is not there, but its entries"),
    (lambda book: book.reform(prices=[]), "is not known"),
    (
        lambda book: book.reform(prices=[msgspec.structs.replace(book.price, input=5)]),
        "numbers are not those that its version names",
    ),
    (
        lambda book: book.reform(checkpoints=[msgspec.structs.replace(book.figures.checkpoints[0], mac="0")]),
        "mac is wrong",
    ),
    (
        lambda book: book.reform(spending=[msgspec.structs.replace(book.figures.spending[0], amount=1)]),
        "spending of key:key_1",
    ),
    (
        lambda book: book.reform(carried=[Carried(subject="account:acc_2", amount=1, charge=0, mac="0")]),
        "pruned entries has a wrong mac",
    ),
]


@pytest.mark.parametrize(("spoil", "words"), SPOILED, ids=lambda value: value if isinstance(value, str) else "")
def test_verification_finds_what_was_changed(spoil: Callable[[Book], object], words: str) -> None:
    book = Book()
    spoil(book)
    assert any(words in one for one in book.found()), book.found()


def test_a_crashed_line_costs_what_was_noted_at_most_what_was_held() -> None:
    row = HoldRow(id="r", account="a", key="k", model="m", amount=10, estimate=50)
    assert crashed_bill(row, 1.0).charge == 10
    assert crashed_bill(msgspec.structs.replace(row, estimate=3), 1.0).charge == 3
    assert crashed_bill(row, 1.0).reason == "crashed"


def test_a_bill_line_reads_back_and_shows_amounts_as_decimal_strings() -> None:
    hold = Hold("r1", Caller(account="acc_1", key="key_1"), 2 * UNIT)
    bill = bill_of(line("r1", make_price("1", "2")), hold, 2.0)
    assert read_bill(encode_body(bill)) == bill
    assert bill.tokens == Tokens(input=10, cache_read=5, output=1000)
    shown = public_bill(bill, 2)
    assert shown["charge"] == "0.002015"
    assert shown["tokens"]["cache_read"] == 5
    assert (shown["reserved"], shown["reason"], shown["attempts"]) == ("2.00", "done", 1)
    assert shown["price_version"] == make_price("1", "2").version
