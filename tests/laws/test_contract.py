"""L8: every number of the contract that is built is named by a test."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ELSEWHERE = {52, 116, 161, 162, 163}
"""S numbers of later work: server tools and money."""
BUILT = (
    [f"S{number}" for number in range(1, 177) if number not in ELSEWHERE]
    + [f"D{number}" for number in range(1, 28) if number not in (13, 25)]
    + [f"R{number}" for number in (1, 2, 3)]
    + [f"U{number}" for number in (1, 2, 3)]
    + [f"E{number}" for number in range(1, 9)]
    + [f"F{number}" for number in (1, 2, 3, 4, 5, 6, 7, 12, 13)]
    + ["M1", "M4", "A1"]
)
_NAMED = re.compile(r"\b([SDRUEFMA])(\d+)(?:\s*-\s*\1(\d+))?")


def named() -> set[str]:
    """All contract numbers in the texts of the tests; ranges count whole."""
    found: set[str] = set()
    for path in TESTS.rglob("*"):
        if path.suffix not in (".py", ".mjs") or "node_modules" in path.parts or path == Path(__file__).resolve():
            continue
        for letter, first, last in _NAMED.findall(path.read_text(encoding="utf-8")):
            found |= {f"{letter}{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def test_every_number_of_the_contract_is_named_by_a_test() -> None:
    """L8: what has no test does not hold."""
    known = named()
    assert [number for number in BUILT if number not in known] == []
