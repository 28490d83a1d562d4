"""Claude Code's WebSearch, answered from the local index: a real agent, a real index, a scripted model between them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway import config_text, running_gateway
from local_index import BASE, make_index, search_table
from upstream import Play

from agents.checks import assert_nothing_lost
from agents.conftest import Bench
from agents.model import THOUGHT, AgentModel, Script, call, calls
from agents.programs import CLAUDE, MODEL, run
from agents.reading import Conversation

DIALECTS = ["chat", *(pytest.param(one, marks=pytest.mark.agents_slow) for one in ("messages", "responses"))]


@pytest.fixture(params=DIALECTS)
def searching(
    request: pytest.FixtureRequest, agents_model: AgentModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """kenari with a local index."""
    dialect: str = request.param
    index = make_index(tmp_path_factory.mktemp("index"))
    provider = {"dialect": dialect, "base_url": agents_model.base_url(dialect), "api_key": "sk-up"}
    config = config_text({"scripted": provider}, {MODEL: {"targets": [f"scripted/{MODEL}"]}}, keepalive="500ms")
    with running_gateway(config + search_table(index)) as gateway:
        yield Bench(gateway, agents_model, dialect)


def searches(said: Conversation) -> Play:
    """What a model does that Claude Code asks to search: it calls the tool, then says what it found."""
    if not said.tools:
        return Play(text=("A title",))
    if not said.results:
        (name,) = said.tools
        return Play(calls=(call(name, query="what do canaries eat"),), finish="tool_calls")
    return Play(text=("Canaries eat niger seed [1].",))


def test_d19_claude_searches_the_local_index(searching: Bench, tmp_path: Path) -> None:
    """D13, D19: its nested request is searched here, and what was found comes back to the conversation as its result."""
    model = searching.model
    rounds = [
        calls(call("ToolSearch", query="select:WebSearch"), reasoning=THOUGHT),
        calls(call("WebSearch", query="what do canaries eat"), reasoning=THOUGHT),
    ]
    model.begin(search=Script(rounds))
    model.aside = searches
    outcome = run(CLAUDE, searching.place(tmp_path), "Do the task:search and stop.")
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out
    assert_nothing_lost(model.of("search"), ["WebSearch", "Canaries eat niger seed"])
    nested = [one.said for one in model.of("") if one.said.results]
    assert len(nested) == 1
    assert f"{BASE}canary.md" in nested[0].results[0].text
    assert "canary grass" in nested[0].results[0].text
    asked = next(one.seen.raw for one in model.of("") if one.said.tools)
    assert b"as Markdown links" in asked  # that agent shows words only
    attempts = [line["attempts"] for line in searching.gateway.lines if "attempts" in line]
    assert attempts.count(3) == 1  # the nested request: a call, a search, a call
    assert json.loads(outcome.out)["modelUsage"][MODEL]["webSearchRequests"] == 1
