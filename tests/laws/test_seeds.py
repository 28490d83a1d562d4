"""L8: the tests that name a number of the contract fail when the rule behind it is broken (see seeds.py).

Each seed is one run of pytest over a copy of the source with the fault in it, in a process of its own.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from contract_index import BUILT, naming_tests
from seeds import SEEDS, Seed

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
AT_ONCE = 2
FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+?)(?:\[.*)?(?: - .*)?$", re.M)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Future[set[str]]]:
    """The failing tests of each chosen seed, being found out."""
    index = naming_tests(("unit", "laws"))
    chosen = [
        int(str(item.callspec.params["at"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__) and "at" in item.fixturenames
    ]
    pool = ThreadPoolExecutor(AT_ONCE)
    return {at: pool.submit(_failing, SEEDS[at], index, tmp_path_factory.mktemp("seed")) for at in chosen}


def _failing(seed: Seed, index: dict[str, set[str]], folder: Path) -> set[str]:
    """The tests that fail with this seed, of those that name its numbers."""
    chosen = sorted({test for number in seed.breaks.split() for test in index.get(number, ())})
    assert chosen, f"no unit test and no law names {seed.breaks}"
    shutil.copytree(SOURCE / "kenari", folder / "kenari", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "kenari" / seed.file
    source = file.read_text(encoding="utf-8")
    assert source.count(seed.old) == 1, f"{seed.file} holds {source.count(seed.old)} times: {seed.old}"
    file.write_text(source.replace(seed.old, seed.new), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "seed"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--tb=no", "-rfE", "-p", "no:randomly", *chosen],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode in (0, 1), f"pytest ended with {done.returncode}: {done.stdout[-800:]}{done.stderr[-800:]}"
    return set(FAILED.findall(done.stdout))


@pytest.mark.parametrize("at", range(len(SEEDS)), ids=[f"{seed.breaks}-{at}" for at, seed in enumerate(SEEDS)])
def test_a_seeded_fault_is_noticed(at: int, runs: dict[int, Future[set[str]]]) -> None:
    """L8: for each number at least one of the tests that name it fails."""
    failing = runs[at].result()
    index = naming_tests(("unit", "laws"))
    unnoticed = [number for number in SEEDS[at].breaks.split() if not index.get(number, set()) & failing]
    assert unnoticed == []


def test_seeds_break_what_is_built() -> None:
    assert {number for seed in SEEDS for number in seed.breaks.split()} <= BUILT
