"""`kenari conformance --url URL`: a report card of any gateway."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kenari.commands.client import ClientError, add_client_command, server_of
from kenari.conformance.card import page, score, terminal
from kenari.conformance.play import Gateway, play_all
from kenari.conformance.scenario import scenarios

if TYPE_CHECKING:
    from kenari.commands.base import Commands

SCRIPTED = "demo/scripted"


def add(commands: "Commands") -> None:
    """The command and its options."""
    words = add_client_command(commands, "conformance", "judge a gateway by its answers", conformance)
    words.add_argument(
        "--scripted", action="store_true", help=f"the model is kenari's {SCRIPTED}, under whatever name it has there"
    )
    words.add_argument("--html", metavar="FILE", help="write the card as a page too")
    words.add_argument("--quick", action="store_true", help="leave out what takes longer than a few seconds")
    words.add_argument("--only", metavar="IDS", default="", help="these scenarios, with commas between them")


def conformance(options: argparse.Namespace) -> int:
    """Play and print; 0 when all was passed."""
    try:
        server = server_of(options)
        chosen = [one for one in scenarios() if not options.only or one.id in options.only.split(",")]
        if not chosen:
            raise ClientError(f"--only names no scenario. there are: {', '.join(one.id for one in scenarios())}")
    except ClientError as error:
        print(f"kenari conformance: {error}", file=sys.stderr)
        return 2
    gateway = Gateway(server.url, server.key, server.model, options.scripted or server.model == SCRIPTED)
    results = play_all(gateway, chosen, not options.quick)
    sys.stdout.write(terminal(gateway, results))
    if options.html:
        Path(options.html).write_text(page(gateway, results, time.strftime("%Y-%m-%d")), encoding="utf-8")
    passed, played = score(results)
    return 0 if passed == played else 1
