"""A gateway with prices, prepaid keys and a fake of the books that has a balance; and a way to read what was told."""

import asyncio
from typing import Any

from gateway_kit import KEY, Exchange, FakeBooks, Rig

from kenari.catalog.models import Model
from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Line, Reservation
from kenari.core.price import Price
from kenari.gateway.services import Pricing
from kenari.keys.bootstrap import BootstrapKeys
from kenari.ledger.price import charge

PRICE = Price(
    version="v1", input=1_000_000, output=2_000_000, cache_read=100_000, cache_write=1_250_000, cache_write_1h=2_000_000
)
"""One unit for a token of input, two for one of output: amounts are easy to read."""
FREE = Price(version="v0", input=0, output=0, cache_read=0, cache_write=0, cache_write_1h=0)
PAYER = Caller(account="acc", key="key_1")


class PaidBooks(FakeBooks):
    """Books with one balance. `wait` is how long a reservation takes."""

    def __init__(self, balance: int, wait: float = 0.0) -> None:
        super().__init__()
        self.at_once = False
        self.balance, self.reserved, self.wait = balance, 0, wait
        self.keep = False
        """Every hold is charged whole."""
        self.noted: list[int] = []
        self.reservations: list[Reservation] = []
        self.extended: list[tuple[int, int]] = []
        self.more: dict[str, int] = {}

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

    async def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        """Grant more, as far as there is some."""
        self.extended.append((amount, least))
        await asyncio.sleep(self.wait)
        granted = min(amount, self.balance - self.reserved)
        if granted < max(least, 1):
            raise KenariError("insufficient_balance", "the balance does not cover this request. add credit")
        self.reserved += granted
        self.more[hold.id] = self.more.get(hold.id, 0) + granted
        return Hold(hold.id, hold.caller, hold.amount + granted)

    def note(self, hold: Hold, charge: int) -> None:
        """Keep what was noted."""
        self.noted.append(charge)

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Pay."""
        super().settle(hold, line)
        if hold is not None:
            self.reserved -= hold.amount + self.more.pop(hold.id, 0)
            if line.ending != "refused":
                self.balance -= hold.amount if self.keep else line.charge


def pricing_of(price: Price | None, enforce: bool = True) -> Pricing:
    """The same price for every model."""

    def of(model: Model) -> Price | None:
        return price

    return Pricing(of, charge, enforce)


def paid(
    *scripts: Any, balance: int = 10**9, caller: Caller = PAYER, price: Price | None = PRICE, **more: Any
) -> tuple[Rig, PaidBooks]:
    """A rig whose key belongs to a caller that pays."""
    rig = Rig(*scripts, **more)
    books = PaidBooks(balance)
    rig.books = books
    rig.keys = BootstrapKeys({KEY: caller})
    rig.more = {"pricing": pricing_of(price)}
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
        holders: list[Any] = [body, body.get("message") or {}, body.get("response") or {}]
        for holder in holders:
            found: Any = holder.get("usage")
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
    kinds: list[Any] = [one.get("type") for one in got.data if one != "[DONE]"]
    return "error" in kinds or "response.failed" in kinds
