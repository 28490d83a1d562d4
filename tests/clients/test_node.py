"""The official SDKs for Node, against a provider of each dialect (L9). One script for each SDK plays all its scenarios
and prints what came of them; the tests here say what must have come."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gateway import KEY
from rig import PAGE_MODEL, Rig

pytestmark = pytest.mark.sdk

FOLDER = Path(__file__).parent / "node"
NODE = os.environ.get("KENARI_TEST_NODE") or shutil.which("node")
TEXT = "1, 2, 3"
THOUGHT = "I count from one."
CITIES = [{"city": "Jakarta"}, {"city": "Bandung"}]
INTERRUPTED = "interrupted the response before it finished"
AI_PROVIDERS = ("openai", "anthropic", "openai-compatible", "open-responses")

Scenarios = dict[str, dict[str, Any]]
Player = Callable[[str, str], Scenarios]

if NODE is None or not (FOLDER / "node_modules").is_dir():
    pytest.skip("Node or its packages are not here: scripts/test brings them", allow_module_level=True)


@pytest.fixture(scope="session")
def played(rig: Rig) -> Player:
    """What came of a script's scenarios; each script runs once for each kenari."""
    known: dict[tuple[str, str], Scenarios] = {}

    def run(script: str, provider: str = "") -> Scenarios:
        if (script, provider) not in known:
            known[script, provider] = _run(rig, script, provider)
        return known[script, provider]

    return run


def _run(rig: Rig, script: str, provider: str) -> Scenarios:
    assert NODE is not None
    done = subprocess.run(
        [NODE, script],
        cwd=FOLDER,
        env=os.environ | {"KENARI_URL": rig.gateway.url, "KENARI_KEY": KEY, "KENARI_PROVIDER": provider},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _value(scenarios: Scenarios, name: str) -> Any:
    assert "value" in scenarios[name], scenarios[name]
    return scenarios[name]["value"]


def _error(scenarios: Scenarios, name: str) -> dict[str, Any]:
    assert "error" in scenarios[name], scenarios[name]
    return scenarios[name]["error"]


# -- openai


@pytest.fixture
def openai(played: Player) -> Scenarios:
    return played("openai.mjs", "")


def test_openai_page_samples(openai: Scenarios) -> None:
    """S56 and the Responses page's JavaScript sample (S101, S159)."""
    assert _value(openai, "page_chat") == TEXT
    assert _value(openai, "page_responses") == TEXT


def test_openai_chat(openai: Scenarios) -> None:
    """S20, S42, S47, S51: plain, streamed and with the helper."""
    usage = {"prompt_tokens": 14, "completion_tokens": 6, "total_tokens": 20}
    assert _value(openai, "chat_create") == {"text": TEXT, "finish": "stop", "usage": usage}
    assert _value(openai, "chat_helper") == {"text": TEXT, "finish": "stop", "usage": usage}
    assert _value(openai, "chat_cut") == "length"


def test_openai_chat_reasoning(openai: Scenarios) -> None:
    """S21, S43."""
    answer = _value(openai, "chat_reasoning")
    assert (answer["reasoning"], answer["reasoning_content"], answer["text"]) == (THOUGHT, THOUGHT, TEXT)
    assert answer["usage"]["completion_tokens"] == 9


def test_openai_chat_parallel_calls(openai: Scenarios) -> None:
    """S24, S45, S46."""
    answer = _value(openai, "chat_helper_calls")
    assert answer["finish"] == "tool_calls"
    assert [json.loads(arguments) for _, _, arguments in answer["calls"]] == CITIES
    assert len({ident for ident, _, _ in answer["calls"]}) == 2


def test_openai_responses(openai: Scenarios) -> None:
    """S80-S90, S97, S150, S156, D1: plain, streamed and with the helper, which needs the announced text part."""
    plain = _value(openai, "responses_create")
    assert (plain["text"], plain["status"]) == (TEXT, "completed")
    assert plain["usage"]["input_tokens_details"] == {"cached_tokens": 0}
    streamed = _value(openai, "responses_streamed")
    assert streamed["text"] == TEXT
    assert (streamed["kinds"][0], streamed["kinds"][-1]) == ("response.created", "response.completed")
    helper = _value(openai, "responses_helper")
    assert (helper["text"], helper["final"], helper["kinds"]) == (TEXT, TEXT, ["reasoning", "message"])
    assert _value(openai, "responses_cut") == ["incomplete", "max_output_tokens"]


def test_openai_responses_parallel_calls(openai: Scenarios) -> None:
    """S26, S96, S154."""
    calls = _value(openai, "responses_helper_calls")["calls"]
    assert [json.loads(arguments) for _, _, arguments in calls] == CITIES


def test_openai_keepalives(openai: Scenarios) -> None:
    """S16: comments in the stream change nothing."""
    assert _value(openai, "chat_quiet") == TEXT
    assert _value(openai, "responses_quiet") == TEXT


@pytest.mark.parametrize(
    ("scenario", "status", "code"),
    [
        ("chat_refused", 400, "bad_request"),
        ("responses_refused", 400, "bad_request"),
        ("chat_overflown", 400, "context_length_exceeded"),
        ("chat_limited", 429, "upstream_rate_limited"),
        ("chat_unknown", 404, "model_not_found"),
        ("plain_breaks", 502, "stream_interrupted"),
        ("wrong_key", 401, "invalid_api_key"),
    ],
)
def test_openai_errors(openai: Scenarios, scenario: str, status: int, code: str) -> None:
    """S17, E7, E8: errors before the stream are HTTP errors with their code."""
    error = _error(openai, scenario)
    assert (error["status"], error["code"]) == (status, code)


def test_openai_errors_in_the_stream(openai: Scenarios) -> None:
    """S31, S53, S91, S98: the text that came stays, then the SDK raises or the last event tells."""
    for scenario in ("chat_breaks", "chat_fails"):
        broken = _value(openai, scenario)
        assert (broken["text"], broken["code"]) == (TEXT, "stream_interrupted")
    assert INTERRUPTED in _error(openai, "chat_helper_breaks")["message"]
    last = _value(openai, "responses_breaks")
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "stream_interrupted")


# -- @anthropic-ai/sdk


@pytest.fixture
def anthropic(played: Player) -> Scenarios:
    return played("anthropic.mjs", "")


def test_anthropic_page_sample(anthropic: Scenarios) -> None:
    """S58, S75: the TypeScript sample of the Streaming page."""
    assert _value(anthropic, "page") == f"{TEXT}\ntoken: 6"


def test_anthropic_create(anthropic: Scenarios) -> None:
    """S61, S76."""
    usage = {"input_tokens": 14, "output_tokens": 6}
    plain = _value(anthropic, "create")
    assert (plain["text"], plain["stop"], plain["model"]) == (TEXT, "end_turn", PAGE_MODEL)
    assert plain["usage"] == usage
    kinds = [kind for kind in _value(anthropic, "streamed") if kind != "ping"]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert _value(anthropic, "cut") == "max_tokens"


def test_anthropic_reasoning(anthropic: Scenarios, rig: Rig) -> None:
    """S22, S69, D5, D20: the maker's signature where it may travel raw, else one of ours, never an empty one."""
    for scenario in ("reasoning", "reasoning_plain"):
        answer = _value(anthropic, scenario)
        assert (answer["kind"], answer["thinking"], answer["text"]) == ("thinking", THOUGHT, TEXT)
        own = answer["signature"].startswith("kn1.")
        assert own or answer["signature"] == "c2VjcmV0"
        assert own == (rig.dialect != "messages")


def test_anthropic_parallel_calls(anthropic: Scenarios) -> None:
    """S25, S71, S72."""
    answer = _value(anthropic, "calls")
    assert answer["stop"] == "tool_use"
    assert [given for _, _, given in answer["calls"]] == CITIES
    assert len({ident for ident, _, _ in answer["calls"]}) == 2


def test_anthropic_keepalives(anthropic: Scenarios) -> None:
    """S16."""
    assert _value(anthropic, "quiet") == TEXT


def test_anthropic_other_endpoints(anthropic: Scenarios) -> None:
    """M1, M4."""
    assert _value(anthropic, "count") > 0
    assert PAGE_MODEL in _value(anthropic, "models")


@pytest.mark.parametrize(
    ("scenario", "status", "kind"),
    [
        ("refused", 400, "invalid_request_error"),
        ("overflown", 400, "invalid_request_error"),
        ("limited", 429, "rate_limit_error"),
        ("unknown", 404, "not_found_error"),
        ("plain_breaks", 502, "api_error"),
        ("wrong_key", 401, "authentication_error"),
    ],
)
def test_anthropic_errors(anthropic: Scenarios, scenario: str, status: int, kind: str) -> None:
    """S17, E5, E6, E8."""
    error = _error(anthropic, scenario)
    assert (error["status"], error["type"]) == (status, kind)
    assert ("prompt is too long" in error["message"]) == (scenario == "overflown")


def test_anthropic_errors_in_the_stream(anthropic: Scenarios) -> None:
    """S31, S68, S73: the SDK raises after the text that came."""
    for scenario in ("breaks", "fails"):
        broken = _value(anthropic, scenario)
        assert broken["text"] == TEXT
        assert INTERRUPTED in broken["message"]


# -- the AI SDK


@pytest.fixture(params=AI_PROVIDERS)
def ai_provider(request: pytest.FixtureRequest) -> str:
    provider: str = request.param
    return provider


@pytest.fixture
def ai(played: Player, ai_provider: str) -> Scenarios:
    return played("ai.mjs", ai_provider)


def test_ai_text(ai: Scenarios) -> None:
    """S20, S30: text, finish and usage, streamed and plain."""
    for scenario in ("text", "text_plain"):
        answer = _value(ai, scenario)
        assert (answer["text"], answer["finish"]) == (TEXT, "stop")
        assert (answer["usage"]["inputTokens"], answer["usage"]["outputTokens"]) == (14, 6)
    assert _value(ai, "cut")["finish"] == "length"


def test_ai_reasoning(ai: Scenarios, ai_provider: str) -> None:
    """S32: reasoning on each format. (open-responses 1.x reads it from streams only.)"""
    assert _value(ai, "reasoning")["reasoning"] == THOUGHT
    plain = _value(ai, "reasoning_plain")
    assert plain["text"] == TEXT
    assert plain["reasoning"] == ("" if ai_provider == "open-responses" else THOUGHT)


def test_ai_parallel_calls(ai: Scenarios) -> None:
    """S24-S26: the calls fit the schema (the SDK marks those that do not)."""
    for scenario in ("calls", "calls_plain"):
        answer = _value(ai, scenario)
        assert answer["finish"] == "tool-calls"
        assert [(name, given, invalid) for _, name, given, invalid in answer["calls"]] == [
            ("get_weather", city, False) for city in CITIES
        ]


def test_ai_tool_loop(ai: Scenarios) -> None:
    """S155: the SDK's own loop sends calls and results back and goes on."""
    loop = _value(ai, "loop")
    assert loop["steps"] == 2
    assert loop["results"] == ["31 C in Jakarta", "31 C in Bandung"]


def test_ai_keepalives(ai: Scenarios) -> None:
    """S16."""
    quiet = _value(ai, "quiet")
    assert (quiet["text"], quiet["error"]) == (TEXT, None)


def test_ai_errors(ai: Scenarios) -> None:
    """S17, E8: the SDK raises, or gives an error part in a stream."""
    assert _value(ai, "refused")["error"]["status"] == 400
    for scenario, status in (("refused_plain", 400), ("overflown_plain", 400), ("limited_plain", 429)):
        assert _error(ai, scenario)["status"] == status
    assert _error(ai, "unknown_plain")["status"] == 404
    assert _error(ai, "breaks_plain")["status"] == 502


def test_ai_errors_in_the_stream(ai: Scenarios, ai_provider: str) -> None:
    """S31: never a clean finish. (open-responses 1.x says only that it was an error.)"""
    for scenario in ("breaks", "fails"):
        broken = _value(ai, scenario)
        assert (broken["text"], broken["finish"]) == (TEXT, "error")
        assert ai_provider == "open-responses" or INTERRUPTED in broken["error"]["message"]
