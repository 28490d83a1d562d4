"""A real llama-server with a real small model behind kenari: each client format, in front of each provider dialect that
this server speaks. What the model says is its own affair; the tests look at structure only."""

import itertools
import json
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
from anthropic import Anthropic
from anthropic.types import TextBlock
from gateway import KEY, Gateway, config_text, running_gateway
from llama import LlamaServer, demo_data, llama_server
from openai import OpenAI
from rig import DIALECTS

from kenari.demo.place import this_machine, unsupported
from kenari.demo.server import CONTEXT_WINDOW, MAX_OUTPUT, MODEL_ID

pytestmark = [
    pytest.mark.real_upstream,
    pytest.mark.skipif(unsupported(this_machine()) is not None, reason="the server binary does not run here"),
]

ASK: Any = [{"role": "user", "content": "Write one short sentence about a bird."}]
FEW = 4
"""Output tokens that are never enough for a sentence."""
ENDLESS = "Write the whole list of the numbers from 1 to 9999, one on each line, and leave none out."
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
CAPS = {"chat": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}
FREED_SECONDS = 15.0
"""A slot that is not freed is busy for much longer than this."""
_serial = itertools.count(int(time.time()))


class Real(NamedTuple):
    """kenari in front of the real server, asked in one dialect."""

    gateway: Gateway
    server: LlamaServer
    model: str

    @property
    def v1(self) -> str:
        return self.gateway.url + "/v1"


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    with llama_server() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(server: LlamaServer) -> Iterator[Gateway]:
    """One kenari with a provider for each dialect, all of them the same server."""
    providers = {dialect: {"dialect": dialect, "base_url": server.base_url} for dialect in DIALECTS}
    models = {
        f"small-{dialect}:free": {
            "targets": [f"{dialect}/{server.model}"],
            "context_window": CONTEXT_WINDOW,
            "max_output_tokens": MAX_OUTPUT,
        }
        for dialect in DIALECTS
    }
    with running_gateway(config_text(providers, models, keepalive="200ms")) as running:
        yield running


@pytest.fixture(params=DIALECTS)
def real(request: pytest.FixtureRequest, server: LlamaServer, gateway: Gateway) -> Real:
    """The provider's dialect."""
    return Real(gateway, server, f"small-{request.param}:free")


@pytest.fixture
def openai_client(real: Real) -> Iterator[OpenAI]:
    with OpenAI(base_url=real.v1, api_key=KEY, max_retries=0) as made:
        yield made


@pytest.fixture
def anthropic_client(real: Real) -> Iterator[Anthropic]:
    with Anthropic(base_url=real.gateway.url, api_key=KEY, max_retries=0) as made:
        yield made


def _long(words: int) -> str:
    """A prompt that no cache knows: its first word is new each time."""
    return f"{next(_serial)} " + "bird " * words


def _body(client_format: str, model: str, text: str, cap: int, stream: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"input": text} if client_format == "responses" else {"messages": [_user(text)]}
    return {"model": model, CAPS[client_format]: cap, "stream": stream, **asked}


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


# -- text, and length


@pytest.mark.sdk
@pytest.mark.parametrize("streamed", [False, True])
def test_chat(openai_client: OpenAI, real: Real, streamed: bool) -> None:
    """S20, S30, S38, S42, S47, F1: text, cut by the limit, with usage."""
    if streamed:
        asking = openai_client.chat.completions.stream(model=real.model, messages=ASK, max_tokens=FEW)
        with asking as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
            answer: Any = stream.get_final_completion()
        assert "".join(deltas) == answer.choices[0].message.content
    else:
        answer = openai_client.chat.completions.create(model=real.model, messages=ASK, max_tokens=FEW)
    assert answer.model == real.model
    assert answer.choices[0].message.content.strip()
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == FEW
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + FEW > FEW


@pytest.mark.sdk
@pytest.mark.parametrize("streamed", [False, True])
def test_messages(anthropic_client: Anthropic, real: Real, streamed: bool) -> None:
    """S20, S60, S65, F1: text, cut by the limit, with usage."""
    if streamed:
        with anthropic_client.messages.stream(model=real.model, messages=ASK, max_tokens=FEW) as stream:
            deltas = list(stream.text_stream)
            answer: Any = stream.get_final_message()
        assert "".join(deltas) == answer.content[0].text
    else:
        answer = anthropic_client.messages.create(model=real.model, messages=ASK, max_tokens=FEW)
    assert answer.model == real.model
    assert [type(block) for block in answer.content] == [TextBlock]
    assert answer.content[0].text.strip()
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", FEW)
    assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > 0


@pytest.mark.sdk
@pytest.mark.parametrize("streamed", [False, True])
def test_responses(openai_client: OpenAI, real: Real, streamed: bool) -> None:
    """S80, S90, S93, S156, S160, D1: text, cut by the limit, with usage."""
    asking: dict[str, Any] = {"model": real.model, "input": ASK, "max_output_tokens": 16}
    if streamed:
        with openai_client.responses.stream(**asking) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            answer = stream.get_final_response()
        assert "".join(deltas) == answer.output_text
    else:
        answer = openai_client.responses.create(**asking)
    assert answer.model == real.model
    assert answer.output_text.strip()
    assert answer.usage is not None
    assert 0 < answer.usage.output_tokens <= 16
    if answer.usage.output_tokens == 16:
        assert answer.incomplete_details is not None
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.sdk
def test_a_turn_that_ends_by_itself(openai_client: OpenAI, real: Real) -> None:
    """F1: stop."""
    hello: Any = [{"role": "user", "content": "Say only: hi"}]
    answer = openai_client.chat.completions.create(model=real.model, messages=hello, max_tokens=400, temperature=0)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens < 400


# -- too long


@pytest.mark.sdk
@pytest.mark.parametrize("stream", [False, True])
def test_context_overflow(openai_client: OpenAI, anthropic_client: Anthropic, real: Real, stream: bool) -> None:
    """E5, E7, S17, S165: in the words of each format, as an HTTP error, streamed or not."""
    text = _long(2 * CONTEXT_WINDOW)
    asked: Any = [_user(text)]
    for ask in (
        lambda: openai_client.chat.completions.create(model=real.model, messages=asked, max_tokens=FEW, stream=stream),
        lambda: openai_client.responses.create(model=real.model, input=text, max_output_tokens=16, stream=stream),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            ask()
        assert refused.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long") as overflown:
        anthropic_client.messages.create(model=real.model, messages=asked, max_tokens=FEW, stream=stream)
    body: Any = overflown.value.body
    assert body["error"]["type"] == "invalid_request_error"


# -- the client goes away


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client_format", DIALECTS)
def test_cancel(real: Real, client_format: str, stream: bool) -> None:
    """U6, F6, F7: the client goes, the server's slot is freed long before the answer's end."""
    before, mark = len(real.gateway.lines), real.server.mark()
    body = json.dumps(_body(client_format, real.model, f"{next(_serial)}: {ENDLESS}", MAX_OUTPUT, stream)).encode()
    head = f"POST {PATHS[client_format]} HTTP/1.1\r\nhost: kenari\r\nauthorization: Bearer {KEY}\r\n"
    with socket.create_connection(real.gateway.address, timeout=60) as client:
        client.sendall(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        if stream:
            _read_until(client, b"delta")
        else:
            time.sleep(0.7)  # nothing tells that a plain answer is being made
    freed = real.server.released(mark, 1, FREED_SECONDS)
    assert len(freed) == 1
    assert freed[0] < MAX_OUTPUT / 2
    line = _line(real.gateway, before)
    assert (line["reason"], line["stream"]) == ("client_closed", stream)


def _read_until(client: socket.socket, word: bytes) -> bytes:
    seen = b""
    while word not in seen:
        piece = client.recv(65536)
        assert piece, seen
        seen += piece
    return seen


def _line(gateway: Gateway, before: int) -> dict[str, Any]:
    """The first line of the log after `before` lines."""
    until = time.monotonic() + FREED_SECONDS
    while len(gateway.lines) <= before:
        assert time.monotonic() < until, "the request left no line"
        time.sleep(0.02)
    return gateway.lines[before]


# -- a long prompt


@pytest.mark.parametrize("client_format", DIALECTS)
def test_keepalives_while_a_long_prompt_is_read(real: Real, client_format: str) -> None:
    """S5, S14, S15: comments come before the first content, and the stream is the same as ever."""
    answer = real.gateway.call(PATHS[client_format], _body(client_format, real.model, _long(1200), 16, True))
    assert answer.status == 200
    content = {"chat": b'"content":"', "messages": b"text_delta", "responses": b"response.output_text.delta"}
    before, found, _ = answer.body.partition(content[client_format])
    assert found
    assert b": keepalive\n\n" in before
    ends = {"chat": "[DONE]", "messages": "message_stop", "responses": "response.completed"}
    event, data = answer.frames()[-1]
    assert ends[client_format] == (event or data)


@pytest.mark.sdk
def test_the_sdks_wait_for_a_long_prompt(openai_client: OpenAI, anthropic_client: Anthropic, real: Real) -> None:
    """S16: with the comments of the test above."""
    asked: Any = [_user(_long(800))]
    with openai_client.chat.completions.stream(model=real.model, messages=asked, max_tokens=FEW) as chat:
        assert sum(event.type == "content.delta" for event in chat) > 0
    with openai_client.responses.stream(model=real.model, input=_long(800), max_output_tokens=16) as responses:
        assert responses.get_final_response().output_text
    asked = [_user(_long(800))]
    with anthropic_client.messages.stream(model=real.model, messages=asked, max_tokens=FEW) as messages:
        assert messages.get_final_text()


# -- as a newcomer starts it


@pytest.mark.sdk
def test_serve_demo(server: LlamaServer) -> None:
    """`kenari serve --demo` with a configuration of one's own adds the model to it."""
    assert server.model
    providers = {"nobody": {"dialect": "chat", "base_url": "http://127.0.0.1:9/v1"}}
    models = {"other": {"targets": ["nobody/other"]}}
    environment = {"KENARI_DATA": str(demo_data())}
    with (
        running_gateway(config_text(providers, models), "--demo", env=environment) as gateway,
        OpenAI(base_url=gateway.url + "/v1", api_key=KEY, max_retries=0) as client,
    ):
        assert {MODEL_ID, "other"} <= {model.id for model in client.models.list()}
        answer = client.chat.completions.create(model=MODEL_ID, messages=ASK, max_tokens=FEW)
        assert answer.choices[0].message.content
