"""Where the demo's model and server lie, and whether this machine can run them."""

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

RELEASE = "smollm2-135m-0.1.2-llama-server-0.10434.0"
"""The folder's name; it changes with each pinned version."""
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SIZE = 98_362_432
GLIBC = (2, 35)
"""The oldest C library that the server binary runs on."""


class Installed(NamedTuple):
    """A complete installation. Its libraries lie beside `server`."""

    server: Path
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
    found = Installed(folder / "bin" / "llama-server", folder / WEIGHTS)
    try:
        whole = found.weights.stat().st_size == WEIGHTS_SIZE and found.server.is_file()
    except OSError:
        return None
    return found if whole else None


class Machine(NamedTuple):
    """What decides whether the server binary runs here. `libc` is the C library, `glibc 2.36`."""

    system: str
    processor: str
    libc: str


def this_machine() -> Machine:
    """The machine that this process runs on."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):  # no such name: another C library, or not Unix
        libc = ""
    return Machine(sys.platform, platform.machine(), libc)


def unsupported(machine: Machine) -> str | None:
    """Why the real model cannot run on this machine; None when it can."""
    if machine.system != "linux" or machine.processor not in ("x86_64", "amd64", "AMD64"):
        return f"it runs on Linux x86_64 only, this is {machine.system} {machine.processor}"
    name, _, version = machine.libc.partition(" ")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name != "glibc" or numbers < GLIBC:
        return f"it needs glibc {GLIBC[0]}.{GLIBC[1]} or newer, this is {machine.libc or 'another C library'}"
    return None
