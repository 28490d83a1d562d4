"""L12: what exists is documented, and what is documented exists: routes, codes, settings, providers, commands, links."""

import argparse
import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kenari import cli
from kenari.config.load import parse_config
from kenari.config.table import Table
from kenari.core.errors import KINDS
from kenari.core.profile import Profile
from kenari.dialects.registry import BY_PATH
from kenari.doors.admin.door import ROUTES
from kenari.doors.admin.table import PREFIX
from kenari.gateway.kinds.asks import SPOTS
from kenari.keeper.metrics import GAUGES, Metrics
from kenari.providers.rows import ROWS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
DESCRIPTIONS = {
    "errors.md": "every error code",
    "configuration.md": "every setting",
    "providers.md": "every provider row and profile flag",
    "management-api.md": "every route of the admin port",
    "metrics.md": "every metric",
}
SMALLEST: dict[str, Any] = {
    "providers": {"p": {"dialect": "chat", "base_url": "http://127.0.0.1:1/v1"}},
    "models": {"m": {"targets": ["p/x"]}},
    "routes": {"r": {"models": ["m"]}},
}


def _commands(parser: argparse.ArgumentParser, words: str) -> list[tuple[str, argparse.ArgumentParser]]:
    """All commands below a parser, those of groups too, with their words."""
    found: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            choices: dict[str, argparse.ArgumentParser] = action.choices  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            for name, command in choices.items():
                found += [(f"{words} {name}", command), *_commands(command, f"{words} {name}")]
    return found


def _page(name: str) -> str:
    path = DOCS / name
    assert path.is_file(), f"docs/{name} is missing: it documents {DESCRIPTIONS.get(name, 'something that exists')}"
    return path.read_text(encoding="utf-8")


def _all_docs() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in PAGES)


@pytest.mark.parametrize("code", KINDS)
def test_each_error_code_is_documented(code: str) -> None:
    """With its status, both types and what to do."""
    line = next((line for line in _page("errors.md").splitlines() if f"`{code}`" in line and line.startswith("|")), "")
    kind = KINDS[code]
    assert line, f"{code} does not stand in the table of docs/errors.md"
    assert f"| {kind.status} |" in line
    assert kind.type in line
    assert kind.anthropic_type in line


def test_each_route_is_documented() -> None:
    """The chat endpoints, and every other path that the public door knows."""
    tree = ast.parse((ROOT / "src" / "kenari" / "doors" / "public.py").read_text(encoding="utf-8"))
    written = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    paths = {word for word in written if re.fullmatch(r"/[a-z][a-z0-9_/]*[a-z_]", word)} | set(BY_PATH) | set(SPOTS)
    assert "/healthz" in paths
    text = _all_docs()
    assert [path for path in sorted(paths) if path not in text] == []


def test_each_setting_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key that the reader of the configuration asks for."""
    asked: set[str] = set()
    take = Table.take

    def noting(table: Table, key: str) -> Any:
        if table.path not in ("providers", "models", "routes"):
            asked.add(key)
        return take(table, key)

    monkeypatch.setattr(Table, "take", noting)
    parse_config(SMALLEST, {}, "kenari.toml")
    assert {"keepalive", "targets", "base_url"} <= asked
    text = _page("configuration.md") + _page("providers.md")
    words = set(re.findall(r"[A-Za-z][A-Za-z0-9_]*", text + _all_docs()))
    assert sorted(asked - words) == []


def test_each_profile_flag_and_provider_row_is_documented() -> None:
    text = _page("providers.md")
    flags = [field.name for field in msgspec.structs.fields(Profile)]
    assert [name for name in [*flags, *ROWS] if f"`{name}`" not in text] == []


def test_each_command_and_option_is_documented() -> None:
    """`kenari COMMAND --option`, `kenari GROUP COMMAND --option`."""
    text = _all_docs()
    commands = _commands(cli.parser(), "kenari")
    assert "kenari keys rotate" in [words for words, _ in commands]
    missing: list[str] = []
    for words, command in commands:
        missing += [] if words in text else [words]
        options = [option for one in command._actions for option in one.option_strings]  # pyright: ignore[reportPrivateUsage]
        missing += [option for option in options if option not in ("-h", "--help") and option not in text]
    assert missing == []


def test_each_route_and_metric_of_the_admin_port_is_documented() -> None:
    routes = [f"`{route.method} {PREFIX}{route.path}`" for route in ROUTES]
    assert [route for route in routes if route not in _page("management-api.md")] == []
    families = [family.name for family in Metrics("USD", "0", str).collect()]
    names = {name if name.endswith(("_seconds", "_info", "_share")) else f"{name}_total" for name in families}
    names |= {f"kenari_{name}" for name in GAUGES}
    assert "kenari_requests_total" in names
    assert [name for name in sorted(names) if f"`{name}`" not in _page("metrics.md")] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """Links inside of the repository, headings included."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        assert there.exists(), f"{path.name} links to {target}"
        if anchor and there.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.M)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{path.name} links to {target}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_of_configuration_are_valid(path: Path, tmp_path: Path) -> None:
    """Each TOML block loads. (Keys in it come from the environment, so they are given here.)"""
    for block in re.findall(r"```toml\n(.*?)```", path.read_text(encoding="utf-8"), re.S):
        values = tomllib.loads(block)
        names = re.findall(r"env:([A-Z][A-Z0-9_]*)", block)
        if "model_provider" in values or not values.keys() & {"server", "providers", "models", "routes", "store"}:
            continue  # a client's own file
        if "models" in values and "providers" not in values:
            targets = [target for model in values["models"].values() for target in model.get("targets", [])]
            values["providers"] = {
                target.split("/")[0]: {"dialect": "chat", "base_url": "http://127.0.0.1:1/v1"} for target in targets
            }
        parse_config(values, dict.fromkeys(names, "x"), str(tmp_path / "kenari.toml"))
