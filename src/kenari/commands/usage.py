"""`kenari usage`: what was used, and what it cost."""

import argparse
from typing import TYPE_CHECKING, Any

from kenari.commands.management import Server, add_managed, table

if TYPE_CHECKING:
    from kenari.commands.base import Commands

_GROUPS = ("day", "account", "key", "model")
_TOKENS = ("input", "cache_read", "cache_write", "output")


def add(commands: "Commands") -> None:
    """The command and its options."""
    words = add_managed(commands, "usage", "sums of requests, tokens and money", usage, show)
    words.add_argument("--by", metavar="WORDS", default="day", help="day, model, key, account; several with commas")
    words.add_argument(
        "--from", dest="since", metavar="TIME", help="a date or a time (default: 30 days before the end)"
    )
    words.add_argument("--to", dest="until", metavar="TIME", help="a date or a time, not included (default: now)")
    words.add_argument("--account", metavar="ACCOUNT", default="")
    words.add_argument("--key", metavar="KEY", default="")


def usage(options: argparse.Namespace, server: Server) -> dict[str, Any]:
    """The sums."""
    query = {
        "by": options.by,
        "from": options.since,
        "to": options.until,
        "account": options.account,
        "key": options.key,
    }
    return server.call("GET", "/usage", query=query)


def show(answer: dict[str, Any]) -> str:
    """A table with the groups that are there."""
    data = answer["data"]
    groups = [name for name in _GROUPS if any(name in one for one in data)]
    rows = [
        [
            *(one.get(name, "") for name in groups),
            one["requests"],
            *(one["tokens"][name] for name in _TOKENS),
            one["charge"],
        ]
        for one in data
    ]
    return table((*groups, "requests", *_TOKENS, f"charge {answer['currency']}"), rows)
