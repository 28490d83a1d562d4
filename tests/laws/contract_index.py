"""Which numbers of the contract are built, and which tests name them."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
NUMBER = re.compile(r"(?<![A-Za-z0-9])([SDERUFMA])(\d+)(?:-\1?(\d+))?(?![0-9A-Za-z])")
IN_NAME = re.compile(r"_([sderufma]\d+)(?=_|$)", re.IGNORECASE)


def _span(letter: str, first: int, last: int) -> set[str]:
    return {f"{letter}{number}" for number in range(first, last + 1)}


BUILT = (
    _span("S", 1, 176)
    | (_span("D", 1, 27) - {"D10"})
    | _span("R", 1, 3)
    | _span("U", 1, 7)
    | _span("E", 1, 8)
    | _span("F", 1, 9)
    | {"A3", "F10", "F11"}
    | {"F12", "F13", "F14", "M1", "M2", "M3", "M4", "A1", "A2", "A4"}
)
"""What stands in the contract: all of it but what no test can name."""


def numbers_in(text: str) -> set[str]:
    """The contract's numbers in a text; `S80-S90` names all between."""
    found: set[str] = set()
    for letter, first, last in NUMBER.findall(text):
        found |= _span(letter, int(first), int(last or first))
    return found


def naming_tests(folders: tuple[str, ...] = ("unit", "laws", "clients", "shared")) -> dict[str, set[str]]:
    """number -> pytest's ids of the test functions that name it: in their name, docstring, comments or parameters."""
    index: dict[str, set[str]] = {}
    for path in sorted(file for folder in folders for file in (TESTS / folder).glob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            own = "\n".join(lines[first - 1 : node.end_lineno])
            named = numbers_in(own) | {number.upper() for number in IN_NAME.findall(node.name)}
            for number in named:
                index.setdefault(number, set()).add(f"{path.relative_to(TESTS.parent).as_posix()}::{node.name}")
    return index
