"""PostgreSQL, by psycopg 3 (the extra `postgres`). Imported only when the store's address wants it."""

import hashlib
from collections.abc import Sequence
from typing import Any, LiteralString, cast

import psycopg

from kenari.store.database import Broken, Refused, Row, Value

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 10
_MIGRATION = 0x6B656E617269
"""The advisory lock of migrations ("kenari")."""


class PostgresDatabase:
    """A connection to the server at `url`. No value and no password is ever in its errors."""

    lock_rows = " FOR UPDATE"

    def __init__(self, url: str, readonly: bool = False) -> None:
        self._url, self._readonly = url, readonly
        self._connection: psycopg.Connection[Row] | None = None
        self._texts: dict[str, bytes] = {}
        self._claimed = ""

    def __repr__(self) -> str:
        return "PostgresDatabase(***)"

    def connect(self) -> None:
        """Connect; a claim that was held is taken again first, for it ended with the old connection."""
        self._disconnect()
        try:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                application_name="kenari",
                prepare_threshold=3,
                options=f"-c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout={STATEMENT_SECONDS}s"
                " -c idle_in_transaction_session_timeout=60s",
            )
        except (psycopg.Error, OSError, ValueError) as error:
            raise Broken(f"cannot connect: {type(error).__name__}") from None
        name, self._claimed = self._claimed, ""
        if name and not self.claim(name):
            self._claimed = name
            self._disconnect()
            raise Broken(f"another process runs as node {name}")

    def begin(self, *, read: bool = False) -> None:
        """Begin a transaction."""
        self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if read else "BEGIN")

    def commit(self) -> None:
        """Commit."""
        try:
            self.run("COMMIT")
        except Refused as error:
            raise Broken(str(error)) from None

    def rollback(self) -> None:
        """Undo what is open."""
        try:
            if self._connection is not None and self._connection.info.transaction_status:
                self.run("ROLLBACK")
        except (Broken, Refused):
            self._disconnect()

    def run(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run one statement."""
        connection = self._connection
        if connection is None:
            raise Broken("not connected")
        text = self._texts.get(sql)
        if text is None:
            text = self._texts[sql] = sql.replace("?", "%s").encode()
        try:
            cursor = connection.execute(cast("LiteralString", text), values or None)
            return cursor.fetchall() if cursor.description is not None else []
        except (
            psycopg.IntegrityError,
            psycopg.ProgrammingError,
            psycopg.DataError,
            psycopg.errors.DeadlockDetected,
            psycopg.errors.SerializationFailure,
        ) as error:
            raise Refused(_words(error)) from None
        except psycopg.Error as error:
            if connection.closed:
                self._disconnect()
            raise Broken(_words(error)) from None

    def claim(self, name: str) -> bool:
        """A session's advisory lock: it ends with the connection."""
        if self._claimed == name:
            return True
        found = self.run("SELECT pg_try_advisory_lock(?)", (_number("node " + name),))
        if found[0][0]:
            self._claimed = name
        return bool(found[0][0])

    def lock(self, names: Sequence[str]) -> None:
        """Advisory locks that end with the transaction, always taken in one order."""
        for number in sorted(_number("name " + name) for name in names):
            self.run("SELECT pg_advisory_xact_lock(?)", (number,))

    def migration_lock(self) -> None:
        """An advisory lock that ends with the transaction."""
        self.run("SELECT pg_advisory_xact_lock(?)", (_MIGRATION,))

    def close(self) -> None:
        """Disconnect, which gives the claim back."""
        self._disconnect()
        self._claimed = ""

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def _number(name: str) -> int:
    """The 63-bit number of a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1


def _words(error: Any) -> str:
    """The kind of error and the constraint it names; PostgreSQL's own detail may quote values."""
    diagnosis = getattr(error, "diag", None)
    what = getattr(diagnosis, "constraint_name", None) or getattr(diagnosis, "table_name", None) or ""
    return f"{type(error).__name__} {what}".strip()
