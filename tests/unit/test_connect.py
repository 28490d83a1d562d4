"""`kenari connect` and `kenari run`: data of every client, their places, merging that loses nothing, the commands."""

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gateway import KEY, Gateway, config_text, running_gateway
from upstream import Play, scripted_provider

from kenari.cli import main
from kenari.connect import jsonc, merge
from kenari.connect.client import Client, File, Server, fill, load, names
from kenari.connect.merge import MergeError, merged
from kenari.connect.place import place_of, system_of
from kenari.connect.probe import probe, verdict

SERVER = Server("https://llm.example:8443/", "kn-secret", "step-3-7-flash:free")
WANTED = "codex claude opencode qwen cline pi llm openai anthropic aisdk langchain pydantic-ai"
WITH_FILE = [name for name in names() if load(name).file is not None]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with scripted_provider({"says": Play(text=("hi",)), "refuses": Play(status=400, message="no")}) as provider:
        target: dict[str, Any] = {"dialect": "chat", "base_url": provider.base_url("chat"), "api_key": "sk-up"}
        models: dict[str, dict[str, Any]] = {name: {"targets": [f"p/{name}"]} for name in provider.plays}
        with running_gateway(config_text({"p": target}, models)) as running:
            yield running


def test_each_client_that_is_promised_has_its_data() -> None:
    assert set(names()) == set(WANTED.split())
    with pytest.raises(KeyError):
        load("../clients/codex")


@pytest.mark.parametrize("name", names())
def test_nothing_is_left_to_fill_in(name: str) -> None:
    text = repr(fill(load(name), SERVER))
    assert not re.search(r"\{(url|v1|key|model)\}", text)
    assert "example:8443//" not in text
    assert "llm.example:8443" in text


@pytest.mark.parametrize(
    ("system", "environment", "path"),
    [
        ("linux", {"HOME": "/h/u"}, "/h/u/.codex/config.toml"),
        ("macos", {"HOME": "/U/u"}, "/U/u/.codex/config.toml"),
        ("windows", {"USERPROFILE": "C:\\U\\u"}, "C:\\U\\u\\.codex\\config.toml"),
        ("linux", {"HOME": "/h/u", "CODEX_HOME": "/else"}, "/else/config.toml"),
        ("windows", {"USERPROFILE": "C:\\U\\u", "CODEX_HOME": "D:\\c"}, "D:\\c\\config.toml"),
    ],
)
def test_where_codex_keeps_its_file(system: Any, environment: dict[str, str], path: str) -> None:
    file = load("codex").file
    assert file is not None
    assert str(place_of(file, system, environment)) == path


PLACES = {
    "claude": (".claude/settings.json",) * 3,
    "cline": (".cline/data/settings/providers.json",) * 3,
    "codex": (".codex/config.toml",) * 3,
    "llm": (
        ".config/io.datasette.llm/extra-openai-models.yaml",
        "Library/Application Support/io.datasette.llm/extra-openai-models.yaml",
        "AppData/Roaming/io.datasette.llm/extra-openai-models.yaml",
    ),
    "opencode": (".config/opencode/opencode.json",) * 3,
    "pi": (".pi/agent/models.json",) * 3,
    "qwen": (".qwen/settings.json",) * 3,
}
"""Where each client's file lies below its user's home, on Linux, macOS and Windows."""


@pytest.mark.parametrize("name", WITH_FILE)
def test_where_each_client_keeps_its_file(name: str) -> None:
    file = load(name).file
    assert file is not None
    linux, macos, windows = PLACES[name]
    assert str(place_of(file, "linux", {"HOME": "/h/u"})) == f"/h/u/{linux}"
    assert str(place_of(file, "macos", {"HOME": "/U/u"})) == f"/U/u/{macos}"
    found = place_of(file, "windows", {"USERPROFILE": "C:\\Users\\u"})
    assert str(found) == "C:\\Users\\u\\" + windows.replace("/", "\\")


def test_where_files_lie_by_the_systems_habits() -> None:
    llm, opencode = load("llm").file, load("opencode").file
    assert llm is not None
    assert opencode is not None
    windows = {"USERPROFILE": "C:\\U\\u"}
    assert str(place_of(llm, "linux", {"HOME": "/h", "XDG_CONFIG_HOME": "/x"})).startswith("/x/io.datasette.llm/")
    assert "/Library/Application Support/" in str(place_of(llm, "macos", {"HOME": "/h"}))
    assert str(place_of(llm, "windows", windows)).startswith("C:\\U\\u\\AppData\\Roaming\\io.datasette.llm")
    assert str(place_of(llm, "windows", windows | {"APPDATA": "R:\\a"})).startswith("R:\\a\\io.datasette.llm")
    assert str(place_of(opencode, "linux", {"HOME": "/h"})) == "/h/.config/opencode/opencode.json"
    assert [system_of(word) for word in ("linux", "darwin", "win32", "freebsd14")] == [
        "linux",
        "macos",
        "windows",
        "linux",
    ]
    with pytest.raises(KeyError, match="HOME"):
        place_of(llm, "linux", {})


def _client(kind: Any, **members: Any) -> Client:
    file = File(kind=kind, linux="{home}/f", macos="{home}/f", windows="{home}/f")
    return Client(name="x", title="X", speaks="chat", file=file, **members)


USERS_TOML = """# mine
model = "gpt" # the old one
approval_policy = "never"

[model_providers.other] # keep
base_url = "https://other"

[model_providers.kenari]
name = "old"
extra = true
"""


def test_toml_keeps_settings_and_comments() -> None:
    after = merged(fill(load("codex"), SERVER), USERS_TOML)
    for line in (
        "# mine",
        "# the old one",
        'approval_policy = "never"',
        "[model_providers.other] # keep",
        "extra = true",
    ):
        assert line in after
    values = tomllib.loads(after)
    assert values["model"] == SERVER.model
    assert values["model_provider"] == "kenari"
    assert values["model_providers"]["kenari"]["base_url"] == "https://llm.example:8443/v1"
    assert values["model_providers"]["kenari"]["name"] == "kenari"
    assert merged(fill(load("codex"), SERVER), after) == after


USERS_JSON = """// mine
{
  "theme": "dark", // a string with "quotes" and {
  /* all of
     these stay */
  "env": {"PATH": "a,b", "ANTHROPIC_MODEL": "old"}, "list": [1, {"x": "]"}],
}
"""


def test_json_keeps_settings_and_comments() -> None:
    after = merged(fill(load("claude"), SERVER), USERS_JSON)
    for piece in (
        "// mine",
        '// a string with "quotes" and {',
        "/* all of\n     these stay */",
        '"list": [1, {"x": "]"}],',
    ):
        assert piece in after
    plain = re.sub(r"//[^\n]*\n|/\*.*?\*/", "\n", after.replace("https://llm", "https:llm"), flags=re.S)
    values = json.loads(re.sub(r",\s*}", "}", plain))
    assert values["env"]["PATH"] == "a,b"
    assert values["env"]["ANTHROPIC_MODEL"] == SERVER.model
    assert values["env"]["ANTHROPIC_AUTH_TOKEN"] == "kn-secret"
    assert merged(fill(load("claude"), SERVER), after) == after


@pytest.mark.parametrize(
    "text", ["", "{}", "{ }", "{\n}\n", '{"a": {}}', '{"a": 1}', '{"a": {"b": [1]}, }', "{ // c\n}"]
)
def test_json_takes_new_members_anywhere(text: str) -> None:
    after = jsonc.merge(jsonc.merge(text, {"a": {"b": 2}, "c": {"d": {"e": "x"}}}), {"c": {"d": {"f": None}}})
    values = json.loads(re.sub(r",\s*}", "}", re.sub(r"//[^\n]*", "", after)))
    assert values == {"a": {"b": 2}, "c": {"d": {"e": "x", "f": None}}}


@pytest.mark.parametrize("text", ["[]", "{", '{"a"', '{"a" 1}', '{"a":}', "{} {}", '{"a": [}', "x", '{"a": "b}'])
def test_json_that_is_broken_is_not_touched(text: str) -> None:
    with pytest.raises(MergeError, match="repair it, or add the settings by hand"):
        merged(_client("json", settings={"a": {"b": 1}}), text)


def test_toml_that_is_broken_is_not_touched() -> None:
    with pytest.raises(MergeError, match="is not valid TOML"):
        merged(fill(load("codex"), SERVER), "model = ")


def test_a_new_toml_file_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printing a set-up and writing a file that was not there work where the extra is missing; changing one says so."""
    odd = Server(SERVER.url, SERVER.key, 'a"b\\c\x7f\n漢')
    client = fill(load("codex"), odd)
    made = merged(client, USERS_TOML)
    monkeypatch.setattr(merge, "tomlkit", None)
    new = merged(client, "")
    values = tomllib.loads(new)
    assert values == client.settings
    assert values["model"] == odd.model
    assert tomllib.loads(made)["model_providers"]["kenari"]["base_url"] in new
    with pytest.raises(MergeError, match=r"pip install 'kenari\[connect\]'"):
        merged(client, USERS_TOML)


def test_yaml_has_one_block_of_ours() -> None:
    client = fill(load("llm"), SERVER)
    first = merged(client, "- model_id: mine # keep")
    assert first.startswith("- model_id: mine # keep\n# kenari begins")
    other = merged(fill(load("llm"), Server("http://h", "k", "other")), first)
    assert other.count("- model_id: kenari") == 1
    assert '"other"' in other
    assert SERVER.model not in other


@pytest.mark.parametrize("name", names())
def test_check_sends_what_the_client_sends(name: str) -> None:
    client = load(name)
    sent = probe(client, SERVER)
    assert sent.path.startswith("/v1/")
    assert "kn-secret" in sent.headers[client.key_header]
    body = json.loads(sent.body)
    assert body["model"] == SERVER.model
    assert body.get("stream", False) is (
        client.file is not None
    )  # agents and llm stream, the libraries' examples do not


@pytest.mark.parametrize("speaks", ["chat", "messages", "responses"])
@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"error":"x"}', b"null"])
@pytest.mark.parametrize("status", [200, 502])
def test_an_answer_that_is_none_is_told(speaks: Any, body: bytes, status: int) -> None:
    for streams in (False, True):
        good, words = verdict(msgspec.structs.replace(load("codex"), speaks=speaks, streams=streams), status, body)
        assert not good
        assert words.startswith(f"{status} with a body that is no answer")


STREAMS = {
    "chat": (
        '{"model":"m","choices":[{"delta":{"content":"hi"}}]}',
        '{"error":{"code":"busy","message":"no"}}',
        "[DONE]",
    ),
    "messages": (
        '{"type":"message_start","message":{"model":"m"}}',
        '{"type":"error","error":{"type":"busy","message":"no"}}',
        '{"type":"message_stop"}',
    ),
    "responses": (
        '{"type":"response.created","response":{"model":"m","error":null}}',
        '{"type":"response.failed","response":{"model":"m","error":{"code":"busy","message":"no"}}}',
        '{"type":"response.completed","response":{"model":"m","error":null}}',
    ),
}
"""Of each format: how a stream begins, an error in it, and its last word."""


@pytest.mark.parametrize("speaks", STREAMS)
def test_a_stream_that_breaks_off_is_told(speaks: Any) -> None:
    begin, error, end = STREAMS[speaks]
    client = msgspec.structs.replace(load("codex"), speaks=speaks)

    def seen(*events: str) -> tuple[bool, str]:
        return verdict(client, 200, "".join(f"data: {event}\n\n" for event in events).encode())

    assert seen(begin, end) == (True, f"m says {'hi' if speaks == 'chat' else ''!r}")
    assert seen(begin) == (False, "the stream ends without its last event. does a proxy cut it?")
    assert seen(begin, error, end) == (False, "the stream breaks off. busy: no")


# -- the commands


def _run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(list(words))
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("name", names())
def test_connect_prints_without_the_key(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    status, out, err = _run("connect", name, "--key", "kn-secret", "--model", "m", capsys=capsys)
    assert (status, err) == (0, "")
    assert "kn-secret" not in out
    assert "127.0.0.1:8080" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", names())
def test_check_says_what_it_saw(gateway: Gateway, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--url", gateway.url + "/v1", "--key", KEY)
    status, out, _ = _run("connect", name, *where, "--model", "says", "--check", capsys=capsys)
    assert status == 0
    assert "says says 'hi'" in out
    status, out, _ = _run("connect", name, *where, "--model", "refuses", "--check", capsys=capsys)
    assert status == 1
    assert "400 " in out


def test_the_model_is_the_first_that_is_listed(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    listed = gateway.call("/v1/models", method="GET").json()["data"][0]["id"]
    _, out, _ = _run("connect", "openai", "--url", gateway.url, "--key", KEY, capsys=capsys)
    assert f'model="{listed}"' in out


@pytest.mark.parametrize("name", WITH_FILE)
def test_write_makes_a_backup_and_can_be_repeated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "LLM_USER_PATH", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ("connect", name, "--key", "kn-secret", "--model", "m", "--write")
    file = load(name).file
    assert file is not None
    path = Path(str(place_of(file, "linux", {"HOME": str(tmp_path)})))
    assert _run(*words, capsys=capsys)[0] == 0
    first = path.read_text()
    assert ("kn-secret" in first) is file.secret
    if file.secret:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "as it should be" in _run(*words, capsys=capsys)[1]
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    status, out, _ = _run(*words, "--url", "http://other:1", "--model", "other", capsys=capsys)
    assert status == 0
    copy = path.with_name(path.name + ".before-kenari-1")
    assert str(copy) in out
    assert copy.read_text() == first
    assert "other" in path.read_text()
    assert "kn-secret" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["openai", "--key", "k", "--model", "m", "--write"], "has no file of its own"),
        (["codex", "--model", "m"], "no key is given"),
        (["codex", "--key", "k", "--url", "localhost"], "is no address"),
        (["codex", "--key", "k", "--url", "http://127.0.0.1:9"], "does not answer"),
    ],
)
def test_faults_say_what_to_do(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KENARI_API_KEY", raising=False)
    status, _, err = _run("connect", *words, capsys=capsys)
    assert status == 1
    assert said in err


def test_a_wrong_key_is_told(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = _run("connect", "codex", "--url", gateway.url, "--key", "kn-wrong", capsys=capsys)
    assert status == 1
    assert "answers 401" in err


@pytest.mark.parametrize("agent", ["codex", "claude"])
def test_run_starts_the_agent_with_its_words(agent: str, tmp_path: Path) -> None:
    program = tmp_path / agent
    program.write_text(f"#!{sys.executable}\nimport os, sys\nprint(sys.argv[1:], sorted(os.environ))\nsys.exit(7)\n")
    program.chmod(0o755)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kenari.cli",
            "run",
            agent,
            "--key",
            "kn-x",
            "--model",
            "m",
            "--",
            "-p",
            "a b",
            "--model",
        ],
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 7
    assert "'-p', 'a b', '--model']" in done.stdout
    assert ("KENARI_API_KEY" if agent == "codex" else "ANTHROPIC_AUTH_TOKEN") in done.stdout


def test_run_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    status, _, err = _run("run", "codex", "--key", "k", "--model", "m", "--", "exec", capsys=capsys)
    assert status == 1
    assert "npm install -g @openai/codex" in err
    with pytest.raises(SystemExit):
        main(["check", "--", "x"])


@pytest.mark.parametrize(("name", "window", "cap"), [("opencode", 8192, 1024), ("pi", 8192, 1024)])
def test_what_the_server_knows_of_a_model_is_written(
    name: str, window: int, cap: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client that believes in a larger window never makes a conversation shorter, and meets the provider's refusal."""
    models = {
        "a/small:free": {"targets": ["demo/scripted"], "context_window": window, "max_output_tokens": cap},
        "open": {"targets": ["demo/scripted"]},
    }
    with running_gateway(config_text({"demo": {"dialect": "chat", "base_url": "scripted:"}}, models)) as running:
        words = ["connect", name, "--url", running.url, "--key", KEY, "--model"]
        assert main([*words, "a/small:free"]) == 0
        shown = capsys.readouterr().out
        assert (str(window) in shown, str(cap) in shown, "131072" in shown) == (True, True, False)
        for unknown in ("open", "nobody"):  # no window is known, or no such model: what works with most
            assert main([*words, unknown]) == 0
            assert "131072" in capsys.readouterr().out
