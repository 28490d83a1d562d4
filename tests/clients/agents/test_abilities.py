"""What agents do beside commands and edits: images, thoughts, tool servers, searches."""

import json
import sys
from pathlib import Path

import pytest

from agents.checks import assert_nothing_lost, assert_stable_prefix, assert_thoughts_return
from agents.conftest import Bench
from agents.model import THOUGHT, Script, call, calls
from agents.pictures import look, put_picture, sent, tell_qwen
from agents.programs import (
    CLAUDE,
    CLINE,
    CODEX,
    OPENCODE_CHAT,
    OPENCODE_MESSAGES,
    OPENCODE_RESPONSES,
    PI_CHAT,
    PI_MESSAGES,
    PI_RESPONSES,
    QWEN,
    Program,
    run,
)

pytestmark = pytest.mark.agents_slow
OPENCODES = [OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES]
ALL = [CODEX, CLAUDE, *OPENCODES, QWEN, PI_CHAT, PI_RESPONSES, PI_MESSAGES, CLINE]
PROBE = Path(__file__).parent / "mcp_probe.py"


def named(program: Program) -> str:
    """A test's name for an agent."""
    return program.name


@pytest.mark.parametrize(
    "program",
    ALL,
    ids=named,
)
def test_an_image_through_a_tool(bench: Bench, program: Program, tmp_path: Path) -> None:
    """D11: the picture that a tool returns reaches the model, whatever the two formats are, to the byte."""
    place = bench.place(tmp_path)
    picture = put_picture(place)
    if program is QWEN:
        tell_qwen(place)
    bench.model.begin(picture=Script([calls(look(program, picture), reasoning=THOUGHT)]))
    outcome = run(program, place, "Do the task:picture and stop.")
    assert outcome.status == 0, outcome
    exchanges = bench.model.of("picture")
    assert exchanges[-1].said.images == 1
    assert sent(program) in exchanges[-1].seen.raw
    assert_nothing_lost(exchanges, [""])


@pytest.mark.parametrize(
    "program",
    ALL,
    ids=named,
)
def test_thoughts_come_back_with_their_proofs(bench: Bench, program: Program, tmp_path: Path) -> None:
    """D5, D20: what the model thought in its round is in the next request, with the maker's own proof."""
    shell = program.hands.shell
    bench.model.begin(
        think=Script([calls(shell("echo one"), reasoning=THOUGHT), calls(shell("echo two"), reasoning=THOUGHT)])
    )
    outcome = run(program, bench.place(tmp_path), "Do the task:think and stop.")
    assert outcome.status == 0, outcome
    exchanges = bench.model.of("think")
    assert_thoughts_return(exchanges, bench.dialect, program.client)
    assert_stable_prefix(exchanges)


def test_codex_has_its_tool_servers(bench: Bench, tmp_path: Path) -> None:
    """D18: a tool server's container is flattened and its calls find their way back."""
    place = bench.place(tmp_path)
    bench.model.begin(probe=Script([calls(call("mcp__probe__look", thing="a stone"), reasoning=THOUGHT)]))
    servers = f'mcp_servers.probe={{command="{sys.executable}",args=["{PROBE}"]}}'
    outcome = run(CODEX, place, "Do the task:probe and stop.", "-c", servers)
    assert outcome.status == 0, outcome
    exchanges = bench.model.of("probe")
    assert_nothing_lost(exchanges, ["the probe saw a stone"])
    assert_stable_prefix(exchanges)


def test_claude_has_its_tool_servers(bench: Bench, tmp_path: Path) -> None:
    """D19: the server's tools are loaded by a search first, and sent on once they are referenced."""
    place = bench.place(tmp_path)
    place.home.mkdir(parents=True)
    servers = place.home / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"probe": {"command": sys.executable, "args": [str(PROBE)]}}}))
    rounds = [
        calls(call("ToolSearch", query="select:mcp__probe__look"), reasoning=THOUGHT),
        calls(call("mcp__probe__look", thing="a stone"), reasoning=THOUGHT),
    ]
    bench.model.begin(probe=Script(rounds))
    outcome = run(CLAUDE, place, "Do the task:probe and stop.", "--mcp-config", str(servers))
    assert outcome.status == 0, outcome
    exchanges = bench.model.of("probe")
    assert_nothing_lost(exchanges, ["mcp__probe__look", "the probe saw a stone"])
    assert_stable_prefix(exchanges, tools_grow=True)
    assert "mcp__probe__look" in exchanges[1].said.tools


def test_claude_searches_the_web(bench: Bench, tmp_path: Path) -> None:
    """D19: the nested request with only the search tool is answered, and its answer comes back as a result."""
    rounds = [
        calls(call("ToolSearch", query="select:WebSearch"), reasoning=THOUGHT),
        calls(call("WebSearch", query="weather in Jakarta"), reasoning=THOUGHT),
    ]
    bench.model.begin(search=Script(rounds))
    bench.model.side = "it rains in Jakarta"
    outcome = run(CLAUDE, bench.place(tmp_path), "Do the task:search and stop.")
    assert outcome.status == 0, outcome
    exchanges = bench.model.of("search")
    assert_nothing_lost(exchanges, ["WebSearch", "it rains in Jakarta"])
    assert_stable_prefix(exchanges, tools_grow=True)
