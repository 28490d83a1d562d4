"""The end of this writer's chain, kept in memory between batches, and the rows that new entries make."""

from collections.abc import Sequence

import msgspec

from kenari.core.entries import Sealing
from kenari.store.database import Database, Row, Value, rows_of

CHECKPOINT_ENTRIES = 1000
_COLUMNS = 18
_CHUNK = 200


class NewEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An entry before it has a place in the chain."""

    id: str
    kind: str
    account: str
    key: str = ""
    model: str = ""
    time: float
    day: str
    status: int = 0
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Fresh input, cache read, cache write, output."""
    charge: int = 0
    amount: int
    body: bytes


def is_foreign(database: Database, sealing: Sealing) -> bool:
    """Whether the last checkpoint, whoever wrote it, was stamped under another root secret than `sealing` has."""
    for writer, seq, hash, time, mac in database.run(
        "SELECT writer, seq, hash, time, mac FROM checkpoints ORDER BY time DESC LIMIT 1"
    ):
        return sealing.stamp(writer, seq, hash, time) != mac
    return False


class Chain:
    """This writer's chain. `append` moves the head; after a rollback `load` reads it anew."""

    def __init__(self, writer: str, sealing: Sealing) -> None:
        self._writer, self._sealing = writer, sealing
        self._seq, self._hash = 0, ""
        self._stamped = 0

    def load(self, database: Database) -> None:
        """Read the head: of the entries, or of the last checkpoint when all of them were pruned."""
        self._seq, self._hash, self._stamped = 0, self._sealing.genesis(self._writer), 0
        stamps = database.run(
            "SELECT seq, hash FROM checkpoints WHERE writer = ? ORDER BY seq DESC LIMIT 1", (self._writer,)
        )
        if stamps:
            self._seq, self._hash = stamps[0]
            self._stamped = self._seq
        entries = database.run(
            "SELECT seq, hash FROM entries WHERE writer = ? ORDER BY seq DESC LIMIT 1", (self._writer,)
        )
        if entries and entries[0][0] >= self._seq:
            self._seq, self._hash = entries[0]

    def append(self, database: Database, entries: Sequence[NewEntry], now: float) -> None:
        """Write entries behind the head, within the transaction that is open."""
        for start in range(0, len(entries), _CHUNK):
            values: list[Value] = []
            part = entries[start : start + _CHUNK]
            for entry in part:
                values += self._row(entry)  # all in one statement: after each one the thread waits for its turn
            database.run(f"INSERT INTO entries VALUES {rows_of(len(part), _COLUMNS)}", values)
        if self._seq - self._stamped >= CHECKPOINT_ENTRIES:
            self.stamp(database, now)

    def stamp(self, database: Database, now: float) -> None:
        """Write a checkpoint of the head, unless it has one."""
        if self._seq == self._stamped:
            return
        mac = self._sealing.stamp(self._writer, self._seq, self._hash, now)
        database.run("INSERT INTO checkpoints VALUES (?,?,?,?,?)", (self._writer, self._seq, self._hash, now, mac))
        self._stamped = self._seq

    def _row(self, entry: NewEntry) -> Row:
        self._seq += 1
        self._hash = self._sealing.link(self._hash, entry.body)
        return (
            entry.id,
            self._writer,
            self._seq,
            entry.kind,
            entry.account,
            entry.key,
            entry.model,
            entry.time,
            entry.day,
            entry.status,
            *entry.tokens,
            entry.charge,
            entry.amount,
            entry.body.decode(),
            self._hash,
        )
