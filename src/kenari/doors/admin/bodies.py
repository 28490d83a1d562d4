"""What goes into the management API and what comes out of it: one record for each body and each query."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kenari.core.caller import Window
from kenari.doors.admin.values import (
    Amount,
    Count,
    Duration,
    Endpoint,
    Groups,
    Moment,
    NetworkText,
    SignedAmount,
    Text,
    When,
    Word,
)

Names = Annotated[list[Text], Meta(max_length=1000)]
Endpoints = Annotated[list[Endpoint], Meta(max_length=100)]
Networks = Annotated[list[NetworkText], Meta(max_length=1000)]
Limit = Annotated[int, Meta(ge=1, le=1000)]


class Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What comes in: a field that is not known is a typing error."""


class BudgetBody(Strict, omit_defaults=False):
    """How much may be spent in a window of the calendar."""

    amount: Amount
    window: Window = "total"


class LimitsBody(Strict, omit_defaults=False):
    """Limits of use: requests and tokens a minute, requests at once. null is no limit."""

    rpm: Count | None = None
    tpm: Count | None = None
    concurrent: Count | None = None


class AccountNew(Strict):
    """A new account."""

    name: Text
    plan: Word = ""
    credit: Amount | None = None
    budget: BudgetBody | None = None
    limits: LimitsBody | None = None


class AccountPatch(Strict):
    """What is to change; null takes a budget or the limits away."""

    name: Text | UnsetType = UNSET
    plan: Word | UnsetType = UNSET
    budget: BudgetBody | UnsetType | None = UNSET
    limits: LimitsBody | UnsetType | None = UNSET
    closed: bool | UnsetType = UNSET


class CreditNew(Strict):
    """Credit for an account."""

    amount: SignedAmount
    note: Word = ""


class KeyNew(Strict):
    """A new key. An empty list, or none, allows everything."""

    account: Word
    name: Text
    models: Names | None = None
    endpoints: Endpoints | None = None
    networks: Networks | None = None
    expires_at: Moment | None = None
    budget: BudgetBody | None = None
    limits: LimitsBody | None = None


class KeyPatch(Strict):
    """What is to change; null takes a restriction away."""

    name: Text | UnsetType = UNSET
    models: Names | UnsetType | None = UNSET
    endpoints: Endpoints | UnsetType | None = UNSET
    networks: Networks | UnsetType | None = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    budget: BudgetBody | UnsetType | None = UNSET
    limits: LimitsBody | UnsetType | None = UNSET


class Rotation(Strict):
    """For how long the old secret of a key still opens."""

    grace: Duration = "24h"


class Page(Strict):
    """A page of a list in the order of ids."""

    limit: Limit = 100
    after: Word = ""


class KeyPage(Page):
    """A page of keys."""

    account: Word = ""


class RequestPage(Strict):
    """A page of bill lines, the newest first, from the one before the request `before`."""

    account: Word = ""
    key: Word = ""
    limit: Limit = 100
    before: Word = ""


class UsageQuery(Strict):
    """Which requests are summed up, and by what: day, model, key, account, several joined by commas."""

    by: Groups = "day"
    since: When = msgspec.field(default="", name="from")
    until: When = msgspec.field(default="", name="to")
    account: Word = ""
    key: Word = ""


class AuditPage(Strict):
    """A page of the audit log, the newest first, from the one before the number `before`."""

    limit: Limit = 100
    before: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    subject: Word = ""


class AccountBody(msgspec.Struct, kw_only=True):
    """An account. Amounts are decimal strings in `currency`."""

    id: str
    name: str
    plan: str
    currency: str
    balance: str
    reserved: str
    budget: BudgetBody | None
    limits: LimitsBody
    created_at: str
    closed_at: str | None


class SpentBody(msgspec.Struct, kw_only=True):
    """How a budget stands: spent and set aside in the window that began at `since` (null: there is only one)."""

    amount: str
    reserved: str
    since: str | None


class AccountDetail(AccountBody):
    """An account with what was spent of its budget; null where it has none."""

    spent: SpentBody | None


class SecretBody(msgspec.Struct, kw_only=True):
    """A live secret of a key, without what it is."""

    created_at: str
    expires_at: str | None


class KeyBody(msgspec.Struct, kw_only=True):
    """A key, without its secret."""

    id: str
    account: str
    name: str
    models: list[str]
    endpoints: list[str]
    networks: list[str]
    budget: BudgetBody | None
    limits: LimitsBody
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class KeyDetail(KeyBody):
    """A key with what was spent of its budget, and its live secrets, the newest first."""

    spent: SpentBody | None
    secrets: list[SecretBody]


class KeyMade(KeyBody):
    """A key with its new secret, which is shown this once."""

    secret: str


class TokenCounts(msgspec.Struct, kw_only=True):
    """Tokens by class; `input` without cached ones."""

    input: int
    cache_read: int
    cache_write: int
    output: int


class LineTokens(TokenCounts):
    """Tokens of a bill line. `cache_write_1h` is within `cache_write`, `reasoning` within `output`."""

    cache_write_1h: int
    reasoning: int


class LegBody(msgspec.Struct, kw_only=True):
    """One call of a provider: `outcome` is `ok` or a code, `fee` what it costs beside its tokens."""

    target: str
    outcome: str
    tokens: LineTokens
    estimated: bool
    billed: bool
    fee: str
    ms: float


class PriceBody(msgspec.Struct, kw_only=True):
    """Prices per million tokens."""

    input: str
    output: str
    cache_read: str
    cache_write: str
    cache_write_1h: str


class ArithmeticBody(msgspec.Struct, kw_only=True):
    """How the charge came about: tokens times prices over the billed legs in 1e-15 units of the currency, and fees."""

    products_1e15: str
    fees: str


class TimingsBody(msgspec.Struct, kw_only=True):
    """Milliseconds from the request."""

    first_content_ms: float | None
    duration_ms: float


class RequestBody(msgspec.Struct, kw_only=True):
    """The bill line of one request. `reserved` is what was set aside before the provider was called."""

    id: str
    time: str
    account: str
    key: str
    model: str
    target: str
    client_format: str
    provider_format: str
    stream: bool
    status: int
    code: str
    reason: str
    attempts: int
    tokens: LineTokens
    estimated: bool
    price_version: str | None
    price: PriceBody | None
    arithmetic: ArithmeticBody
    charge: str
    currency: str
    reserved: str
    legs: list[LegBody]
    timings: TimingsBody | None


class UsageBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sums over one group of requests; what it was not grouped by is left out."""

    day: str = ""
    account: str = ""
    key: str = ""
    model: str = ""
    requests: int = msgspec.field()
    tokens: TokenCounts = msgspec.field()
    charge: str = msgspec.field()


class AuditBody(msgspec.Struct, kw_only=True):
    """One change that somebody made."""

    number: int
    time: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class StatusBody(msgspec.Struct, kw_only=True):
    """How this node does."""

    version: str
    started_at: str
    store: Literal["up", "down", "none"]
    currency: str
    models: int
    gauges: dict[str, float]


class AccountList(msgspec.Struct):
    """Accounts; `next` is where the next page begins, null at the end."""

    data: list[AccountBody]
    next: str | None = None


class KeyList(msgspec.Struct):
    """Keys."""

    data: list[KeyBody]
    next: str | None = None


class RequestList(msgspec.Struct):
    """Bill lines."""

    data: list[RequestBody]
    next: str | None = None


class UsageList(msgspec.Struct):
    """Sums."""

    data: list[UsageBody]
    currency: str


class AuditList(msgspec.Struct):
    """Lines of the audit log."""

    data: list[AuditBody]
    next: int | None = None


class ErrorDetail(msgspec.Struct):
    """What went wrong, and where."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct):
    """An error."""

    error: ErrorDetail
