"""`kenari migrate` and `kenari ledger verify`, and the settings of store and billing."""

import asyncio
import secrets
import sqlite3
import time
from pathlib import Path

import pytest
from store_kit import customer, line_of, settlement_of, wanted

from kenari.cli import main
from kenari.config import Config, ConfigError, load_config
from kenari.config.load import parse_config
from kenari.config.show import show_config
from kenari.core.currency import currency_digits
from kenari.core.ids import derive_key
from kenari.core.price import UNIT
from kenari.core.windows import day_of, window_start, zone_of
from kenari.keeper.secrets import root_secret
from kenari.ledger.chain import Seals
from kenari.store.schema import STEPS
from kenari.store.store import Store, StoreSettings


async def fill(folder: Path) -> None:
    """A store with a credit and a line, sealed with the secret beside it."""
    root = root_secret("", folder, secrets.token_bytes(32))
    settings = StoreSettings(url=f"sqlite:///{folder}/kenari.db")
    store = Store(settings, Seals(derive_key(root, "ledger")), time.time, secrets.token_bytes)
    await store.start()
    caller = await customer(store, UNIT)
    hold = await store.reserve(wanted(caller, 1000), "node")
    await store.settle(settlement_of(line_of(hold, output=100), hold, time.time()))
    await store.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KENARI_SECRET", raising=False)
    return tmp_path


def test_migrate_makes_the_tables_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate"]) == 0
    assert f"at version {len(STEPS)} (it was at 0)" in capsys.readouterr().out
    assert main(["migrate"]) == 0
    assert capsys.readouterr().out == f"the store is at version {len(STEPS)}\n"
    connection = sqlite3.connect(folder / "kenari.db")
    connection.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    connection.commit()
    connection.close()
    assert main(["migrate"]) == 1
    assert "newer release" in capsys.readouterr().err


def test_ledger_verify_says_that_all_is_right_or_what_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(fill(folder))
    assert main(["ledger", "verify"]) == 0
    assert capsys.readouterr().out == "2 entries of 1 chains, 1 accounts: all is right\n"
    connection = sqlite3.connect(folder / "kenari.db")
    connection.execute("UPDATE accounts SET balance = balance + 1")
    connection.commit()
    connection.close()
    assert main(["ledger", "verify"]) == 1
    out, err = capsys.readouterr()
    assert "the balance is 0.999800001, its entries make 0.9998" in out
    assert "1 differences" in err


def test_ledger_verify_wants_the_secret_and_the_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "verify"]) == 1
    assert "no kenari.secret" in capsys.readouterr().err
    root_secret("", folder, secrets.token_bytes(32))
    assert main(["ledger", "verify"]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert not (folder / "kenari.db").exists()
    sqlite3.connect(folder / "kenari.db").close()
    (folder / "kenari.db").touch()
    assert main(["ledger", "verify"]) == 1
    assert "run kenari migrate" in capsys.readouterr().err


def test_where_nothing_is_kept_there_is_nothing_to_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kenari.toml").write_text('[store]\nurl = "none:"\n')
    assert main(["ledger", "verify"]) == 1
    assert main(["migrate"]) == 1
    assert "nothing is kept" in capsys.readouterr().err


def parsed(text: str, folder: Path) -> Config:
    (folder / "k.toml").write_text(text)
    return load_config(str(folder / "k.toml"), {}, folder)


def test_the_settings_of_store_and_billing(tmp_path: Path) -> None:
    config = parsed(
        '[store]\nurl = "postgresql://db/k"\nnode = "one"\nsync = "full"\nretention = "8760h"\n'
        '[billing]\ncurrency = "IDR"\nenforce = false\noffline_allowance = "1.5"\ntime_zone = "Asia/Jakarta"\n',
        tmp_path,
    )
    assert (config.store_node, config.store_sync, config.retention) == ("one", "full", 8760 * 3600.0)
    assert (config.currency, config.enforce, config.offline_allowance) == ("IDR", False, UNIT * 3 // 2)
    assert config.time_zone == "Asia/Jakarta"
    plain = parsed("", tmp_path)
    assert (plain.store_node, plain.store_sync, plain.retention) == ("", "normal", None)
    assert (plain.offline_allowance, plain.time_zone) == (0, "UTC")


def test_answers_are_kept_only_where_that_is_wanted(tmp_path: Path) -> None:
    """S104; what `kenari check` prints of it loads back."""
    assert parsed("", tmp_path).keep_answers is None
    assert parsed('[idempotency]\nkeep = ""\n', tmp_path).keep_answers is None
    config = parsed('[idempotency]\nkeep = "90m"\n', tmp_path)
    assert config.keep_answers == 5400.0
    assert parsed(show_config(config), tmp_path).keep_answers == 5400.0


FAULTS = [
    ('[store]\nurl = "mysql://db"\n', "store.url"),
    ('[store]\nnode = "a b"\n', "store.node"),
    ('[store]\nsync = "never"\n', "store.sync"),
    ('[store]\nretention = "24h"\n', "store.retention"),
    ('[billing]\noffline_allowance = "0.0000000001"\n', "billing.offline_allowance"),
    ('[billing]\ntime_zone = "Mars/Base"\n', "billing.time_zone"),
    ('[idempotency]\nkeep = "25h"\n', "idempotency.keep"),
    ('[store]\nurl = "none:"\n[idempotency]\nkeep = "1h"\n', "idempotency.keep"),
    (
        '[providers.groq]\n[models.m]\ntargets = ["groq/a"]\nprice = { input = "0.0000000001", output = "1" }\n',
        "models.m.price.input",
    ),
]


@pytest.mark.parametrize(("text", "path"), FAULTS)
def test_a_fault_in_them_names_its_path(text: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(text, tmp_path)
    assert [found for found, _ in error.value.faults] == [path]


def test_the_price_of_cache_writes_for_an_hour_is_read() -> None:
    values = {
        "providers": {"p": {"dialect": "chat", "base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": {"targets": ["p/x"], "price": {"input": "1", "output": "2", "cache_write_1h": "3"}}},
    }
    price = parse_config(values, {}, "kenari.toml").models["m"].price
    assert price is not None
    assert (price.cache_write, price.cache_write_1h) == (None, "3")


def test_A2_windows_are_those_of_the_time_zone() -> None:
    jakarta = zone_of("Asia/Jakarta")
    now = 1_800_000_000.0  # 2027-01-15 08:00 UTC, a Friday
    assert day_of(now + 10 * 3600, jakarta) == "2027-01-16"
    assert window_start("day", now, jakarta) == 1_799_946_000.0
    assert window_start("week", now, zone_of("UTC")) == 1_799_971_200.0 - 4 * 24 * 3600
    assert day_of(window_start("month", now, jakarta), jakarta) == "2027-01-01"
    assert window_start("total", now, jakarta) == 0.0


def test_a_day_on_which_clocks_change_has_23_or_25_hours() -> None:
    berlin = zone_of("Europe/Berlin")
    for noon, hours in ((1_774_778_400.0, 23), (1_792_922_400.0, 25)):  # 2026-03-29 and 2026-10-25
        next_day = window_start("day", noon + 24 * 3600, berlin)
        assert next_day - window_start("day", noon, berlin) == hours * 3600


def test_amounts_show_the_digits_of_their_currency() -> None:
    assert [currency_digits(code) for code in ("IDR", "USD", "JPY", "KWD", "EUR")] == [0, 2, 0, 3, 2]


SECRETS = """
[providers.groq]
api_key = "env:NOT_IN_THIS_SHELL"
[providers.groq.profile.headers]
x-more = "file:/nowhere/more"
[providers.two]
preset = "groq"
api_keys = ["env:NOT_HERE_EITHER"]
[models.m]
targets = ["groq/x"]
[search]
backend = "brave"
api_key = "env:NOT_IN_THIS_SHELL"
[byok]
providers = ["groq"]
secret = "file:/nowhere/byok"
"""


@pytest.mark.parametrize("words", [["migrate"], ["admin", "token"], ["ledger", "verify"]])
def test_who_manages_need_not_have_the_keys_of_providers(folder: Path, words: list[str]) -> None:
    """They are in the environment of the service, not in that of the person who looks after it."""
    asyncio.run(fill(folder))
    (folder / "kenari.toml").write_text(SECRETS)
    assert main(words) == 0


def test_whom_the_keys_of_providers_concern_is_told_of_those_that_are_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "kenari.toml").write_text(SECRETS)
    for words in (["check"], ["serve"]):
        assert main(words) == 1
        assert "providers.groq.api_key: the environment has no NOT_IN_THIS_SHELL" in capsys.readouterr().err


def test_a_command_to_the_server_needs_no_keys_of_providers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "kenari.toml").write_text('[server]\nadmin_listen = "unix:/nowhere/admin"\n' + SECRETS)
    (folder / "kenari.admin").write_text("ka-x")
    assert main(["accounts", "list"]) == 1
    assert "no kenari listens on unix:/nowhere/admin" in capsys.readouterr().err
