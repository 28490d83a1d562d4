"""`kenari models`, `kenari models import` and `kenari routes explain`, with the real data package."""

import json
import tomllib
from pathlib import Path

import pytest

from kenari.cli import main
from kenari.commands import importing
from kenari.commands.importing import Facts, changed, decimal, same
from kenari.config.load import load_config

TEXT = """# my models
[providers.groq]
api_key = "x"   # mine

[providers.home]
dialect = "chat"
base_url = "http://127.0.0.1:1/v1"

[models.versatile]   # the large one
targets = ["home/nothing", "groq/llama-3.3-70b-versatile"]
max_output_tokens = 5 # too small

[models.mine]
targets = ["home/own"]
price = { input = "1", output = "2" }

[routes.smart]
models = ["versatile", "mine@2"]
policy = "weighted"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kenari.toml").write_text(TEXT)
    return tmp_path


def test_the_table_and_the_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["MODEL", "KIND", "WINDOW"]
    assert "home/own" in lines[2]
    assert "weighted: versatile, mine@2" in lines[3]
    assert main(["models", "--json"]) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["data"]] == ["versatile", "mine", "smart"]


def test_explain_says_the_order_and_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["routes", "explain", "versatile"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "versatile: policy order, 2 candidates"
    assert lines[2].split()[:2] == ["1.", "home/nothing"]
    assert "the order of the configuration" in lines[2]
    assert main(["routes", "explain", "smart"]) == 0
    assert "weight 2, drawn by chance" in capsys.readouterr().out
    assert main(["routes", "explain", "nothing"]) == 1
    assert "there is no model" in capsys.readouterr().err


def test_import_shows_before_it_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first target that is known decides; comments and other settings stay; twice changes nothing."""
    assert main(["models", "import"]) == 0
    out, err = capsys.readouterr()
    assert "-max_output_tokens = 5 # too small" in out
    assert "+context_window = " in out
    assert "mine: the data package does not know" in err
    assert "nothing was written" in err
    assert (folder / "kenari.toml").read_text() == TEXT
    assert main(["models", "import", "versatile", "--write"]) == 0
    text = (folder / "kenari.toml").read_text()
    assert "# the large one" in text
    assert 'api_key = "x"   # mine' in text
    before, after = tomllib.loads(TEXT), tomllib.loads(text)
    model = after["models"].pop("versatile")
    assert before["models"].pop("versatile")["targets"] == model["targets"]
    assert after == before
    assert model["context_window"] >= 8192
    assert model["max_output_tokens"] > 5
    assert float(model["price"]["input"]) > 0
    assert load_config(None, {}, folder).models["versatile"].price is not None
    [backup] = folder.glob("kenari.toml.*.bak")
    assert backup.read_text() == TEXT
    capsys.readouterr()
    assert main(["models", "import", "versatile", "--write"]) == 0
    assert "nothing to change" in capsys.readouterr().err


def test_import_leaves_prices_of_another_currency_and_of_free_models(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = TEXT.replace("[models.versatile]", '[models."versatile:free"]').replace('"versatile"', '"versatile:free"')
    for text in (TEXT + '[billing]\ncurrency = "IDR"\n', free):
        (folder / "kenari.toml").write_text(text)
        assert main(["models", "import"]) == 0
        out = capsys.readouterr().out
        assert "+context_window" in out
        assert "+price" not in out


def test_import_says_what_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["models", "import", "nope"]) == 1
    assert "not a configured model: nope" in capsys.readouterr().err
    monkeypatch.setattr(importing, "_data", None)
    assert main(["models", "import"]) == 1
    assert "pip install" in capsys.readouterr().err
    monkeypatch.undo()
    (folder / "kenari.toml").unlink()
    monkeypatch.chdir(folder)
    assert main(["models", "import"]) == 1
    assert "no kenari.toml" in capsys.readouterr().err


def test_import_leaves_an_amount_that_is_written_another_way() -> None:
    facts = {"m": Facts({"price": {"input": "0.6", "output": "1"}}, "x")}
    text = '[models.m]\nprice = { input = "0.60", output = "2" }\n'
    assert changed(text, facts) == '[models.m]\nprice = { input = "0.60", output = "1" }\n'
    assert not same("nonsense", "1")
    assert not same(None, "0")


def test_amounts() -> None:
    assert [decimal(one) for one in (0.59, 1e-7, 15.0, 0.0, 0.1 + 0.2)] == ["0.59", "0.0000001", "15", "0", "0.3"]
