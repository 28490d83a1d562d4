"""Usage and prices to money: whole numbers only, rounded up once for each line (U4, F8, F9)."""

import hashlib
from collections.abc import Iterable

import msgspec

from kenari.core.ports import Leg
from kenari.core.price import PER, Price, parse_amount
from kenari.core.usage import Usage


class Arithmetic(msgspec.Struct, frozen=True, gc=False):
    """How a charge came about: tokens times price over all billed legs, in 1e-15 currency units (1e-9 per million
    tokens), and fees in 1e-9. The charge is the products by a million, rounded up, and the fees."""

    products: int
    fees: int

    @property
    def charge(self) -> int:
        """1e-9 currency units."""
        return -(-self.products // PER) + self.fees


def make_price(
    input: str,
    output: str,
    cache_read: str | None = None,
    cache_write: str | None = None,
    cache_write_1h: str | None = None,
    currency: str = "USD",
) -> Price:
    """The price of decimal strings per million tokens. Cache reads and writes cost what input costs unless they have a
    price, writes for an hour what writes cost. Raises ValueError for what is no amount."""
    fresh = parse_amount(input)
    read = fresh if cache_read is None else parse_amount(cache_read)
    write = fresh if cache_write is None else parse_amount(cache_write)
    hour = write if cache_write_1h is None else parse_amount(cache_write_1h)
    return price_of((fresh, parse_amount(output), read, write, hour), currency)


def price_of(numbers: tuple[int, int, int, int, int], currency: str) -> Price:
    """The price of these numbers: input, output, cache read, cache write, cache write for an hour."""
    fresh, output, read, write, hour = numbers
    return Price(
        version=price_version(numbers, currency),
        input=fresh,
        output=output,
        cache_read=read,
        cache_write=write,
        cache_write_1h=hour,
    )


def price_version(numbers: tuple[int, int, int, int, int], currency: str) -> str:
    """The name of exactly these numbers in this currency."""
    text = "|".join([currency, *(str(number) for number in numbers)])
    return "price_" + hashlib.sha256(text.encode()).hexdigest()[:16]


def numbers_of(price: Price) -> tuple[int, int, int, int, int]:
    """A price's numbers in the order of `price_of`."""
    return (price.input, price.output, price.cache_read, price.cache_write, price.cache_write_1h)


def products(usage: Usage, price: Price) -> int:
    """Tokens times price of one leg, in 1e-15 currency units. What was not reported counts as none here; who wants it
    counted has counted it before (U3)."""
    return (
        (usage.fresh or 0) * price.input
        + (usage.cache_read or 0) * price.cache_read
        + (usage.cache_write_5m or 0) * price.cache_write
        + (usage.cache_write_1h or 0) * price.cache_write_1h
        + (usage.output or 0) * price.output
    )


def arithmetic(legs: Iterable[Leg], price: Price | None) -> Arithmetic:
    """What legs cost. One that failed before content (`billed` false) costs nothing (U5); without a price there are
    only fees (U7)."""
    sum, fees = 0, 0
    for leg in legs:
        if leg.billed:
            sum += products(leg.usage, price) if price is not None else 0
            fees += leg.fee
    return Arithmetic(sum, fees)


def charge(legs: Iterable[Leg], price: Price | None) -> int:
    """What legs cost, in 1e-9 currency units, rounded up once (F9)."""
    return arithmetic(legs, price).charge


def quote(prompt: int, output: int, price: Price) -> int:
    """What `prompt` tokens of input and `output` tokens of output cost at most: what is set aside (F8)."""
    return -(-(prompt * price.input + output * price.output) // PER)


def affordable_output(amount: int, prompt: int, price: Price) -> int | None:
    """How many tokens of output `amount` pays for after `prompt` tokens of input, at least 0; None: as many as you
    like."""
    left = amount * PER - prompt * price.input
    if price.output == 0:
        return None if left >= 0 else 0
    return max(0, left // price.output)
