"""What agents do beside commands and edits: images, tool servers, sub-agents, long conversations, searches."""

import json
import re
import struct
import sys
import zlib
from pathlib import Path

import pytest
from upstream import Call, Play

from agents.checks import UNKNOWN, assert_nothing_lost, assert_stable_prefix, assert_thoughts_return
from agents.conftest import Bench
from agents.model import THOUGHT, Script, call, calls
from agents.programs import (
    CLAUDE,
    CODEX,
    OPENCODE_CHAT,
    OPENCODE_MESSAGES,
    OPENCODE_RESPONSES,
    PI_CHAT,
    PI_MESSAGES,
    PI_RESPONSES,
    Program,
    run,
)
from agents.reading import Conversation

pytestmark = pytest.mark.agents_slow
PROBE = Path(__file__).parent / "mcp_probe.py"
NOTES = "NOTES-ON-WHAT-WAS-DONE"


def named(program: Program) -> str:
    """A test's name for an agent."""
    return program.name


def png() -> bytes:
    """A small picture: 8 x 8 red points."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    points = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * 8 for _ in range(8)))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", points) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "program",
    [CODEX, CLAUDE, OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES, PI_CHAT, PI_MESSAGES, PI_RESPONSES],
    ids=named,
)
def test_an_image_through_a_tool(bench: Bench, program: Program, tmp_path: Path) -> None:
    """D11: the picture that a tool returns reaches the model, whatever the two formats are. (Qwen Code sends none to a
    model that it does not know.)"""
    place = bench.place(tmp_path)
    place.project.mkdir(parents=True)
    picture = place.project / "red.png"
    picture.write_bytes(png())
    look = call("view_image", path=str(picture)) if program is CODEX else program.hands.read(picture)
    bench.model.begin(picture=Script([calls(look, reasoning=THOUGHT)]))
    outcome = run(program, place, "Do the task:picture and stop.")
    assert outcome.status == 0, outcome
    exchanges = bench.model.of("picture")
    assert exchanges[-1].said.images == 1
    assert_nothing_lost(exchanges, [""])


@pytest.mark.parametrize(
    "program",
    [CODEX, CLAUDE, OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES, PI_CHAT, PI_RESPONSES, PI_MESSAGES],
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
    assert_thoughts_return(bench.model.of("think"), bench.dialect, program.client)


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
    assert_nothing_lost(bench.model.of("search"), ["WebSearch", "it rains in Jakarta"])


def test_claude_has_sub_agents(bench: Bench, tmp_path: Path) -> None:
    """The sub-agent's own conversation runs beside the first one, and its last words come back."""
    inner = call(
        "Agent",
        description="a part of it",
        prompt="Do the task:inner and report.",
        subagent_type="general-purpose",
        run_in_background=False,
    )
    shell = CLAUDE.hands.shell
    bench.model.begin(
        outer=Script([calls(inner, reasoning=THOUGHT)]),
        inner=Script([calls(shell("echo from-within"), reasoning=THOUGHT)], end="INNER DONE"),
    )
    outcome = run(CLAUDE, bench.place(tmp_path), "Do the task:outer and stop.")
    assert outcome.status == 0, outcome
    assert_nothing_lost(bench.model.of("inner"), ["from-within"])
    assert_nothing_lost(bench.model.of("outer"), ["INNER DONE"])


def test_codex_has_sub_agents(bench: Bench, tmp_path: Path) -> None:
    """D18: the container of the sub-agents' tools works like a tool server's."""

    def wait(said: Conversation) -> Play:
        found = re.search(r'"agent_id":\s*"([^"]+)"', said.results[-1].text)
        assert found, said.results
        made: Call = call("multi_agent_v1__wait_agent", targets=[found.group(1)], timeout_ms=60000)
        return Play(calls=(made,), finish="tool_calls")

    spawn = call("multi_agent_v1__spawn_agent", message="Do the task:inner and report.")
    shell = CODEX.hands.shell
    bench.model.begin(
        outer=Script([calls(spawn, reasoning=THOUGHT), wait]),
        inner=Script([calls(shell("echo from-within"), reasoning=THOUGHT)], end="INNER DONE"),
    )
    outcome = run(CODEX, bench.place(tmp_path), "Do the task:outer and stop.")
    assert outcome.status == 0, outcome
    assert_nothing_lost(bench.model.of("inner"), ["from-within"])
    assert_nothing_lost(bench.model.of("outer"), ["agent_id", "INNER DONE"])


def test_codex_shortens_a_long_conversation(bench: Bench, tmp_path: Path) -> None:
    """U1: our usage tells it when, an ordinary request without tools asks for notes, and it goes on from them."""

    def work(said: Conversation) -> Play:
        if any(NOTES in text for text in said.users):
            return Play(text=("ALL DONE",))
        return Play(calls=(CODEX.hands.shell("echo a-lot"),), finish="tool_calls", prompt=90_000)

    bench.model.begin(long=Script([work, work, work]))
    bench.model.side = NOTES
    limit = "model_auto_compact_token_limit=60000"
    outcome = run(CODEX, bench.place(tmp_path), "Do the task:long and stop.", "-c", limit)
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out
    exchanges = bench.model.of("long")
    assert len(exchanges) == 2
    asked = next(one for one in bench.model.exchanges if not one.said.tools)
    assert [result.text for result in asked.said.results if "a-lot" in result.text]
    assert not exchanges[-1].said.calls


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
