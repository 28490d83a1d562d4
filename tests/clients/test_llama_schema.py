"""JSON of a schema from a real llama.cpp server, which enforces it in its chat format and ignores the wish in its two others
without a word: there kenari checks, asks once more, and refuses to pass on anything else."""

from collections.abc import Iterator

import pytest
from asking_json import ask, validate
from gateway import Gateway, config_text, running_gateway
from llama import llama_server
from rig import DIALECTS

pytestmark = pytest.mark.real_upstream


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """kenari with the server as a provider of each dialect, and as the row of its name."""
    with llama_server() as server:
        providers = {dialect: {"dialect": dialect, "base_url": server.base_url} for dialect in DIALECTS}
        vouched = {"llama-server": {"base_url": server.base_url}}
        models = {name: {"targets": [f"{name}/{server.model}"]} for name in (*DIALECTS, "llama-server")}
        with running_gateway(config_text(providers | vouched, models, responses_formats=True)) as running:
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
def test_what_is_ignored_there_is_never_passed_on_as_json(
    gateway: Gateway, model: str, client: str, stream: bool
) -> None:
    """So small a model calls no functions either: it may find its way to valid JSON, else the answer is an error."""
    answer = ask(gateway, client, model, stream)
    if answer.status == 200 and b'"error"' not in answer.body.replace(b'"error":null', b""):
        validate(client, stream, answer)
    else:
        assert answer.status in (200, 502)
        assert b"JSON" in answer.body
