"""JSON of a schema from a real llama.cpp server, which enforces it in its chat format and ignores the wish in its two others
without a word: there kenari tells of it, or holds the model to it where the operator says so."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from asking_json import ask, text_of, validate
from gateway import Gateway, config_text, running_gateway
from llama import llama_server
from rig import DIALECTS

Tables: TypeAlias = "dict[str, dict[str, Any]]"
pytestmark = pytest.mark.real_upstream


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """kenari with the server as a provider of each dialect, and as the row of its name."""
    with llama_server() as server:
        providers: Tables = {dialect: {"dialect": dialect, "base_url": server.base_url} for dialect in DIALECTS}
        vouched: Tables = {"llama-server": {"base_url": server.base_url}}
        held: Tables = {
            f"held-{dialect}": {"dialect": dialect, "base_url": server.base_url, "profile": {"response_format": "none"}}
            for dialect in ("messages", "responses")
        }
        every = providers | vouched | held
        models = {name: {"targets": [f"{name}/{server.model}"]} for name in every}
        with running_gateway(config_text(every, models, responses_formats=True)) as running:
            yield running


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("model", ["llama-server", "chat"])
def test_answers_validate(gateway: Gateway, model: str, client: str, stream: bool) -> None:
    """Structure is held to, whatever so small a model says."""
    validate(client, stream, ask(gateway, client, model, stream))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("model", ["messages", "responses"])
def test_d9_what_is_ignored_there_is_told_of(gateway: Gateway, model: str, client: str, stream: bool) -> None:
    """D9: prose is never passed on as if it were the JSON, in none of its two other formats."""
    answer = ask(gateway, client, model, stream)
    assert answer.status == 200
    if b"not the JSON" in answer.body or b"did not answer in the JSON" in answer.body:
        return
    if "x-kenari-ignored" in answer.headers:
        assert "format" in answer.headers["x-kenari-ignored"]
        assert text_of(client, stream, answer)
    else:
        validate(client, stream, answer)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("model", ["held-messages", "held-responses"])
def test_a_model_that_kenari_holds_gives_valid_json_or_an_error(gateway: Gateway, model: str, client: str) -> None:
    """So small a model calls no functions: it may find its way to valid JSON, else the answer is 502."""
    answer = ask(gateway, client, model, False)
    if answer.status == 200:
        validate(client, False, answer)
    else:
        assert (answer.status, b"JSON" in answer.body) == (502, True)
