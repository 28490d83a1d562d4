"""What the management API says of a value that has not its form: what the field takes."""

from pathlib import Path
from typing import Any

import pytest
from admin_kit import Admin, admin_port, kept
from edge_kit import run

from kenari.doors.admin.table import PREFIX

ACCOUNTS, KEYS = PREFIX + "/accounts", PREFIX + "/keys"
WORDS: list[tuple[str, Any, str, str]] = [
    (ACCOUNTS, {"name": "a", "credit": "abc"}, "credit", 'must be an amount like "12.50", with at most nine decimals'),
    (ACCOUNTS, {"name": "a", "credit": "-1"}, "credit", 'must be an amount like "12.50", with at most nine decimals'),
    (ACCOUNTS, {"name": "a\x07"}, "name", "must hold no control characters"),
    (ACCOUNTS, {"name": "a", "plan": "\x07"}, "plan", "must hold no control characters"),
    (
        ACCOUNTS,
        {"name": "a", "budget": {"amount": "1", "window": "fortnight"}},
        "budget.window",
        "must be one of day, week, month, total",
    ),
    (
        KEYS,
        {"account": "x", "name": "k", "endpoints": ["chat"]},
        "endpoints[0]",
        "must be one of chat/completions, mess",
    ),
    (KEYS + "/key_x/rotate", {"grace": "1 day"}, "grace", 'must be a number with ms, s, m or h, like "24h"'),
]


@pytest.mark.parametrize(("path", "body", "param", "words"), WORDS)
def test_a_refusal_says_what_the_field_takes(path: str, body: Any, param: str, words: str, tmp_path: Path) -> None:
    async def play() -> None:
        async with kept(tmp_path) as store, admin_port(store) as admin:
            await said(admin, "POST", path, body, f"{param}: {words}")

    run(play())


def test_the_groups_of_a_report_are_named(tmp_path: Path) -> None:
    async def play() -> None:
        async with kept(tmp_path) as store, admin_port(store) as admin:
            words = "by: must be some of day, model, key, account, with commas between them"
            await said(admin, "GET", f"{PREFIX}/usage?by=week", None, words)

    run(play())


async def said(admin: Admin, method: str, path: str, body: Any, words: str) -> None:
    status, _, answer = await admin.call(method, path, body)
    assert status == 400
    assert answer["error"]["message"].startswith(words)


def test_a_key_may_be_for_own_provider_keys(tmp_path: Path) -> None:
    """`/v1/byok` wants this word in the scope of a key that has one, so it can be put there."""

    async def play() -> None:
        async with kept(tmp_path) as store, admin_port(store) as admin:
            account = (await admin.ok("POST", ACCOUNTS, {"name": "team"}))["id"]
            made = await admin.ok("POST", KEYS, {"account": account, "name": "k", "endpoints": ["/v1/byok"]})
            assert made["endpoints"] == ["byok"]

    run(play())
