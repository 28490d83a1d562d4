"""The one difference between the databases that the rest of the store sees: how to run SQL, and what an error means.

SQL is one common text: `?` for parameters, whole numbers as BIGINT, times as DOUBLE PRECISION, digests as hexadecimal
TEXT, JSON as TEXT.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Value: TypeAlias = str | int | float | None


class Broken(Exception):
    """The database cannot be used now: no connection, a disk error, locked by another program. The message is for the
    log; it holds no value of any row."""


class Refused(Exception):
    """The database refuses one statement: a constraint, a deadlock. The transaction is lost, the database is not."""


class Database(Protocol):
    """A connection. Used by one thread at a time."""

    lock_rows: str
    """What ends a SELECT whose rows are to be locked against other writers: nothing where there is only one."""

    def connect(self) -> None:
        """Connect, or connect again. Raises Broken."""
        ...

    def begin(self, *, read: bool = False) -> None:
        """Begin a transaction; one that only reads sees one state of everything."""
        ...

    def commit(self) -> None:
        """Make it durable. Raises Broken when that cannot be known."""
        ...

    def rollback(self) -> None:
        """Undo. Never raises."""
        ...

    def run(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Run one statement; its rows. Raises Broken or Refused."""
        ...

    def claim(self, name: str) -> bool:
        """Take a name that no other living process may have; False when one has it. Held until `close`."""
        ...

    def lock(self, names: Sequence[str]) -> None:
        """Within a transaction: keep other writers that lock these names out until it ends. One order for all."""
        ...

    def migration_lock(self) -> None:
        """Within a transaction: wait until no other process migrates, and keep others out until it ends."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


@lru_cache(1024)
def rows_of(count: int, width: int) -> str:
    """`(?,?),(?,?)`: the placeholders of `count` rows."""
    row = "(" + ",".join("?" * width) + ")"
    return ",".join([row] * count)


@lru_cache(1024)
def listed(count: int) -> str:
    """`(?,?,?)`: the placeholders of a list."""
    return "(" + ",".join("?" * count) + ")"
