"""The tables, in numbered steps. A step is never changed once it was released: a database of every release opens in every
later one, because each process runs the steps that are missing when it starts."""

from kenari.store import answers, provider_keys
from kenari.store.database import Database, Refused
from kenari.store.records import Conflict

FIRST = (
    """CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)""",
    """CREATE TABLE changes (id BIGINT PRIMARY KEY, sequence BIGINT NOT NULL, audits BIGINT NOT NULL)""",
    """INSERT INTO changes VALUES (1, 1, 0)""",
    """CREATE TABLE accounts (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, plan TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL,
        closed_at DOUBLE PRECISION, balance BIGINT NOT NULL, reserved BIGINT NOT NULL, budget TEXT, rates TEXT NOT NULL)""",
    """CREATE TABLE keys (
        id TEXT PRIMARY KEY, account TEXT NOT NULL, name TEXT NOT NULL, scope TEXT NOT NULL, rates TEXT NOT NULL, budget TEXT,
        created_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION, revoked_at DOUBLE PRECISION)""",
    """CREATE INDEX keys_account ON keys (account, id)""",
    """CREATE TABLE secrets (
        digest TEXT PRIMARY KEY, key_id TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION)""",
    """CREATE INDEX secrets_key ON secrets (key_id)""",
    """CREATE TABLE prices (
        version TEXT PRIMARY KEY, input BIGINT NOT NULL, output BIGINT NOT NULL, cache_read BIGINT NOT NULL,
        cache_write BIGINT NOT NULL, cache_write_1h BIGINT NOT NULL, first_used DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE spending (
        subject TEXT NOT NULL, span TEXT NOT NULL, started DOUBLE PRECISION NOT NULL, amount BIGINT NOT NULL,
        reserved BIGINT NOT NULL, PRIMARY KEY (subject, span))""",
    """CREATE TABLE holds (
        id TEXT PRIMARY KEY, account TEXT NOT NULL, key_id TEXT NOT NULL, model TEXT NOT NULL, amount BIGINT NOT NULL,
        estimate BIGINT NOT NULL, owner TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, price TEXT,
        unlimited BIGINT NOT NULL, repeat TEXT NOT NULL)""",
    """CREATE TABLE owners (id TEXT PRIMARY KEY, lease_until DOUBLE PRECISION NOT NULL)""",
    """CREATE TABLE repeats (
        account TEXT NOT NULL, digest TEXT NOT NULL, body TEXT NOT NULL, request TEXT NOT NULL,
        expires_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (account, digest))""",
    """CREATE INDEX repeats_expiry ON repeats (expires_at)""",
    """CREATE TABLE entries (
        id TEXT PRIMARY KEY, writer TEXT NOT NULL, seq BIGINT NOT NULL, kind TEXT NOT NULL, account TEXT NOT NULL,
        key_id TEXT NOT NULL, model TEXT NOT NULL, time DOUBLE PRECISION NOT NULL, day TEXT NOT NULL, status BIGINT NOT NULL,
        input BIGINT NOT NULL, cache_read BIGINT NOT NULL, cache_write BIGINT NOT NULL, output BIGINT NOT NULL,
        charge BIGINT NOT NULL, amount BIGINT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)""",
    """CREATE UNIQUE INDEX entries_chain ON entries (writer, seq)""",
    """CREATE INDEX entries_time ON entries (time)""",
    """CREATE INDEX entries_account ON entries (account, time)""",
    """CREATE TABLE checkpoints (
        writer TEXT NOT NULL, seq BIGINT NOT NULL, hash TEXT NOT NULL, time DOUBLE PRECISION NOT NULL, mac TEXT NOT NULL,
        PRIMARY KEY (writer, seq))""",
    """CREATE TABLE carried (subject TEXT PRIMARY KEY, amount BIGINT NOT NULL, charge BIGINT NOT NULL, mac TEXT NOT NULL)""",
    """CREATE TABLE audit (
        number BIGINT PRIMARY KEY, time DOUBLE PRECISION NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
        subject TEXT NOT NULL, detail TEXT NOT NULL)""",
    """CREATE INDEX audit_subject ON audit (subject, number)""",
)

STEPS: tuple[tuple[str, ...], ...] = (FIRST, provider_keys.TABLE, answers.TABLE)
"""Step 1 first. A new release appends its step."""


def migrate(database: Database, currency: str, steps: tuple[tuple[str, ...], ...] = STEPS) -> tuple[int, int]:
    """Bring the tables to this release in one transaction; the version before and after.

    Raises Conflict when the database belongs to a newer release, or holds money of another currency. An empty database
    takes `currency` for good.
    """
    database.begin()
    try:
        database.migration_lock()
        before = version(database)
        if before > len(steps):
            raise Conflict(
                f"the store is of a newer release (its version is {before}, this release knows {len(steps)}). "
                "run that release, or restore a backup made before the upgrade"
            )
        for number, step in enumerate(steps[before:], before + 1):
            for statement in step:
                database.run(statement)
            if number == 1:
                database.run("INSERT INTO meta VALUES ('version', '1'), ('currency', ?)", (currency,))
        database.run("UPDATE meta SET value = ? WHERE name = 'version'", (str(len(steps)),))
        found = database.run("SELECT value FROM meta WHERE name = 'currency'")
        if found[0][0] != currency:
            raise Conflict(
                f'the store holds money in {found[0][0]}: set [billing] currency = "{found[0][0]}", or use another store'
            )
        database.commit()
    except BaseException:
        database.rollback()
        raise
    return before, len(steps)


def version(database: Database) -> int:
    """The version of the tables within a transaction, 0 for an empty database."""
    names = "SELECT 1 FROM information_schema.tables WHERE table_name = 'meta' AND table_schema = current_schema()"
    if not database.lock_rows:
        names = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    if not database.run(names):
        return 0
    found = database.run("SELECT value FROM meta WHERE name = 'version'")
    try:
        return int(found[0][0])
    except (IndexError, ValueError):
        raise Refused("the table meta names no version") from None
