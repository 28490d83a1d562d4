"""Providers: addresses, the header lines of a call (D12, F4), and the rows of known ones."""

from typing import Any

import msgspec
import pytest

from kenari.core.profile import Profile
from kenari.core.request import EFFORTS
from kenari.dialects.registry import DIALECTS
from kenari.providers.base import Provider, endpoint, sign
from kenari.providers.rows import ROWS

NAMES = (
    "openai anthropic openrouter groq deepseek mistral together fireworks xai gemini ollama llama-server vllm sglang"
).split()


def lines(dialect: str, key: str = "sk-1", client: dict[bytes, bytes] | None = None, **flags: Any) -> dict[str, str]:
    """The signed header lines, each once and well formed."""
    provider = Provider(name="p", dialect=dialect, base_url="https://p.test/v1", profile=Profile(**flags))
    raw = sign(provider, key, client or {}, "messages").decode("latin-1")
    assert raw.endswith("\r\n")
    pairs = [line.split(": ", 1) for line in raw[:-2].split("\r\n")]
    assert len({pair[0] for pair in pairs}) == len(pairs)
    return {pair[0]: pair[1] for pair in pairs}


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_paths_are_appended_to_the_base_address(dialect: str) -> None:
    provider = Provider(name="p", dialect=dialect, base_url="https://p.test/openai/v1")
    word = {"chat": "/chat/completions"}.get(dialect, f"/{dialect}")
    assert endpoint(provider, DIALECTS[dialect].upstream_path) == f"https://p.test/openai/v1{word}"


def test_the_key_travels_as_bearer_or_x_api_key() -> None:
    assert lines("chat")["authorization"] == "Bearer sk-1"
    assert lines("responses")["authorization"] == "Bearer sk-1"
    assert lines("messages")["x-api-key"] == "sk-1"
    assert "authorization" not in lines("messages")
    assert lines("messages", auth="bearer")["authorization"] == "Bearer sk-1"
    assert lines("chat", auth="x-api-key")["x-api-key"] == "sk-1"
    for none in (lines("chat", auth="none"), lines("chat", key="")):
        assert "authorization" not in none
        assert "x-api-key" not in none


def test_d12_kenari_sends_its_own_anthropic_version() -> None:
    assert lines("messages", client={b"anthropic-version": b"1999-01-01"})["anthropic-version"] == "2023-06-01"
    assert lines("messages", anthropic_version="2030-01-01")["anthropic-version"] == "2030-01-01"
    assert "anthropic-version" not in lines("chat")


def test_f4_only_allowed_betas_travel_and_only_from_messages_to_messages() -> None:
    client = {b"anthropic-beta": b"a-1, b-2,a-1, c\r\nx: y"}
    assert lines("messages", client=client, betas=("a-1", "z-9"))["anthropic-beta"] == "a-1"
    assert "anthropic-beta" not in lines("messages", client=client)
    assert "anthropic-beta" not in lines("chat", client=client, betas=("a-1",))
    provider = Provider(name="p", dialect="messages", base_url="", profile=Profile(betas=("a-1",)))
    assert b"anthropic-beta" not in sign(provider, "", client, "chat")


def test_f4_no_other_client_header_travels() -> None:
    client = {b"authorization": b"Bearer kn-caller", b"x-api-key": b"kn-caller", b"cookie": b"c", b"user-agent": b"u"}
    for dialect in ("chat", "messages", "responses"):
        sent = lines(dialect, client=client)
        assert "kn-caller" not in str(sent)
        assert "cookie" not in sent
        assert sent["user-agent"].startswith("kenari/")


def test_a_header_line_cannot_be_injected() -> None:
    sent = lines("chat", key="sk\r\nx-evil: 1\x00", headers={"x-a\r\nx-evil": "b\r\nx-evil: 2\x7f", "x-é": "ü€"})
    assert "x-evil" not in sent
    assert sent["authorization"] == "Bearer skx-evil: 1"


def test_fixed_headers_come_last_and_replace() -> None:
    sent = lines("chat", headers={"X-Title": "kenari", "User-Agent": "own", "Authorization": "Token t"})
    assert (sent["x-title"], sent["user-agent"], sent["authorization"]) == ("kenari", "own", "Token t")


@pytest.mark.parametrize("name", NAMES)
def test_every_provider_of_the_issue_has_a_row(name: str) -> None:
    row = ROWS[name]
    assert row.dialect in DIALECTS
    assert row.base_url.startswith(("https://", "http://127.0.0.1:"))
    assert not row.base_url.endswith("/")
    assert bool(row.key_env) == row.base_url.startswith("https://")


@pytest.mark.parametrize("name", list(ROWS))
def test_the_flags_of_a_row_are_valid_and_its_efforts_in_order(name: str) -> None:
    profile = ROWS[name].profile
    assert msgspec.convert(msgspec.to_builtins(profile), Profile) == profile
    assert list(profile.efforts) == [effort for effort in EFFORTS if effort in profile.efforts]


def test_rows_know_the_quirks_that_would_be_refused() -> None:
    assert ROWS["openai-chat"].profile.max_tokens_field == "max_completion_tokens"
    assert not ROWS["mistral"].profile.stream_usage
    assert not ROWS["deepseek"].profile.tool_choice_required
    assert ROWS["deepseek"].profile.reasoning_content_roundtrip
    assert not ROWS["groq"].profile.reasoning_content_roundtrip
    assert not ROWS["gemini"].profile.extra_fields
    assert ROWS["vllm"].profile.reasoning_field == "reasoning"
