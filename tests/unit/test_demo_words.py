"""What the demo says: the welcome with its curl lines, and the progress of a download."""

import io
import json
import shlex

import pytest

from kenari.demo.progress import Progress, bar
from kenari.demo.welcome import welcome

URL = "http://127.0.0.1:8080"


def curls(text: str) -> list[list[str]]:
    """The curl commands as a shell takes them apart."""
    joined = text.replace("\\\n", " ")
    return [shlex.split(line) for line in joined.splitlines() if line.strip().startswith("curl")]


def test_the_curl_lines_ask_all_three_endpoints() -> None:
    text = welcome(URL, "kn-abc", ["smollm2-135m:free", "demo/scripted"])
    commands = curls(text)
    assert [command[2] for command in commands] == [
        f"{URL}/v1/chat/completions",
        f"{URL}/v1/messages",
        f"{URL}/v1/responses",
    ]
    for command in commands:
        assert command[:2] == ["curl", "-N"]
        assert "Authorization: Bearer kn-abc" in command
        assert "Content-Type: application/json" in command
        body = json.loads(command[command.index("-d") + 1])
        assert body["model"] == "smollm2-135m:free"
        assert body["stream"] is True
        assert body.keys() & {"messages", "input"}
    assert json.loads(commands[1][-1])["max_tokens"] > 0
    assert "demo/scripted" in text
    assert text.endswith("\n")


def test_the_key_is_shown_only_when_it_is_given() -> None:
    assert "  key      kn-abc\n" in welcome(URL, "kn-abc", ["m"])
    text = welcome(URL, None, ["m"])
    assert "  key  " not in text
    assert '  key      export KENARI_API_KEY="$(cat kenari.key)"\n' in welcome(URL, None, ["m"], '"$(cat kenari.key)"')
    assert text.count('"Authorization: Bearer $KENARI_API_KEY"') == 3


def test_awkward_names_survive_the_shell() -> None:
    key, model = "kn-it's $HOME `x`", 'o\'brien/"m"\\ $(x)'
    for command in curls(welcome("http://[::1]:8080", key, [model])):
        assert command[2] == "-g"
        assert command[3].startswith("http://[::1]:8080/v1/")
        assert f"Authorization: Bearer {key}" in command
        assert json.loads(command[-1])["model"] == model


def test_a_unix_socket_is_named_to_curl() -> None:
    [chat, *_] = curls(welcome("unix:/run/my kenari.sock", "kn-a", ["m"]))
    assert chat[2:5] == ["--unix-socket", "/run/my kenari.sock", "http://localhost/v1/chat/completions"]


def test_without_a_model_there_are_no_curl_lines() -> None:
    assert curls(welcome(URL, "kn-a", [])) == []


@pytest.mark.parametrize(("done", "full"), [(0, 0), (50_000_000, 12), (100_000_000, 24), (300_000_000, 24)])
def test_the_bar(done: int, full: int) -> None:
    line = bar("fetching", done, 100_000_000)
    assert line.count("#") == full
    assert line.count("#") + line.count(".") >= 24
    assert f"{done / 1e6:.1f} of 100.0 MB" in line
    assert bar("x", 0, 0).endswith("0.0 of 0.0 MB")


def test_a_terminal_has_one_moving_line_for_each_download() -> None:
    terminal, said = io.StringIO(), list[str]()
    progress = Progress(said.append, terminal)
    for done in range(0, 101, 10):
        progress.step("one", done * 10**6, 10**8)
    progress.step("two", 0, 10**8)
    progress.say("a word")
    progress.close()
    lines = terminal.getvalue().split("\n")
    assert len(lines) == 3
    assert lines[0].count("\r") == 11
    assert lines[1].startswith("\rtwo")
    assert said == ["a word"]


def test_elsewhere_a_download_is_a_few_lines() -> None:
    said: list[str] = []
    progress = Progress(said.append, None)
    for done in range(101):
        progress.step("one", done * 10**6, 10**8)
    progress.step("two", 0, 10**8)
    progress.close()
    assert len(said) == 6
    assert said[0] == "one: 0.0 of 100.0 MB"
    assert said[4] == "one: 100.0 of 100.0 MB"
