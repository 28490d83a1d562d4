"""Rows to records and back. Scopes, rates, budgets and prices are kept as JSON."""

import ipaddress
from typing import Any

import msgspec

from kenari.core.caller import Budget, Rates, Scope
from kenari.core.price import Price
from kenari.store.database import Row, Value
from kenari.store.records import Account, Audited, BillLine, HoldRow, KeyRow, SecretRow
from kenari.wire import jsonx

ACCOUNT_COLUMNS = "id, name, plan, created_at, closed_at, balance, reserved, budget, rates"
KEY_COLUMNS = "id, account, name, scope, rates, budget, created_at, expires_at, revoked_at"
HOLD_COLUMNS = "id, account, key_id, model, amount, estimate, owner, created_at, price, unlimited"
BILL_COLUMNS = "id, account, key_id, model, time, status, charge, body"
AUDIT_COLUMNS = "number, time, actor, action, subject, detail"

_BUDGET = jsonx.decoder(Budget)
_RATES = jsonx.decoder(Rates)
_PRICE = jsonx.decoder(Price)


class _Scope(msgspec.Struct, omit_defaults=True):
    """A scope as it is kept: networks are texts."""

    models: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()


_SCOPE = jsonx.decoder(_Scope)


def price_text(price: Price | None) -> str | None:
    """A price as it is kept."""
    return None if price is None else jsonx.encode(price).decode()


def budget_text(budget: Budget | None) -> str | None:
    """A budget as it is kept."""
    return None if budget is None else jsonx.encode(budget).decode()


def rates_text(rates: Rates) -> str:
    """Rates as they are kept."""
    return jsonx.encode(rates).decode()


def scope_text(scope: Scope) -> str:
    """A scope as it is kept."""
    kept = _Scope(scope.models, scope.endpoints, tuple(str(network) for network in scope.networks))
    return jsonx.encode(kept).decode()


def account_of(row: Row) -> Account:
    """A row of ACCOUNT_COLUMNS."""
    id, name, plan, created_at, closed_at, balance, reserved, budget, rates = row
    return Account(
        id=id,
        name=name,
        plan=plan,
        created_at=created_at,
        closed_at=closed_at,
        balance=balance,
        reserved=reserved,
        budget=_budget(budget),
        rates=_read(_RATES, rates),
    )


def key_of(row: Row) -> KeyRow:
    """A row of KEY_COLUMNS."""
    id, account, name, scope, rates, budget, created_at, expires_at, revoked_at = row
    kept = _read(_SCOPE, scope)
    networks = tuple(ipaddress.ip_network(text) for text in kept.networks)
    return KeyRow(
        id=id,
        account=account,
        name=name,
        scope=Scope(kept.models, kept.endpoints, networks),
        rates=_read(_RATES, rates),
        budget=_budget(budget),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )


def secret_of(row: Row) -> SecretRow:
    """A row of digest, created_at, expires_at."""
    return SecretRow(bytes.fromhex(row[0]), row[1], row[2])


def hold_of(row: Row) -> HoldRow:
    """A row of HOLD_COLUMNS."""
    id, account, key, model, amount, estimate, owner, created_at, price, unlimited = row
    return HoldRow(
        id=id,
        account=account,
        key=key,
        model=model,
        amount=amount,
        estimate=estimate,
        owner=owner,
        created_at=created_at,
        price=None if price is None else _read(_PRICE, price),
        unlimited=bool(unlimited),
    )


def hold_values(hold: HoldRow, repeat: str) -> tuple[Value, ...]:
    """All columns of a hold's row; `repeat` is the digest of its Idempotency-Key."""
    return (
        hold.id,
        hold.account,
        hold.key,
        hold.model,
        hold.amount,
        hold.estimate,
        hold.owner,
        hold.created_at,
        price_text(hold.price),
        int(hold.unlimited),
        repeat,
    )


def bill_of(row: Row) -> BillLine:
    """A row of BILL_COLUMNS."""
    id, account, key, model, time, status, charge, body = row
    return BillLine(
        id=id, account=account, key=key, model=model, time=time, status=status, charge=charge, body=body.encode()
    )


def audited_of(row: Row) -> Audited:
    """A row of AUDIT_COLUMNS."""
    number, time, actor, action, subject, detail = row
    return Audited(number=number, time=time, actor=actor, action=action, subject=subject, detail=detail.encode())


def _budget(text: str | None) -> Budget | None:
    return None if text is None else _read(_BUDGET, text)


def _read(decoder: "jsonx.Decoder[Any]", text: str) -> Any:
    return jsonx.read(decoder, text.encode())
