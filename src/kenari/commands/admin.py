"""`kenari admin token`: the token that opens the management API."""

import argparse
import secrets
import sys
from typing import TYPE_CHECKING

from kenari.commands.base import add_command, add_group
from kenari.config import Config
from kenari.keeper.secrets import admin_token, store_folder

if TYPE_CHECKING:
    from kenari.commands.base import Commands


def add(commands: "Commands") -> None:
    """The command."""
    group = add_group(commands, "admin", "the management api's token")
    add_command(group, "token", "print the management token; it is made when there is none", token, calls=False)


def token(options: argparse.Namespace, config: Config) -> int:
    """Print it."""
    try:
        print(admin_token(config.admin_token, store_folder(config.store_url), secrets.token_bytes(32)))
    except OSError as error:
        print(f"kenari: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0
