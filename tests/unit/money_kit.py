"""A gateway with prices, prepaid keys and a fake of the books that has a balance; and a way to read what was told."""

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway_kit import KEY, Exchange, FakeBooks, Rig

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Leg, Line, Reservation
from kenari.core.price import PER, Price
from kenari.gateway.services import Pricing
from kenari.keys.bootstrap import BootstrapKeys

PRICE = Price(
    version="v1", input=1_000_000, output=2_000_000, cache_read=100_000, cache_write=1_250_000, cache_write_1h=2_000_000
)
"""One unit for a token of input, two for one of output: amounts are easy to read."""
FREE = Price(version="v0", input=0, output=0, cache_read=0, cache_write=0, cache_write_1h=0)
PAYER = Caller(account="acc", key="key_1")


def charge_of(legs: Sequence[Leg], price: Price) -> int:
    """What billed legs cost, rounded up once (F9)."""
    total = 0
    for leg in legs:
        usage = leg.usage
        if leg.billed:
            total += (usage.fresh or 0) * price.input + (usage.output or 0) * price.output
            total += (usage.cache_read or 0) * price.cache_read + (usage.cache_write_5m or 0) * price.cache_write
            total += (usage.cache_write_1h or 0) * price.cache_write_1h
    return -(-total // PER)


class PaidBooks(FakeBooks):
    """Books with one balance. `wait` is how long a reservation takes."""

    def __init__(self, balance: int, wait: float = 0.0) -> None:
        super().__init__()
        self.balance, self.reserved, self.wait = balance, 0, wait
        self.noted: list[int] = []
        self.reservations: list[Reservation] = []

    async def reserve(self, reservation: Reservation) -> Hold:
        """Grant what there is, down to the least; 402 below it."""
        await asyncio.sleep(self.wait)
        self.reservations.append(reservation)
        granted = min(reservation.amount, self.balance - self.reserved)
        if granted < reservation.least:
            raise KenariError("insufficient_balance", "the balance does not cover this request. add credit")
        self.reserved += granted
        self.open += 1
        return Hold(reservation.id, reservation.caller, granted)

    def note(self, hold: Hold, charge: int) -> None:
        """Keep what was noted."""
        self.noted.append(charge)

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Pay."""
        super().settle(hold, line)
        if hold is not None:
            self.reserved -= hold.amount
            if line.ending != "refused":
                self.balance -= line.charge


def paid(
    *scripts: Any, balance: int = 10**9, caller: Caller = PAYER, price: Price | None = PRICE, **more: Any
) -> tuple[Rig, PaidBooks]:
    """A rig whose key belongs to a caller that pays."""
    rig = Rig(*scripts, **more)
    books = PaidBooks(balance)
    rig.books = books
    rig.keys = BootstrapKeys({KEY: caller})
    rig.more = {"pricing": Pricing(lambda model: price, charge_of)}
    return rig, books


def told(client: str, got: Exchange) -> tuple[int, int] | None:
    """(input, output) tokens as a client was told at last, cached ones included; None where it was told nothing."""
    if got.gone:
        return None
    stream = "event-stream" in got.header.get("content-type", "")
    usage: dict[str, Any] | None = None
    for body in got.data if stream else [got.json]:
        if body == "[DONE]":
            continue
        for holder in (body, body.get("message") or {}, body.get("response") or {}):
            found = holder.get("usage")
            if found:
                usage = {**(usage or {}), **found}
    if usage is None or body_failed(client, got):
        return None
    if client == "chat":
        return usage["prompt_tokens"], usage["completion_tokens"]
    cached = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    return usage["input_tokens"] + (cached if client == "messages" else 0), usage["output_tokens"]


def body_failed(client: str, got: Exchange) -> bool:
    """The stream ended with a failure: what was said of usage before was a beginning."""
    if "event-stream" not in got.header.get("content-type", ""):
        return got.status != 200
    kinds = [one.get("type") for one in got.data if isinstance(one, dict)]
    return "error" in kinds or "response.failed" in kinds
