"""What the commands share that work through the management API: the call, its errors, tables of answers."""

import argparse
import http.client
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import quote, urlencode

from kenari.commands.base import add_command
from kenari.config import Config
from kenari.keeper.secrets import ADMIN_FILE, store_folder
from kenari.wire import jsonx

if TYPE_CHECKING:
    from kenari.commands.base import Commands

TIMEOUT = 30.0
"""Seconds that the server may take for an answer."""
PAGE = 1000


class Refused(Exception):
    """The command cannot be done; the message says why, for the person at the terminal."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


class Server:
    """The running server, by the address and the token of the configuration."""

    def __init__(self, config: Config) -> None:
        self._listen = config.server.admin_listen
        if not self._listen:
            raise Refused('the management api is off: [server] admin_listen is ""')
        self._token = config.admin_token or _token_beside(store_folder(config.store_url))

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, query: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """One call; what it answered. Raises Refused with the server's own words."""
        words = {name: value for name, value in (query or {}).items() if value not in (None, "")}
        target = f"/admin/v1{path}" + (f"?{urlencode(words)}" if words else "")
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        connection = self._connection()
        try:
            connection.request(method, target, jsonx.encode(body) if body is not None else None, headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (ConnectionRefusedError, FileNotFoundError):
            message = f"no kenari listens on {self._listen}. start it with `kenari serve`, or name its file: --config"
            raise Refused(message) from None
        except (OSError, http.client.HTTPException) as error:
            raise Refused(f"{self._listen} does not answer as kenari does: {error or type(error).__name__}") from None
        finally:
            connection.close()
        return self._read(status, content)

    def pages(self, path: str, query: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """All of a list, page by page."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self.call("GET", path, query=(query or {}) | {"limit": PAGE, "after": after})
            found += page["data"]
            if not page["next"]:
                return found
            after = page["next"]

    def _read(self, status: int, content: bytes) -> dict[str, Any]:
        try:
            value = jsonx.value(content)
        except jsonx.Malformed:
            value = None
        if not isinstance(value, dict):
            raise Refused(f"{self._listen} answered {status} without JSON. is that kenari's admin_listen?")
        fields = cast("dict[str, Any]", value)
        if status >= 400:
            error = fields.get("error")
            message = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else None
            raise Refused(str(message or f"{self._listen} answered {status}"))
        return fields

    def _connection(self) -> http.client.HTTPConnection:
        if self._listen.startswith("unix:"):
            return UnixConnection(self._listen.removeprefix("unix:"))
        host, _, port = self._listen.rpartition(":")
        host = host.strip("[]")
        if host in ("", "0.0.0.0"):
            host = "127.0.0.1"
        return http.client.HTTPConnection("::1" if host == "::" else host, int(port), timeout=TIMEOUT)


Act: TypeAlias = Callable[[argparse.Namespace, Server], dict[str, Any]]
"""Does a command; what it answers, as it is printed with --json."""
Show: TypeAlias = Callable[[dict[str, Any]], str]
"""The same for people."""


def add_managed(commands: "Commands", name: str, help: str, act: Act, show: Show) -> argparse.ArgumentParser:
    """A command that works through the management API."""

    def run(options: argparse.Namespace, config: Config) -> int:
        try:
            answer = act(options, Server(config))
        except Refused as error:
            print(f"kenari: {error}", file=sys.stderr)
            return 1
        text = jsonx.encode(answer).decode() if options.json else show(answer)
        print(text.rstrip("\n"))
        return 0

    words = add_command(commands, name, help, run, calls=False)
    words.add_argument("--json", action="store_true", help="print the answer as JSON")
    return words


def add_money_options(words: argparse.ArgumentParser) -> None:
    """Options of whatever may be limited: an account, a key."""
    words.add_argument("--budget", metavar="AMOUNT[/WINDOW]", help="like 25/month; windows: day, week, month, total")
    words.add_argument("--rpm", type=int, metavar="N", help="requests a minute")
    words.add_argument("--tpm", type=int, metavar="N", help="tokens a minute")
    words.add_argument("--concurrent", type=int, metavar="N", help="requests at once")


def add_change_options(words: argparse.ArgumentParser) -> None:
    """The same for what is there already, and how to take them away."""
    add_money_options(words)
    words.add_argument("--no-budget", action="store_true", help="take the budget away")
    words.add_argument("--no-limits", action="store_true", help="take the limits away that are not named")


def changed_money(options: argparse.Namespace, before: dict[str, Any]) -> dict[str, Any]:
    """What these options change of an account or a key: a limit that is not named stays as it is."""
    wanted: dict[str, Any] = ({"budget": None} if options.no_budget else {}) | money_fields(options)
    if options.no_limits or "limits" in wanted:
        kept: dict[str, Any] = {} if options.no_limits else before["limits"]
        wanted["limits"] = kept | wanted.get("limits", {})
    return wanted


def money_fields(options: argparse.Namespace) -> dict[str, Any]:
    """What these options ask for, as fields of a body."""
    fields: dict[str, Any] = {}
    if options.budget:
        amount, _, window = options.budget.partition("/")
        fields["budget"] = {"amount": amount} | ({"window": window} if window else {})
    limits = {name: value for name in ("rpm", "tpm", "concurrent") if (value := getattr(options, name)) is not None}
    return fields | ({"limits": limits} if limits else {})


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows under their columns, numbers to the right."""
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max(len(cell) for cell in cells) for cells in zip(columns, *texts, strict=True)]
    numbers = [bool(texts) and all(_is_number(row[index]) for row in texts) for index in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, numbers, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line([column.upper() for column in columns]), *map(line, texts)])


def fields(answer: dict[str, Any], names: Sequence[str]) -> str:
    """One thing: a field a line."""
    width = max(map(len, names))
    return "\n".join(f"{name.ljust(width)}  {_text(answer[name])}" for name in names)


def segment(word: str) -> str:
    """An id as a part of a path."""
    return quote(word, safe="")


def _text(value: Any) -> str:
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, cast("list[Any]", value)))
    if isinstance(value, dict):
        given = {name: one for name, one in cast("dict[str, Any]", value).items() if one is not None}
        if set(given) == {"amount", "window"}:
            return f"{given['amount']}/{given['window']}"
        return " ".join(f"{name}={one}" for name, one in given.items()) or "-"
    return "".join(char if char.isprintable() else "?" for char in str(value))


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "").removeprefix("-").isdigit()


def _token_beside(folder: Path) -> str:
    try:
        token = (folder / ADMIN_FILE).read_text(encoding="utf-8").strip()
    except OSError as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        message = (
            f"the management token {folder / ADMIN_FILE} {why}. `kenari serve` makes it; or set KENARI_ADMIN_TOKEN"
        )
        raise Refused(message) from None
    if not token:
        raise Refused(f"{folder / ADMIN_FILE} is empty. delete it, and `kenari serve` makes a new one")
    return token
