"""The configuration: slips that must be faults and no crashes, secrets that must never be seen, notes, and a fuzz."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenari.catalog.listing import list_body
from kenari.catalog.models import Catalog
from kenari.config import Config, ConfigError, builtin_config, load_config, parse_config
from kenari.config.show import show_config
from kenari.providers.base import sign


def parse(text: str, env: dict[str, str] | None = None) -> Config:
    return parse_config(tomllib.loads(text), env or {}, "kenari.toml")


SLIPS: list[tuple[str, str]] = [
    ('server.listen = "1:{digits}"', "server.listen"),
    ('server.listen = "[zz]:80"', "server.listen"),
    ('server.listen = "a b:80"', "server.listen"),
    ('server.max_body = "{digits}B"', "server.max_body"),
    ('server.max_body = "9999999999GiB"', "server.max_body"),
    ('server.keepalive = "{digits}h"', "server.keepalive"),
    ('server.keepalive = "0.0001ms"', "server.keepalive"),
    ('server.cors_origins = ["https://app.example/"]', "server.cors_origins"),
    ('server.cors_origins = ["app.example"]', "server.cors_origins"),
    ('server.cors_origins = ["https://a\\r\\nx: y"]', "server.cors_origins"),
    ('store.url = "sqlite://kenari.db"', "store.url"),
    ('providers.groq.base_url = "https://a/v1/chat/completions"', "providers.groq.base_url"),
    ('providers.groq.base_url = "https://a/v1/messages/"', "providers.groq.base_url"),
    ('providers.groq.api_key = "file:\\u0000"', "providers.groq.api_key"),
    ("providers.groq.profile.temperature_max = nan", "providers.groq.profile.temperature_max"),
    ("providers.groq.profile.temperature_max = inf", "providers.groq.profile.temperature_max"),
    ("providers.groq.profile.min_budget = 99999999999999999999", "providers.groq.profile.min_budget"),
    ("models.m.context_window = 99999999999999999999", "models.m.context_window"),
    ('models.m.price = { input = "{digits}", output = "1" }', "models.m.price.input"),
    ('models.m.targets = ["demo/a", "demo/a"]', "models.m.targets"),
    ('models."".targets = ["demo/a"]', 'models.""'),
    ('models.m.aliases = [""]', "models.m.aliases"),
    ('routes."".models = ["m"]', 'routes.""'),
]


@pytest.mark.parametrize(("text", "path"), SLIPS)
def test_a_slip_is_a_fault_and_not_a_crash(text: str, path: str) -> None:
    demo = '\nproviders.demo = { dialect = "chat", base_url = "scripted:" }\n'
    with pytest.raises(ConfigError) as caught:
        parse(text.replace("{digits}", "9" * 5000) + demo)
    assert path in dict(caught.value.faults)


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000])
def test_toml_that_its_reader_cannot_hold_is_a_fault(text: str, tmp_path: Path) -> None:
    path = tmp_path / "kenari.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), {}, tmp_path)
    assert "TOML" in dict(caught.value.faults)[str(path)]


@pytest.mark.parametrize("origin", ["*", "null", "https://app.example", "http://localhost:3000", "app://obsidian.md"])
def test_origins(origin: str) -> None:
    assert parse(f'[server]\ncors_origins = ["{origin}"]\n').server.cors_origins == (origin,)


def test_a_record_that_is_printed_shows_no_secret() -> None:
    text = (
        '[store]\nurl = "postgresql://u:hidden@db/kenari"\n[limits]\nurl = "valkey://:hidden@cache:6379/0"\n'
        '[providers.groq]\napi_key = "hidden-1"\napi_keys = ["hidden-2"]\nproxy = "http://u:hidden@proxy:3128"\n'
        'profile = { headers = { x-a = "hidden-3" } }\n'
    )
    env = {"KENARI_SECRET": "hidden-4", "KENARI_ADMIN_TOKEN": "hidden-5", "KENARI_BOOTSTRAP_KEY": "kn-hidden"}
    config = parse(text, env)
    assert "hidden" not in repr(config)
    provider = config.providers["groq"]
    assert b"authorization: Bearer hidden-1\r\n" in sign(provider, provider.keys[0], {}, "chat")
    assert provider.proxy == "http://u:hidden@proxy:3128"


def test_white_space_around_a_key_in_the_environment_is_no_part_of_it() -> None:
    assert parse("", {"KENARI_BOOTSTRAP_KEY": " kn-x\n"}).bootstrap_key == "kn-x"


NOTED: list[tuple[str, dict[str, str], str]] = [
    ("[server]\nworkers = 3\n", {}, "server.workers: 3 processes serve"),
    ("[providers.groq]\n", {}, "env:GROQ_API_KEY"),
    ("[providers.groq]\n", {}, "[models] is empty"),
    ('[store]\nurl = "postgresql://db"\n', {}, "store.url"),
]


def test_check_notes_a_client_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[limits]\nurl = "valkey://cache"\n'
    assert not any("limits.url" in note for note in parse(text).notes)
    monkeypatch.setattr("kenari.keys.client.LIBRARY", "no_such_package")
    assert any("limits.url" in note and "kenari[valkey]" in note for note in parse(text).notes)


@pytest.mark.parametrize(
    ("text", "setting", "extra", "module"),
    [
        ('[store]\nurl = "postgresql://u:p@db/kenari"\n', "store.url", "kenari[postgres]", "psycopg"),
        ('[byok]\nproviders = ["groq"]\n[providers.groq]\n', "byok.providers", "kenari[byok]", "cryptography"),
    ],
)
def test_an_extra_that_a_setting_needs_is_missed_before_the_start(
    text: str, setting: str, extra: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kenari check` says what `kenari serve` would refuse to start without."""

    def missed() -> bool:
        return any(note.startswith(f"{setting}: ") and extra in note for note in parse(text).notes)

    assert not missed()
    monkeypatch.setitem(sys.modules, module, None)  # as where the extra is not installed
    assert missed()


@pytest.mark.parametrize(("text", "env", "word"), NOTED)
def test_check_notes_what_has_no_effect_or_cannot_work(text: str, env: dict[str, str], word: str) -> None:
    assert any(word in note for note in parse(text, env).notes)


def test_nothing_is_noted_when_there_is_nothing_to_say() -> None:
    assert parse("").notes == ()
    assert not any(
        "api_key" in note for note in parse('[providers.ollama]\n[models.m]\ntargets = ["ollama/a"]\n').notes
    )


@pytest.mark.parametrize(("size", "shown"), [("32MiB", "32MiB"), ("2048KiB", "2MiB"), ("1500B", "1500B")])
def test_sizes_are_shown_in_their_largest_whole_unit(size: str, shown: str) -> None:
    assert f'max_body = "{shown}"' in show_config(parse(f'[server]\nmax_body = "{size}"\n'))


LEAVES = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["15s", "1MiB", "env:A", "file:/", "groq/a", "scripted:", "http://a/v1", "m", "m@2", "chat"]),
)
KEYS = st.sampled_from(
    "server store limits billing providers models routes groq m r listen keepalive max_body tls cert targets price "
    "input output profile headers efforts min_budget base_url api_key api_keys dialect preset proxy aliases "
    "context_window policy url cors_origins trusted_proxies".split()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


TABLES = st.fixed_dictionaries(
    {},
    optional={
        "server": st.dictionaries(KEYS, VALUES, max_size=3),
        "providers": st.dictionaries(st.just("groq"), st.dictionaries(KEYS, VALUES, max_size=3), max_size=1),
        "models": st.dictionaries(st.text(max_size=3), st.fixed_dictionaries({"targets": st.just(["groq/a"])})),
        "routes": st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=2), max_size=1),
    },
)


@given(st.dictionaries(KEYS, VALUES, max_size=4) | TABLES)
def test_whatever_is_written_is_a_configuration_or_faults(values: dict[str, Any]) -> None:
    """No input ends in a traceback; what loads can be shown, and shown again the same."""
    found: list[tuple[str, str]] = []
    try:
        config = parse_config(values, {}, "kenari.toml")
    except ConfigError as error:
        found, config = error.faults, builtin_config()
    assert all(path and message for path, message in found)
    shown = show_config(config)
    assert show_config(parse(shown)) == shown
    list_body(Catalog(config.models, config.routes), False, lambda _: True)
