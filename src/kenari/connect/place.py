"""Where a client's own file lies, on each system, by its environment. Pure: a name of a system and variables in."""

from collections.abc import Mapping
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Literal, TypeAlias

from kenari.connect.client import File

System: TypeAlias = Literal["linux", "macos", "windows"]


def system_of(platform: str) -> System:
    """The system behind `sys.platform`; every other Unix is like Linux."""
    return {"darwin": "macos", "win32": "windows"}.get(platform, "linux")  # type: ignore[return-value]


def place_of(file: File, system: System, environment: Mapping[str, str]) -> PurePath:
    """The file's path. Raises KeyError with the name of a variable that is missing (HOME, or USERPROFILE)."""
    make = PureWindowsPath if system == "windows" else PurePosixPath
    path = {"linux": file.linux, "macos": file.macos, "windows": file.windows}[system]
    folder = environment.get(file.folder_variable, "") if file.folder_variable else ""
    if folder:
        return make(folder) / make(path).name
    home = environment["USERPROFILE" if system == "windows" else "HOME"]
    places = {
        "home": home,
        "config": environment.get("XDG_CONFIG_HOME") or str(make(home) / ".config"),
        "application_data": environment.get("APPDATA") or str(make(home) / "AppData" / "Roaming"),
    }
    return make(path.format(**places))
