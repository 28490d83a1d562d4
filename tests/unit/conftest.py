"""Databases for tests: a SQLite file, or a database of a real PostgreSQL server that runs for the session."""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_kit import make_postgres_database, start_postgres

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a real PostgreSQL server; skipped where none can be had."""
    with tempfile.TemporaryDirectory(prefix="kn-pg-", dir="/tmp" if os.path.isdir("/tmp") else None) as folder:
        server, reason = start_postgres(Path(folder))
        if server is None:
            pytest.skip(f"no PostgreSQL here: {reason}")
        yield server.url
        server.stop()


@pytest.fixture
def new_postgres(postgres_server: str) -> Callable[[], str]:
    """Makes an empty database; its address."""
    return lambda: make_postgres_database(postgres_server, f"t{os.getpid()}_{next(_numbers)}")


DATABASES = ["sqlite"] if os.environ.get("HYPOTHESIS_PROFILE") == "seed" else ["sqlite", "postgres"]
"""A seeded fault is looked for on one of them: its run has little time."""


@pytest.fixture(params=DATABASES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kenari.db"
    make: Callable[[], str] = request.getfixturevalue("new_postgres")
    return make()
