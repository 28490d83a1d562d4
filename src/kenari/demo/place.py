"""Where the demo's model and server lie, and whether this machine can run them."""

import os
import platform
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kenari.demo.pins import LIBRARY, MODEL, RELEASE, SERVERS, WEIGHTS, WEIGHTS_SIZE, Wheel

OLDEST = {"linux": ("glibc", 2, 17), "darwin": ("macos", 13, 0)}
"""The oldest C library, and the oldest macOS, that the server's library is built for."""
INSTRUCTIONS = ("avx2", "fma", "f16c", "bmi2")
"""What an x86-64 processor must have, as Linux spells it; they came together, in 2013 (Intel) and 2015 (AMD)."""
NOT_THIS_PROCESSOR = "cannot run on this processor"
"""Stands in every reason that only another processor would remove."""


class Installed(NamedTuple):
    """A complete installation."""

    library: Path
    weights: Path


def data_folder(environ: Mapping[str, str]) -> Path:
    """Kenari's data folder: `KENARI_DATA`, else `kenari` in the XDG data folder."""
    own = environ.get("KENARI_DATA")
    if own:
        return Path(own).expanduser().absolute()
    shared = environ.get("XDG_DATA_HOME", "")
    base = Path(shared) if shared.startswith("/") else Path("~/.local/share").expanduser()
    return base / "kenari"


def demo_folder(data: Path) -> Path:
    """All that the demo keeps."""
    return data / "demo"


def find_installed(data: Path) -> Installed | None:
    """What is installed. The folder comes into being whole (a rename), so the size of the weights is proof enough."""
    folder = demo_folder(data) / RELEASE
    found = Installed(folder / LIBRARY, folder / WEIGHTS)
    try:
        whole = found.weights.stat().st_size == WEIGHTS_SIZE and found.library.is_file()
    except OSError:
        return None
    return found if whole else None


class Machine(NamedTuple):
    """What decides whether the server's library runs here."""

    system: str
    processor: str
    base: str
    """What programs are built for: the C library, `glibc 2.36`, or `macos 14.5`; empty when it is another one."""
    python: str = "cpython"
    """Which Python this is; `free-threaded` is a build of CPython that has no stable binary interface."""
    instructions: frozenset[str] | None = None
    """What the processor is able to do; None when the system does not tell."""


def this_machine() -> Machine:
    """The machine that this process runs on."""
    python = "free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else sys.implementation.name
    processor = platform.machine()
    if sys.platform == "darwin":
        return Machine(sys.platform, processor, f"macos {platform.mac_ver()[0]}", python)
    base = ""
    with suppress(AttributeError, ValueError, OSError):  # no such name: another C library, or not Unix
        base = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return Machine(sys.platform, processor, base, python, _instructions())


def _instructions() -> frozenset[str] | None:
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, words = line.partition(":")
            if name.strip() == "flags":  # x86; others spell it otherwise, and are not asked
                return frozenset(words.split())
    return None


def wheels_for(machine: Machine) -> tuple[Wheel, Wheel]:
    """The server's wheel and the model's, for a machine that is supported."""
    return SERVERS[machine.system, _normal(machine)], MODEL


def _normal(machine: Machine) -> str:
    return "x86_64" if machine.processor in ("amd64", "AMD64") else machine.processor


def unsupported(machine: Machine) -> str | None:
    """Why the real model cannot run on this machine; None when it can."""
    processor = _normal(machine)
    if (machine.system, processor) not in SERVERS:
        return f"it runs on Linux and macOS, x86-64 and ARM64, this is {machine.system} {machine.processor}"
    if machine.python != "cpython":
        return f"it runs on ordinary CPython only, this Python is {machine.python}"
    base, *oldest = OLDEST[machine.system]
    name, _, version = machine.base.partition(" ")
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    if name != base or numbers < oldest:
        spelt = f"{base} {oldest[0]}.{oldest[1]}"
        return f"it needs {spelt} or newer, this is {machine.base or 'another C library'}"
    missing = [] if machine.instructions is None else [one for one in INSTRUCTIONS if one not in machine.instructions]
    if processor == "x86_64" and missing:
        return f"it {NOT_THIS_PROCESSOR}, which has no {', '.join(missing)}"
    return None
