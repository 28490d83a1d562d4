"""L11: imports go down only, rooms of one floor do not know each other, and a few doors are closed."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "kenari"
FLOORS = {
    "core": 0,
    "wire": 1,
    "dialects": 2,
    "providers": 3,
    "upstream": 3,
    "fetch": 3,
    "tools": 3,
    "documents": 3,
    "index": 3,
    "catalog": 3,
    "keys": 3,
    "store": 3,
    "ledger": 3,
    "connect": 3,
    "conformance": 3,
    "gateway": 4,
    "doors": 5,
    "keeper": 5,
    "demo": 5,
    "config": 5,
    "memory": 6,
    "admin_port": 6,
    "keep": 7,
    "node": 8,
    "app": 9,
    "worker": 10,
    "commands": 10,
    "cli": 11,
}
FILES = sorted(ROOT.rglob("*.py"))
PURE = ("core", "wire", "dialects", "providers", "catalog", "connect")


def room_of(path: Path) -> str:
    """The room of a file."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> list[str]:
    """All modules of kenari that a file imports."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("kenari."):
            found.append(node.module)
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("kenari.")]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    """A room imports itself and lower floors; rooms of floor 3 do not import each other; dialects neither."""
    room = room_of(path)
    if room == "__init__":
        return
    for module in imports_of(ast.parse(path.read_text())):
        other = module.split(".")[1]
        if other == room:
            if room == "dialects":
                mine, theirs = path.relative_to(ROOT).parts[1], module.split(".")[2]
                formats = {"chat", "messages", "responses"}
                assert not (mine in formats and theirs in formats and mine != theirs), f"{path.name} imports {module}"
            continue
        assert FLOORS[other] < FLOORS[room] or (FLOORS[room] == 5 > FLOORS[other] - 1 and other in ("keys",)), (
            f"{path.relative_to(ROOT)} (floor {FLOORS[room]}) imports {module} (floor {FLOORS[other]})"
        )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_inside_a_function(path: Path) -> None:
    """What a file needs stands at its top."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = [one for one in ast.walk(node) if isinstance(one, (ast.Import, ast.ImportFrom))]
            assert not inner, f"{path.name}:{node.lineno} {node.name} imports inside"


@pytest.mark.parametrize(
    "path", [one for one in FILES if room_of(one) in PURE], ids=lambda path: str(path.relative_to(ROOT))
)
def test_pure_rooms_neither_wait_nor_look_at_a_clock(path: Path) -> None:
    """Time, randomness and ids are arguments; `async` lives only where bytes move."""
    tree = ast.parse(path.read_text())
    names = {node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)}
    assert not names & {"asyncio", "time", "random", "secrets", "socket"}, path.name
    assert not any(isinstance(node, (ast.AsyncFunctionDef, ast.Await)) for node in ast.walk(tree)), path.name


def test_only_jsonx_knows_msgspec_json() -> None:
    """One place parses and writes JSON."""
    users = [
        path.name
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "json" and getattr(node.value, "id", "") == "msgspec"
    ]
    assert set(users) == {"jsonx.py"}


def test_no_provider_name_in_shared_code() -> None:
    """A provider is a row: shared code never compares its name."""
    names = {
        "openai",
        "anthropic",
        "openrouter",
        "groq",
        "deepseek",
        "mistral",
        "together",
        "fireworks",
        "xai",
        "gemini",
        "ollama",
    }
    for path in FILES:
        if room_of(path) == "providers":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                constants = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                assert not names & {one for one in constants if isinstance(one, str)}, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("room", sorted({room_of(path) for path in FILES if path.parent != ROOT}))
def test_each_room_says_what_belongs_there(room: str) -> None:
    """A README in every folder."""
    assert (ROOT / room / "README.md").is_file(), f"src/kenari/{room} has no README.md"
