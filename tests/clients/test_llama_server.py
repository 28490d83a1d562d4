"""A real model behind kenari: llama.cpp's server with SmolLM2-135M, installed by the demo's own command, for all formats."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway import KEY, Gateway, config_text, running_gateway
from llama import llama_server
from real_model import skip_where_it_cannot_run

pytestmark = pytest.mark.real_upstream

MODEL = "smollm2-135m:free"
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
CLIENTS = tuple(PATHS)
WORDS_OF_A_WINDOW = 9000
"""More tokens than the model's window of 8192 holds."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """`kenari serve --demo` with a short keepalive. `KENARI_TEST_CACHE` keeps the 127 MB for the next run."""
    skip_where_it_cannot_run()
    kept = os.environ.get("KENARI_TEST_CACHE")
    data = Path(kept) if kept else tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "kenari.demo.install", str(data)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-500:]
    config = config_text({}, {}, keepalive="500ms")
    with running_gateway(config, "--demo", env={"KENARI_DATA": str(data)}) as running:
        if MODEL not in {model["id"] for model in running.call("/v1/models", method="GET").json()["data"]}:
            with llama_server():  # skips when it is the processor
                raise AssertionError("".join(running.said[-20:]))
        yield running


def _body(client: str, prompt: str, cap: int, stream: bool) -> dict[str, Any]:
    if client == "responses":
        return {"model": MODEL, "stream": stream, "max_output_tokens": cap, "temperature": 0, "input": prompt}
    turns = [{"role": "user", "content": prompt}]
    return {"model": MODEL, "stream": stream, "max_tokens": cap, "temperature": 0, "messages": turns}


def _read_stream(client: str, frames: list[tuple[str, str]]) -> tuple[str, str, int]:
    """(text, how it ended, output tokens) of a stream."""
    events: list[dict[str, Any]] = [json.loads(data) for _, data in frames if data != "[DONE]"]
    if client == "chat":
        text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
        return text, events[-1]["choices"][0]["finish_reason"], events[-1]["usage"]["completion_tokens"]
    if client == "messages":
        text = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        last = next(event for event in events if event["type"] == "message_delta")
        return text, last["delta"]["stop_reason"], last["usage"]["output_tokens"]
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    response = events[-1]["response"]
    return text, response["status"], response["usage"]["output_tokens"]


def _read_reply(client: str, reply: dict[str, Any]) -> tuple[str, str, int]:
    if client == "chat":
        choice = reply["choices"][0]
        return choice["message"]["content"], choice["finish_reason"], reply["usage"]["completion_tokens"]
    if client == "messages":
        return reply["content"][0]["text"], reply["stop_reason"], reply["usage"]["output_tokens"]
    text = reply["output"][0]["content"][0]["text"]
    return text, reply["status"], reply["usage"]["output_tokens"]


@pytest.mark.parametrize("client", CLIENTS)
def test_text_streamed_and_plain(gateway: Gateway, client: str) -> None:
    """S4, S20, S160: a real answer in pieces, and the same words as one object."""
    question = _body(client, "Say hello.", 300, stream=True)
    answer = gateway.call(PATHS[client], question)
    text, end, tokens = _read_stream(client, answer.frames())
    assert answer.status == 200
    assert text.strip()
    assert end in ("stop", "end_turn", "completed")
    assert len(answer.frames()) > tokens / 2
    plain = _read_reply(client, gateway.call(PATHS[client], question | {"stream": False}).json())
    assert plain[0].strip()
    assert plain[1] == end


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_by_length(gateway: Gateway, client: str, stream: bool) -> None:
    """F1, S93, S156: exactly as many tokens as were allowed."""
    answer = gateway.call(PATHS[client], _body(client, "Write a long story about a bird.", 7, stream))
    read = _read_stream(client, answer.frames()) if stream else _read_reply(client, answer.json())
    assert read[1] == {"chat": "length", "messages": "max_tokens", "responses": "incomplete"}[client]
    assert read[2] == 7


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long(gateway: Gateway, client: str, stream: bool) -> None:
    """E5, E7, S17: the server's own words are recognised."""
    answer = gateway.call(PATHS[client], _body(client, "bird " * WORDS_OF_A_WINDOW, 7, stream))
    error = answer.json()["error"]
    assert answer.status == 400
    assert error["message"].startswith("prompt is too long")
    assert client == "messages" or error["code"] == "context_length_exceeded"
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_long_prompt_brings_keepalives(gateway: Gateway, client: str) -> None:
    """S5, S15: while the model reads a prompt of 600 tokens for the first time the client sees that we live."""
    prompt = f"{client} {time.time_ns()} " + "a small bird sings " * 150
    answer = gateway.call(PATHS[client], _body(client, prompt, 4, stream=True))
    assert answer.status == 200
    assert answer.body.startswith(b": keepalive\n\n")
    assert _read_stream(client, answer.frames())[2] == 4


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_that_goes_away(gateway: Gateway, client: str) -> None:
    """U6: the model is stopped, so that its next answers are not slowed down; the line says so."""
    body = json.dumps(_body(client, "Write a long story about a bird.", 4000, stream=True)).encode()
    head = f"POST {PATHS[client]} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(gateway.address) as connection:
        connection.sendall(head.encode() + body)
        seen = b""
        while seen.count(b"\n\n") < 5:
            piece = connection.recv(4096)
            assert piece
            seen += piece
    ident = seen.partition(b"x-request-id: ")[2][:16].decode()
    line = gateway.line_of(ident)
    assert line["reason"] == "client_closed"
    assert line["duration_ms"] < 60_000
    assert gateway.call(PATHS[client], _body(client, "Say hello.", 5, stream=False)).status == 200
