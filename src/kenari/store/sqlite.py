"""SQLite: one file, write-ahead log, one writing process."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kenari.store.database import Broken, Refused, Row, Value

try:
    import fcntl
except ImportError:  # a platform without file locks of this kind: nothing keeps a second process out there
    fcntl = None

BUSY_SECONDS = 1.5
"""How long a writer waits for another program (a backup, a person with a shell) before the store counts as down."""
STATEMENTS = 256


class SqliteDatabase:
    """A connection to the file at `path`. `sync` is "normal" (survives the death of the process; a power cut may lose the
    last moments) or "full" (survives a power cut)."""

    lock_rows = ""

    def __init__(self, path: Path, sync: str = "normal", readonly: bool = False) -> None:
        self._path, self._sync, self._readonly = path, sync, readonly
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._claim: int | None = None

    def connect(self) -> None:
        """Open the file, and make it when it is not there."""
        self._disconnect()
        try:
            if not self._readonly:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                _make_private(self._path)
            where = f"file:{_quoted(self._path)}?mode={'ro' if self._readonly else 'rw'}"
            connection = sqlite3.connect(
                where,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENTS,
                uri=True,
            )
            self._connection, self._cursor = connection, connection.cursor()
            if not self._readonly:
                self.run("PRAGMA journal_mode = WAL")
                self.run("PRAGMA wal_autocheckpoint = 4000")  # pages: what is written often is copied less often
                self.run(f"PRAGMA synchronous = {'FULL' if self._sync == 'full' else 'NORMAL'}")
        except (sqlite3.Error, OSError, Refused) as error:
            self._disconnect()
            raise Broken(f"cannot open {self._path.name}: {_words(error)}") from None

    def begin(self, *, read: bool = False) -> None:
        """Begin; a writer takes the write lock at once."""
        self.run("BEGIN" if read else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit."""
        try:
            self.run("COMMIT")
        except Refused as error:
            raise Broken(str(error)) from None

    def rollback(self) -> None:
        """Undo what is open."""
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.rollback()
            except sqlite3.Error:
                self._disconnect()

    def run(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run one statement."""
        cursor = self._cursor
        if cursor is None:
            raise Broken("not connected")
        try:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description is not None else []
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError, OverflowError) as error:
            raise Refused(_words(error)) from None
        except sqlite3.Error as error:
            raise Broken(_words(error)) from None

    def claim(self, name: str) -> bool:
        """Lock a file beside the database: one process writes it, whatever its name."""
        if fcntl is None or self._claim is not None:
            return True
        descriptor = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._claim = descriptor
        return True

    def lock(self, names: Sequence[str]) -> None:
        """There is one writer."""

    def migration_lock(self) -> None:
        """The write lock that `begin` took is enough."""

    def close(self) -> None:
        """Close the file and give the claim back."""
        self._disconnect()
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._cursor = None


def _make_private(path: Path) -> None:
    """Make the file readable by its owner only before SQLite makes it for everybody; its companions follow its mode."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _words(error: Any) -> str:
    """What SQLite says: it names tables and columns, never values."""
    return str(getattr(error, "strerror", None) or error)
