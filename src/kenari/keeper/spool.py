"""The spool: what could not be written because the store was down, in a file of this node, until the store is back."""

import itertools
import os
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from kenari.store.records import HoldRow, Settlement
from kenari.wire import jsonx


class SpooledHold(msgspec.Struct, frozen=True, tag_field="do", tag="hold"):
    """A request that was admitted."""

    hold: HoldRow


class SpooledLine(msgspec.Struct, frozen=True, tag_field="do", tag="line"):
    """A request that ended."""

    settlement: Settlement


class SpooledNotes(msgspec.Struct, frozen=True, tag_field="do", tag="notes"):
    """What running requests would cost."""

    estimates: dict[str, int]


class SpooledRelease(msgspec.Struct, frozen=True, tag_field="do", tag="release"):
    """A hold that may be in the store although its request was refused."""

    id: str
    account: str
    unlimited: bool


Spooled: TypeAlias = SpooledHold | SpooledLine | SpooledNotes | SpooledRelease
_SPOOLED: "jsonx.Decoder[Spooled]" = jsonx.decoder(cast("Any", Spooled))


class Spool:
    """An append-only file, one JSON line each. What `append` returned from survives the death of the process; with `sync`
    a power cut too. Made when something is written first."""

    def __init__(self, path: Path, sync: bool = False) -> None:
        self._path, self._sync = path, sync
        self._file: int | None = None
        self.length = 0
        """How many lines wait (a gauge for metrics)."""

    def __repr__(self) -> str:
        return f"Spool({self._path.name!r}, {self.length})"

    @property
    def waiting(self) -> bool:
        """Something is in it."""
        return self._path.exists() and self._path.stat().st_size > 0

    def append(self, record: Spooled) -> None:
        """Write a line. Raises OSError when it cannot be kept."""
        if self._file is None:
            torn = self.waiting and not self._path.read_bytes().endswith(b"\n")
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if torn:  # a power cut in the middle of a line: what follows must not be glued to it
                write_all(self._file, b"\n")
        write_all(self._file, jsonx.encode(record) + b"\n")
        if self._sync:
            os.fsync(self._file)
        self.length += 1

    def read(self, offset: int, lines: int) -> tuple[list[tuple[Spooled | None, bytes]], int]:
        """Up to so many lines from a place in the file, each with its text (None: it cannot be read), and the place
        behind them."""
        found: list[tuple[Spooled | None, bytes]] = []
        with self._path.open("rb") as file:
            file.seek(offset)
            for line in itertools.islice(file, lines):
                offset += len(line)
                if line.strip():
                    found.append((read_spooled(line), line))
        return found, offset

    def set_aside(self, line: bytes) -> None:
        """Keep a line that the store refuses, for a person to look at, in a file beside the spool."""
        descriptor = os.open(f"{self._path}.refused", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, line.rstrip(b"\n") + b"\n")
        finally:
            os.close(descriptor)

    def clear(self) -> None:
        """Everything is in the store."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._path.unlink(missing_ok=True)
        self.length = 0


def read_spooled(line: bytes) -> Spooled | None:
    """A line of a spool, None when it cannot be read."""
    try:
        return jsonx.read(_SPOOLED, line)
    except jsonx.Malformed:
        return None


def write_all(file: int, data: bytes) -> None:
    """All of it: a write to a full disk may stop half way."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def told(record: SpooledLine | SpooledRelease | SpooledNotes) -> str:
    """What is lost, for the log: ids and amounts."""
    if isinstance(record, SpooledLine):
        return f"{record.settlement.id} charge {record.settlement.charge} account {record.settlement.account}"
    return type(record).__name__
