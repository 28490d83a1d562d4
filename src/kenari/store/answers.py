"""Answers that the operator keeps for a time, sealed, and who is making the one of a request that came again (F14)."""

import base64

from kenari.store.database import Database
from kenari.store.records import Repeated

TABLE = (
    """CREATE TABLE answers (request TEXT PRIMARY KEY, sealed TEXT NOT NULL, expires_at DOUBLE PRECISION NOT NULL)""",
    """CREATE INDEX answers_expiry ON answers (expires_at)""",
)


def keep(database: Database, request: str, sealed: bytes, expires_at: float) -> None:
    """Keep an answer until a time."""
    values = (request, base64.b64encode(sealed).decode(), expires_at)
    database.run("INSERT INTO answers VALUES (?,?,?) ON CONFLICT (request) DO NOTHING", values)


def repeated(database: Database, account: str, digest: str, now: float) -> Repeated | None:
    """What is known of the request that came under an Idempotency-Key first; None when there is none."""
    found = database.run(
        "SELECT r.request, r.body, h.owner, a.sealed FROM repeats r LEFT JOIN holds h ON h.id = r.request"
        " LEFT JOIN answers a ON a.request = r.request AND a.expires_at > ?"
        " WHERE r.account = ? AND r.digest = ? AND r.expires_at > ?",
        (now, account, digest, now),
    )
    if not found:
        return None
    request, body, owner, sealed = found[0]
    node = (owner or "").partition("/")[0]
    return Repeated(request, bytes.fromhex(body), node, None if sealed is None else base64.b64decode(sealed))


def forget(database: Database, now: float) -> None:
    """Those whose time is over."""
    database.run("DELETE FROM answers WHERE expires_at < ?", (now,))
