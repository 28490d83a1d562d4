"""Callers' own provider keys, sealed (BYOK): the only table that holds something which opens another's door."""

from kenari.store.database import Database
from kenari.store.records import ProviderKeyRow

TABLE = (
    """CREATE TABLE provider_keys (
        account TEXT NOT NULL, provider TEXT NOT NULL, sealed TEXT NOT NULL, hint TEXT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (account, provider))""",
)
_COLUMNS = "account, provider, sealed, hint, created_at"


def put(database: Database, row: ProviderKeyRow) -> None:
    """Keep it in the place of an earlier one."""
    database.run("DELETE FROM provider_keys WHERE account = ? AND provider = ?", (row.account, row.provider))
    values = (row.account, row.provider, row.sealed.hex(), row.hint, row.created_at)
    database.run("INSERT INTO provider_keys VALUES (?,?,?,?,?)", values)


def drop(database: Database, account: str, provider: str) -> bool:
    """Forget it; False when there was none."""
    sql = "DELETE FROM provider_keys WHERE account = ? AND provider = ? RETURNING provider"
    return bool(database.run(sql, (account, provider)))


def rows(database: Database, account: str = "") -> list[ProviderKeyRow]:
    """Those of an account, or all."""
    which, values = (" WHERE account = ?", (account,)) if account else ("", ())
    found = database.run(f"SELECT {_COLUMNS} FROM provider_keys{which} ORDER BY account, provider", values)
    return [ProviderKeyRow(row[0], row[1], bytes.fromhex(row[2]), row[3], row[4]) for row in found]
