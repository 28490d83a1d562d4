"""The small request of `--check`: what the client itself would send, and what came back in words."""

from typing import Any, NamedTuple

from kenari.connect.client import Client, Server
from kenari.wire import jsonx
from kenari.wire.sse import Frames

QUESTION = "Answer with one short word."
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
LAST = {"messages": ("message_stop",), "responses": ("response.completed", "response.incomplete")}
"""The events that end a stream as they should; chat has a frame of its own for it."""
HOLDERS = {"messages": "message", "responses": "response"}
"""The member of a stream's first event that names the model; in chat it is the event."""


class Probe(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes


class Heard(NamedTuple):
    """What an answer says: its model, its text, and why the client would not take it (empty when it would)."""

    model: str
    text: str
    fault: str = ""


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
    if client.streams:
        body["stream"] = True
    return Probe(PATHS[client.speaks], headers, jsonx.encode(body))


def verdict(client: Client, status: int, body: bytes) -> tuple[bool, str]:
    """Whether the client would work, and one line that says what was seen."""
    try:
        if status != 200:
            return False, f"{status} {_told(jsonx.value(body)['error'])}"
        heard = _streamed(client.speaks, body) if client.streams else _plain(client.speaks, body)
    except (jsonx.Malformed, KeyError, TypeError, IndexError, AttributeError):
        return False, f"{status} with a body that is no answer of this format. is this address a kenari?"
    if heard.fault:
        return False, heard.fault
    return True, f"{heard.model} says {heard.text[:200]!r}"


def _told(error: Any) -> str:
    return f"{error.get('code') or error.get('type')}: {error['message']}"


def _plain(speaks: str, body: bytes) -> Heard:
    answer: Any = jsonx.value(body)
    match speaks:
        case "responses":
            parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        case "messages":
            parts = [part for part in answer["content"] if part["type"] == "text"]
        case _:
            return Heard(str(answer["model"]), str(answer["choices"][0]["message"]["content"] or ""))
    return Heard(str(answer["model"]), "".join(str(part["text"]) for part in parts))


def _streamed(speaks: str, body: bytes) -> Heard:
    """What the frames say; a stream with an error in it, or without its last event, is at fault."""
    frames = Frames().feed(body)
    events: list[Any] = [jsonx.value(frame.data) for frame in frames if frame.data != b"[DONE]"]
    head = events[0]
    for event in events:
        response: Any = event.get("response")
        error: Any = event.get("error") or (response and response.get("error"))
        if error:
            return Heard("", "", f"the stream breaks off. {_told(error)}")
    head = head[HOLDERS[speaks]] if speaks in HOLDERS else head
    heard = Heard(str(head["model"]), "".join(_piece(speaks, event) for event in events))
    ended = events[-1]["type"] in LAST[speaks] if speaks in LAST else frames[-1].data == b"[DONE]"
    return heard if ended else heard._replace(fault="the stream ends without its last event. does a proxy cut it?")


def _piece(speaks: str, event: Any) -> str:
    """The text that an event adds."""
    match speaks:
        case "responses":
            return event["delta"] if event["type"] == "response.output_text.delta" else ""
        case "messages":
            return str(event["delta"].get("text", "")) if event["type"] == "content_block_delta" else ""
        case _:
            return "".join(str(choice["delta"].get("content") or "") for choice in event["choices"])
