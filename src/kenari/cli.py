"""The command `kenari`. Each group of commands has a file of its own in `commands`."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from kenari.providers.base import VERSION

COMMANDS = {
    "serve": "serve",
    "check": "serve",
    "connect": "connect",
    "run": "run",
    "conformance": "conformance",
    "accounts": "accounts",
    "keys": "keys",
    "usage": "usage",
    "requests": "requests",
    "models": "routes",
    "routes": "routes",
    "byok": "byok",
    "index": "index",
    "migrate": "store",
    "ledger": "store",
    "admin": "admin",
}
"""Each command and its file in `commands`, in the order in which the help shows them. A file is loaded when its command is
asked for: `kenari --version` or `kenari run` need neither the store nor the server, and starting them would cost as much."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    line = parser(words[:cut])
    options = line.parse_args(words[:cut])
    options.rest = words[cut + 1 :]  # what another program is told
    if options.rest and options.command != "run":
        line.error(f"kenari {options.command} takes no words behind --")
    return options.start(options)


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """What these words are read with: the command that they begin with, or all commands where they begin with none."""
    line = argparse.ArgumentParser(prog="kenari", description="One HTTP API in front of any language model.")
    line.add_argument("--version", action="version", version=f"kenari {VERSION}")
    commands = line.add_subparsers(dest="command", required=True, metavar="COMMAND")
    first = words[0] if words else ""
    if first == "--version":
        return line
    files = [COMMANDS[first]] if first in COMMANDS else dict.fromkeys(COMMANDS.values())
    for name in files:
        importlib.import_module(f"kenari.commands.{name}").add(commands)
    return line


if __name__ == "__main__":
    sys.exit(main())
