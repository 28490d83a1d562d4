"""What agents do when their provider has a bad day: each ends as it best can, and none goes on for ever."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gateway import config_text, running_gateway
from upstream import Play

from agents.conftest import Bench
from agents.model import AgentModel, Script, calls
from agents.programs import (
    CLAUDE,
    CODEX,
    MODEL,
    OPENCODE_CHAT,
    OPENCODE_MESSAGES,
    OPENCODE_RESPONSES,
    PI_CHAT,
    PI_MESSAGES,
    PI_RESPONSES,
    QWEN,
    Outcome,
    Place,
    Program,
    run,
)

pytestmark = pytest.mark.agents_slow
ALL = [CODEX, CLAUDE, OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES, QWEN, PI_CHAT, PI_RESPONSES, PI_MESSAGES]
OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
GOOD_TEXT = ("It is ", "all well.")
MANY_REQUESTS = 45
"""More than this many requests is a loop: the most patient agent makes 30 when a provider fails for ever."""


class Day(NamedTuple):
    """What happens to the first requests of a task, or to all of them when `lasts`."""

    bad: tuple[Play, ...]
    lasts: bool = False


PASSING = {
    "busy": Day((Play(status=429), Play(status=429))),
    "busy-and-says-when": Day((Play(status=429, headers=(("retry-after", "1"),)),)),
    "error": Day((Play(status=500),)),
    "unavailable": Day((Play(status=503, headers=(("retry-after", "1"),)),)),
    "cut": Day((Play(text=GOOD_TEXT, broken=True),)),
    "reset-at-once": Day((Play(broken=True),)),
}
"""Troubles after which a request is answered: the agent finishes its task."""


GIVES_UP = frozenset(
    (program.name, "cut")
    for program in (OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES, PI_CHAT, PI_RESPONSES, PI_MESSAGES)
)
"""Agents that take an error in mid-stream for the end of their run: they say so, and ask no more."""


def named(program: Program) -> str:
    """A test's name for an agent."""
    return program.name


def _spend(model: AgentModel, program: Program, place: Place, day: Day, seconds: float = 140, **env: str) -> Outcome:
    """The agent's run of a small task on such a day."""
    model.begin(day=Script([calls(program.hands.shell("echo worked"))]))
    if day.lasts:
        model.always = day.bad[0]
    else:
        model.bad = list(day.bad)
    return run(program, place, "Do the task:day and stop.", seconds=seconds, **env)


@pytest.mark.parametrize("name", PASSING)
@pytest.mark.parametrize("program", ALL, ids=named)
def test_a_trouble_that_passes(chat_bench: Bench, program: Program, name: str, tmp_path: Path) -> None:
    """D16, E2, E4: what may be sent again is, and the task is done; a cut answer is never taken for a whole one."""
    outcome = _spend(chat_bench.model, program, chat_bench.place(tmp_path), PASSING[name])
    exchanges = chat_bench.model.of("day")
    assert not outcome.timed_out
    assert len(exchanges) <= 12
    if (program.name, name) in GIVES_UP:
        assert len(exchanges) <= 4
        assert "ALL DONE" not in outcome.out
        return
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out, outcome
    assert any("worked" in result.text for result in exchanges[-1].said.results)


FOR_EVER = {
    "busy": Play(status=429, message="slow down"),
    "error": Play(status=500),
    "cut": Play(text=GOOD_TEXT, broken=True),
    "fails": Play(text=GOOD_TEXT, fails=True),
    "refused": Play(status=400, message="the temperature is out of range"),
    "overflow": Play(status=400, message=OVERFLOW),
}


@pytest.mark.parametrize("name", FOR_EVER)
@pytest.mark.parametrize("program", ALL, ids=named)
def test_a_trouble_that_lasts(chat_bench: Bench, program: Program, name: str, tmp_path: Path) -> None:
    """D16, E1, E2, E5: the agent gives up within a bounded number of requests, or is still waiting its turn."""
    ends = name in ("refused", "overflow")
    day = Day((FOR_EVER[name],), lasts=True)
    outcome = _spend(chat_bench.model, program, chat_bench.place(tmp_path), day, 140 if ends else 60)
    exchanges = chat_bench.model.of("day")
    assert 0 < len(exchanges) <= (8 if ends else MANY_REQUESTS)
    assert "ALL DONE" not in outcome.out
    if ends:
        assert not outcome.timed_out


@pytest.mark.parametrize("program", ALL, ids=named)
def test_a_key_that_is_refused(chat_bench: Bench, program: Program, tmp_path: Path) -> None:
    """E1: a wrong key never reaches the provider, and no agent asks for it again and again."""
    place = chat_bench.place(tmp_path)
    wrong = {name: "kn-wrong" for name in ("KENARI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")}
    before = len(place.gateway.lines)
    outcome = _spend(chat_bench.model, program, place, Day(()), 140, **wrong)
    if program.name.startswith("opencode"):  # its key stands in its file
        return
    assert not chat_bench.model.of("day")
    assert "ALL DONE" not in outcome.out
    assert len(place.gateway.lines) - before <= 12


@pytest.mark.parametrize("program", [CODEX, QWEN, CLAUDE, OPENCODE_CHAT], ids=named)
@pytest.mark.parametrize("where", ["before", "midway"])
def test_a_long_silence(agents_model: AgentModel, program: Program, where: str, tmp_path: Path) -> None:
    """D15, S15: with kenari's timers shortened beside the agent's own, a silent provider is waited for."""
    pause = 24.0
    provider: dict[str, Any] = {"dialect": "chat", "base_url": agents_model.base_url("chat"), "api_key": "sk-up"}
    text = config_text(
        {"scripted": provider}, {MODEL: {"targets": [f"scripted/{MODEL}"]}}, keepalive="1s", noop_after="2s"
    )
    with running_gateway(text) as gateway:
        place = Place(tmp_path / "home", tmp_path / "project", gateway)
        said = GOOD_TEXT if where == "midway" else ()
        agents_model.begin(silence=Script([]))
        agents_model.always = Play(text=(*said, "ALL", " DONE"), pause=pause)
        more = ("-c", "model_providers.kenari.stream_idle_timeout_ms=8000") if program is CODEX else ()
        outcome = run(program, place, "Do the task:silence and stop.", *more, seconds=140)
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out
    assert len(agents_model.of("silence")) == 1
