"""The bodies of entries: a request's bill line and a credit, as canonical JSON (the fields in one order, no white space).
No text of anyone is in them."""

from typing import Any, Literal, Protocol

import msgspec

from kenari.core.ports import Ending, Hold, Leg, Line
from kenari.core.price import Price, format_amount
from kenari.core.usage import Usage
from kenari.ledger.price import Arithmetic, arithmetic
from kenari.wire import jsonx


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens by class, disjoint on the input side; `input` is fresh input, `reasoning` is within `output`."""

    input: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def cache_write(self) -> int:
        """All tokens written to a cache."""
        return self.cache_write_5m + self.cache_write_1h


class BillLeg(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call of a provider: `fee` in 1e-9 currency units; `billed` false when it failed before content."""

    target: str
    outcome: str
    tokens: Tokens
    ms: float = 0.0
    estimated: bool = False
    billed: bool = True
    fee: int = 0


class Timings(msgspec.Struct, frozen=True, gc=False):
    """Milliseconds."""

    first_content_ms: float | None
    duration_ms: float


class Bill(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request's bill line. Money in 1e-9 currency units.

    `counted` says how what is estimated was counted (U3). `tokens` sums the billed legs. `held` is what was set aside. `noted` is the last journalled estimate, which a crashed
    request is charged, at most what was held.
    """

    kind: Literal["request"] = "request"
    id: str
    account: str
    key: str
    model: str
    target: str = ""
    client_format: str = ""
    provider_format: str = ""
    stream: bool = False
    status: int = 0
    code: str = ""
    reason: Ending
    time: float
    legs: list[BillLeg] = []
    tokens: Tokens = Tokens()
    estimated: bool = False
    price: Price | None = None
    arithmetic: Arithmetic = Arithmetic(0, 0)
    charge: int = 0
    held: int = 0
    noted: int = 0
    unlimited: bool = False
    counted: str = ""
    timings: Timings | None = None


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a balance by the operator, in 1e-9 currency units; below 0 it takes away."""

    kind: Literal["credit"] = "credit"
    id: str
    account: str
    time: float
    amount: int
    note: str = ""


class OpenHold(Protocol):
    """What is known of a request that is not finished."""

    @property
    def id(self) -> str: ...
    @property
    def account(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def price(self) -> Price | None: ...
    @property
    def amount(self) -> int: ...
    @property
    def estimate(self) -> int: ...
    @property
    def unlimited(self) -> bool: ...


_BILL = jsonx.decoder(Bill)
_CREDIT = jsonx.decoder(Credit)


def bill_of(line: Line, hold: Hold, now: float) -> Bill:
    """The bill line of a request that was admitted; its charge is worked out here, from its legs and its price."""
    sums = arithmetic(line.legs, line.price)
    legs = [_leg(leg) for leg in line.legs]
    billed = legs if len(legs) == 1 and legs[0].billed else [leg for leg in legs if leg.billed]
    first = line.first_content_ms
    return Bill(
        id=line.id,
        account=line.account,
        key=line.key,
        model=line.model,
        target=line.target,
        client_format=line.client_format,
        provider_format=line.provider_format,
        stream=line.stream,
        status=line.status,
        code=line.code,
        reason=line.ending,
        time=now,
        legs=legs,
        tokens=billed[0].tokens if len(billed) == 1 else _sum([leg.tokens for leg in billed]),
        estimated=any([leg.estimated for leg in billed]),
        price=line.price,
        arithmetic=sums,
        charge=sums.charge,
        held=hold.amount,
        unlimited=hold.caller.unlimited,
        counted=line.counted,
        timings=Timings(None if first is None else round(first, 2), round(line.duration_ms, 2)),
    )


def crashed_bill(hold: OpenHold, now: float) -> Bill:
    """The line of a request whose process died: the last journalled estimate, at most what was held."""
    return Bill(
        id=hold.id,
        account=hold.account,
        key=hold.key,
        model=hold.model,
        reason="crashed",
        time=now,
        estimated=True,
        price=hold.price,
        charge=min(hold.estimate, hold.amount),
        held=hold.amount,
        noted=hold.estimate,
        unlimited=hold.unlimited,
    )


def encode_body(body: Bill | Credit) -> bytes:
    """The canonical JSON."""
    return jsonx.encode(body)


def read_bill(body: bytes) -> Bill:
    """A bill line. Raises jsonx.Malformed."""
    return jsonx.read(_BILL, body)


def read_credit(body: bytes) -> Credit:
    """A credit. Raises jsonx.Malformed."""
    return jsonx.read(_CREDIT, body)


def public_bill(bill: Bill, digits: int) -> dict[str, Any]:
    """A bill line as the management API and its caller see it: amounts are decimal strings (section 4)."""
    price = bill.price
    return {
        "id": bill.id,
        "account": bill.account,
        "key": bill.key,
        "model": bill.model,
        "target": bill.target,
        "client_format": bill.client_format,
        "provider_format": bill.provider_format,
        "stream": bill.stream,
        "status": bill.status,
        "code": bill.code,
        "reason": bill.reason,
        "time": bill.time,
        "attempts": len(bill.legs),
        "tokens": _public_tokens(bill.tokens),
        "estimated": bill.estimated,
        "counted": bill.counted,
        "price_version": price.version if price is not None else None,
        "price": None if price is None else _public_price(price, digits),
        "arithmetic": {
            "products_1e15": str(bill.arithmetic.products),
            "fees": format_amount(bill.arithmetic.fees, digits),
        },
        "charge": format_amount(bill.charge, digits),
        "reserved": format_amount(bill.held, digits),
        "legs": [
            {
                "target": leg.target,
                "outcome": leg.outcome,
                "tokens": _public_tokens(leg.tokens),
                "estimated": leg.estimated,
                "billed": leg.billed,
                "fee": format_amount(leg.fee, digits),
                "ms": leg.ms,
            }
            for leg in bill.legs
        ],
        "timings": bill.timings,
    }


def _public_tokens(tokens: Tokens) -> dict[str, int]:
    return {
        "input": tokens.input,
        "cache_read": tokens.cache_read,
        "cache_write": tokens.cache_write,
        "cache_write_1h": tokens.cache_write_1h,
        "output": tokens.output,
        "reasoning": tokens.reasoning,
    }


def _public_price(price: Price, digits: int) -> dict[str, str]:
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
    return {name: format_amount(getattr(price, name), digits) for name in names}


def _leg(leg: Leg) -> BillLeg:
    tokens = _tokens(leg.usage)
    return BillLeg(leg.target, leg.outcome, tokens, round(leg.ms, 2), leg.usage.estimated, leg.billed, leg.fee)


def _tokens(usage: Usage) -> Tokens:
    return Tokens(
        usage.fresh or 0,
        usage.cache_read or 0,
        usage.cache_write_5m or 0,
        usage.cache_write_1h or 0,
        usage.output or 0,
        usage.reasoning or 0,
    )


def _sum(every: list[Tokens]) -> Tokens:
    return Tokens(*(sum(getattr(one, name) for one in every) for name in Tokens.__struct_fields__))
