"""What a command is: its words, and a function that runs it."""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kenari.config import Config, ConfigError, load_config

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]

Run: TypeAlias = Callable[[argparse.Namespace, Config], int]
"""Runs a command with its options and the configuration that was loaded; the exit status."""


def add_command(commands: "Commands", name: str, help: str, run: Run, calls: bool = True) -> argparse.ArgumentParser:
    """A command that wants the configuration. `run` is called with it; without the keys of providers unless it `calls` them."""
    words = commands.add_parser(name, help=help)
    words.add_argument("--config", metavar="FILE", help="default: kenari.toml here, else a built-in model")
    words.set_defaults(start=partial(configured, run, calls))
    return words


def add_group(commands: "Commands", name: str, help: str) -> "Commands":
    """A command that has commands of its own (`kenari ledger verify`)."""
    words = commands.add_parser(name, help=help)
    return words.add_subparsers(dest=f"{name}_command", required=True, metavar="COMMAND")


def configured(run: Run, calls: bool, options: argparse.Namespace) -> int:
    """Load the configuration and run the command with it; 1 when it has faults, which are printed, those that the command
    finds too."""
    try:
        return run(options, load_config(options.config, os.environ, Path.cwd(), calls))
    except ConfigError as error:
        for path, message in error.faults:
            print(f"{path}: {message}", file=sys.stderr)
        return 1
