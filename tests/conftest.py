"""Shared by all tests: the kits beside the tests can be imported by name."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent, HERE / "unit"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
