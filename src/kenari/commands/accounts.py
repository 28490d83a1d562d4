"""`kenari accounts`: who pays."""

import argparse
from typing import TYPE_CHECKING, Any

from kenari.commands.base import add_group
from kenari.commands.management import (
    Server,
    add_change_options,
    add_managed,
    add_money_options,
    changed_money,
    fields,
    money_fields,
    segment,
    table,
)

if TYPE_CHECKING:
    from kenari.commands.base import Commands

_FIELDS = ("id", "name", "plan", "currency", "balance", "reserved", "budget", "limits", "created_at", "closed_at")
_COLUMNS = ("id", "name", "plan", "currency", "balance", "reserved", "closed_at")


def add(commands: "Commands") -> None:
    """The commands and their options."""
    group = add_group(commands, "accounts", "accounts with their balances")
    add_managed(group, "list", "all accounts", list_accounts, show_list)
    words = add_managed(group, "create", "make an account", create, show_one)
    words.add_argument("name", metavar="NAME")
    words.add_argument("--plan", metavar="NAME", help="its plan; models for subscribers want one")
    words.add_argument("--credit", metavar="AMOUNT", help="its first credit")
    add_money_options(words)
    words = add_managed(group, "show", "one account", show, show_one)
    words.add_argument("id", metavar="ACCOUNT")
    words = add_managed(group, "credit", "give credit, or take it back (an amount below zero)", credit, show_one)
    words.add_argument("id", metavar="ACCOUNT")
    words.add_argument("amount", metavar="AMOUNT")
    words.add_argument("--note", metavar="TEXT", default="", help="why; it stands in the ledger")
    words = add_managed(group, "change", "change what an account may do; what is not named stays", change, show_one)
    words.add_argument("id", metavar="ACCOUNT")
    words.add_argument("--name", metavar="NAME")
    words.add_argument("--plan", metavar="NAME", help='its plan; "" for none')
    words.add_argument("--open", action="store_true", help="open a closed one again")
    add_change_options(words)
    words = add_managed(group, "close", "refuse every key of an account from now on", close, show_one)
    words.add_argument("id", metavar="ACCOUNT")


def list_accounts(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """All accounts."""
    return {"data": server.pages("/accounts")}


def create(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Make an account."""
    body: dict[str, Any] = {"name": options.name} | money_fields(options)
    body |= {name: value for name in ("plan", "credit") if (value := getattr(options, name)) is not None}
    return server.call("POST", "/accounts", body)


def show(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """One account."""
    return server.call("GET", f"/accounts/{segment(options.id)}")


def credit(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Give credit."""
    body = {"amount": options.amount, "note": options.note}
    return server.call("POST", f"/accounts/{segment(options.id)}/credits", body)


def change(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Change an account."""
    place = f"/accounts/{segment(options.id)}"
    body = changed_money(options, server.call("GET", place))
    body |= {name: value for name in ("name", "plan") if (value := getattr(options, name)) is not None}
    return server.call("PATCH", place, body | ({"closed": False} if options.open else {}))


def close(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Close an account."""
    return server.call("PATCH", f"/accounts/{segment(options.id)}", {"closed": True})


def show_list(answer: dict[str, Any]) -> str:
    """A table."""
    return table(_COLUMNS, [[one[name] for name in _COLUMNS] for one in answer["data"]])


def show_one(answer: dict[str, Any]) -> str:
    """Its fields."""
    return fields(answer, _FIELDS)
