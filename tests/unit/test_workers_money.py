"""Money, limits and keys over several workers: as exact as in one process."""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from workers_kit import CHAT, PLAYS, Stream, config_file, configuration, until, workers_of

from tests.gateway import Answer, Gateway, running_gateway
from tests.upstream import scripted_provider

TOKEN = "the-management-token-of-the-test"
PLAYS_PAID = {name: play._replace(output=100) for name, play in PLAYS.items()}
PRICE = '[models.plain.price]\ninput = "0"\noutput = "10000"\n[models.hangs.price]\ninput = "0"\noutput = "10000"\n'
"""A hundred tokens of output cost 1."""


class Node:
    """A running node and its management API."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        until(lambda: self._admin() is not None)
        found = self._admin()
        assert found is not None
        self._api = Gateway.__new__(Gateway)
        self._api.url = f"http://{found.group(1)}"

    def _admin(self) -> "re.Match[str] | None":
        return re.search(r"management api: (\S+)", "".join(self.gateway.said))

    def manage_raw(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        return self._api.call(f"/admin/v1{path}", body, method=method, key=TOKEN)

    def manage(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self.manage_raw(method, path, body)
        assert answer.status < 300, answer.body
        return answer.json() if answer.body else None

    def key(self, credit: str = "10", **key: Any) -> tuple[str, str, str]:
        """Account, key id and secret."""
        account = self.manage("POST", "/accounts", {"name": "a"})["id"]
        self.manage("POST", f"/accounts/{account}/credits", {"amount": credit})
        made = self.manage("POST", "/keys", {"account": account, "name": "k"} | key)
        return account, made["id"], made["secret"]

    def ask(self, secret: str, number: int, model: str = "plain") -> Answer:
        """One request, unlike all others."""
        body = {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": f"request {number}"}]}
        return self.gateway.call(CHAT, body, key=secret)

    def known(self, secret: str) -> None:
        """Wait until every worker knows a key: none of many connections meets one that does not."""
        with ThreadPoolExecutor(10) as pool:
            until(lambda: 401 not in pool.map(partial(self._status, secret), range(40)))

    def _status(self, secret: str, number: int) -> int:
        return self.ask(secret, -number, "nothing").status

    def verify(self) -> "subprocess.CompletedProcess[str]":
        """`kenari ledger verify`."""
        return subprocess.run(
            [sys.executable, "-m", "kenari.cli", "ledger", "verify", "--config", str(config_file(self.gateway))],
            cwd=config_file(self.gateway).parent,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@contextmanager
def node(workers: int = 4) -> Generator[Node]:
    with scripted_provider(PLAYS_PAID) as provider:
        text = configuration(provider.base_url("chat"), workers) + PRICE
        with running_gateway(text, env={"KENARI_ADMIN_TOKEN": TOKEN}) as gateway:
            yield Node(gateway)


def test_a_balance_for_ten_lets_exactly_ten_of_a_hundred_pass_over_four_workers() -> None:
    with node(4) as here:
        account, _, secret = here.key("10")
        here.known(secret)
        with ThreadPoolExecutor(50) as pool:
            statuses = Counter(answer.status for answer in pool.map(partial(here.ask, secret), range(100)))
        assert statuses == {200: 10, 402: 90}
        until(lambda: here.manage("GET", f"/accounts/{account}")["reserved"] in ("0", "0.00"))
        assert float(here.manage("GET", f"/accounts/{account}")["balance"]) == 0
        told = here.verify()
        assert told.returncode == 0, told.stdout + told.stderr


def test_a_revoked_key_is_refused_by_every_worker_within_two_seconds() -> None:
    with node(4) as here:
        _, key, secret = here.key("1000")
        until(lambda: all(here.ask(secret, n).status == 200 for n in range(8)))
        here.manage("DELETE", f"/keys/{key}")
        time.sleep(2.0)
        with ThreadPoolExecutor(16) as pool:
            statuses = [answer.status for answer in pool.map(partial(here.ask, secret), range(100, 140))]
        assert statuses == [401] * 40


def test_limits_are_exact_over_workers() -> None:
    with node(4) as here:
        _, _, secret = here.key("1000", limits={"rpm": 12})
        here.known(secret)
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(partial(here.ask, secret), range(40)))
        assert Counter(answer.status for answer in answers) == {200: 12, 429: 28}
        for answer in answers:
            assert answer.headers["x-ratelimit-limit-requests"] == "12"
            if answer.status == 429:
                assert int(answer.headers["retry-after"]) >= 1


def test_a_caller_reads_its_own_key_and_bill_from_any_worker() -> None:
    with node(3) as here:
        account, key, secret = here.key("10")
        until(lambda: here.ask(secret, 0).status == 200)
        answer = here.ask(secret, 1)
        until(lambda: here.gateway.call(_bill(answer), method="GET", key=secret).status == 200)
        for _ in range(9):
            read = here.gateway.call("/v1/key", method="GET", key=secret)
            assert (read.status, read.json()["id"]) == (200, key)
            bill = here.gateway.call(_bill(answer), method="GET", key=secret)
            assert float(bill.json()["charge"]) == 1
            assert here.gateway.call("/v1/credits", method="GET", key=secret).json()["account"] == account
            assert here.gateway.call(_bill(answer)[:-4] + "ffff", method="GET", key=secret).status == 404


def _bill(answer: Answer) -> str:
    return f"/v1/generation?id={answer.headers['x-request-id']}"


def test_the_death_of_a_worker_frees_its_holds_and_places_at_once() -> None:
    with node(2) as here:
        account, _, secret = here.key("100", limits={"concurrent": 6})
        here.known(secret)
        streams = [Stream(here.gateway, "hangs", secret, f"stream {n}").begin() for n in range(6)]
        assert here.ask(secret, 1).status == 429
        assert float(here.manage("GET", f"/accounts/{account}")["reserved"]) > 0
        for worker in workers_of(here.gateway):
            worker.kill()
        for stream in streams:
            line = here.gateway.line_of(stream.id)
            assert (line["reason"], line["account"]) == ("crashed", account)
        until(lambda: float(here.manage("GET", f"/accounts/{account}")["reserved"]) == 0)
        until(lambda: here.ask(secret, 2).status == 200)
        assert all(stream.broken() for stream in streams)
        for stream in streams:
            bill = here.manage("GET", f"/requests/{stream.id}")
            assert bill["reason"] == "crashed"
        told = here.verify()
        assert told.returncode == 0, told.stdout + told.stderr


def test_after_the_death_of_the_keeper_nothing_stays_reserved() -> None:
    with scripted_provider(PLAYS_PAID) as provider:
        text = configuration(provider.base_url("chat"), 2, drain="1s") + PRICE
        with running_gateway(text, env={"KENARI_ADMIN_TOKEN": TOKEN}) as gateway:
            here = Node(gateway)
            account, _, secret = here.key("100")
            here.known(secret)
            streams = [Stream(gateway, "hangs", secret, f"stream {n}").begin() for n in range(4)]
            file = config_file(gateway)
            workers = workers_of(gateway)
            gateway.process.kill()
            gateway.process.wait()
            assert all(stream.broken() for stream in streams)
            until(lambda: not any(worker.is_running() for worker in workers))
            again = subprocess.Popen(
                [sys.executable, "-m", "kenari.cli", "serve", "--config", str(file)],
                cwd=file.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={"KENARI_ADMIN_TOKEN": TOKEN, "PATH": "/usr/bin:/bin"},
            )
            second = Gateway(again)
            try:
                assert second.ready.wait(30)
                here = Node(second)
                standing = here.manage("GET", f"/accounts/{account}")
                assert float(standing["reserved"]) == 0
                for stream in streams:
                    assert here.manage("GET", f"/requests/{stream.id}")["reason"] == "crashed"
            finally:
                second.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_reload_by_the_management_api(workers: int) -> None:
    with node(workers) as here:
        file = config_file(here.gateway)
        good = file.read_text()
        file.write_text(good + '[models.more]\ntargets = ["p/plain"]\n')
        assert here.manage("POST", "/reload") == {"reloaded": True, "faults": []}
        ask = {"model": "more", "messages": [{"role": "user", "content": "x"}]}
        assert [here.gateway.call(CHAT, ask).status for _ in range(6)] == [200] * 6
        assert here.manage("GET", "/status")["models"] == len(PLAYS) + 1
        file.write_text(good + "[models.bad]\n")
        refused = here.manage("POST", "/reload")
        assert refused["reloaded"] is False
        assert [fault["path"] for fault in refused["faults"]] == ["models.bad.targets"]
