"""An answer of one schema, asked for in the words of each client format; read back out of a plain answer or a stream."""

import json
from typing import Any

import jsonschema
from gateway import Answer, Gateway

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "warm": {"type": "boolean"}},
    "required": ["colour", "warm"],
    "additionalProperties": False,
}
QUESTION = "Name a colour, and say whether it is warm."


def ask(gateway: Gateway, client: str, model: str, stream: bool) -> Answer:
    """Ask for it."""
    body: dict[str, Any] = {"model": model, "stream": stream, "temperature": 0}
    turns = [{"role": "user", "content": QUESTION}]
    if client == "chat":
        wanted = {"type": "json_schema", "json_schema": {"name": "colour", "schema": SCHEMA, "strict": True}}
        body |= {"messages": turns, "max_tokens": 60, "response_format": wanted}
    elif client == "messages":
        wanted = {"type": "json_schema", "schema": SCHEMA}
        body |= {"messages": turns, "max_tokens": 60, "output_config": {"format": wanted}}
    else:
        wanted = {"type": "json_schema", "name": "colour", "schema": SCHEMA, "strict": True}
        body |= {"input": QUESTION, "max_output_tokens": 60, "text": {"format": wanted}}
    return gateway.call(PATHS[client], body, seconds=240)


def validate(client: str, stream: bool, answer: Answer) -> None:
    """The answer is JSON of that schema, whatever the model chose to say."""
    assert answer.status == 200, answer.body[:500]
    value = json.loads(text_of(client, stream, answer))
    jsonschema.validate(value, SCHEMA)  # pyright: ignore[reportUnknownMemberType]


def text_of(client: str, stream: bool, answer: Answer) -> str:
    """All of the answer's text."""
    if stream:
        events: list[Any] = [json.loads(data) for _, data in answer.frames() if data != "[DONE]"]
        return "".join(_delta(client, event) for event in events)
    reply = answer.json()
    if client == "chat":
        return reply["choices"][0]["message"]["content"]
    if client == "messages":
        return "".join(block["text"] for block in reply["content"])
    parts: list[Any] = [part for item in reply["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


def _delta(client: str, event: Any) -> str:
    if client == "chat":
        return event["choices"][0]["delta"].get("content") or "" if "choices" in event else ""
    if client == "messages":
        return event["delta"].get("text", "") if event["type"] == "content_block_delta" else ""
    return event["delta"] if event["type"] == "response.output_text.delta" else ""
