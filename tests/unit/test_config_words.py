"""What a fault of the configuration says: the key, and what to write instead."""

import tomllib

import pytest

from kenari.config import Config, ConfigError, parse_config


def parse(text: str, env: dict[str, str] | None = None) -> Config:
    return parse_config(tomllib.loads(text), env or {}, "kenari.toml")


GROQ = '[providers.groq]\napi_key = "k"\n[models.m]\ntargets = ["groq/x"]\n'
FAULTS: list[tuple[str, str, str]] = [
    # a name with a dot, without its quotes: TOML reads a table inside a table
    ('[providers.groq]\napi_key = "k"\n[models.gpt-4.1]\ntargets = ["groq/x"]', "models.gpt-4.1", '[models."gpt-4.1"]'),
    ('[providers.my.server]\ndialect = "chat"', "providers.my.server", '[providers."my.server"]'),
    # a flag with some words: all of them, and the near one
    (
        '[providers.groq.profile]\nefforts = ["hi"]',
        "providers.groq.profile.efforts",
        "'hi' must be one of none, minimal",
    ),
    (
        '[providers.groq.profile]\nmax_tokens_field = "max_completions_tokens"',
        "providers.groq.profile.max_tokens_field",
        "must be one of max_tokens, max_completion_tokens, none; did you mean max_completion_tokens?",
    ),
    ('[providers.groq.profile]\neffort = "high"', "providers.groq.profile.effort", "must be one of reasoning_effort"),
    # routes name models, not each other, and not themselves
    (GROQ + '[routes.a]\nmodels = ["b"]\n[routes.b]\nmodels = ["m"]', "routes.a.models", "'b' is a route"),
    (GROQ + '[routes.a]\nmodels = ["m", "a"]', "routes.a.models", "'a' is a route"),
    (GROQ + '[routes.a]\nmodels = ["mm"]', "routes.a.models", "'mm' is not a configured model; did you mean m?"),
    # one address cannot be had twice
    ('[server]\nlisten = "127.0.0.1:9000"\nadmin_listen = "127.0.0.1:9000"', "server.admin_listen", "another address"),
    ('[billing]\ncurrency = "usd"', "billing.currency", 'three capital letters, like "USD"'),
    ('[billing]\ncurrency = ""', "billing.currency", 'three capital letters, like "USD"'),
    ('[providers.groq]\napi_key = "env:GROQ_API_KEY"', "providers.groq.api_key", "set it, or write"),
    ('[providers.x]\ndialect = "chat"\nbase_url = "localhost:1/v1"', "providers.x.base_url", 'like "http://127.0.0.1'),
]


@pytest.mark.parametrize(("text", "path", "words"), FAULTS)
def test_a_fault_says_what_to_write(text: str, path: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert words in dict(caught.value.faults).get(path, ""), caught.value.faults


@pytest.mark.parametrize(
    "text", ['listen = "127.0.0.1:8081"', 'listen = "127.0.0.1:0"\nadmin_listen = "127.0.0.1:0"', 'admin_listen = ""']
)
def test_addresses_that_do_not_meet(text: str) -> None:
    """Port 0 is a free port for each; where the default admin port is taken, kenari serves without it."""
    assert parse("[server]\n" + text).server.workers == 1


@pytest.mark.parametrize("name", ["KENARI_SECRET", "KENARI_ADMIN_TOKEN"])
def test_a_secret_that_can_be_guessed_is_said(name: str) -> None:
    assert any(name in note and "openssl rand -hex 32" in note for note in parse("", {name: "abc"}).notes)
    assert not any(name in note for note in parse("", {name: "5f" * 16}).notes)
    assert not any(name in note for note in parse("").notes)
