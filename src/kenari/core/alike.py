"""Lines of requests that went the same way: what they have in common is said once."""

from collections.abc import Callable, Sequence
from copy import copy

import msgspec

from kenari.core.ports import Ending, Leg, Line
from kenari.core.price import Price
from kenari.core.usage import Usage


class Alike(msgspec.Struct, frozen=True, eq=False):
    """What the lines of many requests have in common: all of `line`, but for what each `Ended` has of its own. `charge` says what
    legs cost at a price."""

    line: Line
    charge: Callable[[Sequence[Leg], Price], int]


class Ended(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A request of this kind that was answered whole, by one call, after so many seconds. Called, it is its line."""

    alike: Alike
    id: str
    usage: Usage
    ending: Ending
    seconds: float

    @property
    def leg(self) -> Leg:
        """The only one."""
        return Leg(self.alike.line.target, self.usage, "ok", self.seconds * 1000)

    def charge(self, leg: Leg) -> int:
        """What it costs, in 1e-9 currency units."""
        price = self.alike.line.price
        return 0 if price is None else self.alike.charge((leg,), price)

    def __call__(self) -> Line:
        line, leg = copy(self.alike.line), self.leg
        line.id, line.usage, line.ending, line.legs = self.id, self.usage, self.ending, [leg]
        line.first_content_ms = line.duration_ms = leg.ms
        line.charge = self.charge(leg)
        return line
