"""The command `kenari`. Each group of commands has a file of its own in `commands`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kenari.commands import byok, routes, serve, store
from kenari.config import ConfigError, load_config
from kenari.providers.base import VERSION

GROUPS = (serve, store, routes, byok)
"""The files of commands, in the order in which the help shows them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    options = parser().parse_args(argv)
    try:
        config = load_config(options.config, os.environ, Path.cwd())
    except ConfigError as error:
        for path, message in error.faults:
            print(f"{path}: {message}", file=sys.stderr)
        return 1
    return options.run(options, config)


def parser() -> argparse.ArgumentParser:
    """The words of the command line."""
    words = argparse.ArgumentParser(prog="kenari", description="One HTTP API in front of any language model.")
    words.add_argument("--version", action="version", version=f"kenari {VERSION}")
    commands = words.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in GROUPS:
        group.add(commands)
    return words


if __name__ == "__main__":
    sys.exit(main())
