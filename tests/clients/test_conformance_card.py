"""The whole report card of kenari, the slow scenarios too."""

from typing import Any

import pytest
from gateway import KEY, config_text, running_gateway

from kenari.cli import main

MODEL = "demo/scripted"


def test_kenari_scores_all(capsys: pytest.CaptureFixture[str]) -> None:
    """S15, S17, S18, D16, E1, E2, F6: 100 %."""
    providers: dict[str, dict[str, Any]] = {"demo": {"dialect": "chat", "base_url": "scripted:"}}
    models: dict[str, dict[str, Any]] = {MODEL: {"targets": ["demo/scripted"], "vision": True, "reasoning": True}}
    with running_gateway(config_text(providers, models)) as gateway:
        status = main(["conformance", "--url", gateway.url, "--key", KEY, "--model", MODEL])
    card = capsys.readouterr().out
    assert status == 0, card
    assert "54 of 54 passed (100 %)" in card
