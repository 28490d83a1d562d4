"""The official Anthropic SDK for Python on Messages, against a provider of each dialect (L9)."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import TextBlock, ThinkingBlock, ToolParam, ToolUseBlock
from gateway import KEY
from rig import PAGE_MODEL, Rig

pytestmark = pytest.mark.sdk

TOOL: ToolParam = {
    "name": "get_weather",
    "description": "the weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CITIES = [{"city": "Jakarta"}, {"city": "Bandung"}]
ASK: Any = [{"role": "user", "content": "Hitung dari 1 sampai 3."}]


@pytest.fixture
def client(rig: Rig) -> Iterator[Anthropic]:
    """S58: the base address is the host's root."""
    with Anthropic(base_url=rig.gateway.url, api_key=KEY, max_retries=0) as made:
        yield made


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


def test_create(client: Anthropic) -> None:
    """S59, S61, S76: a plain message."""
    message = client.messages.create(model=PAGE_MODEL, max_tokens=512, messages=ASK)
    assert _text(message) == "1, 2, 3"
    assert (message.role, message.model, message.stop_reason, message.stop_sequence) == (
        "assistant",
        PAGE_MODEL,
        "end_turn",
        None,
    )
    assert (message.usage.input_tokens, message.usage.output_tokens) == (14, 6)


@pytest.mark.parametrize("path", ["chat/completions", "messages", "messages/count_tokens", "responses", "models"])
@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
def test_both_headers(rig: Rig, header: str, path: str) -> None:
    """S59, A1, D12: each header on every endpoint, with an older version header too; the wrong key on none."""
    asked: Any = {"input": "Halo!"} if path == "responses" else {"messages": ASK}
    body = None if path == "models" else {"model": PAGE_MODEL, "max_tokens": 9, **asked}
    for key, status in ((KEY, 200), ("kn-wrong", 401)):
        headers = {"anthropic-version": "2023-06-01", header: f"Bearer {key}" if header == "authorization" else key}
        method = "GET" if body is None else "POST"
        answer = rig.gateway.call(f"/v1/{path}", body, method=method, headers=headers, key=None)
        assert answer.status == status


def test_sent_header(rig: Rig) -> None:
    """S59: this SDK sends Bearer for `api_key`, and x-api-key when it is told to."""
    with Anthropic(base_url=rig.gateway.url, api_key="kn-wrong", default_headers={"x-api-key": KEY}) as client:
        assert client.messages.create(model=PAGE_MODEL, max_tokens=9, messages=ASK).content
    with Anthropic(base_url=rig.gateway.url, api_key="kn-wrong", max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError) as refused:
            client.messages.create(model=PAGE_MODEL, max_tokens=9, messages=ASK)
        assert refused.value.response.headers["x-should-retry"] == "false"


def test_page_sample(client: Anthropic, capsys: pytest.CaptureFixture[str]) -> None:
    """S74: the sample of the Streaming page, as it stands there."""
    with client.messages.stream(
        model="step-3-7-flash:free",
        max_tokens=512,
        messages=[{"role": "user", "content": "Hitung dari 1 sampai 3."}],
    ) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
        message = stream.get_final_message()
        print("\ntoken:", message.usage.output_tokens)
    assert capsys.readouterr().out == "1, 2, 3\ntoken: 6\n"
    assert message.stop_reason == "end_turn"


def test_create_streamed(client: Anthropic) -> None:
    """S60, S62, S63, S64, S65, S66, S77: the events in order."""
    kinds = [event.type for event in client.messages.create(model=PAGE_MODEL, max_tokens=9, messages=ASK, stream=True)]
    assert [kind for kind in kinds if kind != "ping"] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_reasoning(client: Anthropic, rig: Rig, streamed: bool) -> None:
    """S22, S69, S70, D5, D20: the thinking block is first and signed, and goes back as it came."""
    if streamed:
        with client.messages.stream(model="thinks", max_tokens=512, messages=ASK) as stream:
            message: Any = stream.get_final_message()
    else:
        message = client.messages.create(model="thinks", max_tokens=512, messages=ASK)
    thought = message.content[0]
    assert isinstance(thought, ThinkingBlock)
    assert thought.thinking == "I count from one."
    assert thought.signature
    assert _text(message) == "1, 2, 3"
    back: Any = [*ASK, {"role": "assistant", "content": [block.model_dump() for block in message.content]}, *ASK]
    assert _text(client.messages.create(model=PAGE_MODEL, max_tokens=9, messages=back)) == "1, 2, 3"
    sent = rig.provider.last().raw.decode()
    assert "kn1." not in sent
    assert ("c2VjcmV0" in sent) == (rig.dialect == "messages")


@pytest.mark.parametrize("streamed", [False, True])
def test_parallel_calls(client: Anthropic, rig: Rig, streamed: bool) -> None:
    """S25, S71, S72; the results of the next turn reach the provider."""
    if streamed:
        with client.messages.stream(model="calls", max_tokens=512, messages=ASK, tools=[TOOL]) as stream:
            message: Any = stream.get_final_message()
    else:
        message = client.messages.create(model="calls", max_tokens=512, messages=ASK, tools=[TOOL])
    calls = [block for block in message.content if isinstance(block, ToolUseBlock)]
    assert message.stop_reason == "tool_use"
    assert [call.input for call in calls] == CITIES
    results: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": f"{call.id} is 31 C"} for call in calls]
    turns: Any = [
        *ASK,
        {"role": "assistant", "content": [block.model_dump() for block in message.content]},
        {"role": "user", "content": results},
    ]
    client.messages.create(model=PAGE_MODEL, max_tokens=9, messages=turns, tools=[TOOL])
    sent = rig.provider.last().raw.decode()
    assert all(f"{call.id} is 31 C" in sent for call in calls)


def test_cut(client: Anthropic) -> None:
    """F1: length."""
    assert client.messages.create(model="cut", max_tokens=2, messages=ASK).stop_reason == "max_tokens"


def test_cached_tokens(client: Anthropic) -> None:
    """U2: input_tokens exclude what was read from a cache."""
    usage = client.messages.create(model="cached", max_tokens=9, messages=ASK).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (20, 100)


@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_stream(client: Anthropic, stream: bool) -> None:
    """S17, E2, E5, E6: HTTP errors in Anthropic's envelope."""
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(model="refuses", max_tokens=9, messages=ASK, stream=stream)
    body: Any = refused.value.body
    assert body["error"]["type"] == "invalid_request_error"
    assert body["request_id"] == refused.value.response.headers["request-id"]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.messages.create(model="overflows", max_tokens=9, messages=ASK, stream=stream)
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(model="limits", max_tokens=9, messages=ASK, stream=stream)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nobody", max_tokens=9, messages=ASK, stream=stream)


@pytest.mark.parametrize("model", ["breaks", "fails"])
def test_errors_in_the_stream(client: Anthropic, model: str) -> None:
    """S31, S68, S73, S176: the SDK raises on the event, after the text that came before."""
    seen: list[str] = []
    with (
        pytest.raises(anthropic.APIStatusError, match="interrupted the response"),
        client.messages.stream(model=model, max_tokens=9, messages=ASK) as stream,
    ):
        seen.extend(stream.text_stream)
    assert "".join(seen) == "1, 2, 3"


def test_keepalive_comments_are_ignored(client: Anthropic, rig: Rig) -> None:
    """S15, S16."""
    body = {"model": "quiet", "max_tokens": 9, "messages": ASK, "stream": True}
    assert b": keepalive\n\n" in rig.gateway.call("/v1/messages", body).body
    with client.messages.stream(model="quiet", max_tokens=9, messages=ASK) as stream:
        assert _text(stream.get_final_message()) == "1, 2, 3"


def test_count_tokens(client: Anthropic) -> None:
    """M4: a positive number whatever the provider can do."""
    assert client.messages.count_tokens(model=PAGE_MODEL, messages=ASK).input_tokens > 0


def test_models(client: Anthropic) -> None:
    """M1 in Anthropic's shape."""
    assert PAGE_MODEL in [model.id for model in client.models.list(limit=1000)]
    assert client.models.retrieve(PAGE_MODEL).id == PAGE_MODEL
