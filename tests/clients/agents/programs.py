"""The real agents: how each is set up in a folder of its own, and started without a person."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gateway import KEY, Gateway
from upstream import Call

from agents.model import call

MODEL = "scripted-agent"
"""The model's name at kenari; no agent knows it."""


class Hands(NamedTuple):
    """The agent's own tools for the three things that every task needs."""

    shell: Callable[[str], Call]
    read: Callable[[Path], Call]
    edit: Callable[[Path, str, str], Call]


def hands(shell: str, read: tuple[str, str], edit: tuple[str, str, str, str], **more: object) -> Hands:
    """Hands by the names of tools and of their arguments; `more` goes with each command."""

    def run_command(command: str) -> Call:
        return call(shell, command=command, **more)

    def read_file(path: Path) -> Call:
        return call(read[0], **{read[1]: str(path)})

    def edit_file(path: Path, old: str, new: str) -> Call:
        return call(edit[0], **{edit[1]: str(path), edit[2]: old, edit[3]: new})

    return Hands(run_command, read_file, edit_file)


class Place(NamedTuple):
    """Where an agent lives for one test: a home of its own and a project folder, the kenari it talks to and its key."""

    home: Path
    project: Path
    gateway: Gateway
    key: str = KEY

    @property
    def v1(self) -> str:
        """kenari's address with /v1."""
        return self.gateway.url + "/v1"


class Outcome(NamedTuple):
    """How an agent's run ended."""

    status: int
    out: str
    err: str
    seconds: float
    timed_out: bool


class Program(NamedTuple):
    """An agent. `setup` writes its configuration and returns what its environment needs besides the usual,
    `command` is its command line for a prompt."""

    name: str
    package: str
    hands: Hands
    setup: Callable[[Place], Mapping[str, str]]
    command: Callable[[str], Sequence[str]]
    client: str
    """The format that it speaks to kenari."""


def run(program: Program, place: Place, prompt: str, *more: str, seconds: float = 120.0, **env: str) -> Outcome:
    """Run the agent to its end, at most so long; `more` are further words of its command line."""
    for folder in (place.home, place.project):
        folder.mkdir(parents=True, exist_ok=True)
    surroundings = environment(place.home) | dict(program.setup(place)) | env
    began = time.monotonic()
    process = subprocess.Popen(
        [*start(program.package), *program.command(prompt), *more],
        cwd=place.project,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    timed_out = False
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    return Outcome(process.returncode, out, err, time.monotonic() - began, timed_out)


def start(package: str) -> list[str]:
    """The words that start a package's program: its own `bin`, by Node unless it is a binary."""
    folder = Path(os.environ["KENARI_TEST_AGENTS"]) / "node_modules" / package
    entry = json.loads((folder / "package.json").read_text(encoding="utf-8"))["bin"]
    file = folder / (entry if isinstance(entry, str) else next(iter(entry.values())))
    with file.open("rb") as opened:
        script = opened.read(2) == b"#!" or file.suffix in (".js", ".mjs", ".cjs")
    return [os.environ["KENARI_TEST_NODE"], str(file)] if script else [str(file)]


def environment(home: Path) -> dict[str, str]:
    """A plain environment: nothing of the machine's own set-up of agents reaches a test."""
    node = str(Path(os.environ["KENARI_TEST_NODE"]).parent)
    return {
        "PATH": os.pathsep.join((node, os.environ["PATH"])),
        "HOME": str(home),
        "USERPROFILE": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CI": "true",
        "NO_PROXY": "127.0.0.1,localhost",
    }


# -- Codex


def _codex_setup(place: Place) -> Mapping[str, str]:
    folder = place.home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.toml"
    if not file.exists():
        file.write_text(
            f'model = "{MODEL}"\nmodel_provider = "kenari"\nmodel_context_window = 131072\n'
            '[model_providers.kenari]\nname = "kenari"\n'
            f'base_url = "{place.v1}"\nenv_key = "KENARI_API_KEY"\nwire_api = "responses"\n'
            "stream_idle_timeout_ms = 600000\n",
            encoding="utf-8",
        )
    return {"KENARI_API_KEY": place.key, "CODEX_HOME": str(folder)}


def _codex_command(prompt: str) -> Sequence[str]:
    return ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json", prompt)


def _codex_shell(command: str) -> Call:
    return call("exec_command", cmd=command)


def _codex_read(path: Path) -> Call:
    return _codex_shell(f"cat {path}")


def _codex_edit(path: Path, old: str, new: str) -> Call:
    return _codex_shell(f"sed -i.bak 's/{old}/{new}/' {path}")


CODEX = Program(
    "codex",
    "@openai/codex",
    Hands(_codex_shell, _codex_read, _codex_edit),
    _codex_setup,
    _codex_command,
    "responses",
)


def _codex_own_setup(place: Place) -> Mapping[str, str]:
    folder = place.home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    settings = f'model = "{MODEL}"\nopenai_base_url = "{place.v1}"\n'
    (folder / "config.toml").write_text(settings, encoding="utf-8")
    keys = {"CODEX_API_KEY": place.key, "OPENAI_API_KEY": place.key}
    return {"CODEX_HOME": str(folder), "RUST_LOG": "codex_api=info", **keys}


CODEX_OWN = CODEX._replace(name="codex-own", setup=_codex_own_setup)
"""Codex's own provider with another address: it speaks over a WebSocket and compacts in its own way."""

# -- Claude Code


def _claude_setup(place: Place) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": place.gateway.url,
        "ANTHROPIC_AUTH_TOKEN": place.key,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CONFIG_DIR": str(place.home / ".claude"),
    }


def _claude_command(prompt: str) -> Sequence[str]:
    tools = "Bash,Read,Edit,Write,WebSearch,Agent,Task,ToolSearch,mcp__probe__look"
    return ("-p", prompt, "--output-format", "json", f"--allowedTools={tools}")


CLAUDE = Program(
    "claude",
    "@anthropic-ai/claude-code",
    hands(
        "Bash",
        ("Read", "file_path"),
        ("Edit", "file_path", "old_string", "new_string"),
        description="a step of the task",
    ),
    _claude_setup,
    _claude_command,
    "messages",
)

# -- OpenCode


def _opencode_command(prompt: str) -> Sequence[str]:
    return ("run", "--format", "json", prompt)


def _opencode(npm: str, client: str) -> Program:
    def setup(place: Place) -> Mapping[str, str]:
        model = {
            "name": "scripted",
            "reasoning": True,
            "attachment": True,
            "tool_call": True,
            "modalities": {"input": ["text", "image"], "output": ["text"]},
            "limit": {"context": 131072, "output": 32000},
        }
        options = {"baseURL": place.v1, "apiKey": place.key}
        provider = {"npm": npm, "name": "kenari", "options": options, "models": {MODEL: model}}
        settings = {
            "$schema": "https://opencode.ai/config.json",
            "provider": {"kenari": provider},
            "model": f"kenari/{MODEL}",
            "small_model": f"kenari/{MODEL}",
            "permission": {"*": "allow"},
            "autoupdate": False,
            "share": "disabled",
        }
        (place.project / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
        return {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }

    return Program(
        f"opencode-{client}",
        "opencode-ai",
        hands(
            "bash",
            ("read", "filePath"),
            ("edit", "filePath", "oldString", "newString"),
            description="a step of the task",
        ),
        setup,
        _opencode_command,
        client,
    )


OPENCODE_CHAT = _opencode("@ai-sdk/openai-compatible", "chat")
OPENCODE_RESPONSES = _opencode("@ai-sdk/openai", "responses")
OPENCODE_MESSAGES = _opencode("@ai-sdk/anthropic", "messages")

# -- Qwen Code


def _qwen_setup(place: Place) -> Mapping[str, str]:
    return {
        "OPENAI_API_KEY": place.key,
        "OPENAI_BASE_URL": place.v1,
        "OPENAI_MODEL": MODEL,
        "QWEN_SANDBOX": "false",
    }


def _qwen_command(prompt: str) -> Sequence[str]:
    return ("--auth-type", "openai", "--yolo", "-p", prompt)


def _qwen_shell(command: str) -> Call:
    """On a busy machine it loses the output of a command that ends at once."""
    return call("run_shell_command", command=f"{command}; sleep 0.5", is_background=False, description="a step")


_QWEN_HANDS = hands("", ("read_file", "file_path"), ("edit", "file_path", "old_string", "new_string"))
QWEN = Program(
    "qwen",
    "@qwen-code/qwen-code",
    _QWEN_HANDS._replace(shell=_qwen_shell),
    _qwen_setup,
    _qwen_command,
    "chat",
)

# -- pi

_PI_API = {"chat": "openai-completions", "responses": "openai-responses", "messages": "anthropic-messages"}


def _pi_command(prompt: str) -> Sequence[str]:
    return ("--provider", "kenari", "--model", MODEL, "--thinking", "medium", "-p", prompt)


def _pi_edit(path: Path, old: str, new: str) -> Call:
    return call("edit", path=str(path), edits=[{"oldText": old, "newText": new}])


def _pi(client: str) -> Program:
    def setup(place: Place) -> Mapping[str, str]:
        folder = place.home / ".pi" / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        model = {
            "id": MODEL,
            "name": "scripted",
            "reasoning": True,
            "input": ["text", "image"],
            "contextWindow": 131072,
            "maxTokens": 32000,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }
        provider = {
            "baseUrl": place.gateway.url if client == "messages" else place.v1,
            "apiKey": "KENARI_API_KEY",
            "api": _PI_API[client],
            "models": [model],
        }
        (folder / "models.json").write_text(json.dumps({"providers": {"kenari": provider}}), encoding="utf-8")
        return {"KENARI_API_KEY": place.key, "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1"}

    return Program(
        f"pi-{client}",
        "@mariozechner/pi-coding-agent",
        hands("bash", ("read", "path"), ("edit", "path", "", ""))._replace(edit=_pi_edit),
        setup,
        _pi_command,
        client,
    )


PI_CHAT, PI_RESPONSES, PI_MESSAGES = _pi("chat"), _pi("responses"), _pi("messages")

# -- Cline


def _cline_setup(place: Place) -> Mapping[str, str]:
    file = place.home / ".cline" / "data" / "settings" / "providers.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    settings = {"provider": "openai-compatible", "apiKey": place.key, "model": MODEL, "baseUrl": place.v1}
    entry = {"settings": settings, "updatedAt": "2026-11-30T00:00:00.000Z", "tokenSource": "manual"}
    file.write_text(json.dumps({"version": 1, "providers": {"openai-compatible": entry}}), encoding="utf-8")
    return CLINE_ALONE


def _cline_command(prompt: str) -> Sequence[str]:
    return ("-P", "openai-compatible", "-m", MODEL, "--json", prompt)


def _cline_shell(command: str) -> Call:
    return call("run_commands", commands=[command])


def _cline_read(path: Path) -> Call:
    return call("read_files", files=[{"path": str(path)}])


def _cline_edit(path: Path, old: str, new: str) -> Call:
    return call("editor", path=str(path), old_text=old, new_text=new)


CLINE_ALONE = {"CLINE_SESSION_BACKEND_MODE": "local"}
"""Without this it leaves a process of its own behind, which serves later sessions."""
CLINE = Program(
    "cline",
    "cline",
    Hands(_cline_shell, _cline_read, _cline_edit),
    _cline_setup,
    _cline_command,
    "chat",
)
