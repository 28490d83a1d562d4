"""Who calls, and what they may do: plain records that the keys' room makes and the gateway checks (contract 3.5)."""

import ipaddress
from typing import Literal, TypeAlias

import msgspec

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Window: TypeAlias = Literal["day", "week", "month", "total"]


class Budget(msgspec.Struct, frozen=True):
    """How much may be spent in a window: `amount` in 1e-9 currency units. Windows are calendar ones in the configured
    time zone; weeks begin on Monday."""

    amount: int
    window: Window = "total"


class Rates(msgspec.Struct, frozen=True):
    """Limits of use; None is no limit. Requests and tokens are per minute, `concurrent` counts requests in flight."""

    rpm: int | None = None
    tpm: int | None = None
    concurrent: int | None = None


class Scope(msgspec.Struct, frozen=True):
    """What a key may be used for; an empty tuple allows everything.

    `models` are catalogue ids, route names or patterns with a trailing `*`; `endpoints` are paths below /v1 without
    it (`chat/completions`); `networks` are the source addresses allowed.
    """

    models: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: the account, the key's id (never its secret), and what holds for both.

    `unlimited` is the bootstrap key: no limits, no balance, no limit headers (A1). `plan` is the account's plan, "" for
    none (`subscribers_only` wants one). `expires_at` is in Unix seconds.
    """

    account: str
    key: str
    unlimited: bool = False
    plan: str = ""
    scope: Scope = Scope()
    rates: Rates = Rates()
    budget: Budget | None = None
    account_rates: Rates = Rates()
    account_budget: Budget | None = None
    expires_at: float | None = None
