"""Work that does not fit into one conversation: a part of it is given to a sub-agent, or what was done is put into notes."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from upstream import Call, Play

from agents.checks import UNKNOWN, assert_nothing_lost, assert_stable_prefix
from agents.conftest import Bench
from agents.model import THOUGHT, Exchange, Script, call, calls
from agents.programs import (
    CLAUDE,
    CLINE,
    CODEX,
    CODEX_OWN,
    OPENCODE_CHAT,
    OPENCODE_MESSAGES,
    OPENCODE_RESPONSES,
    PI_CHAT,
    PI_MESSAGES,
    PI_RESPONSES,
    QWEN,
    Place,
    Program,
    run,
)
from agents.reading import Conversation
from kenari.dialects.responses.packed import QUESTION

pytestmark = pytest.mark.agents_slow
NOTES = "NOTES-ON-WHAT-WAS-DONE"
OPENCODES = [OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES]
PIS = [PI_CHAT, PI_RESPONSES, PI_MESSAGES]
INNER = "Do the task:inner and report."


def named(program: Program) -> str:
    """A test's name for an agent."""
    return program.name


# -- sub-agents


def _agent(program: Program) -> Call:
    """The call that starts a sub-agent and waits for it. (pi has none.)"""
    match program.name.partition("-")[0]:
        case "claude":
            more: dict[str, object] = {"subagent_type": "general-purpose", "run_in_background": False}
            return call("Agent", description="a part of it", prompt=INNER, **more)
        case "opencode":
            return call("task", description="a part of it", prompt=INNER, subagent_type="general")
        case "qwen":
            more = {"subagent_type": "general-purpose", "run_in_background": False}
            return call("agent", description="a part of it", prompt=INNER, **more)
        case _:
            return call("spawn_agent", systemPrompt="You help.", task=INNER)


def _inner(program: Program) -> Script:
    """What the sub-agent does."""
    shell = program.hands.shell
    steps = [calls(shell("echo from-within"), shell("echo at-once"), reasoning=THOUGHT)]
    return Script([*steps, calls(shell("echo once-more"), reasoning=THOUGHT)], end="INNER DONE")


def _assert_inner_is_whole(exchanges: list[Exchange]) -> None:
    assert_nothing_lost(exchanges, ["from-within", "at-once", "once-more"])
    assert_stable_prefix(exchanges)


@pytest.mark.parametrize("program", [CLAUDE, *OPENCODES, QWEN, CLINE], ids=named)
def test_a_sub_agent(bench: Bench, program: Program, tmp_path: Path) -> None:
    """Its own conversation runs beside the first one, both stay whole, and its last words come back."""
    bench.model.begin(outer=Script([calls(_agent(program), reasoning=THOUGHT)]), inner=_inner(program))
    outcome = run(program, bench.place(tmp_path), "Do the task:outer and stop.")
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out
    _assert_inner_is_whole(bench.model.of("inner"))
    outer = bench.model.of("outer")
    assert_nothing_lost(outer, ["INNER DONE"])
    assert_stable_prefix(outer)


def test_codex_has_sub_agents(bench: Bench, tmp_path: Path) -> None:
    """D18: the container of the sub-agents' tools works like a tool server's."""

    def wait(said: Conversation) -> Play:
        found = re.search(r'"agent_id":\s*"([^"]+)"', said.results[-1].text)
        assert found, said.results
        made: Call = call("multi_agent_v1__wait_agent", targets=[found.group(1)], timeout_ms=60000)
        return Play(calls=(made,), finish="tool_calls")

    spawn = call("multi_agent_v1__spawn_agent", message=INNER)
    bench.model.begin(outer=Script([calls(spawn, reasoning=THOUGHT), wait]), inner=_inner(CODEX))
    outcome = run(CODEX, bench.place(tmp_path), "Do the task:outer and stop.")
    assert outcome.status == 0, outcome
    _assert_inner_is_whole(bench.model.of("inner"))
    assert_nothing_lost(bench.model.of("outer"), ["agent_id", "INNER DONE"])


# -- notes


class Limit(NamedTuple):
    """How an agent is told that its model's window is small: words of its command line, and a file in its home."""

    words: tuple[str, ...] = ()
    file: str = ""
    content: Mapping[str, Any] = {}


LIMITS = {
    "codex": Limit(("-c", "model_auto_compact_token_limit=60000")),
    "qwen": Limit((), ".qwen/settings.json", {"model": {"generationConfig": {"contextWindowSize": 100_000}}}),
    "opencode": Limit(),
}
FULL = 125_000
"""Tokens that the usage of a round says: more than any of these windows bears."""


@pytest.mark.parametrize("program", [CODEX, CODEX_OWN, *OPENCODES, QWEN], ids=named)
def test_notes_in_the_middle_of_a_task(bench: Bench, program: Program, tmp_path: Path) -> None:
    """U1, D24: our usage tells it when, notes are asked for on all that was done, and it goes on from them."""

    def asked(said: Conversation) -> Play:
        if not any(NOTES in message for message in said.messages):
            return Play(text=(f"<state_snapshot>{NOTES}</state_snapshot>",), prompt=FULL)
        return Play(text=("ALL DONE",))

    def work(said: Conversation) -> Play:
        if any(NOTES in message for message in said.messages) or said.users[-1] == QUESTION:
            return asked(said)
        return Play(calls=(program.hands.shell("echo a-lot"),), finish="tool_calls", prompt=FULL)

    place, limit = bench.place(tmp_path), LIMITS[program.name.partition("-")[0]]
    _write(place, limit)
    bench.model.begin(long=Script([work, work, work]))
    bench.model.aside = asked
    outcome = run(program, place, "Do the task:long and stop.", *limit.words)
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out
    wanted = [one for one in bench.model.exchanges if NOTES in "".join(one.play.text) and "a-lot" in _whole(one)]
    assert len(wanted) == 1
    last = next(one for one in reversed(bench.model.exchanges) if one.play.text == ("ALL DONE",))
    assert NOTES in _whole(last)
    assert len(last.said.messages) < 12
    assert not UNKNOWN.search("".join(result.text for result in last.said.results))


@pytest.mark.parametrize("program", PIS, ids=named)
def test_pi_makes_notes_when_it_is_done(bench: Bench, program: Program, tmp_path: Path) -> None:
    """U1: after its last answer it asks for notes on what was said, and the next question goes on from them."""
    place = bench.place(tmp_path)
    _write(place, Limit((), ".pi/agent/settings.json", {"compaction": {"keepRecentTokens": 1}}))

    def full(_: Conversation) -> Play:
        return Play(text=("ALL DONE",), prompt=FULL)

    bench.model.begin(first=Script([calls(program.hands.shell("echo early-work")), full]), then=Script([]))
    bench.model.side = NOTES
    assert run(program, place, "Do the task:first and stop.").status == 0
    wanted = [one for one in bench.model.exchanges if not one.said.tools]
    assert wanted
    assert "early-work" in "".join(map(_whole, wanted))
    outcome = run(program, place, "Do the task:then and stop.", "--continue")
    assert outcome.status == 0, outcome
    last = bench.model.of("then")[-1]
    assert NOTES in _whole(last)
    assert "early-work" not in _whole(last)


def test_claude_shortens_a_long_conversation(bench: Bench, tmp_path: Path) -> None:
    """The command asks for notes with the whole conversation, and the session goes on from them."""
    place = bench.place(tmp_path)
    bench.model.begin(first=Script([calls(CLAUDE.hands.shell("echo early-work"))]), end=Script([]))
    assert run(CLAUDE, place, "Do the task:first and stop.").status == 0
    bench.model.begin(first=Script([], end=NOTES), then=Script([]))
    compacted = run(CLAUDE, place, "/compact", "--continue")
    assert compacted.status == 0, compacted
    asked = bench.model.exchanges[-1].said
    assert any("early-work" in result.text for result in asked.results)
    assert run(CLAUDE, place, "Do the task:then and stop.", "--continue").status == 0
    last = bench.model.of("then")[-1].said
    assert any(NOTES in text for text in last.users)
    assert not last.calls
    assert not UNKNOWN.search("".join(last.users))


def _write(place: Place, limit: Limit) -> None:
    if limit.file:
        file = place.home / limit.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(limit.content), encoding="utf-8")


def _whole(exchange: Exchange) -> str:
    """All of a request's conversation as one text."""
    return "\n".join(exchange.said.messages)
