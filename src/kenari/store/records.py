"""What the store keeps, as records. Money in 1e-9 currency units, times in Unix seconds (UTC)."""

from typing import Literal, TypeAlias

import msgspec

from kenari.core.caller import Budget, Rates, Scope
from kenari.core.price import Price
from kenari.core.usage import Usage

Unset: TypeAlias = msgspec.UnsetType
UNSET = msgspec.UNSET
Grouping: TypeAlias = Literal["day", "model", "key", "account"]


class StoreDown(Exception):
    """The store cannot say now: no connection, a disk error, too slow. Trying again later may help."""


class Unknown(LookupError):
    """There is no account or key of this id. The message says which."""


class Conflict(Exception):
    """What was asked contradicts what is there: a closed account, a revoked key, another currency."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """Who pays. `balance` may be below zero when an answer cost more than its hold (F8); `reserved` is what open holds
    have set aside of it."""

    id: str
    name: str
    plan: str = ""
    created_at: float
    closed_at: float | None = None
    balance: int = 0
    reserved: int = 0
    budget: Budget | None = None
    rates: Rates = Rates()


class NewAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What an account is made with; `credit` is its first one, none when 0."""

    name: str
    plan: str = ""
    budget: Budget | None = None
    rates: Rates = Rates()
    credit: int = 0


class Repeated(msgspec.Struct, frozen=True):
    """The first request under an Idempotency-Key. `body` is the digest of its body, `node` the one that serves it while it is
    in flight ("" afterwards), `sealed` its answer where that was kept."""

    request: str
    body: bytes
    node: str
    sealed: bytes | None


class AccountChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changes of an account; what is left out stays."""

    name: str | Unset = UNSET
    plan: str | Unset = UNSET
    budget: Budget | Unset | None = UNSET
    rates: Rates | Unset = UNSET
    closed: bool | Unset = UNSET


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a key is made with. `digest` is the HMAC of its secret."""

    account: str
    name: str
    digest: bytes
    scope: Scope = Scope()
    rates: Rates = Rates()
    budget: Budget | None = None
    expires_at: float | None = None


class KeyChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changes of a key; what is left out stays."""

    name: str | Unset = UNSET
    scope: Scope | Unset = UNSET
    rates: Rates | Unset = UNSET
    budget: Budget | Unset | None = UNSET
    expires_at: float | Unset | None = UNSET


class SecretRow(msgspec.Struct, frozen=True):
    """One secret of a key: only its HMAC is kept. `expires_at` is set when a rotation leaves it a grace period."""

    digest: bytes
    created_at: float
    expires_at: float | None = None


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key of an account, without any secret."""

    id: str
    account: str
    name: str
    scope: Scope = Scope()
    rates: Rates = Rates()
    budget: Budget | None = None
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None


class KnownKey(msgspec.Struct, frozen=True):
    """What verifying callers needs of one key: the key, its account and its live secrets."""

    key: KeyRow
    account: Account
    secrets: tuple[SecretRow, ...]


class ProviderKeyRow(msgspec.Struct, frozen=True):
    """An account's own key for a provider, sealed. `hint` is its last letters."""

    account: str
    provider: str
    sealed: bytes
    hint: str
    created_at: float

    def __repr__(self) -> str:
        return f"ProviderKeyRow({self.account!r}, {self.provider!r})"


class BillLine(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the ledger has it. `body` is the canonical JSON that the chain is hashed over."""

    id: str
    account: str
    key: str
    model: str
    time: float
    status: int
    charge: int
    body: bytes


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """One change that somebody made. `detail` is JSON without secrets."""

    number: int
    time: float
    actor: str
    action: str
    subject: str
    detail: bytes


class UsageSum(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the requests of one group. What it was not grouped by is "". `day` is a date of the billing time
    zone, as YYYY-MM-DD."""

    day: str = ""
    account: str = ""
    key: str = ""
    model: str = ""
    requests: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    charge: int = 0


class Spent(msgspec.Struct, frozen=True):
    """How a budget stands: spent in the current window, set aside by open holds, and when the window began."""

    amount: int
    reserved: int
    started: float


class HoldRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An open hold: what a request has set aside, and what its line needs when its process dies.

    `estimate` is the last noted charge. `owner` is who may settle it. `unlimited`: nothing is taken from a balance.
    """

    id: str
    account: str
    key: str
    model: str
    amount: int
    estimate: int = 0
    owner: str = ""
    created_at: float = 0.0
    price: Price | None = None
    unlimited: bool = False


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A finished request on its way into the ledger. `charge` is what it costs; an unlimited caller's is not taken
    from a balance."""

    id: str
    account: str
    key: str
    model: str
    time: float
    status: int
    usage: Usage
    charge: int
    body: bytes
    unlimited: bool = False
    price: Price | None = None
