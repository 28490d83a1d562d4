"""Reading one table of the configuration: typed values, every fault kept with its path, unknown keys named."""

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ms|s|m|h)\Z", re.ASCII)
_SIZE = re.compile(r"(\d{1,15})(B|KiB|MiB|GiB)\Z", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
BYTES = {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024, "B": 1}
_DECIMAL = re.compile(r"\d{1,15}(\.\d{1,15})?\Z", re.ASCII)
_NAMED = ("providers", "models", "routes")
_PRINTABLE = re.compile(r"[\x20-\x7e]*\Z")
LONGEST = 366 * 24 * 3600.0
"""Seconds: no duration is longer. What is longer is a typing error, and overflows timers."""
SHORTEST = 0.001
"""Seconds: no duration is shorter. Timers do not tell shorter ones apart."""
LARGEST = 2**53
"""No whole number is larger: above it JSON's readers lose digits."""


class Secret(str):
    """A key, a token, or an address that may hold a password. It is its text wherever text is wanted, but whatever
    shows what a value looks like (a record's repr, an assertion, a debugger) shows `***`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class Faults:
    """All that is wrong with a configuration, each with its path."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def add(self, path: str, message: str) -> None:
        """One fault."""
        self.found.append((path, message))


class Table:
    """One table. Each reader takes a key; `close` names the keys that nobody took."""

    def __init__(self, values: Mapping[str, Any], path: str, faults: Faults, env: Mapping[str, str]) -> None:
        self._values, self.path, self._faults, self._env = values, path, faults, env
        self._known: list[str] = []

    def at(self, key: str) -> str:
        """The dotted path of a key; of the table itself for ""."""
        return self.path if not key and self.path else dotted(self.path, key)

    def fault(self, key: str, message: str) -> None:
        """Something is wrong with a key."""
        self._faults.add(self.at(key), message)

    def has(self, key: str) -> bool:
        """Whether the key is set."""
        return key in self._values

    def take(self, key: str) -> Any:
        """The raw value, None when it is not set."""
        self._known.append(key)
        return self._values.get(key)

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.fault(key, "must be a string")
            return default
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        """One of some words."""
        value = self.text(key, default)
        if value not in choices:
            self.fault(key, f"must be one of {', '.join(choices)}{nearest(value, choices)}")
            return default
        return value

    def flag(self, key: str, default: bool | None) -> bool | None:
        """True, false, or unset."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(key, "must be true or false")
            return default
        return value

    def whole(self, key: str, default: int | None, least: int = 0) -> int | None:
        """A whole number."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST:
            self.fault(key, f"must be a whole number from {least} to {LARGEST}")
            return default
        return value

    def seconds(self, key: str, default: float) -> float:
        """A duration: a number with ms, s, m or h."""
        value = self.take(key)
        if value is None:
            return default
        found = _DURATION.match(value) if isinstance(value, str) else None
        amount = float(found.group(1)) * _SECONDS[found.group(2)] if found else 0.0
        if not SHORTEST <= amount <= LONGEST:
            self.fault(key, 'must be a duration like "500ms", "15s", "10m" or "1h", from 1ms to a year')
            return default
        return amount

    def size(self, key: str, default: int) -> int:
        """A size: a number with B, KiB, MiB or GiB."""
        value = self.take(key)
        if value is None:
            return default
        found = _SIZE.match(value) if isinstance(value, str) else None
        amount = int(found.group(1)) * BYTES[found.group(2)] if found else 0
        if not 0 < amount <= LARGEST:
            self.fault(key, 'must be a size like "512KiB", "32MiB" or "1GiB"')
            return default
        return amount

    def decimal(self, key: str, default: str | None) -> str | None:
        """An amount: a decimal string."""
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, str) or not _DECIMAL.match(value):
            self.fault(key, 'must be an amount in quotes like "0.15"')
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.take(key)
        if value is None:
            return ()
        items = cast("list[Any]", value) if isinstance(value, list) else [None]
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) != len(items):
            self.fault(key, "must be a list of strings")
            return ()
        return tuple(texts)

    def networks(self, key: str) -> tuple[Network, ...]:
        """A list of networks."""
        out: list[Network] = []
        for text in self.texts(key):
            try:
                out.append(ipaddress.ip_network(text))
            except ValueError:
                self.fault(key, f'{text!r} is no network like "10.0.0.0/8" or "::1/128"')
        return tuple(out)

    def secret(self, key: str) -> Secret:
        """A secret: env:NAME, file:PATH or the thing itself."""
        return self.resolve(key, self.text(key))

    def secrets(self, key: str) -> tuple[Secret, ...]:
        """A list of secrets."""
        return tuple(one for one in (self.resolve(key, text) for text in self.texts(key)) if one)

    def child(self, key: str) -> "Table":
        """A table inside this one; empty when it is not there."""
        value = self.take(key)
        if value is not None and not isinstance(value, dict):
            self.fault(key, "must be a table")
            value = None
        return Table(cast("dict[str, Any]", value or {}), dotted(self.path, key), self._faults, self._env)

    def children(self) -> "list[tuple[str, Table]]":
        """All members as tables."""
        return [(key, self.child(key)) for key in self._values]

    def close(self) -> None:
        """Name what nobody took."""
        for key in self._values:
            if key not in self._known:
                self._faults.add(self.at(key), f"is not a known key{nearest(key, self._known) or self._unquoted(key)}")

    def _unquoted(self, key: str) -> str:
        """The hint for `[models.gpt-4.1]`: TOML takes the dot of a name without quotes for a table inside a table."""
        group, _, name = self.path.partition(".")
        if group not in _NAMED or not name or "." in name or not isinstance(self._values[key], dict):
            return ""
        return f'; a name with a dot belongs in quotes: [{group}."{name}.{key}"]'

    def file(self, key: str) -> str:
        """The path of a file that can be read, "" when it is not set."""
        path = os.path.expanduser(self.text(key))
        if path and not (os.path.isfile(path) and os.access(path, os.R_OK)):
            self.fault(key, f"{path} is no file that can be read")
        return path

    def resolve(self, key: str, text: str) -> Secret:
        """What a secret's text stands for. It travels in header lines, so it is one line of printable ASCII; a fault
        names the reference, never the secret."""
        value, source = text, "the value"
        if text.startswith("env:"):
            value, source = self._env.get(text[4:], ""), text
            if not value:
                self.fault(key, f'the environment has no {text[4:]}. set it, or write "file:PATH"')
        elif text.startswith("file:"):
            source = text
            try:
                value = Path(os.path.expanduser(text[5:])).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL
                self.fault(key, f"cannot read {text[5:]}: {getattr(error, 'strerror', None) or 'not text'}")
                return Secret()
            if not value:
                self.fault(key, f"{text[5:]} is empty")
        if not _PRINTABLE.match(value):
            self.fault(key, f"{source} must be one line of printable ASCII")
            return Secret()
        return Secret(value)


def dotted(path: str, key: str) -> str:
    """A key below a path, in quotes where TOML wants them."""
    shown = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
    return f"{path}.{shown}" if path else shown


def nearest(word: str, known: "tuple[str, ...] | list[str]") -> str:
    """`; did you mean X?` when a known word is near, else nothing."""
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
