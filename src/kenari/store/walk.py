"""Everything that the ledger holds, in the order of its chains, as it was at one moment."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC

from kenari.core.entries import Entry, Figures
from kenari.store.database import Database
from kenari.store.reports import Reports


@contextmanager
def walk(database: Database) -> Generator[tuple[Figures, Iterator[Entry]]]:
    """The figures and an iterator over all entries, page by page, in one transaction that only reads."""
    database.begin(read=True)
    try:
        reports = Reports(database, 0.0, UTC)
        yield reports.figures(), _entries(reports)
    finally:
        database.rollback()


def _entries(reports: Reports) -> Iterator[Entry]:
    page = reports.entries("", 0)
    while page:
        yield from page
        page = reports.entries(page[-1].writer, page[-1].seq)
