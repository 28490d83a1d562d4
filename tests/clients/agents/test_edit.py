"""The task that every agent does: run commands, edit a file and read it back, with a thought before each call."""

from pathlib import Path

import pytest

from agents.checks import assert_nothing_lost, assert_stable_prefix, assert_thoughts_return
from agents.conftest import Bench
from agents.model import THOUGHT, Script, calls
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

ALWAYS = [CODEX, CLAUDE, OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES]
SLOW = [QWEN, CLINE, PI_CHAT, PI_RESPONSES, PI_MESSAGES]
PROGRAMS = [*ALWAYS, *(pytest.param(one, marks=pytest.mark.agents_slow) for one in SLOW)]


def edit_script(program: Program, folder: Path) -> Script:
    """Two commands at once, then read, edit and read back."""
    hands, file = program.hands, folder / "work.txt"
    return Script(
        [
            calls(
                hands.shell(f"printf 'alpha\\nbeta\\n' > {file}; echo first-output"),
                hands.shell("echo second-output"),
                reasoning=THOUGHT,
                text=("I write the file.",),
            ),
            calls(hands.read(file), reasoning=THOUGHT),
            calls(hands.edit(file, "beta", "gamma"), reasoning=THOUGHT),
            calls(hands.shell(f"cat {file}"), reasoning=THOUGHT),
        ]
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_edit_a_file(bench: Bench, program: Program, tmp_path: Path) -> None:
    """S102, D10, D11, D14, D18, L10: the file is made, and what the agent did reaches the model whole."""
    place = bench.place(tmp_path)
    bench.model.begin(edit=edit_script(program, place.project))
    outcome = run(program, place, "Do the task:edit and stop.")
    assert outcome.status == 0, outcome
    assert "ALL DONE" in outcome.out
    assert (place.project / "work.txt").read_text() == "alpha\ngamma\n"
    exchanges = bench.model.of("edit")
    assert len(exchanges) == 5
    assert_nothing_lost(exchanges, ["first-output", "second-output", "beta", "", "gamma"])
    assert_stable_prefix(exchanges)
    assert_thoughts_return(exchanges, bench.dialect, program.client)
