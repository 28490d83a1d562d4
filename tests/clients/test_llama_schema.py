"""JSON of a schema from a real llama.cpp server: enforced by the server, streamed and not."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from gateway import Gateway, config_text, running_gateway
from llama import LlamaServer, llama_server

pytestmark = pytest.mark.real_upstream

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "warm": {"type": "boolean"}},
    "required": ["colour", "warm"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with llama_server() as server:
        yield from _serving(server)


def _serving(server: LlamaServer) -> Iterator[Gateway]:
    providers = {"lm": {"dialect": "chat", "base_url": server.base_url}}
    models = {"m": {"targets": [f"lm/{server.model}"]}}
    with running_gateway(config_text(providers, models)) as running:
        yield running


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", ["chat", "messages"])
def test_answers_validate(gateway: Gateway, client: str, stream: bool) -> None:
    """Structure is held to, whatever so small a model says."""
    turns = [{"role": "user", "content": "Name a colour, and say whether it is warm."}]
    body: dict[str, Any] = {"model": "m", "stream": stream, "max_tokens": 60, "temperature": 0, "messages": turns}
    if client == "chat":
        wanted = {"name": "colour", "schema": SCHEMA, "strict": True}
        answer = gateway.call(
            "/v1/chat/completions", body | {"response_format": {"type": "json_schema", "json_schema": wanted}}
        )
    else:
        answer = gateway.call(
            "/v1/messages", body | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
        )
    assert answer.status == 200, answer.body[:500]
    jsonschema.validate(json.loads(_text(client, stream, answer)), SCHEMA)  # pyright: ignore[reportUnknownMemberType]


def _text(client: str, stream: bool, answer: Any) -> str:
    if not stream:
        reply = answer.json()
        return reply["choices"][0]["message"]["content"] if client == "chat" else reply["content"][0]["text"]
    events: list[Any] = [json.loads(data) for _, data in answer.frames() if data != "[DONE]"]
    if client == "chat":
        return "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
