"""Callers' own provider keys: sealed at rest, used for their account alone, never shown again."""

import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from gateway_kit import FORMATS, GOOD, KEY, Exchange, Rig, error, plain, remembered
from hypothesis import given
from hypothesis import strategies as st

from kenari.cli import main
from kenari.config.load import parse_config
from kenari.core.caller import Caller, Scope
from kenari.core.errors import KenariError
from kenari.core.ids import derive_key
from kenari.doors.byok import ByokDoor
from kenari.gateway.services import Own
from kenari.keeper.own_keys import StoredOwnKeys, vault_of
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.vault import Unreadable, Vault, hint_of
from kenari.ledger.chain import Seals
from kenari.store.store import Store, StoreSettings

SECRET = "sk-proj-my-own-secret-key-1234"
ROOT = b"r" * 32
AUTH = {b"authorization": b"Bearer " + KEY.encode()}


def vault(*keys: bytes) -> Vault:
    return Vault([derive_key(key, "byok") for key in keys])


@given(
    st.text(min_size=1, max_size=80), st.text(max_size=20), st.text(max_size=20), st.binary(min_size=12, max_size=12)
)
def test_what_is_sealed_opens_for_its_owner_only(secret: str, account: str, provider: str, nonce: bytes) -> None:
    if "\ud800" <= max(secret) <= "\udfff":
        return
    safe = vault(b"a")
    sealed = safe.seal(account, provider, secret, nonce)
    assert safe.open(account, provider, sealed) == secret
    assert secret.encode() not in sealed or len(secret) < 3
    for who, where in ((account + "x", provider), (account, provider + "x")):
        with pytest.raises(Unreadable):
            safe.open(who, where, sealed)
    with pytest.raises(Unreadable):
        vault(b"b").open(account, provider, sealed)


@given(st.data())
def test_a_changed_bit_is_noticed(data: st.DataObject) -> None:
    sealed = vault(b"a").seal("acc", "p", SECRET, bytes(12))
    at = data.draw(st.integers(0, len(sealed) * 8 - 1))
    changed = bytearray(sealed)
    changed[at // 8] ^= 1 << at % 8
    with pytest.raises(Unreadable):
        vault(b"a").open("acc", "p", bytes(changed))
    for cut in (b"", sealed[:5], sealed[:17], sealed[:-1]):
        with pytest.raises(Unreadable):
            vault(b"a").open("acc", "p", cut)


def test_hints_are_short() -> None:
    assert hint_of(SECRET) == "1234"
    assert hint_of("sk-short") == ""


def test_secrets_of_before_open_and_the_present_one_seals_f10() -> None:
    old = vault_of(ROOT, "", ()).seal("a", "p", SECRET, bytes(12))
    new = vault_of(ROOT, "new", ())
    assert new.open("a", "p", old) == SECRET  # what the root had sealed
    with pytest.raises(Unreadable):
        vault_of(ROOT, "", ()).open("a", "p", new.seal("a", "p", SECRET, bytes(12)))  # the root seals no more
    newer = vault_of(ROOT, "newer", ("new",))
    sealed = new.seal("a", "p", SECRET, bytes(12))
    assert newer.open("a", "p", sealed) == SECRET
    with pytest.raises(Unreadable):
        vault_of(ROOT, "newer", ()).open("a", "p", sealed)


async def opened(folder: Path) -> Store:
    settings = StoreSettings(url=f"sqlite:///{folder}/kenari.db", node=f"n{time.monotonic_ns()}")
    store = Store(settings, Seals(b"s" * 32), time.time, os.urandom)
    await store.start()
    return store


def book_of(store: Store, safe: Vault, providers: tuple[str, ...] = ("p1",)) -> StoredOwnKeys:
    return StoredOwnKeys(store, safe, frozenset(providers), time.time, os.urandom)


def stored(folder: Path, story: Callable[[Store], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await opened(folder)
        try:
            await story(store)
        finally:
            await store.close()

    virtual_time.run(run())


def test_a_key_is_kept_used_replaced_and_forgotten(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        book = book_of(store, vault(b"a"))
        shown = await book.put("acc_1", "p1", SECRET, actor="key:k")
        assert (shown.provider, shown.hint) == ("p1", "1234")
        assert book.find("acc_1", "p1") == SECRET
        assert (book.find("acc_2", "p1"), book.find("acc_1", "p2")) == (None, None)
        other = book_of(store, vault(b"a"))
        assert other.find("acc_1", "p1") is None
        before = await store.sequence()
        await other.refresh()
        assert other.find("acc_1", "p1") == SECRET
        await book.put("acc_1", "p1", "another-key-of-mine", actor="key:k")
        assert await store.sequence() > before  # every process learns of it
        await other.refresh()
        assert other.find("acc_1", "p1") == "another-key-of-mine"
        assert [one.provider for one in await book.shown("acc_1")] == ["p1"]
        assert await book.shown("acc_2") == []
        assert await book.drop("acc_1", "p1", actor="key:k")
        assert not await book.drop("acc_1", "p1", actor="key:k")
        assert book.find("acc_1", "p1") is None
        log = await store.audit_log()
        assert [one.action for one in log] == ["byok.drop", "byok.put", "byok.put"]

    stored(tmp_path, story)


@pytest.mark.parametrize("secret", ["", "a b", "a\nb", "ключ", "x" * 5000])
def test_what_is_no_key_is_refused_without_repeating_it(tmp_path: Path, secret: str) -> None:
    async def story(store: Store) -> None:
        with pytest.raises(KenariError) as caught:
            await book_of(store, vault(b"a")).put("acc_1", "p1", secret, actor="a")
        assert caught.value.param == "key"
        assert not secret or secret not in caught.value.message
        with pytest.raises(KenariError) as caught:
            await book_of(store, vault(b"a")).put("acc_1", "p9", SECRET, actor="a")
        assert caught.value.code == "not_found"

    stored(tmp_path, story)


def test_rotation_seals_all_under_the_new_secret_or_none(tmp_path: Path) -> None:
    async def story(store: Store) -> None:
        old, new = vault(b"old"), vault(b"new", b"old")
        for account in ("a", "b"):
            await book_of(store, old).put(account, "p1", SECRET + account, actor="x")
        book = book_of(store, new)
        assert await book.rotate(actor="command") == 2
        only = book_of(store, vault(b"new"))
        await only.refresh()
        assert [only.find(account, "p1") for account in ("a", "b")] == [SECRET + "a", SECRET + "b"]
        before = await store.provider_keys()
        with pytest.raises(Unreadable):
            await book_of(store, vault(b"third")).rotate(actor="command")
        assert await store.provider_keys() == before

    stored(tmp_path, story)


def test_the_command_rotates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KENARI_SECRET", "root secret")
    monkeypatch.setenv("MASTER", "new master")
    text = '[byok]\nproviders = ["p"]\nsecret = "env:MASTER"\n[providers.p]\ndialect = "chat"\nbase_url = "http://127.0.0.1:1"\n'
    Path("kenari.toml").write_text(text)

    async def before(store: Store) -> None:
        await book_of(store, vault_of(b"root secret", "", ()), ("p",)).put("a", "p", SECRET, actor="x")

    stored(tmp_path, before)
    assert main(["byok", "rotate"]) == 0
    assert "1 keys" in capsys.readouterr().out

    async def after(store: Store) -> None:
        book = book_of(store, Vault([derive_key(b"new master", "byok")]))
        await book.refresh()
        assert book.find("a", "p") == SECRET

    stored(tmp_path, after)
    monkeypatch.setenv("MASTER", "third")
    assert main(["byok", "rotate"]) == 1
    assert "nothing was changed" in capsys.readouterr().err


def test_provider_keys_are_in_no_dump_of_the_database_log_or_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither as they are nor in hexadecimal; nor in what records look like."""

    async def story(store: Store) -> None:
        book = book_of(store, vault(b"a"))
        await book.put("acc_1", "p1", SECRET, actor="x")
        rows = await store.provider_keys()
        assert SECRET not in repr(rows) + repr(book) + repr(vault(b"a"))
        broken = book_of(store, vault(b"other"))
        await broken.refresh()
        assert broken.find("acc_1", "p1") is None

    with caplog.at_level(logging.DEBUG):
        stored(tmp_path, story)
    assert "sealed under another secret" in caplog.text
    assert SECRET not in caplog.text
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert SECRET.encode() not in data
        assert SECRET.encode().hex().encode() not in data


class Brought:
    """Keys that accounts have brought."""

    def __init__(self, **keys: str) -> None:
        self.keys = keys

    def find(self, account: str, provider: str) -> str | None:
        return self.keys.get(provider) if account == "operator" else None


def byok_rig(*scripts: Any, fee: int = 0, **keys: str) -> Rig:
    rig = Rig(*scripts)
    rig.own = Own(Brought(**keys), frozenset(("p1", "p2")), fee)
    return rig


@pytest.mark.parametrize("client", FORMATS)
def test_byok_is_served_with_the_callers_key_s109_u7(client: str) -> None:
    """Any model of a provider that takes own keys; the fee alone is paid; the id is echoed."""
    rig = byok_rig(GOOD, fee=5000, p1=SECRET)
    got = rig.ask(client, model="byok/p1/vendor/some-model")
    assert got.status == 200
    assert b"byok/p1/vendor/some-model" in got.out
    sent = rig.upstream.requests[0].headers
    assert b"authorization: Bearer " + SECRET.encode() in sent
    assert b"sk-p1" not in sent
    assert rig.upstream.sent[0]["model"] == "vendor/some-model"
    [leg] = rig.books.lines[0].legs
    assert (leg.target, leg.fee, leg.billed) == ("p1/vendor/some-model", 5000, True)


def test_a_failed_byok_request_costs_no_fee() -> None:
    rig = byok_rig(error(500), fee=5000, p1=SECRET)
    assert rig.ask("chat", model="byok/p1/x").status == 502
    assert rig.books.lines[0].legs[0].fee == 0


@pytest.mark.parametrize(
    ("status", "words"), [(402, "pay"), (400, "Your credit balance is too low"), (403, "no credits")]
)
def test_an_empty_account_behind_an_own_key_is_told_to_its_owner_e3(status: int, words: str) -> None:
    """It is not this server that owes."""
    rig = byok_rig([error(status, words)], p1=SECRET)
    got = rig.ask("chat", model="byok/p1/x")
    assert (got.status, got.header["x-should-retry"]) == (502, "false")
    wanted = "refused your own key" if status == 403 else "p1 wants to be paid for your own key"
    assert wanted in got.json["error"]["message"]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_own_key_is_told_to_its_owner_e3(status: int) -> None:
    """And says nothing about the operator's key for the same provider."""
    rig = byok_rig([error(status, f"bad key {SECRET}")], p1=SECRET)
    got = rig.ask("chat", model="byok/p1/x")
    assert (got.status, got.header["x-should-retry"]) == (502, "false")
    assert "refused your own key" in got.json["error"]["message"]
    assert SECRET not in got.out.decode()


def test_an_own_key_that_fails_does_not_set_the_operators_candidate_aside() -> None:
    rig = byok_rig([error(401), GOOD], p1=SECRET)

    async def story() -> list[int]:
        door = rig.build()
        services: Any = door._gateway._services  # pyright: ignore[reportPrivateUsage]
        statuses: list[int] = []
        for model in ("byok/p1/vendor-model", "m"):
            body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "x"}]}
            exchange = Exchange("/v1/chat/completions", json.dumps(body).encode())
            await door.serve(exchange)
            statuses.append(exchange.status)
        assert list(remembered(services.routing)) == ["p1/vendor-model"]  # of the operator's call alone
        services.ticker.close()
        return statuses

    assert virtual_time.run(story()) == [502, 200]


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        ("byok/p2/x", 400, "store one with PUT /v1/byok/p2"),
        ("byok/p3/x", 404, "there is no model"),
        ("byok/p1", 404, "there is no model"),
        ("byok/p1/", 404, "there is no model"),
    ],
)
def test_byok_without_a_key_or_a_provider(model: str, status: int, words: str) -> None:
    got = byok_rig([GOOD], [GOOD], p1=SECRET).ask("chat", model=model)
    assert got.status == status
    assert words in got.json["error"]["message"]


def test_byok_serves_the_other_endpoints_too() -> None:
    rig = byok_rig(plain({"data": [1], "usage": {"prompt_tokens": 3}}), fee=7, p1=SECRET)
    body = json.dumps({"model": "byok/p1/emb", "input": "x"}).encode()
    assert rig.post("/v1/embeddings", body, AUTH).status == 200
    assert SECRET.encode() in rig.upstream.requests[0].headers
    assert rig.books.lines[0].legs[0].fee == 7


def test_callers_store_list_and_forget_their_keys(tmp_path: Path) -> None:
    """Through the door: a key goes in once and never comes out."""

    async def story(store: Store) -> None:
        keys = BootstrapKeys({KEY: OPERATOR})
        door = Rig(GOOD).build()
        door.byok = ByokDoor(keys, book_of(store, vault(b"a")))

        async def call(method: str, path: str, body: Any = None, headers: Any = AUTH) -> Exchange:
            sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            exchange = Exchange(path, sent, dict(headers), method)
            await door.serve(exchange)
            return exchange

        put = await call("PUT", "/v1/byok/p1", {"key": SECRET})
        assert (put.status, put.json["provider"], put.json["hint"]) == (200, "p1", "1234")
        listed = await call("GET", "/v1/byok")
        assert [one["provider"] for one in listed.json["data"]] == ["p1"]
        assert SECRET not in (put.out + listed.out).decode()
        assert listed.header["cache-control"] == "no-store"
        assert (await call("DELETE", "/v1/byok/p1")).json == {"provider": "p1", "deleted": True}
        assert (await call("DELETE", "/v1/byok/p1")).status == 404
        for body in (b"", b"[]", {"key": 1}, {"key": SECRET, "x": 1}, {"secret": SECRET}, {"key": f"{SECRET} x"}):
            refused = await call("PUT", "/v1/byok/p1", body)
            assert (refused.status, refused.json["error"]["param"]) == (400, "key")
            assert SECRET not in refused.out.decode()
        assert (await call("PUT", "/v1/byok/nope", {"key": SECRET})).status == 404
        assert (await call("PUT", "/v1/byok/p1", b"x" * 20000)).status == 413
        assert (await call("PUT", "/v1/byok/p1", {"key": SECRET}, {})).status == 401
        wrong = await call("POST", "/v1/byok/p1", {"key": SECRET})
        assert (wrong.status, wrong.header["allow"]) == (405, "PUT, DELETE")
        assert (await call("DELETE", "/v1/byok")).status == 405

    stored(tmp_path, story)


@pytest.mark.parametrize("scope", [Scope(endpoints=("chat/completions",)), Scope(networks=(ip_network("10.0.0.0/8"),))])
def test_a_scoped_key_does_not_touch_the_accounts_own_keys_a2(tmp_path: Path, scope: Scope) -> None:
    """A key for one endpoint, or for another network, can neither replace nor take away what its account has stored."""

    async def story(store: Store) -> None:
        keys = BootstrapKeys({KEY: Caller(account="acc", key="k", scope=scope)})
        door = Rig(GOOD).build()
        door.byok = ByokDoor(keys, book_of(store, vault(b"a")))
        for method, path in (("PUT", "/v1/byok/p1"), ("DELETE", "/v1/byok/p1"), ("GET", "/v1/byok")):
            exchange = Exchange(path, json.dumps({"key": SECRET}).encode(), dict(AUTH), method)
            await door.serve(exchange)
            assert (exchange.status, exchange.json["error"]["code"]) == (403, "not_allowed")
        assert await store.audit_log() == []

    stored(tmp_path, story)


def test_settings_of_byok() -> None:
    values = {
        "providers": {"p": {"dialect": "chat", "base_url": "http://127.0.0.1:1"}},
        "byok": {"providers": ["p"], "fee": "0.001", "secret": "s", "old_secrets": ["o"]},
    }
    byok = parse_config(values, {}, "x").byok
    assert (byok.providers, byok.fee, byok.secret, byok.old_secrets) == (("p",), 1_000_000, "s", ("o",))
    assert "'s'" not in repr(byok)
    assert "'o'" not in repr(byok)
