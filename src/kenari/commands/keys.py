"""`kenari keys`: what callers show."""

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

_SCOPE = ("models", "endpoints", "networks")
_TIMES = ("created_at", "expires_at", "revoked_at")
_FIELDS = ("id", "account", "name", *_SCOPE, "budget", "limits", *_TIMES)
_COLUMNS = ("id", "account", "name", "models", "expires_at", "revoked_at")


def add(commands: "Commands") -> None:
    """The commands and their options."""
    group = add_group(commands, "keys", "keys of accounts")
    words = add_managed(group, "list", "all keys, or those of an account", list_keys, show_list)
    words.add_argument("--account", metavar="ACCOUNT", default="")
    words = add_managed(group, "create", "make a key; its secret is shown this once", create, show_made)
    words.add_argument("account", metavar="ACCOUNT")
    words.add_argument("name", metavar="NAME")
    _add_scope(words)
    add_money_options(words)
    words = add_managed(group, "show", "one key, without its secret", show, show_one)
    words.add_argument("id", metavar="KEY")
    words = add_managed(group, "change", "change what a key may do; what is not named stays", change, show_one)
    words.add_argument("id", metavar="KEY")
    words.add_argument("--name", metavar="NAME")
    _add_scope(words)
    add_change_options(words)
    words = add_managed(group, "revoke", "refuse a key from now on", revoke, show_one)
    words.add_argument("id", metavar="KEY")
    words = add_managed(group, "rotate", "give a key a second secret; the first one ends later", rotate, show_made)
    words.add_argument("id", metavar="KEY")
    words.add_argument("--grace", metavar="DURATION", help="how long the first secret still opens (default: 24h)")


def _add_scope(words: argparse.ArgumentParser) -> None:
    """What restricts a key."""
    words.add_argument("--model", metavar="MODEL", action="append", help="allow only this one (and others so named)")
    words.add_argument("--endpoint", metavar="PATH", action="append", help="allow only this one, like messages")
    words.add_argument("--network", metavar="NETWORK", action="append", help="allow only callers from there")
    words.add_argument("--expires-at", metavar="TIME", help="like 2027-01-31T00:00:00Z")


def _scope(options: argparse.Namespace) -> dict[str, Any]:
    """The restrictions that are named."""
    given = {
        "models": options.model,
        "endpoints": options.endpoint,
        "networks": options.network,
        "expires_at": options.expires_at,
    }
    return {name: value for name, value in given.items() if value is not None}


def list_keys(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """All keys."""
    return {"data": server.pages("/keys", {"account": options.account})}


def create(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Make a key."""
    named = {"account": options.account, "name": options.name}
    return server.call("POST", "/keys", named | money_fields(options) | _scope(options))


def show(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """One key."""
    return server.call("GET", f"/keys/{segment(options.id)}")


def change(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Change a key."""
    place = f"/keys/{segment(options.id)}"
    body = changed_money(options, server.call("GET", place)) | _scope(options)
    return server.call("PATCH", place, body | ({} if options.name is None else {"name": options.name}))


def revoke(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Revoke a key."""
    return server.call("DELETE", f"/keys/{segment(options.id)}")


def rotate(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """Rotate a key's secret."""
    body = {} if options.grace is None else {"grace": options.grace}
    return server.call("POST", f"/keys/{segment(options.id)}/rotate", body)


def show_list(answer: dict[str, Any]) -> str:
    """A table."""
    return table(_COLUMNS, [[one[name] for name in _COLUMNS] for one in answer["data"]])


def show_one(answer: dict[str, Any]) -> str:
    """Its fields."""
    return fields(answer, _FIELDS)


def show_made(answer: dict[str, Any]) -> str:
    """Its fields, and the secret that is not shown again."""
    return fields(answer, (*_FIELDS, "secret")) + "\nkeep the secret now: it is not shown again"
