"""docs/clients: each page shows exactly what `kenari connect` sets up, and its code runs as it stands."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway import KEY, Gateway, config_text, running_gateway

from kenari.cli import main, parser
from kenari.connect.client import Client, Server, fill, load, names
from kenari.connect.merge import merged

PAGES = Path(__file__).parents[2] / "docs" / "clients"
SHOWN = Server("http://127.0.0.1:8080", "kn-...", "gpt-oss-120b")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    providers: dict[str, dict[str, Any]] = {"demo": {"dialect": "chat", "base_url": "scripted:"}}
    models: dict[str, dict[str, Any]] = {SHOWN.model: {"targets": ["demo/scripted"], "vision": True, "reasoning": True}}
    with running_gateway(config_text(providers, models)) as running:
        yield running


def _page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def _blocks(name: str) -> list[tuple[str, str]]:
    """The code blocks of a page: language and content."""
    return re.findall(r"```(\w+)\n(.*?)\n```", _page(name), re.S)


def _shown(name: str) -> Client:
    return fill(load(name), SHOWN)


def test_each_client_has_its_page_and_each_page_its_client() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - {"README"} == set(names())
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert [name for name in names() if f"({name}.md)" not in index] == []


@pytest.mark.parametrize("name", names())
def test_a_page_shows_what_connect_sets_up(name: str) -> None:
    client, blocks = _shown(name), _blocks(name)
    shell = "\n".join(block for language, block in blocks if language == "sh")
    assert f"kenari connect {name}" in shell
    assert client.install in shell
    if client.file is not None:
        assert (client.file.kind, merged(client, "").strip()) in blocks
        if not client.file.secret:
            assert all(f"export {variable}=" in shell for variable in client.environment)
    for part, language in ((client.code, client.language), (client.use, "sh")):
        assert not part or (language, part.strip()) in blocks


def test_each_command_of_the_pages_is_one() -> None:
    """`kenari ...` with its words, as the command line takes them."""
    found = [line for page in PAGES.glob("*.md") for line in re.findall(r"^kenari .*$", page.read_text(), re.M)]
    assert len(found) >= 2 * len(names())
    for line in found:
        parser().parse_args(line.partition(" -- ")[0].split()[1:])


@pytest.mark.parametrize("name", names())
def test_the_set_up_of_a_page_runs(
    gateway: Gateway, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each `kenari connect` line, for the server and with the key that the variables name. (What uses it is run by
    tests/clients/agents/test_pages.py, and below.)"""
    for variable, value in (("HOME", str(tmp_path)), ("KENARI_URL", gateway.url), ("KENARI_API_KEY", KEY)):
        monkeypatch.setenv(variable, value)
    for variable in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "LLM_USER_PATH", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    lines = re.findall(r"^(kenari connect .*)$", _page(name), re.M)
    assert len(lines) == 2
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr()
    assert f"{SHOWN.model} says " in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in names() if load(name).language])
def test_the_code_of_a_page_runs(gateway: Gateway, name: str, tmp_path: Path) -> None:
    """With the real library, where the test environment has it."""
    code = next(block for language, block in _blocks(name) if language == load(name).language)
    file = tmp_path / ("example." + {"python": "py", "js": "mjs"}[load(name).language])
    file.write_text(code.replace(SHOWN.url, gateway.url), encoding="utf-8")
    if load(name).language == "js":
        node, modules = (
            os.environ.get("KENARI_TEST_NODE"),
            Path(__file__).parent / "node" / "node_modules",
        )
        if not node or not modules.is_dir():
            pytest.skip("Node and its packages come with `scripts/test clients`")
        (tmp_path / "node_modules").symlink_to(modules)
        command = [node, str(file)]
    else:
        module = name.partition("-")[0]
        libraries = os.environ.get("KENARI_TEST_LIBRARIES")
        python = sys.executable if module in ("openai", "anthropic") else libraries
        if not python:
            pytest.skip(f"{module} comes with --slow-agents")
        command = [python, str(file)]
    variables = dict.fromkeys(load(name).environment, KEY)
    done = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=100, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "say hello" in done.stdout


def test_llm_as_its_page_says(gateway: Gateway, tmp_path: Path) -> None:
    """The file that connect writes, and the command of the page."""
    libraries = os.environ.get("KENARI_TEST_LIBRARIES")
    if not libraries:
        pytest.skip("llm comes with --slow-agents")
    written = merged(fill(load("llm"), Server(gateway.url, KEY, SHOWN.model)), "")
    (tmp_path / "extra-openai-models.yaml").write_text(written, encoding="utf-8")
    environment = os.environ | {"LLM_USER_PATH": str(tmp_path), "KENARI_API_KEY": KEY}
    environment["PATH"] = f"{Path(libraries).parent}{os.pathsep}{environment['PATH']}"
    command = _shown("llm").use.strip()
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=False, timeout=100, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "say hello" in done.stdout
