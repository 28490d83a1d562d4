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

from environment import (
    CACHE,
    ROOT,
    binary,
    prepare_agents,
    prepare_libraries,
    prepare_node,
    prepare_python,
    prepare_tool_model,
)

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
    part = more.pop(0) if more and more[0] in ("all", "style", *PARTS) else "all"
    chosen = [word for word in more if not word.startswith("-") and (ROOT / word.split("::")[0]).exists()]
    began = time.monotonic()
    python = prepare_python()
    checks = _style() if part in ("all", "style") and not chosen and not options.no_lint else 0
    if part == "style":
        return checks
    environment = os.environ | {"KENARI_TEST_CACHE": str(CACHE / "demo"), "PYTHONUNBUFFERED": "1"}
    folders = [] if chosen else PARTS.get(part, [folder for folders in PARTS.values() for folder in folders])
    if any("tests/clients" in word or word.rstrip("/") == "tests" for word in [*folders, *chosen]):
        node, _ = prepare_node(python)
        environment["KENARI_TEST_NODE"] = str(node)
        environment["KENARI_TEST_AGENTS"] = str(prepare_agents(python))
    print(f"ready after {time.monotonic() - began:.0f} s", flush=True)
    if options.slow_agents:
        environment["KENARI_TEST_SLOW_AGENTS"] = "1"
        environment["KENARI_TEST_LIBRARIES"] = str(prepare_libraries())
    if options.tool_model:
        environment["KENARI_TEST_TOOL_MODEL"] = str(prepare_tool_model())
    command = [str(python), "-m", "pytest", f"--timeout={TEST_SECONDS}", "--durations=10", *more, *folders]
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
        ("pyright", [binary("pyright"), "--project", "pyproject.toml", "--pythonpath", binary("python")]),
    ):
        print(f"-- {name}", flush=True)
        failed |= subprocess.run(command, cwd=ROOT, check=False).returncode
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/test",
        usage="%(prog)s [PART] [--no-lint] [--slow-agents] [--tool-model] [PYTEST OPTION OR FILE ...]",
        description=f"Run all checks and tests, or one part: style, {', '.join(PARTS)}. "
        "Further words go to pytest (-k WORD, -x, a file ...); with a file only that is run.",
    )
    parser.add_argument("--no-lint", action="store_true", help="leave out format, lint and types")
    parser.add_argument(
        "--slow-agents", action="store_true", help="every test with the coding agents, not only the short"
    )
    parser.add_argument(
        "--tool-model", action="store_true", help="server tools with a real model that calls functions (478 MB, once)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
