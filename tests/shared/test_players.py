"""The shared players against this kenari: reported faults of other gateways, requests of real clients, streams of real
servers. They lie beside the repository, not in it; where they are not there these tests are skipped."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAYERS = ROOT.parent / "shared" / "cases"
MONEY = frozenset({"ledger", "balance", "price"})
"""A case that speaks of these needs the ledger, which is not built yet."""

pytestmark = pytest.mark.skipif(not PLAYERS.is_dir(), reason="the shared cases are not beside the repository")


def _speaks_of_money(value: Any) -> bool:
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return any(name in MONEY or _speaks_of_money(inner) for name, inner in members.items())
    return isinstance(value, list) and any(map(_speaks_of_money, cast("list[Any]", value)))


def _free_cases() -> list[str]:
    found: list[str] = []
    for path in sorted(PLAYERS.glob("B*.json")):
        case = json.loads(path.read_bytes())
        if not _speaks_of_money([case.get("setup"), case["expect"]]):
            found.append(case["id"])
    return found


def _play(script: str, *options: str) -> None:
    kenari = f"{sys.executable} -m kenari.cli"
    done = subprocess.run(
        [sys.executable, str(PLAYERS / script), "--kenari", kenari, "--project", str(ROOT), *options],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    report = done.stdout.strip().splitlines()
    assert done.returncode == 0, "\n".join([*report[-40:], done.stderr[-2000:]])
    assert " passed, 0 failed" in report[-1]


def test_cases() -> None:
    """Every case that needs no ledger and no balance."""
    cases = _free_cases()
    assert len(cases) > 50
    _play("run_cases.py", "--only", ",".join(cases))


def test_captures() -> None:
    """What real clients send (S102, D10-D12, D17-D21, D26, L10)."""
    _play("replay_captures.py")


def test_recordings() -> None:
    """What real servers answer (L1, D4, D5, D6, E4, E5, U1, U3)."""
    _play("replay_recordings.py")


def test_cases_of_routes() -> None:
    """Our own, in the same form: failover over targets and routes, before and after content (D7, E2, E7, M2)."""
    _play("run_cases.py", "--dir", str(ROOT / "tests" / "cases"))
