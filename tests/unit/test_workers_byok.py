"""Callers' own provider keys over several workers: stored in one, used in all, forgotten in all."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from workers_kit import CHAT, PLAYS, configuration, said, until, workers_of

from tests.gateway import Answer, Gateway, running_gateway
from tests.upstream import scripted_provider

OWN = "sk-proj-my-own-secret-key-1234"
OTHER = "sk-proj-another-secret-key-5678"
MASTER = "the-master-secret-of-the-test"
MANY = 30
"""Requests, each on a connection of its own: three workers all get some."""


def ask(gateway: Gateway, number: int = 0) -> Answer:
    body = {"model": "byok/p/plain", "max_tokens": 9, "messages": [{"role": "user", "content": f"request {number}"}]}
    return gateway.call(CHAT, body)


def ask_all(gateway: Gateway) -> set[int]:
    """The statuses of many requests."""
    with ThreadPoolExecutor(6) as pool:
        return {answer.status for answer in pool.map(partial(ask, gateway), range(MANY))}


def test_own_keys_hold_in_every_worker() -> None:
    with scripted_provider(PLAYS) as provider:
        text = configuration(provider.base_url("chat"), 3) + '[byok]\nproviders = ["p"]\nsecret = "env:MASTER"\n'
        with running_gateway(text, env={"MASTER": MASTER}) as gateway:

            def used() -> set[str]:
                return {seen.headers["authorization"] for seen in provider.seen}

            def used_now() -> set[str]:
                provider.seen.clear()
                assert ask_all(gateway) == {200}
                return used()

            assert ask(gateway).status == 400
            put = gateway.call("/v1/byok/p", {"key": OWN}, method="PUT")
            assert (put.status, put.json()["hint"]) == (200, "1234")
            until(lambda: ask_all(gateway) == {200})
            assert used() == {f"Bearer {OWN}"}
            for _ in range(12):
                [shown] = gateway.call("/v1/byok", method="GET").json()["data"]
                assert (shown["provider"], shown["hint"]) == ("p", "1234")
            assert gateway.call("/v1/byok/p", {"key": f"{OWN} x"}, method="PUT").status == 400
            assert gateway.call("/v1/byok/nope", {"key": OWN}, method="PUT").status == 404

            before = workers_of(gateway)
            for worker in before:
                worker.kill()
            until(lambda: len({one.pid for one in workers_of(gateway)} - {one.pid for one in before}) == 3)
            until(lambda: ask(gateway).status == 200)
            assert ask_all(gateway) == {200}  # who is started again knows them

            assert gateway.call("/v1/byok/p", {"key": OTHER}, method="PUT").json()["hint"] == "5678"
            until(lambda: used_now() == {f"Bearer {OTHER}"})
            assert used_now() == {f"Bearer {OTHER}"}

            assert gateway.call("/v1/byok/p", method="DELETE").json() == {"provider": "p", "deleted": True}
            until(lambda: ask_all(gateway) == {400})
            assert ask_all(gateway) == {400}
            assert gateway.call("/v1/byok/p", method="DELETE").status == 404
            for secret in (OWN, OTHER, MASTER):
                assert not said(gateway, secret)
                assert not any(secret in str(line) for line in gateway.lines)
