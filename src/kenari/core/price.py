"""Money: integers of 1e-9 currency units, and the prices of a model (contract U4, S161)."""

import msgspec

UNIT = 10**9
"""This many units of money are one unit of the currency."""
PER = 10**6
"""Prices are for this many tokens."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What a model costs: 1e-9 currency units per million tokens of each class, and for one call.

    `version` names exactly these numbers: two prices that differ never share it. A class that has no price of its own
    was given one when the price was made (cache reads and writes cost what input costs).
    """

    version: str
    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int

    @property
    def free(self) -> bool:
        """Nothing of this price costs anything."""
        return not (self.input or self.output or self.cache_read or self.cache_write or self.cache_write_1h)


def parse_amount(text: str) -> int:
    """A decimal string of the currency as units of 1e-9. Raises ValueError for more than nine decimals, a sign, or what
    is no number."""
    whole, dot, decimals = text.partition(".")
    digits = whole + decimals
    if not (whole and digits.isascii() and digits.isdigit()) or (dot and not decimals) or len(decimals) > 9:
        raise ValueError("must be an amount like 12.50 with at most nine decimals")
    return int(whole) * UNIT + int(decimals.ljust(9, "0") or "0")


def format_amount(units: int, digits: int = 2) -> str:
    """Units of 1e-9 as a decimal string: at least `digits` decimals, and as many more as the number has."""
    sign, units = ("-", -units) if units < 0 else ("", units)
    whole, rest = divmod(units, UNIT)
    decimals = f"{rest:09d}".rstrip("0").ljust(digits, "0")
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"
