"""Marks of the house that no linter knows: sizes, docstrings, constants, and words that never belong into a file."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "kenari"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST_FILE = 460
"""Lines. About 400 is a sign to look twice; this is where it ends."""
LONGEST_FUNCTION = 66
POOR_NAMES = re.compile(r"(Manager|Helper|Helpers|Utils|Util|Misc)$|^(utils?|helpers?|misc|common)$")
NEVER = re.compile(
    r"https?://[\w.-]*(?:registry|pypi|npmjs)"  # an address of a package registry
    + r"|(?<![\w.])/(?:work|home|Users)/"  # a path of somebody's machine
    + r"|\b(?:TO"
    + r"DO|FIX"
    + r"ME|XX"
    + r"X)\b"
)
UNREAD = {".gguf", ".png", ".jpg", ".gz", ".zst"}


def _tracked() -> list[Path]:
    """Every file that the repository holds, or will hold."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    return [path for name in names if name and (path := ROOT / name).is_file() and path.suffix not in UNREAD]


def _public(node: ast.stmt) -> bool:
    named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return named and not node.name.startswith("_")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_sizes(path: Path) -> None:
    """A file and a function are read in one go."""
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= LONGEST_FILE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{path.name}:{node.lineno} {node.name} has {lines} lines"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_public_things_say_what_they_are(path: Path) -> None:
    """Each module, public class and public function has a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert path.name == "__init__.py" or ast.get_docstring(tree), f"{path.name} has no docstring"
    for node in tree.body:
        if not _public(node):
            continue
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        assert ast.get_docstring(node), f"{path.name}:{node.lineno} {node.name} has no docstring"
        assert not POOR_NAMES.search(node.name), f"{path.name}:{node.lineno} {node.name} names no thing"
    assert not POOR_NAMES.search(path.stem), f"{path.name} names no thing"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_state_in_modules(path: Path) -> None:
    """What a module binds at its top is a constant: `global` needs a reason beside it (a cache of one line has one)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Global):
            assert " - " in lines[node.lineno - 1], f"{path.name}:{node.lineno} uses global without a reason"


def test_words_that_never_belong_into_a_file() -> None:
    """No address of a package registry, no path of a machine, nothing left to be done."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in _tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if NEVER.search(line) and path != Path(__file__)
    ]
    assert found == []


def test_requirements_are_pinned_with_hashes() -> None:
    """What is installed for tests and deployments is exactly what was looked at; no index is named."""
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            if line and not line.startswith((" ", "#")):
                assert re.match(r"[a-z0-9-]+==\S+ ", line), f"{path.name}: {line[:60]}"
                assert "--hash=sha256:" in line, f"{path.name}: {line[:60]}"


def test_node_packages_are_pinned() -> None:
    """Exact versions, and no lock file (it would name a registry's host)."""
    folder = ROOT / "tests" / "clients" / "node"
    text = (folder / "package.json").read_text(encoding="utf-8")
    block = text[text.index('"dependencies"') :]
    versions = re.findall(r'"[@a-z/-]+": "([^"]+)"', block)
    assert len(versions) >= 8
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
    assert not (folder / "package-lock.json").exists()
