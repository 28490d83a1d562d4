"""The management API on a real socket in front of a real store: every route, every refusal."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from admin_kit import NOW, TOKEN, Admin, Clock, admin_port, bill, kept
from edge_kit import run

from kenari.doors.admin.door import MAX_BODY, ROUTES
from kenari.doors.admin.table import PREFIX
from kenari.keys.secrets import well_formed
from kenari.store.records import StoreDown
from kenari.store.store import Store

ACCOUNTS, KEYS = PREFIX + "/accounts", PREFIX + "/keys"


def play(folder: Path, act: Callable[[Admin], Awaitable[None]], currency: str = "USD", digits: int = 2) -> None:
    """Act on an admin port in front of a fresh store."""

    async def main() -> None:
        async with kept(folder) as store, admin_port(store, currency=currency, digits=digits) as admin:
            await act(admin)

    run(main())


async def some_key(admin: Admin, **more: Any) -> tuple[str, str, str]:
    """An account with a key: account, key, secret."""
    account = (await admin.ok("POST", ACCOUNTS, {"name": "team", "credit": "10"}))["id"]
    key = await admin.ok("POST", KEYS, {"account": account, "name": "k"} | more)
    return account, key["id"], key["secret"]


# -- accounts


def test_an_account_is_made_shown_changed_and_closed(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        status, headers, made = await admin.call("POST", ACCOUNTS, {"name": "team", "plan": "pro", "credit": "12.5"})
        assert status == 201
        assert headers["content-type"] == "application/json"
        assert headers["cache-control"] == "no-store"
        assert made["id"].startswith("acc_")
        assert made == {
            "id": made["id"],
            "name": "team",
            "plan": "pro",
            "currency": "USD",
            "balance": "12.50",
            "reserved": "0.00",
            "budget": None,
            "limits": {"rpm": None, "tpm": None, "concurrent": None},
            "created_at": "2026-05-28T20:26:40.000Z",
            "closed_at": None,
        }
        path = f"{ACCOUNTS}/{made['id']}"
        assert await admin.ok("GET", path) == made | {"spent": None}
        budget = {"amount": "5.00", "window": "week"}
        changed = await admin.ok("PATCH", path, {"name": "crew", "budget": budget, "limits": {"rpm": 3}})
        assert (changed["name"], changed["plan"], changed["budget"]) == ("crew", "pro", budget)
        assert changed["limits"] == {"rpm": 3, "tpm": None, "concurrent": None}
        spent = (await admin.ok("GET", path))["spent"]
        assert spent == {"amount": "0.00", "reserved": "0.00", "since": "2026-05-25T00:00:00.000Z"}
        freed = await admin.ok("PATCH", path, {"budget": None, "limits": None, "closed": True})
        assert (freed["budget"], freed["limits"]["rpm"], freed["closed_at"]) == (None, None, made["created_at"])
        assert (await admin.refused("POST", KEYS, {"account": made["id"], "name": "k"}))[:2] == (409, "conflict")
        assert (await admin.refused("POST", path + "/credits", {"amount": "1"}))[:2] == (409, "conflict")
        assert (await admin.ok("PATCH", path, {"closed": False}))["closed_at"] is None

    play(tmp_path, act)


def test_u4_credit_is_given_and_taken_to_the_ninth_decimal(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        path = f"{ACCOUNTS}/{(await admin.ok('POST', ACCOUNTS, {'name': 'a'}))['id']}/credits"
        assert (await admin.ok("POST", path, {"amount": "0.000000001", "note": "n"}))["balance"] == "0.000000001"
        assert (await admin.ok("POST", path, {"amount": "2.999999999"}))["balance"] == "3.00"
        assert (await admin.ok("POST", path, {"amount": "-3.25", "note": "back"}))["balance"] == "-0.25"
        for amount in ("0", "-0.0"):
            assert (await admin.refused("POST", path, {"amount": amount}))[:3] == (400, "bad_request", "amount")
        large = {"amount": "999999999"}
        for _ in range(4):
            await admin.ok("POST", path, large)
        assert (await admin.refused("POST", path, large))[:2] == (409, "conflict")

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("currency", "digits", "shown"),
    [("IDR", 0, "1500"), ("JPY", 0, "1500"), ("KWD", 3, "1500.000"), ("USD", 2, "1500.00")],
)
def test_amounts_have_the_currencys_own_digits(tmp_path: Path, currency: str, digits: int, shown: str) -> None:
    async def act(admin: Admin) -> None:
        made = await admin.ok("POST", ACCOUNTS, {"name": "a", "credit": "1500"})
        assert (made["balance"], made["currency"]) == (shown, currency)
        made = await admin.ok("POST", ACCOUNTS, {"name": "a", "credit": "1500.1234"})
        assert made["balance"] == "1500.1234"

    play(tmp_path, act, currency, digits)


def test_lists_come_in_pages_without_a_gap(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        made = {(await admin.ok("POST", ACCOUNTS, {"name": f"a{number}"}))["id"] for number in range(7)}
        seen: list[str] = []
        after = ""
        while True:
            page = await admin.ok("GET", f"{ACCOUNTS}?limit=3&after={after}")
            seen += [one["id"] for one in page["data"]]
            if page["next"] is None:
                break
            after = page["next"]
        assert seen == sorted(made)
        account = seen[0]
        keys = [(await admin.ok("POST", KEYS, {"account": account, "name": "k"}))["id"] for _ in range(3)]
        await admin.ok("POST", KEYS, {"account": seen[1], "name": "k"})
        page = await admin.ok("GET", f"{KEYS}?account={account}&limit=2")
        more = await admin.ok("GET", f"{KEYS}?account={account}&limit=2&after={page['next']}")
        assert [one["id"] for one in page["data"] + more["data"]] == sorted(keys)
        assert more["next"] is None
        assert len((await admin.ok("GET", KEYS))["data"]) == 4

    play(tmp_path, act)


# -- keys


def test_a2_a_key_is_made_with_its_scope_and_changed(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        asked = {
            "models": ["m", "gpt-*"],
            "endpoints": ["/v1/messages", "chat/completions", "messages"],
            "networks": ["10.1.2.3/8", "2001:db8::1"],
            "expires_at": "2027-01-31T07:00:00+07:00",
            "budget": {"amount": "5"},
            "limits": {"rpm": 60, "tpm": 100000, "concurrent": 4},
        }
        account, key, secret = await some_key(admin, **asked)
        assert key.startswith("key_")
        assert well_formed(secret)
        shown = await admin.ok("GET", f"{KEYS}/{key}")
        assert shown == {
            "id": key,
            "account": account,
            "name": "k",
            "models": ["m", "gpt-*"],
            "endpoints": ["messages", "chat/completions"],
            "networks": ["10.0.0.0/8", "2001:db8::1/128"],
            "budget": {"amount": "5.00", "window": "total"},
            "limits": {"rpm": 60, "tpm": 100000, "concurrent": 4},
            "created_at": "2026-05-28T20:26:40.000Z",
            "expires_at": "2027-01-31T00:00:00.000Z",
            "revoked_at": None,
            "spent": {"amount": "0.00", "reserved": "0.00", "since": None},
            "secrets": [{"created_at": "2026-05-28T20:26:40.000Z", "expires_at": None}],
        }
        changed = await admin.ok(
            "PATCH", f"{KEYS}/{key}", {"models": ["m"], "expires_at": 1_900_000_000, "limits": None}
        )
        assert (changed["models"], changed["endpoints"]) == (["m"], shown["endpoints"])
        assert changed["expires_at"] == "2030-03-17T17:46:40.000Z"
        assert changed["limits"] == {"rpm": None, "tpm": None, "concurrent": None}
        freed = await admin.ok(
            "PATCH",
            f"{KEYS}/{key}",
            {"models": None, "endpoints": [], "networks": None, "expires_at": None, "budget": None},
        )
        assert [freed[name] for name in ("models", "endpoints", "networks")] == [[], [], []]
        assert (freed["expires_at"], freed["budget"]) == (None, None)
        assert "secret" not in freed

    play(tmp_path, act)


def test_a_key_is_revoked_once_and_for_all(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        _, key, _ = await some_key(admin)
        revoked = await admin.ok("DELETE", f"{KEYS}/{key}")
        assert revoked["revoked_at"] == "2026-05-28T20:26:40.000Z"
        assert (await admin.ok("DELETE", f"{KEYS}/{key}")) == revoked
        assert (await admin.refused("POST", f"{KEYS}/{key}/rotate"))[:2] == (409, "conflict")

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("body", "ends"), [(None, 86400), ({}, 86400), ({"grace": "10m"}, 600), ({"grace": "1.5s"}, 1.5)]
)
def test_a2_two_secrets_live_at_once_for_rotation(tmp_path: Path, body: Any, ends: float) -> None:
    async def main() -> None:
        clock = Clock()
        async with kept(tmp_path, clock) as store, admin_port(store) as admin:
            _, key, secret = await some_key(admin)
            clock.now += 10
            rotated = await admin.ok("POST", f"{KEYS}/{key}/rotate", body)
            assert rotated["secret"] != secret
            assert well_formed(rotated["secret"])
            _, known = await store.snapshot_keys()
            assert [one.expires_at for one in known[0].secrets] in ([None, clock.now + ends], [clock.now + ends, None])
            assert len((await admin.ok("GET", f"{KEYS}/{key}"))["secrets"]) == 2
            clock.now += ends + 1
            assert len((await admin.ok("GET", f"{KEYS}/{key}"))["secrets"]) == 1

    run(main())


# -- bills


def test_a_bill_line_tells_how_its_charge_came_about(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        account, key, _ = await some_key(admin)
        assert admin.store is not None
        charge = await bill(admin.store, account, key, "00000000000000aa")
        assert charge == 25 * 1000 + 75 * 100 + 4 * 1250 + 5 * 2000
        line = await admin.ok("GET", f"{PREFIX}/requests/00000000000000aa")
        assert (await admin.ok("GET", f"{PREFIX}/requests/resp_00000000000000aa")) == line
        expected = {
            "id": "00000000000000aa",
            "time": "2026-05-28T20:26:40.000Z",
            "account": account,
            "key": key,
            "model": "m",
            "target": "p/x",
            "status": 200,
            "reason": "done",
            "code": "",
            "estimated": False,
            "charge": "0.0000475",
            "currency": "USD",
            "reserved": "0.001",
            "attempts": 2,
            "stream": True,
            "timings": {"first_content_ms": 120.25, "duration_ms": 950.5},
            "arithmetic": {"products_1e15": "47500000000", "fees": "0.00"},
        }
        assert {name: line[name] for name in expected} == expected
        tokens = {"input": 25, "cache_read": 75, "cache_write": 4, "cache_write_1h": 0, "output": 5, "reasoning": 2}
        assert line["tokens"] == tokens
        assert [(leg["outcome"], leg["billed"]) for leg in line["legs"]] == [("upstream_error", False), ("ok", True)]
        assert line["price_version"].startswith("price_")
        assert line["price"] == {
            "input": "1.00",
            "output": "2.00",
            "cache_read": "0.10",
            "cache_write": "1.25",
            "cache_write_1h": "1.25",
        }
        account_now = await admin.ok("GET", f"{ACCOUNTS}/{account}")
        assert (account_now["balance"], account_now["reserved"]) == ("9.9999525", "0.00")

    play(tmp_path, act)


def test_bill_lines_are_listed_newest_first_by_account_and_key(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        account, key, _ = await some_key(admin)
        other, other_key, _ = await some_key(admin)
        assert admin.store is not None
        for number in range(5):
            await bill(admin.store, account, key, f"{number:016x}", NOW + number)
        await bill(admin.store, other, other_key, "f" * 16, NOW + 100)
        everything = await admin.ok("GET", f"{PREFIX}/requests")
        assert [one["id"][-1] for one in everything["data"]] == ["f", "4", "3", "2", "1", "0"]
        page = await admin.ok("GET", f"{PREFIX}/requests?account={account}&limit=2")
        assert [one["id"][-1] for one in page["data"]] == ["4", "3"]
        page = await admin.ok("GET", f"{PREFIX}/requests?key={key}&limit=3&before={page['next']}")
        assert [one["id"][-1] for one in page["data"]] == ["2", "1", "0"]
        assert page["next"] is None
        assert (await admin.ok("GET", f"{PREFIX}/requests?account=acc_none"))["data"] == []
        assert (await admin.refused("GET", f"{PREFIX}/requests?before=none"))[:2] == (404, "not_found")
        assert (await admin.refused("GET", f"{PREFIX}/requests/none"))[:2] == (404, "not_found")

    play(tmp_path, act)


def test_use_is_summed_up_by_day_model_key_and_account(tmp_path: Path) -> None:
    async def main() -> None:
        async with kept(tmp_path, zone="Asia/Jakarta") as store, admin_port(store, zone="Asia/Jakarta") as admin:
            account, key, _ = await some_key(admin)
            other, other_key, _ = await some_key(admin)
            day = 24 * 3600.0
            for number, at in enumerate((NOW - 2 * day, NOW - day, NOW - day)):
                await bill(store, account, key, f"{number:016x}", at)
            await bill(store, other, other_key, "f" * 16, NOW)
            sums = await admin.ok("GET", f"{PREFIX}/usage?by=day")
            assert sums["currency"] == "USD"
            # 20:26 UTC is the next day in Jakarta
            assert [(one["day"], one["requests"]) for one in sums["data"]] == [
                ("2026-05-27", 1),
                ("2026-05-28", 2),
                ("2026-05-29", 1),
            ]
            assert sums["data"][1]["tokens"] == {"input": 50, "cache_read": 150, "cache_write": 8, "output": 10}
            assert sums["data"][1]["charge"] == "0.000095"
            assert "model" not in sums["data"][0]
            sums = await admin.ok("GET", f"{PREFIX}/usage?by=account,model&account={account}")
            assert [(one["account"], one["model"], one["requests"]) for one in sums["data"]] == [(account, "m", 3)]
            sums = await admin.ok("GET", f"{PREFIX}/usage?by=key&from=2026-05-28&to=2026-05-29T00:00:00Z")
            assert {one["key"]: one["requests"] for one in sums["data"]} == {key: 2, other_key: 1}
            sums = await admin.ok("GET", f"{PREFIX}/usage?by=key&from={NOW - day}&to={NOW}&key={key}")
            assert [one["requests"] for one in sums["data"]] == [2]

    run(main())


# -- audit and status


def test_each_change_is_audited_without_secrets(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        account, key, secret = await some_key(admin)
        await admin.ok("PATCH", f"{KEYS}/{key}", {"name": "renamed"})
        rotated = await admin.ok("POST", f"{KEYS}/{key}/rotate")
        await admin.ok("DELETE", f"{KEYS}/{key}")
        await admin.ok("POST", f"{ACCOUNTS}/{account}/credits", {"amount": "1", "note": "gift"})
        await admin.ok("PATCH", f"{ACCOUNTS}/{account}", {"closed": True})
        log = await admin.ok("GET", f"{PREFIX}/audit")
        lines = log["data"]
        assert [line["action"] for line in lines] == [
            "account.change",
            "account.credit",
            "key.revoke",
            "key.rotate",
            "key.change",
            "key.create",
            "account.create",
        ]
        assert {line["actor"] for line in lines} == {lines[0]["actor"]}
        assert lines[0]["actor"].startswith("token:")
        assert lines[4]["subject"] == key
        assert lines[4]["detail"] == {"name": {"before": "k", "after": "renamed"}}
        assert lines[1]["detail"]["note"] == "gift"
        text = str(log)
        for hidden in (secret, rotated["secret"], TOKEN):
            assert hidden not in text
        page = await admin.ok("GET", f"{PREFIX}/audit?limit=2&subject={key}")
        assert [line["action"] for line in page["data"]] == ["key.revoke", "key.rotate"]
        page = await admin.ok("GET", f"{PREFIX}/audit?subject={key}&before={page['next']}")
        assert [line["action"] for line in page["data"]] == ["key.change", "key.create"]

    play(tmp_path, act)


def test_what_is_refused_is_not_audited_and_changes_nothing(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        await admin.refused("POST", ACCOUNTS, {"name": "a", "credit": "-1"})
        await admin.refused("POST", KEYS, {"account": "acc_none", "name": "k"})
        assert (await admin.ok("GET", f"{PREFIX}/audit"))["data"] == []
        assert (await admin.ok("GET", ACCOUNTS))["data"] == []
        assert (await admin.ok("GET", KEYS))["data"] == []

    play(tmp_path, act)


def content_of(folder: Path) -> bytes:
    """All that lies in a folder."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_no_secret_reaches_the_database(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        _, key, secret = await some_key(admin)
        rotated = await admin.ok("POST", f"{KEYS}/{key}/rotate")
        for _ in range(3):
            assert (await admin.call("GET", f"{PREFIX}/status", token="a-wrong-token"))[0] == 401
        files = content_of(tmp_path)
        assert key.encode() in files
        for hidden in (secret, rotated["secret"], TOKEN, "a-wrong-token"):
            assert hidden.encode() not in files

    play(tmp_path, act)


def test_the_configuration_is_read_again_or_its_faults_are_told(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        assert await admin.ok("POST", f"{PREFIX}/reload") == {"reloaded": True, "faults": []}
        admin.faults = [("server.listn", "is not a known key")]
        told = await admin.ok("POST", f"{PREFIX}/reload")
        fault = {"path": "server.listn", "message": "is not a known key"}
        assert told == {"reloaded": False, "faults": [fault]}
        log = (await admin.ok("GET", f"{PREFIX}/audit"))["data"]
        assert [line["action"] for line in log] == ["configuration.reload"]

    play(tmp_path, act)


def test_the_status_says_how_the_node_does(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        status = await admin.ok("GET", f"{PREFIX}/status")
        assert (status["store"], status["currency"], status["version"]) == ("up", "USD", "0.0.0")
        assert status["started_at"] == "2026-05-28T20:26:40.000Z"
        assert status["gauges"] == {"in_flight": 2}

    play(tmp_path, act)


# -- refusals


BAD: list[tuple[str, str, Any, str | None]] = [
    ("POST", ACCOUNTS, {}, "name"),
    ("POST", ACCOUNTS, {"name": ""}, "name"),
    ("POST", ACCOUNTS, {"name": "a\nb"}, "name"),
    ("POST", ACCOUNTS, {"name": "a" * 201}, "name"),
    ("POST", ACCOUNTS, {"name": 1}, "name"),
    ("POST", ACCOUNTS, {"name": "a", "kredit": "1"}, "kredit"),
    ("POST", ACCOUNTS, {"name": "a", "credit": 1}, "credit"),
    ("POST", ACCOUNTS, {"name": "a", "credit": "1.0000000001"}, "credit"),
    ("POST", ACCOUNTS, {"name": "a", "credit": "-1"}, "credit"),
    ("POST", ACCOUNTS, {"name": "a", "credit": "1,5"}, "credit"),
    ("POST", ACCOUNTS, {"name": "a", "credit": "1\n"}, "credit"),
    ("POST", ACCOUNTS, {"name": "a", "credit": "٣"}, "credit"),
    ("POST", ACCOUNTS, {"name": "a", "budget": {"amount": "1", "window": "year"}}, "budget.window"),
    ("POST", ACCOUNTS, {"name": "a", "budget": {"window": "day"}}, "budget.amount"),
    ("POST", ACCOUNTS, {"name": "a", "budget": {"amount": "1", "windou": "day"}}, "budget.windou"),
    ("POST", ACCOUNTS, {"name": "a", "limits": {"rpm": 0}}, "limits.rpm"),
    ("POST", ACCOUNTS, {"name": "a", "limits": {"rpm": 1.5}}, "limits.rpm"),
    ("POST", ACCOUNTS, b"[]", None),
    ("POST", ACCOUNTS, b"{", None),
    ("POST", ACCOUNTS, b'{"name": "\xff"}', None),
    ("POST", ACCOUNTS, b"", "name"),
    ("POST", KEYS, {"account": "acc_1", "name": "k", "models": [1]}, "models[0]"),
    ("POST", KEYS, {"account": "acc_1", "name": "k", "endpoints": ["chat"]}, "endpoints[0]"),
    ("POST", KEYS, {"account": "acc_1", "name": "k", "networks": ["10.0.0.0/8", "x"]}, "networks[1]"),
    ("POST", KEYS, {"account": "acc_1", "name": "k", "expires_at": "tomorrow"}, "expires_at"),
    ("POST", KEYS, {"account": "acc_1", "name": "k", "expires_at": "2027-01-01T00:00:00"}, "expires_at"),
    ("POST", KEYS, {"account": "acc_1", "name": "k", "expires_at": -5}, "expires_at"),
    ("POST", KEYS, {"account": "acc_1", "name": "k", "expires_at": "0001-01-01T00:00:00+14:00"}, "expires_at"),
    ("POST", KEYS + "/key_1/rotate", {"grace": "1d"}, "grace"),
    ("POST", KEYS + "/key_1/rotate", {"grace": 60}, "grace"),
    ("PATCH", KEYS + "/key_1", {"secret": "kn-x"}, "secret"),
    ("PATCH", ACCOUNTS + "/acc_1", {"balance": "5"}, "balance"),
    ("GET", ACCOUNTS + "?limit=0", None, "limit"),
    ("GET", ACCOUNTS + "?limit=1001", None, "limit"),
    ("GET", ACCOUNTS + "?limit=x", None, "limit"),
    ("GET", ACCOUNTS + "?limit=1&limit=2", None, "limit"),
    ("GET", ACCOUNTS + "?befor=1", None, "befor"),
    ("GET", ACCOUNTS + "?%ff=1", None, None),
    ("GET", ACCOUNTS + "?a;b", None, None),
    ("GET", ACCOUNTS + "/acc_1?x=1", None, "x"),
    ("GET", PREFIX + "/usage?by=hour", None, "by"),
    ("GET", PREFIX + "/usage?from=yesterday", None, "from"),
    ("GET", PREFIX + "/usage?to=2026-13-01", None, "to"),
    ("GET", PREFIX + "/audit?before=-1", None, "before"),
    ("DELETE", KEYS + "/key_1", {"a": 1}, None),
]


@pytest.mark.parametrize(("method", "path", "body", "param"), BAD)
def test_what_is_wrong_is_400_and_names_the_field(
    tmp_path: Path, method: str, path: str, body: Any, param: str | None
) -> None:
    async def act(admin: Admin) -> None:
        status, code, named, message = await admin.refused(method, path, body)
        assert (status, code, named) == (400, "bad_request", param)
        assert param is None or message.startswith(param)

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", ACCOUNTS + "/acc_none", None),
        ("PATCH", ACCOUNTS + "/acc_none", {"name": "x"}),
        ("POST", ACCOUNTS + "/acc_none/credits", {"amount": "1"}),
        ("POST", KEYS, {"account": "acc_none", "name": "k"}),
        ("GET", KEYS + "/key_none", None),
        ("PATCH", KEYS + "/key_none", {"models": ["m"]}),
        ("DELETE", KEYS + "/key_none", None),
        ("POST", KEYS + "/key_none/rotate", None),
        ("GET", PREFIX + "/requests/none", None),
        ("GET", PREFIX + "/nothing", None),
        ("GET", ACCOUNTS + "/", None),
        ("GET", ACCOUNTS + "/a%00b", None),
        ("GET", ACCOUNTS + "/" + "a" * 300, None),
        ("GET", "/", None),
        ("GET", "/v1/models", None),
    ],
)
def test_what_is_not_there_is_404(tmp_path: Path, method: str, path: str, body: Any) -> None:
    async def act(admin: Admin) -> None:
        assert (await admin.refused(method, path, body))[:2] == (404, "not_found")

    play(tmp_path, act)


def test_other_methods_types_and_sizes_are_refused(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        for method, path, allow in (
            ("PUT", ACCOUNTS, "POST, GET, HEAD"),
            ("DELETE", ACCOUNTS + "/acc_1", "GET, PATCH, HEAD"),
            ("OPTIONS", KEYS, "POST, GET, HEAD"),
            ("POST", PREFIX + "/openapi.json", "GET, HEAD"),
            ("POST", "/metrics", "GET, HEAD"),
        ):
            status, headers, answer = await admin.call(method, path)
            assert (status, headers["allow"], answer["error"]["code"]) == (405, allow, "method_not_allowed")
        status, _, answer = await admin.call("POST", ACCOUNTS, b"name=x", kind="application/x-www-form-urlencoded")
        assert (status, answer["error"]["code"]) == (415, "unsupported_media_type")
        assert (await admin.call("POST", ACCOUNTS, b'{"name": "x"}', kind="application/json; charset=utf-8"))[0] == 201
        assert (await admin.refused("POST", ACCOUNTS, b"x" * (MAX_BODY + 1)))[:2] == (413, "request_too_large")
        status, headers, body = await admin.call("HEAD", ACCOUNTS)
        assert (status, body) == (200, b"")
        assert int(headers["content-length"]) > 0

    play(tmp_path, act)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a3_every_route_wants_the_token(tmp_path: Path, route: Any) -> None:
    async def act(admin: Admin) -> None:
        path = PREFIX + route.path.replace("{id}", "x")
        for token in (None, "wrong"):
            assert (await admin.call(route.method, path, token=token))[0] == 401
        _, _, secret = await some_key(admin)
        status, _, answer = await admin.call(route.method, path, token=secret)
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        assert secret not in str(answer)

    play(tmp_path, act)


class Down(Store):
    """A store that is not there."""

    def __init__(self) -> None:
        pass

    async def _report(self, ask: Any) -> Any:
        raise StoreDown("connection lost to db.example")

    async def _change(self, change: Any) -> Any:
        raise StoreDown("connection lost to db.example")


def test_a_store_that_is_down_is_503_with_a_hint() -> None:
    async def main() -> None:
        async with admin_port(Down()) as admin:
            for method, path, body in (("GET", ACCOUNTS, None), ("POST", ACCOUNTS, {"name": "a"})):
                status, headers, answer = await admin.call(method, path, body)
                assert (status, answer["error"]["code"]) == (503, "upstream_unavailable")
                assert "db.example" not in str(answer)
                assert headers["retry-after"] == "2"
            assert (await admin.ok("GET", f"{PREFIX}/status"))["store"] == "down"

    run(main())


class Slow(Down):
    """A store that does not come to an end."""

    async def _change(self, change: Any) -> Any:
        await asyncio.sleep(60)


def test_a_store_that_hangs_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kenari.doors.admin.door.PATIENCE", 0.05)

    async def main() -> None:
        async with admin_port(Slow()) as admin:
            assert (await admin.refused("POST", ACCOUNTS, {"name": "a"}))[:2] == (503, "upstream_unavailable")

    run(main())


def test_without_a_store_there_are_status_and_metrics() -> None:
    async def main() -> None:
        async with admin_port(None) as admin:
            assert (await admin.ok("GET", f"{PREFIX}/status"))["store"] == "none"
            assert (await admin.call("GET", "/metrics"))[0] == 200
            status, code, _, message = await admin.refused("GET", ACCOUNTS)
            assert (status, code) == (404, "not_found")
            assert "none:" in message

    run(main())


def test_many_at_once_lose_no_credit(tmp_path: Path) -> None:
    async def act(admin: Admin) -> None:
        account = (await admin.ok("POST", ACCOUNTS, {"name": "a"}))["id"]
        path = f"{ACCOUNTS}/{account}/credits"
        await asyncio.gather(*(admin.ok("POST", path, {"amount": "0.01"}) for _ in range(50)))
        assert (await admin.ok("GET", f"{ACCOUNTS}/{account}"))["balance"] == "0.50"

    play(tmp_path, act)


# -- provider keys that accounts bring


def test_provider_keys_are_kept_for_an_account_and_never_shown(tmp_path: Path) -> None:
    secret = "sk-of-the-account-1234"

    async def act(admin: Admin) -> None:
        account, _, _ = await some_key(admin)
        place = f"{ACCOUNTS}/{account}/provider-keys"
        shown = await admin.ok("PUT", f"{place}/groq", {"key": secret})
        assert (shown["provider"], shown["hint"]) == ("groq", "1234")
        assert await admin.ok("GET", place) == {"data": [shown]}
        assert (await admin.refused("PUT", f"{place}/other", {"key": secret}))[:2] == (404, "not_found")
        assert (await admin.refused("PUT", f"{place}/groq", {"key": "with space"}))[:3] == (400, "bad_request", "key")
        assert (await admin.refused("PUT", f"{ACCOUNTS}/acc_none/provider-keys/groq", {"key": secret}))[0] == 404
        log = (await admin.ok("GET", f"{PREFIX}/audit"))["data"]
        assert secret not in str(log)
        assert await admin.ok("DELETE", f"{place}/groq") == {"provider": "groq", "deleted": True}
        assert await admin.ok("GET", place) == {"data": []}
        assert (await admin.refused("DELETE", f"{place}/groq"))[0] == 404

    play(tmp_path, act)
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.iterdir())
