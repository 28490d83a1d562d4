"""The command `kenari`."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kenari.app import run
from kenari.config import ConfigError, load_config
from kenari.config.show import show_config
from kenari.providers.base import VERSION


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    options = parser().parse_args(argv)
    read = partial(load_config, options.config, os.environ, Path.cwd())
    try:
        config = read()
    except ConfigError as error:
        for path, message in error.faults:
            print(f"{path}: {message}", file=sys.stderr)
        return 1
    if options.command == "check":
        sys.stdout.write(show_config(config))
        for note in config.notes:
            print(f"note: {note}", file=sys.stderr)
        print("the configuration is fine", file=sys.stderr)
        return 0
    return run(config, demo=options.demo, read=read)


def parser() -> argparse.ArgumentParser:
    """The words of the command line."""
    words = argparse.ArgumentParser(prog="kenari", description="One HTTP API in front of any language model.")
    words.add_argument("--version", action="version", version=f"kenari {VERSION}")
    commands = words.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve the API")
    check = commands.add_parser("check", help="print the effective configuration, or every fault with its path")
    for command in (serve, check):
        command.add_argument("--config", metavar="FILE", help="default: kenari.toml here, else a built-in model")
    serve.add_argument("--demo", action="store_true", help="also serve a small real model (fetched the first time)")
    return words


if __name__ == "__main__":
    sys.exit(main())
