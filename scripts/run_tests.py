"""The whole test command: `scripts/test` finds a Python for it. Standard library only.

Makes its own environment, then runs the style checks, the type checks and pytest, whose closing line is the last one.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from environment import CACHE, ROOT, VENV, binary, prepare_node, prepare_python

PARTS = {
    "unit": ["tests/unit"],
    "laws": ["tests/laws"],
    "clients": ["tests/clients"],
    "shared": ["tests/shared"],
}
CODE = ["src", "tests", "bench", "scripts"]
TEST_SECONDS = 300
"""A single test that takes longer hangs."""


def main() -> int:
    """Run what was asked for; 0 when all of it passed."""
    options, more = _parser().parse_known_args()
    began = time.monotonic()
    python = prepare_python()
    checks = 0
    if options.part in ("all", "style"):
        checks = _style()
    if options.part == "style":
        return checks
    environment = os.environ | {"KENARI_TEST_CACHE": str(CACHE / "demo"), "PYTHONUNBUFFERED": "1"}
    if options.part in ("all", "clients"):
        node, _ = prepare_node(python)
        environment["KENARI_TEST_NODE"] = str(node)
    print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
    tests = PARTS.get(options.part, [part for part in ("tests/unit", "tests/laws", "tests/clients", "tests/shared")])
    tests = [folder for folder in tests if (ROOT / folder).is_dir()]
    command = [str(python), "-m", "pytest", f"--timeout={TEST_SECONDS}", "--durations=10", *more]
    if not any(not word.startswith("-") and (ROOT / word.split("::")[0]).exists() for word in more):
        command += tests
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if checks:
        print("the style or type checks failed (see above)", file=sys.stderr, flush=True)
    return status or checks


def _style() -> int:
    """Format, lint and types; 0 when all are clean. All are run, so that one run tells everything."""
    failed = 0
    for name, command in (
        ("ruff format", [binary("ruff"), "format", "--check", *CODE]),
        ("ruff check", [binary("ruff"), "check", *CODE]),
        ("pyright", [binary("pyright"), "--pythonpath", binary("python"), "--venvpath", str(VENV.parent)]),
    ):
        print(f"-- {name}", flush=True)
        failed |= subprocess.run(command, cwd=ROOT, check=False).returncode
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/test",
        description="Run all checks and tests, or one part. Further options go to pytest (-k WORD, -x, a file ...).",
    )
    parser.add_argument("part", nargs="?", default="all", choices=["all", "style", *PARTS])
    return parser


if __name__ == "__main__":
    sys.exit(main())
