"""`kenari serve` and `kenari check`."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kenari.app import check_tls, run
from kenari.commands.base import add_command
from kenari.config import Config, ConfigError, load_config
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
    if not _has_good_tls(config):
        return 1
    return run(config, partial(load_config, options.config, os.environ, Path.cwd()), demo=options.demo)


def check(options: argparse.Namespace, config: Config) -> int:
    """Print what is in force. (Faults were printed when the configuration was loaded.)"""
    if not _has_good_tls(config):
        return 1
    sys.stdout.write(show_config(config))
    for note in config.notes:
        print(f"note: {note}", file=sys.stderr)
    print("the configuration is fine", file=sys.stderr)
    return 0


def _has_good_tls(config: Config) -> bool:
    """Whether the certificate can be used; its fault is printed as those of the configuration are."""
    try:
        check_tls(config)
    except ConfigError as error:
        for path, message in error.faults:
            print(f"{path}: {message}", file=sys.stderr)
        return False
    return True
