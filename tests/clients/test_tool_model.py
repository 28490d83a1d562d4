"""Server tools with a real small model that calls functions, asked in each dialect of its server: a search of a real local
index in all three formats, streamed and not. What the model writes is its own affair; the tests look at structure only."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asking_json import PATHS, validate
from asking_json import ask as ask_json
from gateway import Answer, Gateway, config_text, running_gateway
from local_index import BASE, PAGES, make_index, search_table
from rig import DIALECTS
from tool_model import NAME, tool_model

pytestmark = pytest.mark.tool_model

QUESTION = "What do canaries eat? Search the web for it."
SECONDS = 240.0
"""On a busy machine such a model takes its time."""
URLS = {BASE + name for name in PAGES}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """kenari with a local index, and the model's server as a provider of each dialect."""
    index = make_index(tmp_path_factory.mktemp("index"))
    with tool_model() as base_url:
        providers: dict[str, dict[str, Any]] = {
            dialect: {"dialect": dialect, "base_url": base_url} for dialect in DIALECTS
        }
        held = {"response_format": "none"}
        providers["messages-held"] = {"dialect": "messages", "base_url": base_url, "profile": held}
        words = held | {"tool_choice_required": False}
        providers["responses-words"] = {"dialect": "responses", "base_url": base_url, "profile": words}
        models = {name: {"targets": [f"{name}/{NAME}"], "max_output_tokens": 128} for name in providers}
        text = config_text(providers, models, keepalive="500ms", responses_formats=True)
        with running_gateway(text + search_table(index)) as running:
            yield running


def ask(gateway: Gateway, client: str, dialect: str, stream: bool) -> Answer:
    """A question, with a search that the model has to make first."""
    body: dict[str, Any] = {"model": dialect, "stream": stream, "temperature": 0}
    body |= {"tools": [{"type": "kenari:web_search", "max_results": 2}]}
    if client == "responses":
        body |= {"input": QUESTION, "tool_choice": "required", "max_output_tokens": 40}
    else:
        chosen = {"type": "any"} if client == "messages" else "required"
        body |= {"messages": [{"role": "user", "content": QUESTION}], "tool_choice": chosen, "max_tokens": 40}
    return gateway.call(PATHS[client], body, seconds=SECONDS)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_s116_d13_a_real_model_searches_the_local_index(
    gateway: Gateway, dialect: str, client: str, stream: bool
) -> None:
    """S52, S116, D13, L7: one answer with sources of the index and the usage of both calls; no trace of the call itself."""
    answer = ask(gateway, client, dialect, stream)
    assert answer.status == 200, answer.body[:500]
    text, sources, usage = {"chat": of_chat, "messages": of_messages, "responses": of_responses}[client](answer, stream)
    assert text.strip()
    assert sources
    assert {source["url"] for source in sources} <= URLS
    assert usage > 0
    line = gateway.line_of(answer.headers["x-request-id"])
    assert line["attempts"] >= 3  # a call of the model, a search, a call of the model
    assert line["reason"] in ("done", "length")


def of_chat(answer: Answer, stream: bool) -> tuple[str, Any, int]:
    """Text, sources and output tokens."""
    if not stream:
        message = answer.json()["choices"][0]["message"]
        assert not message.get("tool_calls")
        return message["content"], message["sources"], answer.json()["usage"]["completion_tokens"]
    events: list[Any] = [json.loads(data) for _, data in answer.frames()[:-1]]
    assert answer.frames()[-1][1] == "[DONE]"
    assert not any(event["choices"][0]["delta"].get("tool_calls") for event in events)
    assert events[-2]["choices"][0]["finish_reason"] in ("stop", "length")
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    return text, events[-1]["choices"][0]["delta"]["sources"], events[-2]["usage"]["completion_tokens"]


def of_messages(answer: Answer, stream: bool) -> tuple[str, Any, int]:
    """Text, sources and output tokens."""
    if not stream:
        whole = answer.json()
        text = "".join(block["text"] for block in whole["content"])
    else:
        events: list[Any] = [json.loads(data) for _, data in answer.frames()]
        assert events[-1] == {"type": "message_stop"}
        whole = events[-2]
        text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert whole["usage"]["server_tool_use"]["web_search_requests"] >= 1
    return text, whole["sources"], whole["usage"]["output_tokens"]


def of_responses(answer: Answer, stream: bool) -> tuple[str, Any, int]:
    """Text, sources and output tokens."""
    whole: Any = json.loads(answer.frames()[-1][1])["response"] if stream else answer.json()
    assert {item["type"] for item in whole["output"]} <= {"message", "reasoning"}
    (part,) = whole["output"][-1]["content"]
    assert part["annotations"]
    for note in part["annotations"]:
        assert note["type"] == "url_citation"
        assert note["url"] in URLS
        assert 0 <= note["start_index"] <= note["end_index"] <= len(part["text"])
    return part["text"], whole["sources"], whole["usage"]["output_tokens"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("provider", ["chat", "messages-held", "responses-words"])
def test_json_answers_validate(gateway: Gateway, provider: str, client: str, stream: bool) -> None:
    """S126: enforced natively in the server's chat format, by a forced function in its Messages format, by words and our check
    in its Responses format, where it answers 500 to a call that is forced by name."""
    validate(client, stream, ask_json(gateway, client, provider, stream))
