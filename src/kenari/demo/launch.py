"""Run a program that ends with its parent: `python launch.py PARENT_PID PROGRAM ARGUMENT...`.

The kernel sends SIGTERM to the program when the parent dies, however it dies. A program of its own, so that no code of
ours runs between fork and exec of the serving process. Needs the standard library only.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Become the program. Exits with 1 when the parent is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != int(argv[0]):  # it died before the line above took effect
        raise SystemExit(1)
    os.execv(argv[1], argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
