"""A request that reached the provider, read alike in the three formats: what the model of a script looks at."""

import json
import re
from typing import Any, NamedTuple

from upstream import Seen

Json = dict[str, Any]
ROUND = re.compile(r"(?:call_|toolu_)r(\d+)x\d+")
"""The ids that scripts give their calls: the round and the place within it."""


class Result(NamedTuple):
    """A tool's result as the model sees it."""

    call_id: str
    text: str
    images: int


class Conversation(NamedTuple):
    """What a request says. `messages` are the raw JSON texts of the conversation's elements, in order."""

    dialect: str
    model: str
    system: str
    users: list[str]
    calls: list[tuple[str, str, str]]
    results: list[Result]
    images: int
    reasoning: list[str]
    proofs: list[str]
    tools: dict[str, Json]
    messages: list[str]

    @property
    def rounds(self) -> int:
        """How many rounds of calls were made, by the ids of the script."""
        found = [int(match.group(1)) for call in self.calls if (match := ROUND.match(call[0]))]
        return max(found, default=-1) + 1


def read(seen: Seen) -> Conversation:
    """The request in words that no format owns."""
    dialect = seen.path.split("/")[1]
    empty = Conversation(dialect, str(seen.body.get("model")), "", [], [], [], 0, [], [], tools_of(seen.body), [])
    return {"chat": _chat, "messages": _messages, "responses": _responses}[dialect](seen.body, empty)


def tools_of(body: Json) -> dict[str, Json]:
    """The tools by name."""
    tools: dict[str, Json] = {}
    listed: list[Json] = body.get("tools") or []
    for tool in listed:
        inner: Json = tool.get("function", tool)
        tools[str(inner.get("name", tool.get("type")))] = inner.get("parameters", inner.get("input_schema", {}))
    return tools


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[Json] = content
    return "\n".join(str(part.get("text", "")) for part in parts)


def _images(content: Any) -> int:
    kinds = ("image_url", "image", "input_image")
    if content is None or isinstance(content, str):
        return 0
    parts: list[Json] = content
    return sum(part.get("type") in kinds for part in parts)


def _dump(message: Json) -> str:
    return re.sub(r',? ?"cache_control": \{[^{}]*\}', "", json.dumps(message))


def _chat(body: Json, to: Conversation) -> Conversation:
    system, images = "", 0
    for message in body["messages"]:
        role, content = message["role"], message.get("content")
        images += _images(content)
        if role in ("system", "developer"):
            system += _text(content)
        elif role == "user":
            to.users.append(_text(content))
        elif role == "tool":
            to.results.append(Result(message["tool_call_id"], _text(content), _images(content)))
        else:
            to.reasoning.extend([message["reasoning_content"]] if message.get("reasoning_content") else [])
            made: list[Json] = message.get("tool_calls") or []
            for call in made:
                to.calls.append((call["id"], call["function"]["name"], call["function"]["arguments"]))
        to.messages.append(_dump(message))
    return to._replace(system=system, images=images)


def _messages(body: Json, to: Conversation) -> Conversation:
    images = 0
    for message in body["messages"]:
        content = message["content"]
        parts: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        images += _images(parts)
        if message["role"] == "user" and (said := _text([part for part in parts if part["type"] == "text"])):
            to.users.append(said)
        for part in parts:
            match part["type"]:
                case "tool_use":
                    to.calls.append((part["id"], part["name"], json.dumps(part["input"])))
                case "tool_result":
                    inner = part.get("content")
                    images += _images(inner)
                    to.results.append(Result(part["tool_use_id"], _text(inner), _images(inner)))
                case "thinking":
                    to.reasoning.append(part["thinking"])
                    to.proofs.append(part.get("signature", ""))
                case _:
                    pass
        to.messages.append(_dump({"role": message["role"], "content": parts}))
    return to._replace(system=_text(body.get("system")), images=images)


def _responses(body: Json, to: Conversation) -> Conversation:
    system, images = str(body.get("instructions") or ""), 0
    items: list[Json] = (
        [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]
    )
    for item in items:
        match item.get("type", "message"):
            case "message" if item["role"] in ("system", "developer"):
                system += _text(item["content"])
            case "message" if item["role"] == "user":
                to.users.append(_text(item["content"]))
                images += _images(item["content"])
            case "function_call":
                to.calls.append((item["call_id"], item["name"], item["arguments"]))
            case "function_call_output":
                images += _images(item["output"])
                to.results.append(Result(item["call_id"], _text(item["output"]), _images(item["output"])))
            case "reasoning":
                to.reasoning.append(_text(item.get("summary")))
                to.proofs.append(item.get("encrypted_content") or "")
            case _:
                pass
        to.messages.append(_dump(item))
    return to._replace(system=system, images=images)
