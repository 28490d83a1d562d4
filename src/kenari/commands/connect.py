"""`kenari connect CLIENT`: the tested set-up of a client for this server, printed, written, or tried out."""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kenari.commands.client import ClientError, add_client_command, ask, measured, server_of
from kenari.connect.client import Client, Server, fill, load, names
from kenari.connect.merge import MergeError, merged
from kenari.connect.place import place_of, system_of
from kenari.connect.probe import probe, verdict

if TYPE_CHECKING:
    from kenari.commands.base import Commands


def add(commands: "Commands") -> None:
    """The command and its options."""
    words = add_client_command(commands, "connect", "set a client up for this server", connect)
    words.add_argument("name", metavar="CLIENT", choices=names(), help=", ".join(names()))
    what = words.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="merge it into the client's own file, after a backup")
    what.add_argument("--check", action="store_true", help="send a small request the way the client would")


def connect(options: argparse.Namespace) -> int:
    """Run the command; the exit status."""
    try:
        server = server_of(options)
        client = load(options.name)
        if options.check:
            return _check(client, server)
        server = measured(server)
        if options.write:
            return _write(fill(client, server))
        shown = msgspec.structs.replace(server, key="kn-...")  # a key is not shown on a screen
        sys.stdout.write(guide(fill(client, shown), _path(client)))
    except (ClientError, MergeError) as error:
        print(f"kenari connect: {error}", file=sys.stderr)
        return 1
    return 0


def guide(client: Client, path: str) -> str:
    """The set-up as a person reads it: a file's content, the shell's variables, an example."""
    lines = [f"# {client.title} ({client.speaks})"]
    if client.install:
        lines += [f"# install: {client.install}"]
    if client.file is not None:
        lines += ["", f"# {path} (kenari connect {client.name} --write does this)", merged(client, "").rstrip("\n")]
    if client.environment:
        lines += ["", "# in your shell"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in client.environment.items()]
    for part in (client.code, client.use):
        if part:
            lines += ["", "# then", part.strip()]
    if client.note:
        lines += ["", f"# {client.note}"]
    return "\n".join(lines) + "\n"


def _path(client: Client) -> str:
    if client.file is None:
        return ""
    try:
        return str(place_of(client.file, system_of(sys.platform), os.environ))
    except KeyError as error:
        raise ClientError(f"{error.args[0]} is not set, so the client's folder is not known. set it") from None


def _write(client: Client) -> int:
    if client.file is None:
        raise ClientError(f"{client.title} has no file of its own. do what kenari connect {client.name} prints")
    path = Path(_path(client)).resolve()
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = merged(client, before)
    if after == before:
        print(f"{path} is as it should be")
    else:
        if before:
            print(f"the file as it was: {_back_up(path)}")
        _replace(path, after, client.file.secret)
        print(f"written: {path}")
    for name, value in client.environment.items() if not client.file.secret else ():
        shown = "kn-..." if "KEY" in name else shlex.quote(value)
        print(f"in your shell: export {name}={shown}")
    return 0


def _back_up(path: Path) -> Path:
    """A copy beside the file, under a name that is free."""
    number = 1
    while (copy := path.with_name(f"{path.name}.before-kenari-{number}")).exists():
        number += 1
    shutil.copy2(path, copy)
    return copy


def _replace(path: Path, text: str, secret: bool) -> None:
    """Write the whole file or nothing; its mode stays, a file with a key in it is its owner's alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o600 if secret else path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(name, mode)
    os.replace(name, path)


def _check(client: Client, server: Server) -> int:
    sent = probe(client, server)
    began = time.monotonic()
    status, body = ask(server.url + sent.path, sent.headers, sent.body)
    good, words = verdict(client, status, body)
    print(f"{client.title}, POST {sent.path}: {words} ({time.monotonic() - began:.1f} s)")
    return 0 if good else 1
