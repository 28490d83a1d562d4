"""Money over HTTP with real processes: two nodes of one PostgreSQL, workers over SQLite, and kill -9 at any moment."""

import asyncio
import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from store_kit import opened
from test_workers_money import PLAYS_PAID, PRICE, TOKEN, Node
from workers_kit import CHAT, configuration, until

from kenari.core.price import UNIT
from kenari.ledger.lines import read_bill
from tests.gateway import Gateway
from tests.upstream import scripted_provider

ENVIRONMENT = {
    "KENARI_SECRET": "one secret of all nodes of the test",
    "KENARI_ADMIN_TOKEN": TOKEN,
    "KENARI_BOOTSTRAP_KEY": "kn-test-bootstrap",
}
REQUESTS, KILLS = 500, 6


class Place:
    """Where one node runs: it may be started again and again."""

    def __init__(self, folder: Path, url: str, provider: str, number: int, workers: int) -> None:
        self.folder = folder / f"node{number}"
        self.folder.mkdir()
        self.file = self.folder / "kenari.toml"
        self.file.write_text(
            configuration(provider, workers, drain="2s")
            + PRICE
            + f'[store]\nurl = "{url.replace("DIR", str(self.folder))}"\nnode = "node{number}"\n'
        )
        self.gateway = self.start()

    def start(self) -> Gateway:
        """A new process."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kenari.cli", "serve", "--config", str(self.file)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"PATH": os.environ.get("PATH", "")},
        )
        self.gateway = Gateway(self.process)
        assert self.gateway.ready.wait(60), self.gateway.said
        return self.gateway

    def kill(self) -> None:
        """kill -9, and a new process of the same name."""
        self.process.kill()
        self.gateway.stop()
        self.start()

    def stop(self) -> None:
        """End the process that runs now."""
        self.gateway.stop()

    def verify(self) -> "subprocess.CompletedProcess[str]":
        """`kenari ledger verify`."""
        return subprocess.run(
            [sys.executable, "-m", "kenari.cli", "ledger", "verify", "--config", str(self.file)],
            cwd=self.folder,
            env=ENVIRONMENT | {"PATH": os.environ.get("PATH", "")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@contextmanager
def places(folder: Path, urls: Sequence[str], workers: int = 1) -> Generator[list[Place]]:
    """One node for each address."""
    with ExitStack() as stack:
        provider = stack.enter_context(scripted_provider(PLAYS_PAID))
        nodes: list[Place] = []
        for number, url in enumerate(urls):
            nodes.append(Place(folder, url, provider.base_url("chat"), number, workers))
            stack.callback(nodes[-1].stop)
        yield nodes


def test_a_balance_for_ten_lets_ten_of_a_hundred_pass_over_two_nodes(
    new_postgres: Callable[[], str], tmp_path: Path
) -> None:
    """The others are 402, the balance ends at 0, the ledger verifies, and so it does for a budget that nodes share."""
    url = new_postgres()
    with places(tmp_path, [url, url]) as nodes:
        one, two = (Node(place.gateway) for place in nodes)
        account, _, secret = one.key("10")

        def status(key: str, at: int) -> int:
            return (one, two)[at % 2].ask(key, at).status

        rich = one.key("1000", budget={"amount": "7", "window": "day"})
        until(
            lambda: all(node.ask(key, -1, "nothing").status == 404 for node in (one, two) for key in (secret, rich[2]))
        )
        with ThreadPoolExecutor(50) as pool:
            statuses = Counter(pool.map(partial(status, secret), range(100)))
            assert statuses == {200: 10, 402: 90}
            shared = Counter(pool.map(partial(status, rich[2]), range(40)))
            assert shared == {200: 7, 402: 33}
        until(lambda: float(two.manage("GET", f"/accounts/{account}")["reserved"]) == 0)
        assert float(two.manage("GET", f"/accounts/{account}")["balance"]) == 0
        until(lambda: float(two.manage("GET", f"/accounts/{rich[0]}")["reserved"]) == 0)
        assert float(two.manage("GET", f"/accounts/{rich[0]}")["balance"]) == 993
        told = nodes[1].verify()
        assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_kill_9_at_any_moment_loses_no_request_and_charges_none_twice(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every answered request has exactly one line, and lines add up to credits - balance (issue: what it must show)."""
    if kind == "sqlite":
        urls, workers = ["sqlite:///DIR/kenari.db"], 2
    else:
        urls, workers = [request.getfixturevalue("new_postgres")()] * 2, 1
    dice = random.Random(20261130)
    with places(tmp_path, urls, workers) as nodes:
        account, _, secret = Node(nodes[0].gateway).key("100000")
        for place in nodes:
            until(lambda place=place: Node(place.gateway).ask(secret, -1, "nothing").status == 404)
        load = Load(nodes, secret)
        with load.running(12):
            for turn in range(KILLS):
                goal = REQUESTS * (turn + 1) // (KILLS + 1) + dice.randrange(20)
                until(lambda goal=goal: len(load.answered) >= goal, 120.0)
                time.sleep(dice.random() * 0.05)
                dice.choice(nodes).kill()
            until(lambda: len(load.answered) >= REQUESTS, 120.0)
        here = Node(nodes[0].gateway)
        until(lambda: float(here.manage("GET", f"/accounts/{account}")["reserved"]) == 0, 60.0)
        told = nodes[0].verify()
        assert told.returncode == 0, told.stdout + told.stderr
    url = urls[0].replace("DIR", str(nodes[0].folder))
    lines, balance = asyncio.run(bills(url, account))
    assert len(load.answered) >= REQUESTS
    assert set(load.answered) <= {line.id for line in lines}
    assert len({line.id for line in lines}) == len(lines)
    assert balance == 100_000 * UNIT - sum(line.charge for line in lines)
    crashed = [line for line in lines if line.reason == "crashed"]
    assert crashed  # or nothing was shown
    assert all(0 <= line.charge <= line.held for line in crashed)


async def bills(url: str, account: str) -> tuple[list[Any], int]:
    """All bill lines of an account, and its balance, when no process runs any more."""
    async with opened(url, time.time, node="afterwards") as store:
        found: list[Any] = []
        before = ""
        while page := await store.requests(account, limit=200, before=before):
            found += [read_bill(line.body) for line in page]
            before = page[-1].id
        return found, (await store.account(account)).balance


class Load:
    """Clients that ask, whatever happens. `answered` are the ids of requests that were answered whole."""

    def __init__(self, nodes: Sequence[Place], secret: str) -> None:
        self.nodes, self.secret = nodes, secret
        self.answered: list[str] = []
        self._over = threading.Event()

    @contextmanager
    def running(self, count: int) -> Generator[None]:
        """So many clients."""
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(60)

    def _client(self, number: int) -> None:
        dice = random.Random(number)
        for turn in range(10**6):
            if self._over.is_set():
                return
            stream = dice.random() < 0.6
            model = "slow" if dice.random() < 0.2 else "plain"
            body = {"model": model, "stream": stream, "max_tokens": 100}
            words = json.dumps(body | {"messages": [{"role": "user", "content": f"{number} {turn}"}]})
            with contextlib.suppress(http.client.HTTPException, OSError, ValueError):
                self._ask(dice.choice(self.nodes).gateway.address, words, stream)
                continue
            time.sleep(0.05)

    def _ask(self, address: tuple[str, int], words: str, stream: bool) -> None:
        connection = http.client.HTTPConnection(*address, timeout=30)
        try:
            headers = {"authorization": f"Bearer {self.secret}", "content-type": "application/json"}
            connection.request("POST", CHAT, words, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status == 200 and (not stream or text.endswith(b"data: [DONE]\n\n")):
                self.answered.append(str(answer.getheader("x-request-id")))
        finally:
            connection.close()
