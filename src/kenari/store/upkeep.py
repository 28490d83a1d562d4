"""What is done from time to time: estimates of running requests, leases of owners, and old entries."""

from kenari.core.entries import Sealing
from kenari.store import answers
from kenari.store.database import Database, Value, rows_of
from kenari.store.records import HoldRow
from kenari.store.rows import HOLD_COLUMNS, hold_of

GRACE_SECONDS = 10.0
"""How long after its lease an owner still counts as alive: clocks of nodes differ."""
_CHUNK = 400
PRUNED_AT_ONCE = 5000


class Upkeep:
    """Within the transaction that is open."""

    def __init__(self, database: Database, now: float) -> None:
        self._database, self._now = database, now

    def note(self, estimates: dict[str, int]) -> None:
        """What open holds would cost if they ended now."""
        items = sorted(estimates.items())
        for start in range(0, len(items), _CHUNK):
            part = items[start : start + _CHUNK]
            self._database.run(
                f"UPDATE holds SET estimate = v.column2 FROM (VALUES {rows_of(len(part), 2)}) AS v WHERE holds.id = v.column1",
                [value for item in part for value in item],
            )

    def keep(self, owner: str, lease: float) -> list[HoldRow]:
        """Renew a lease, forget what is past, and find the holds of owners whose lease has run out."""
        run = self._database.run
        run(
            "INSERT INTO owners VALUES (?,?) ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until",
            (owner, self._now + lease),
        )
        run("DELETE FROM repeats WHERE expires_at < ?", (self._now,))
        answers.forget(self._database, self._now)
        run("DELETE FROM secrets WHERE expires_at < ?", (self._now - 3600,))
        late = self._now - GRACE_SECONDS
        gone = {row[0] for row in run("SELECT id FROM owners WHERE lease_until < ?", (late,))}
        if not gone:
            return []
        holds = [hold_of(row) for row in run(f"SELECT {HOLD_COLUMNS} FROM holds ORDER BY id")]
        lost = [hold for hold in holds if hold.owner.partition("/")[0] in gone]
        empty = gone - {hold.owner.partition("/")[0] for hold in lost}
        for id in sorted(empty):
            run("DELETE FROM owners WHERE id = ? AND lease_until < ?", (id, late))
        return lost

    def leave(self, owner: str) -> None:
        """End a lease."""
        self._database.run("DELETE FROM owners WHERE id = ?", (owner,))

    def prune(self, before: float, sealing: Sealing) -> int:
        """Take old stretches of the chains out. What they added up to is carried, with a MAC; the checkpoint before the
        first entry that stays is what the chain is verified from."""
        run = self._database.run
        run("UPDATE changes SET audits = audits WHERE id = 1")  # one process at a time
        for writer, seq in run(
            "SELECT c.writer, MAX(c.seq) FROM checkpoints c JOIN entries e ON e.writer = c.writer AND e.seq = c.seq"
            " WHERE e.time < ? GROUP BY c.writer",
            (before,),
        ):
            first = run("SELECT MIN(seq) FROM entries WHERE writer = ?", (writer,))[0][0]
            last = run(
                "SELECT MIN(seq) FROM checkpoints WHERE writer = ? AND seq >= ? AND seq <= ?",
                (writer, min(first + PRUNED_AT_ONCE - 1, seq), seq),
            )[0][0]
            which: tuple[Value, ...] = (writer, last)
            for column, kind in (("account", "account:"), ("key_id", "key:")):
                sums = f"SELECT {column}, SUM(amount), SUM(charge) FROM entries WHERE writer = ? AND seq <= ?"
                for id, amount, charge in run(f"{sums} AND {column} <> '' GROUP BY {column} ORDER BY {column}", which):
                    self._carry(kind + id, int(amount), int(charge), sealing)
            gone = run("DELETE FROM entries WHERE writer = ? AND seq <= ? RETURNING seq", which)
            run("DELETE FROM checkpoints WHERE writer = ? AND seq < ?", which)
            return len(gone)
        return 0

    def _carry(self, subject: str, amount: int, charge: int, sealing: Sealing) -> None:
        for before in self._database.run("SELECT amount, charge FROM carried WHERE subject = ?", (subject,)):
            amount, charge = amount + before[0], charge + before[1]
        self._database.run(
            "INSERT INTO carried VALUES (?,?,?,?) ON CONFLICT (subject) DO UPDATE SET amount = excluded.amount,"
            " charge = excluded.charge, mac = excluded.mac",
            (subject, amount, charge, sealing.stamp_carried(subject, amount, charge)),
        )
