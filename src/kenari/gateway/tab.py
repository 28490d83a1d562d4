"""The running bill of one request that is paid: what it would cost if it ended now, journalled about once a second."""

from collections.abc import Callable, Sequence
from typing import Protocol

from kenari.core.errors import KenariError
from kenari.core.ports import Books, Hold, Leg, Line
from kenari.core.price import Price
from kenari.core.usage import Usage
from kenari.gateway.quote import Quote
from kenari.gateway.tally import Count, Tally

NOTE_SECONDS = 1.0
Charge = Callable[[Sequence[Leg], Price], int]


class Running(Protocol):
    """A provider's call that is under way."""

    @property
    def usage(self) -> Usage:
        """What it has used so far."""
        ...

    @property
    def began(self) -> bool:
        """The provider has begun to answer."""
        ...


class Tab:
    """What a request has cost so far. A crash is billed the last that was noted (U5), so it is noted as it grows. The legs
    that have ended are those of `line`."""

    def __init__(self, books: Books, hold: Hold, quote: Quote, charge: Charge, line: Line) -> None:
        self.hold, self.quote = hold, quote
        self._price = quote.price
        self._books, self._charge, self._line = books, charge, line
        self._running: Running | None = None
        self._noted = 0
        self._last = 0.0
        self._share = quote.first(hold.amount)

    def restart(self) -> None:
        """Another candidate makes the answer's first call, with what is held by now."""
        self._share = self.quote.first(self.hold.amount - self._spent(self._line.legs))

    async def cover(self, prompt: int, fees: int = 0) -> int:
        """Set aside what runs of tools and another call of a prompt with so many tokens may cost beyond what is left of the
        hold; how many tokens of output the call may have. 0: not even a short answer is covered, and nothing should be
        run or called."""
        left = self.hold.amount - self._spent(self._line.legs)
        wanted = self.quote.another(self._price, prompt, fees)
        if wanted.amount > left:
            try:
                self.hold = await self._books.extend(self.hold, wanted.amount - left, max(0, wanted.least - left))
            except KenariError:  # no money, or no store that could say so: what is held already may be enough
                if wanted.least > left:
                    return 0
            left = self.hold.amount - self._spent(self._line.legs)
        self._share = wanted.share(left)
        return self._share.cap

    async def cover_fees(self, fees: int) -> bool:
        """Set aside what runs of tools cost that no other call follows; whether they are covered."""
        left = self.hold.amount - self._spent(self._line.legs)
        if fees > left:
            try:
                self.hold = await self._books.extend(self.hold, fees - left, fees - left)
            except KenariError:
                return False
        return True

    def tally(self, count: Count) -> Tally:
        """A tally for the next call, bounded by what is covered of it."""
        return Tally(count, self._share.most)

    def begin(self, running: Running, price: Price | None) -> None:
        """A call is under way, at the price of the model that serves: a route's quote is that of its dearest member."""
        self._running = running
        self._price = price or self.quote.price

    def end(self) -> None:
        """The call has ended, and its leg stands in the line. What it cost is noted before another one begins."""
        self._running = None
        self.note()

    def tick(self, now: float) -> None:
        """Note what it costs by now, once a second."""
        if now - self._last >= NOTE_SECONDS:
            self._last = now
            self.note()

    def note(self) -> None:
        """Note what it costs by now: legs have been added to the line, or turned out not to be the caller's bill."""
        legs = self._line.legs
        if self._running is not None and self._running.began:
            legs = [*legs, Leg("", self._running.usage, "", 0.0)]
        charge = self._spent(legs)
        if charge != self._noted:
            self._noted = charge
            self._books.note(self.hold, charge)

    def _spent(self, legs: list[Leg]) -> int:
        return self._charge(legs, self._price) if legs else 0
