"""The real llama.cpp server once more, asked in each dialect that it speaks itself, by the official SDKs: nine ways through
kenari. What the model says is its own affair; the tests look at structure only."""

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
from gateway import KEY, Gateway, config_text, running_gateway
from llama import LlamaServer, llama_server
from openai import OpenAI
from rig import DIALECTS

from kenari.demo.server import CONTEXT_WINDOW, MAX_OUTPUT

pytestmark = [pytest.mark.real_upstream, pytest.mark.sdk]

ASK: Any = [{"role": "user", "content": "Write one short sentence about a bird."}]
FEW = 4
"""Output tokens that are never enough for a sentence."""
ENDLESS = "Write the whole list of the numbers from 1 to 9999, one on each line, and leave none out."
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
FREED_SECONDS = 15.0
"""A slot that is not freed is busy for much longer than this."""
_serial = itertools.count(time.time_ns())


class Real(NamedTuple):
    """kenari in front of the real server, which is asked in one dialect."""

    gateway: Gateway
    server: LlamaServer
    dialect: str

    @property
    def model(self) -> str:
        return f"small-{self.dialect}:free"

    @property
    def tells_length(self) -> bool:
        """In its Responses format this server calls a cut answer `completed`."""
        return self.dialect != "responses"


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
    with running_gateway(config_text(providers, models, keepalive="500ms")) as running:
        yield running


@pytest.fixture(params=DIALECTS)
def real(request: pytest.FixtureRequest, server: LlamaServer, gateway: Gateway) -> Real:
    return Real(gateway, server, request.param)


@pytest.fixture
def openai_client(real: Real) -> Iterator[OpenAI]:
    with OpenAI(base_url=real.gateway.url + "/v1", api_key=KEY, max_retries=0) as made:
        yield made


@pytest.fixture
def anthropic_client(real: Real) -> Iterator[Anthropic]:
    with Anthropic(base_url=real.gateway.url, api_key=KEY, max_retries=0) as made:
        yield made


@pytest.mark.parametrize("streamed", [False, True])
def test_chat(openai_client: OpenAI, real: Real, streamed: bool) -> None:
    """S20, S38, S42, S47, F1: text, cut by the limit, with usage."""
    asking: dict[str, Any] = {"model": real.model, "messages": ASK, "max_tokens": FEW}
    create: Any = openai_client.chat.completions.create
    if streamed:
        chunks = list(create(**asking, stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        answer, finish, usage = chunks[0], chunks[-1].choices[0].finish_reason, chunks[-1].usage
    else:
        answer = create(**asking)
        text, finish, usage = answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage
    assert answer.model == real.model
    assert text.strip()
    assert finish == ("length" if real.tells_length else "stop")
    assert usage.completion_tokens == FEW
    assert usage.total_tokens == usage.prompt_tokens + FEW > FEW


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
    assert [block.type for block in answer.content] == ["text"]
    assert answer.content[0].text.strip()
    assert answer.stop_reason == ("max_tokens" if real.tells_length else "end_turn")
    assert answer.usage.output_tokens == FEW
    assert answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0) > 0


@pytest.mark.parametrize("streamed", [False, True])
def test_responses(openai_client: OpenAI, real: Real, streamed: bool) -> None:
    """S80, S90, S93, S156, S159, S160, D1, F1: text, cut by the limit, with usage."""
    asking: dict[str, Any] = {"model": real.model, "input": ASK, "max_output_tokens": FEW}
    if streamed:
        with openai_client.responses.stream(**asking) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            answer: Any = stream.get_final_response()
        assert "".join(deltas) == answer.output_text
    else:
        create: Any = openai_client.responses.create
        answer = create(**asking)
    assert answer.model == real.model
    assert answer.output_text.strip()
    assert answer.usage.output_tokens == FEW
    if real.tells_length:
        assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    else:
        assert (answer.status, answer.incomplete_details) == ("completed", None)


def test_context_overflow(openai_client: OpenAI, anthropic_client: Anthropic, real: Real) -> None:
    """E5, E7, S17, S165: what the server says in this dialect is recognised and told in each format's words."""
    text = f"{next(_serial)} " + "bird " * 2 * CONTEXT_WINDOW
    asked: Any = [{"role": "user", "content": text}]
    with pytest.raises(openai.BadRequestError) as chat:
        openai_client.chat.completions.create(model=real.model, messages=asked, max_tokens=FEW, stream=True)
    with pytest.raises(openai.BadRequestError) as responses:
        openai_client.responses.create(model=real.model, input=text, max_output_tokens=FEW)
    assert chat.value.code == responses.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        anthropic_client.messages.create(model=real.model, messages=asked, max_tokens=FEW)


def test_long_prompt(openai_client: OpenAI, anthropic_client: Anthropic, real: Real) -> None:
    """S15, S16: the helpers see the usual stream although comments come while the prompt is read."""
    prompt = f"{next(_serial)} " + "bird " * 150
    body = {"model": real.model, "messages": [{"role": "user", "content": prompt}], "max_tokens": FEW, "stream": True}
    assert b": keepalive\n\n" in real.gateway.call(PATHS["chat"], body).body
    again = f"{next(_serial)} {prompt}"
    with openai_client.responses.stream(model=real.model, input=again, max_output_tokens=FEW) as responses:
        assert any(event.type == "response.output_text.delta" for event in responses)
    asked: Any = [{"role": "user", "content": f"{next(_serial)} {prompt}"}]
    with anthropic_client.messages.stream(model=real.model, messages=asked, max_tokens=FEW) as messages:
        assert messages.get_final_text()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client_format", DIALECTS)
def test_cancel(real: Real, client_format: str, stream: bool) -> None:
    """U6, F6, F7: the client goes, and the server's slot is free long before the answer's end; plain answers too."""
    before, mark = len(real.gateway.lines), real.server.mark()
    question = f"{next(_serial)}: {ENDLESS}"
    cap = {"max_output_tokens" if client_format == "responses" else "max_tokens": MAX_OUTPUT}
    asked = (
        {"input": question} if client_format == "responses" else {"messages": [{"role": "user", "content": question}]}
    )
    body = json.dumps({"model": real.model, "stream": stream, **cap, **asked}).encode()
    head = f"POST {PATHS[client_format]} HTTP/1.1\r\nhost: kenari\r\nauthorization: Bearer {KEY}\r\n"
    with socket.create_connection(real.gateway.address, timeout=60) as client:
        client.sendall(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        if stream:
            seen = b""
            while b"delta" not in seen:
                piece = client.recv(65536)
                assert piece, seen
                seen += piece
        else:
            assert real.server.launched(mark, FREED_SECONDS)
    freed = real.server.released(mark, FREED_SECONDS)
    assert freed is not None
    assert freed < MAX_OUTPUT / 2
    line = _line_of_the_gone(real.gateway, before)
    assert (line["model"], line["in"], line["stream"]) == (real.model, client_format, stream)


def _line_of_the_gone(gateway: Gateway, before: int) -> dict[str, Any]:
    """The line of a request whose client went, after `before` lines of the log."""
    until = time.monotonic() + FREED_SECONDS
    while True:
        for line in gateway.lines[before:]:
            if line["reason"] == "client_closed":
                return line
        assert time.monotonic() < until, "no line tells that a client went"
        time.sleep(0.02)
