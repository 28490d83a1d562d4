"""What server tools, documents and structured output cost a request that asks for none of them.

    python bench/features.py [--times 5] [--only plain,paced]

Two builds are measured in turn by calls.py: this source, and a copy of it whose way of a request has none of their checks.
The copy is made by replacing lines of the source; one that is not there any more is an error, so the list stays true.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
WITHOUT = (
    (
        "gateway/run.py",
        "self._media = Preparation(media, self._request) if media and not request.plain and has_media(request) else None",
        "self._media = None",
    ),
    ("gateway/run.py", "if self._media is None and not request.served and request.format is None:", "if True:"),
    (
        "gateway/run.py",
        "if self._media is not None or request.served or request.format is not None:",
        "if False:",
    ),
    ("gateway/run.py", "        if not isinstance(one.inlet, Loop):  # a loop", "        if True:  # a loop"),
    ("gateway/direct.py", "request.format is None\n        and not request.served\n        and (", "(True or "),
    ("dialects/fit/request.py", "if request.format is not None:", "if False:"),
    ("dialects/fit/request.py", "        and request.format is None\n", ""),
)
"""File, what stands there once, and what stands there without these features."""
LINE = re.compile(r"^(.+?) +([\d.]+) Python calls +([\d.]+) C calls +([\d.]+) us$", re.M)


def main() -> None:
    """Measure both builds in turn; the least of each figure counts: turns of the loop and lines of the log are in it."""
    parser = argparse.ArgumentParser(description="calls and microseconds with these features unused, and without them")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default="plain,plain 0.5 MB,plain translated,paced")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kenari-features-") as name:
        bare = Path(name) / "src"
        shutil.copytree(SOURCE, bare, ignore=shutil.ignore_patterns("__pycache__"))
        for file, old, new in WITHOUT:
            path = bare / "kenari" / file
            text = path.read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise SystemExit(f"{file}: {old!r} stands there {text.count(old)} times, not once")
            path.write_text(text.replace(old, new), encoding="utf-8")
        found: dict[str, dict[str, tuple[float, float, float]]] = {"with": {}, "without": {}}
        for _ in range(options.times):
            for build, source in (("with", SOURCE), ("without", bare)):
                for label, figures in measured(source, options).items():
                    before = found[build].get(label, figures)
                    python, c, time = (min(pair) for pair in zip(before, figures, strict=True))
                    found[build][label] = (python, c, time)
    for label, (python, c, time) in found["with"].items():
        bare_python, bare_c, bare_time = found["without"][label]
        print(
            f"{label:20} {python - bare_python:+7.1f} of {python:.1f} Python calls, {c - bare_c:+6.1f} of {c:.1f} C calls,"
            f" {time - bare_time:+7.2f} of {time:.2f} us ({time / bare_time - 1:+.1%})"
        )


def measured(source: Path, options: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    """Python calls, C calls and microseconds by workload."""
    command = [sys.executable, str(HERE / "calls.py"), "--only", options.only, "--rounds", str(options.rounds)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, check=True, timeout=600
    )
    return {label: (float(python), float(c), float(us)) for label, python, c, us in LINE.findall(done.stdout)}


if __name__ == "__main__":
    main()
