"""`kenari connect --write` and `kenari run` with the real programs: what they set up works as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from gateway import KEY

from agents.checks import assert_nothing_lost, assert_stable_prefix
from agents.conftest import Bench
from agents.model import THOUGHT, Script, calls
from agents.pictures import look, put_picture, sent
from agents.programs import (
    CLAUDE,
    CLINE,
    CLINE_ALONE,
    CODEX,
    CODEX_OWN,
    MODEL,
    OPENCODE_CHAT,
    PI_CHAT,
    QWEN,
    Place,
    Program,
    run,
    start,
)

SLOW = [OPENCODE_CHAT, PI_CHAT, QWEN, CLINE]
PROGRAMS = [CODEX, CLAUDE, *(pytest.param(one, marks=pytest.mark.agents_slow) for one in SLOW)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_connect_writes_works(chat_bench: Bench, program: Program, tmp_path: Path) -> None:
    """The agent's own file and the variables that are named, and nothing else: it works, and its model sees pictures."""
    place = chat_bench.place(tmp_path)
    place.home.mkdir()
    client = program.name.removesuffix("-chat")
    words = ["connect", client, "--url", place.gateway.url, "--key", KEY, "--model", MODEL, "--write"]
    done = subprocess.run(
        [sys.executable, "-m", "kenari.cli", *words],
        env={"HOME": str(place.home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    named = re.findall(r"export (\w+)=(\S+)", done.stdout)
    variables = {name: KEY if value == "kn-..." else value for name, value in named}
    variables |= CLINE_ALONE if program is CLINE else {}
    picture = put_picture(place)
    steps = [calls(program.hands.shell("echo worked")), calls(look(program, picture))]
    chat_bench.model.begin(written=Script(steps))

    def setup(_: Place) -> dict[str, str]:
        return variables

    bare = program._replace(setup=setup)
    outcome = run(bare, place, "Do the task:written and stop.")
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out
    last = chat_bench.model.of("written")[-1]
    assert "worked" in last.said.results[0].text
    assert last.said.images == 1
    assert sent(program) in last.seen.raw


@pytest.mark.parametrize("program", [CODEX, CLAUDE], ids=lambda program: program.name)
def test_run_starts_the_real_agent(chat_bench: Bench, program: Program, tmp_path: Path) -> None:
    """No file is written for it."""
    place = chat_bench.place(tmp_path)
    folder = tmp_path / "bin"
    folder.mkdir()
    words = " ".join(start(program.package))
    (folder / program.name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    (folder / program.name).chmod(0o755)
    chat_bench.model.begin(started=Script([calls(program.hands.shell("echo worked"))]))
    where = ["--url", place.gateway.url, "--key", KEY, "--model", MODEL]
    place.project.mkdir()
    place.home.mkdir()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kenari.cli",
            "run",
            *where,
            program.name,
            "--",
            *program.command("Do the task:started."),
        ],
        cwd=place.project,
        env={"HOME": str(place.home), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done
    assert "ALL DONE" in done.stdout
    assert "worked" in chat_bench.model.of("started")[-1].said.results[0].text


def test_codex_over_a_websocket(chat_bench: Bench, tmp_path: Path) -> None:
    """D24, S104: Codex's own provider opens one connection and sends only what is new; the model gets all of it."""
    place = chat_bench.place(tmp_path)
    shell = CODEX.hands.shell
    thinks = [calls(shell(f"echo number-{word}"), reasoning=THOUGHT) for word in ("one", "two")]
    chat_bench.model.begin(socket=Script(thinks))
    outcome = run(CODEX_OWN, place, "Do the task:socket and stop.")
    assert outcome.status == 0, outcome
    assert "connected to Responses WebSocket status=101" in outcome.err
    exchanges = chat_bench.model.of("socket")
    assert len(exchanges) == 3
    assert_nothing_lost(exchanges, ["number-one", "number-two"])
    assert_stable_prefix(exchanges)
