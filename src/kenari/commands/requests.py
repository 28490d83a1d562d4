"""`kenari requests`: the bill, line by line."""

import argparse
from typing import TYPE_CHECKING, Any

from kenari.commands.base import add_group
from kenari.commands.management import Server, add_managed, fields, segment, table

if TYPE_CHECKING:
    from kenari.commands.base import Commands

_COLUMNS = ("time", "id", "account", "key", "model", "status", "reason")
_TOKENS = ("input", "cache_read", "cache_write", "output")
_PARTY = ("id", "time", "account", "key", "model", "target", "status", "code", "reason", "attempts")
_MONEY = ("tokens", "estimated", "price", "charge", "currency", "reserved", "timings")


def add(commands: "Commands") -> None:
    """The commands and their options."""
    group = add_group(commands, "requests", "bill lines, one for each request")
    words = add_managed(group, "list", "the newest ones", list_lines, show_list)
    words.add_argument("--account", metavar="ACCOUNT", default="")
    words.add_argument("--key", metavar="KEY", default="")
    words.add_argument("--limit", metavar="N", type=int, default=20, help="at most 1000 (default: 20)")
    words = add_managed(group, "show", "one of them, by its x-request-id", show, show_one)
    words.add_argument("id", metavar="ID")


def list_lines(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """The newest lines."""
    query = {"account": options.account, "key": options.key, "limit": options.limit}
    return server.call("GET", "/requests", query=query)


def show(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """One line."""
    return server.call("GET", f"/requests/{segment(options.id)}")


def show_list(answer: dict[str, Any]) -> str:
    """A table."""
    rows = [
        [*(one[name] for name in _COLUMNS), *(one["tokens"][name] for name in _TOKENS), one["charge"]]
        for one in answer["data"]
    ]
    return table((*_COLUMNS, *_TOKENS, "charge"), rows)


def show_one(answer: dict[str, Any]) -> str:
    """Its fields; the attempts one by one are in the JSON."""
    return fields(answer, (*_PARTY, *_MONEY))
