"""kenari in front of the agents' scripted model, once for each format that a provider may speak."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gateway import Gateway, config_text, running_gateway

from agents.model import AgentModel, agent_model
from agents.programs import MODEL, Place


class Bench(NamedTuple):
    """kenari, the model behind it, and the format between them."""

    gateway: Gateway
    model: AgentModel
    dialect: str

    def place(self, folder: Path) -> Place:
        """A home and a project folder for one agent."""
        return Place(folder / "home", folder / "project", self.gateway)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long tests run when they are asked for."""
    if os.environ.get("KENARI_TEST_SLOW_AGENTS"):
        return
    for item in items:
        if item.get_closest_marker("agents_slow") is not None:
            item.add_marker(pytest.mark.skip(reason="only with scripts/test --slow-agents"))


@pytest.fixture(scope="session")
def agents_model() -> Iterator[AgentModel]:
    """The scripted model of all agents."""
    with agent_model() as running:
        yield running


@pytest.fixture(scope="session", params=["chat", "messages", "responses"])
def bench(request: pytest.FixtureRequest, agents_model: AgentModel) -> Iterator[Bench]:
    """One kenari for each format of the provider."""
    with _bench(request.param, agents_model) as made:
        yield made


@contextmanager
def _bench(dialect: str, model: AgentModel) -> Generator[Bench]:
    provider: dict[str, Any] = {"dialect": dialect, "base_url": model.base_url(dialect), "api_key": "sk-up"}
    if dialect == "chat":
        provider["profile"] = {"reasoning_content_roundtrip": True}
    models: dict[str, dict[str, Any]] = {MODEL: {"targets": [f"scripted/{MODEL}"], "vision": True, "reasoning": True}}
    with running_gateway(config_text({"scripted": provider}, models, keepalive="500ms")) as gateway:
        yield Bench(gateway, model, dialect)


@pytest.fixture(scope="session")
def chat_bench(agents_model: AgentModel) -> Iterator[Bench]:
    """kenari before a chat provider, for what does not depend on the provider's format."""
    with _bench("chat", agents_model) as made:
        yield made
