"""One kenari for each provider dialect, in front of the scripted provider."""

from collections.abc import Iterator
from typing import Any

import pytest
from gateway import config_text, running_gateway
from rig import DIALECTS, PLAYS, Rig
from upstream import ScriptedProvider, scripted_provider


@pytest.fixture(scope="session")
def provider() -> Iterator[ScriptedProvider]:
    """The scripted provider."""
    with scripted_provider(PLAYS) as running:
        yield running


@pytest.fixture(scope="session", params=DIALECTS)
def rig(request: pytest.FixtureRequest, provider: ScriptedProvider) -> Iterator[Rig]:
    """One kenari for each dialect that a provider may speak; sends a keepalive after 1 s of silence."""
    dialect: str = request.param
    providers: dict[str, dict[str, Any]] = {
        "scripted": {"dialect": dialect, "base_url": provider.base_url(dialect), "api_key": "sk-upstream-key"}
    }
    models = {name: {"targets": [f"scripted/{name}"]} for name in PLAYS}
    with running_gateway(config_text(providers, models, keepalive="1s")) as gateway:
        yield Rig(gateway, provider, dialect)
