"""`kenari run codex|claude -- ...`: start an agent on this server without changing a file of it."""

import argparse
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from kenari.commands.client import ClientError, add_client_command, server_of
from kenari.connect.client import fill, load, names

if TYPE_CHECKING:
    from kenari.commands.base import Commands


def add(commands: "Commands") -> None:
    """The command and its options."""
    words = add_client_command(commands, "run", "start an agent on this server", start)
    startable = [name for name in names() if load(name).run is not None]
    words.add_argument("name", metavar="AGENT", choices=startable, help=", ".join(startable))
    words.epilog = "What follows -- goes to the agent as it is: kenari run codex -- exec 'say hello'"


def start(options: argparse.Namespace) -> int:
    """Start the agent and wait for it; its exit status."""
    try:
        setup = fill(load(options.name), server_of(options)).run
        assert setup is not None
        program = shutil.which(setup.program)
        if program is None:
            raise ClientError(f"{setup.program} is not installed. run: {load(options.name).install}")
    except ClientError as error:
        print(f"kenari run: {error}", file=sys.stderr)
        return 1
    environment = os.environ | setup.environment
    try:
        return subprocess.run([program, *setup.arguments, *options.rest], env=environment, check=False).returncode
    except KeyboardInterrupt:  # the agent got it too, and has ended
        return 130
