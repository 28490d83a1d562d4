"""The small request of `--check`: what the client itself would send, and what came back in words."""

from typing import Any, NamedTuple

from kenari.connect.client import Client, Server
from kenari.wire import jsonx

QUESTION = "Answer with one short word."
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


class Probe(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes


def probe(client: Client, server: Server) -> Probe:
    """The request of this client for this server."""
    headers = {"content-type": "application/json"}
    bearer = client.key_header == "authorization"
    headers[client.key_header] = f"Bearer {server.key}" if bearer else server.key
    body: dict[str, Any] = {"model": server.model}
    turns = [{"role": "user", "content": QUESTION}]
    match client.speaks:
        case "responses":
            body |= {"input": turns, "store": False, "max_output_tokens": 400}
        case "messages":
            body |= {"messages": turns, "max_tokens": 400}
            headers["anthropic-version"] = "2023-06-01"
        case "chat":
            body |= {"messages": turns, "max_tokens": 400}
    return Probe(PATHS[client.speaks], headers, jsonx.encode(body))


def verdict(client: Client, status: int, body: bytes) -> tuple[bool, str]:
    """Whether the client would work, and one line that says what was seen."""
    try:
        answer: Any = jsonx.value(body)
        if status != 200:
            error = answer["error"]
            return False, f"{status} {error.get('code') or error.get('type')}: {error['message']}"
        return True, f"{answer['model']} says {_said(client.speaks, answer)[:200]!r}"
    except (jsonx.Malformed, KeyError, TypeError, IndexError, AttributeError):
        return False, f"{status} with a body that is no answer of this format. is this address a kenari?"


def _said(speaks: str, answer: Any) -> str:
    match speaks:
        case "responses":
            parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        case "messages":
            parts = [part for part in answer["content"] if part["type"] == "text"]
        case _:
            return str(answer["choices"][0]["message"]["content"] or "")
    return "".join(str(part["text"]) for part in parts)
