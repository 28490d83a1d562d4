"""The pages of the first run say what the code does."""

import re
from pathlib import Path

import pytest

from kenari.demo.pins import MODEL, ROOM, SERVERS
from kenari.demo.place import INSTRUCTIONS, OLDEST
from kenari.demo.server import CONTEXT_WINDOW, MODEL_ID
from kenari.demo.welcome import welcome
from kenari.upstream.wishes import KEYWORDS, LONGEST, SLOW_SECONDS

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def code(name: str) -> list[str]:
    return re.findall(r"```\w+\n.*?```", page(name), re.DOTALL)


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_each_keyword_is_documented(word: str) -> None:
    if word not in ("reason", "tools", "failure"):  # other forms of documented ones
        assert f"`{word}`" in page("first-run.md")


def test_the_numbers_of_the_first_run_are_those_of_the_code() -> None:
    text = page("first-run.md")
    names = {"linux": "Linux", "darwin": "macOS"}
    for (system, processor), wheel in SERVERS.items():
        assert f"`{wheel.name}=={wheel.version}` | {names[system]} {processor} | {wheel.size / 1e6:.1f} MB" in text
    assert f"`{MODEL.name}=={MODEL.version}` | all | {MODEL.size / 1e6:.1f} MB" in text
    for base, *oldest in OLDEST.values():
        assert f"{base} {oldest[0]}.{oldest[1]}" in text
    assert all(f"`{name}`" in text for name in INSTRUCTIONS)
    assert f"{ROOM // 10**6} MB of free" in text.replace("\n", " ")
    assert f"{CONTEXT_WINDOW:,} tokens" in text
    assert f"at most {LONGEST} characters" in text
    assert f"({SLOW_SECONDS:.0f} by itself)" in text
    assert MODEL_ID in text


def test_both_quickstarts_have_the_same_code() -> None:
    assert code("quickstart.md") == code("quickstart.id.md")


def test_the_quickstart_shows_the_welcome_and_its_curl_lines() -> None:
    said = welcome("http://127.0.0.1:8080", "kn-...", [MODEL_ID, "demo/scripted"])
    text = page("quickstart.md")
    head, _, curls = said.partition("\n\nChat completions:")
    assert f"```text\n{head}\n```" in text
    bodies = re.findall(r"-d '.*'", curls)
    assert len(bodies) == 3
    assert all(body in text for body in bodies)
