"""`kenari serve` and `kenari check`."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kenari.app import check_tls, run
from kenari.commands.base import add_command
from kenari.config import Config, load_config
from kenari.config.show import show_config

if TYPE_CHECKING:
    from kenari.commands.base import Commands


def add(commands: "Commands") -> None:
    """The two commands and their options."""
    words = add_command(commands, "serve", "serve the API", serve)
    words.add_argument("--demo", action="store_true", help="also serve a small real model (fetched the first time)")
    add_command(commands, "check", "print the effective configuration, or every fault with its path", check)


def serve(options: argparse.Namespace, config: Config) -> int:
    """Serve until a signal; SIGHUP reads the same configuration again."""
    check_tls(config)
    return run(config, partial(load_config, options.config, os.environ, Path.cwd()), demo=options.demo)


def check(options: argparse.Namespace, config: Config) -> int:
    """Print what is in force. (Faults were printed when the configuration was loaded.)"""
    check_tls(config)
    sys.stdout.write(show_config(config))
    for note in config.notes:
        print(f"note: {note}", file=sys.stderr)
    print("the configuration is fine", file=sys.stderr)
    return 0
