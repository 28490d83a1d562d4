"""The journal: holds of callers without limits, in a file beside the store's, until their lines are in the ledger.

Nothing is checked before such a request goes on, so the store need not be asked: that it was admitted must outlive this
process, and no more. One write to a local file says so, and lasts as long as a commit that is not synced to the disk:
nobody waits, and two rows of the store are never made (docs/decisions/0072).
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kenari.keeper.spool import Spooled, SpooledHold, SpooledRelease, read_spooled, write_all
from kenari.wire import jsonx

LARGEST = 1024 * 1024
"""Bytes after which what is over is left out of the file."""
_log = logging.getLogger("kenari.books")


class Journal:
    """An append-only file of JSON lines, written anew with what is still open now and then. What an earlier process left is
    read by `left`; then `begin` makes it this process's own. One that is not `used` only has what is left of another time."""

    def __init__(self, path: Path, used: bool = True) -> None:
        self._path, self._used = path, used
        self._file: int | None = None
        self._open: dict[str, bytes] = {}
        self._size = 0
        self._torn = False
        self._limit = LARGEST

    def __repr__(self) -> str:
        return f"Journal({self._path.name!r}, {len(self._open)})"

    @property
    def ready(self) -> bool:
        """Holds may be put in."""
        return self._file is not None

    def left(self, owner: str) -> Iterator[Spooled]:
        """What an earlier process has written, in its order, as holds of `owner`, who settles them now. A line that was cut off
        by its death was never answered for."""
        try:
            with self._path.open("rb") as file:
                for line in file:
                    record = read_spooled(line)
                    if isinstance(record, SpooledHold):
                        yield SpooledHold(msgspec.structs.replace(record.hold, owner=owner))
                    elif record is not None:
                        yield record
                    elif len(line) > 1 and line.endswith(b"\n"):
                        _log.error("a line of the journal cannot be read: a request may lack its line in the ledger")
        except FileNotFoundError:
            return

    def begin(self) -> bool:
        """Forget what an earlier process left; whether holds may be put in from now on. Raises OSError when the file cannot be
        written."""
        if self._used:
            self._write_anew()
        else:
            self._path.unlink(missing_ok=True)
        return self._used

    def append(self, record: SpooledHold) -> None:
        """Write a hold; when this returns it survives the death of the process. Raises OSError when it cannot be kept."""
        line = jsonx.encode(record) + b"\n"
        self._append(line)
        self._open[record.hold.id] = line

    def give_back(self, record: SpooledRelease) -> None:
        """A hold is closed without a line."""
        if self._open.pop(record.id, None) is not None:
            try:
                self._append(jsonx.encode(record) + b"\n")
            except OSError as error:
                _log.error("the journal cannot be written: %s", error.strerror)

    def forget(self, id: str) -> None:
        """Its line is in the ledger, or in the spool."""
        self._open.pop(id, None)

    def tidy(self) -> None:
        """Leave out what is over."""
        if self._file is not None and self._size > sum(map(len, self._open.values())):
            try:
                self._write_anew()
            except OSError as error:
                _log.error("the journal cannot be written: %s. holds go to the store", error.strerror)

    def close(self) -> None:
        """The process ends: only what is open stays."""
        if self._file is not None:
            self.tidy()
            self._leave()
            if not self._open:
                self._path.unlink(missing_ok=True)

    def _append(self, line: bytes) -> None:
        if self._size > self._limit:
            self._write_anew()
        if self._file is None:
            raise OSError(0, "it is closed")
        torn, self._torn = self._torn, True
        write_all(self._file, b"\n" + line if torn else line)
        self._torn = False
        self._size += len(line)

    def _write_anew(self) -> None:
        """A new file in the place of the old one, at once: whoever reads finds one or the other."""
        kept = b"".join(self._open.values())
        new = self._path.with_name(self._path.name + ".new")
        file = os.open(new, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(file, kept)
            os.replace(new, self._path)
        except OSError:
            os.close(file)
            raise
        self._leave()
        self._file, self._size, self._torn = file, len(kept), False
        self._limit = LARGEST + 2 * len(kept)

    def _leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
