"""The pages of the agents in docs/clients: every line of shell in them is run as it stands, with the real program.

Only the address is another one, `kn-...` is a key, and installing is left to the test command, which has done it.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway import KEY, Gateway, config_text, running_gateway

from agents.programs import (
    CLAUDE,
    CLINE,
    CLINE_ALONE,
    CODEX,
    OPENCODE_CHAT,
    PI_CHAT,
    QWEN,
    Place,
    Program,
    environment,
    start,
)

PAGES = Path(__file__).parents[3] / "docs" / "clients"
SLOW = [OPENCODE_CHAT, QWEN, PI_CHAT, CLINE]
PROGRAMS = [CODEX, CLAUDE, *(pytest.param(one, marks=pytest.mark.agents_slow) for one in SLOW)]
SHOWN_URL, SHOWN_MODEL = "http://127.0.0.1:8080", "gpt-oss-120b"
ANSWER = "demo/scripted"
"""The name that the model gives itself in each answer."""
INSTALLS = ("npm install ", "pip install ")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """kenari with the model of the pages, which says what it is asked to say."""
    providers: dict[str, dict[str, Any]] = {"demo": {"dialect": "chat", "base_url": "scripted:"}}
    models: dict[str, dict[str, Any]] = {SHOWN_MODEL: {"targets": ["demo/scripted"], "vision": True, "reasoning": True}}
    with running_gateway(config_text(providers, models)) as running:
        yield running


def shell_of(name: str) -> list[str]:
    """The lines of a page's shell blocks, without those that install something."""
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)\n```", page, re.S) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(INSTALLS)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_lines_of_a_page_run(gateway: Gateway, program: Program, tmp_path: Path) -> None:
    """Set up, checked, started by `kenari run` where it can be, and used."""
    name = program.name.partition("-")[0]
    place = Place(tmp_path / "home", tmp_path / "project", gateway)
    programs = tmp_path / "bin"
    for folder in (place.home, place.project, programs):
        folder.mkdir()
    for command, words in ((name, start(program.package)), ("kenari", [sys.executable, "-m", "kenari.cli"])):
        (programs / command).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (programs / command).chmod(0o755)
    subprocess.run(["git", "init", "--quiet", str(place.project)], check=True, timeout=20)  # Codex wants to be in one
    lines = shell_of(name)
    uses = [line for line in lines if "say hello" in line]
    assert len(uses) == (2 if program in (CODEX, CLAUDE) else 1)
    script = "\n".join(lines).replace(SHOWN_URL, gateway.url).replace("kn-...", KEY)
    surroundings = environment(place.home) | {"KENARI_URL": gateway.url, "KENARI_API_KEY": KEY}
    surroundings["PATH"] = f"{programs}{os.pathsep}{surroundings['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=place.project,
        env=surroundings | (CLINE_ALONE if program is CLINE else {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done
    assert done.stdout.count(ANSWER) >= len(uses) + 1, done  # `--check` shows its answer too
