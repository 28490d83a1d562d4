"""The command line: `kenari check` exits 0 or 1, prints the configuration or each fault with its path."""

import tomllib
from pathlib import Path

import pytest

from kenari.cli import main


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
