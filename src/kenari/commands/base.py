"""What a command is: its words, and a function that runs it."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from kenari.config import Config

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]

Run: TypeAlias = Callable[[argparse.Namespace, Config], int]
"""Runs a command with its options and the configuration that was loaded; the exit status."""


def add_command(commands: "Commands", name: str, help: str, run: Run) -> argparse.ArgumentParser:
    """A command that wants the configuration. `run` is called with it."""
    words = commands.add_parser(name, help=help)
    words.add_argument("--config", metavar="FILE", help="default: kenari.toml here, else a built-in model")
    words.set_defaults(run=run)
    return words


def add_group(commands: "Commands", name: str, help: str) -> "Commands":
    """A command that has commands of its own (`kenari ledger verify`)."""
    words = commands.add_parser(name, help=help)
    return words.add_subparsers(dest=f"{name}_command", required=True, metavar="COMMAND")
