"""Accounts and their credit."""

from typing import Any

from msgspec import UNSET

from kenari.core.caller import Budget, Caller, Rates
from kenari.core.errors import bad_request
from kenari.doors.admin.bodies import (
    AccountBody,
    AccountDetail,
    AccountList,
    AccountNew,
    AccountPatch,
    BudgetBody,
    CreditNew,
    LimitsBody,
    Page,
    SpentBody,
)
from kenari.doors.admin.services import Management
from kenari.doors.admin.table import Asked, Route
from kenari.doors.admin.values import Money, stamp, stamp_or_none, units
from kenari.store.records import Account, AccountChange, NewAccount, Spent


async def create_account(house: Management, asked: Asked) -> AccountBody:
    """A new account, with its first credit."""
    body: AccountNew = asked.body
    new = NewAccount(
        name=body.name,
        plan=body.plan,
        budget=budget_of(body.budget),
        rates=rates_of(body.limits),
        credit=units(body.credit, "credit") if body.credit is not None else 0,
    )
    return account_body(await house.kept().create_account(new, actor=asked.actor), house.money)


async def list_accounts(house: Management, asked: Asked) -> AccountList:
    """A page of accounts."""
    page: Page = asked.query
    found = await house.kept().accounts(page.limit + 1, page.after)
    more = found[page.limit - 1].id if len(found) > page.limit else None
    return AccountList([account_body(one, house.money) for one in found[: page.limit]], more)


async def show_account(house: Management, asked: Asked) -> AccountDetail:
    """One account, with what was spent of its budget."""
    store = house.kept()
    account = await store.account(asked.path["id"])
    _, spent = await store.spent(Caller(account=account.id, key="", account_budget=account.budget))
    return AccountDetail(spent=spent_body(spent, house.money), **_fields(account, house.money))


async def change_account(house: Management, asked: Asked) -> AccountBody:
    """Change what is given."""
    body: AccountPatch = asked.body
    change = AccountChange(
        name=body.name,
        plan=body.plan,
        budget=budget_of(body.budget) if body.budget is not UNSET else UNSET,
        rates=rates_of(body.limits) if body.limits is not UNSET else UNSET,
        closed=body.closed,
    )
    return account_body(await house.kept().change_account(asked.path["id"], change, actor=asked.actor), house.money)


async def add_credit(house: Management, asked: Asked) -> AccountBody:
    """Give credit, or take it back."""
    body: CreditNew = asked.body
    amount = units(body.amount, "amount")
    if amount == 0:
        raise bad_request("amount: must not be zero", "amount")
    account = await house.kept().add_credit(asked.path["id"], amount, body.note, actor=asked.actor)
    return account_body(account, house.money)


def account_body(account: Account, money: Money) -> AccountBody:
    """An account as it is shown."""
    return AccountBody(**_fields(account, money))


def _fields(account: Account, money: Money) -> dict[str, Any]:
    return {
        "id": account.id,
        "name": account.name,
        "plan": account.plan,
        "currency": money.currency,
        "balance": money.show(account.balance),
        "reserved": money.show(account.reserved),
        "budget": budget_body(account.budget, money),
        "limits": limits_body(account.rates),
        "created_at": stamp(account.created_at),
        "closed_at": stamp_or_none(account.closed_at),
    }


def budget_of(body: Any) -> Budget | None:
    """A budget that came in."""
    return Budget(units(body.amount, "budget.amount"), body.window) if isinstance(body, BudgetBody) else None


def rates_of(body: Any) -> Rates:
    """Limits that came in; null is none."""
    return Rates(body.rpm, body.tpm, body.concurrent) if isinstance(body, LimitsBody) else Rates()


def budget_body(budget: Budget | None, money: Money) -> BudgetBody | None:
    """A budget as it is shown."""
    return None if budget is None else BudgetBody(amount=money.show(budget.amount), window=budget.window)


def spent_body(spent: Spent | None, money: Money) -> SpentBody | None:
    """How a budget stands, as it is shown."""
    if spent is None:
        return None
    since = stamp(spent.started) if spent.started else None
    return SpentBody(amount=money.show(spent.amount), reserved=money.show(spent.reserved), since=since)


def limits_body(rates: Rates) -> LimitsBody:
    """Limits as they are shown."""
    return LimitsBody(rpm=rates.rpm, tpm=rates.tpm, concurrent=rates.concurrent)


ROUTES = (
    Route(
        method="POST",
        path="/accounts",
        act=create_account,
        summary="Make an account",
        body=AccountNew,
        answer=AccountBody,
        status=201,
    ),
    Route(
        method="GET",
        path="/accounts",
        act=list_accounts,
        summary="List accounts in the order of their ids",
        query=Page,
        answer=AccountList,
    ),
    Route(
        method="GET",
        path="/accounts/{id}",
        act=show_account,
        summary="Show an account with its balance, what is reserved of it, and what was spent of its budget",
        answer=AccountDetail,
        errors=("not_found",),
    ),
    Route(
        method="PATCH",
        path="/accounts/{id}",
        act=change_account,
        summary="Change an account: name, plan, budget, limits, closed",
        body=AccountPatch,
        answer=AccountBody,
        errors=("not_found", "conflict"),
    ),
    Route(
        method="POST",
        path="/accounts/{id}/credits",
        act=add_credit,
        summary="Give credit to an account, or take it back",
        body=CreditNew,
        answer=AccountBody,
        status=201,
        errors=("not_found", "conflict"),
    ),
)
