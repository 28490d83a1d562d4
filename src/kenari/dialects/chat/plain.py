"""The commonest shapes, read in C: requests and answers that are nothing but text.

What is read here is what the general readers make of the same bytes; for anything else these functions return None and
the general ones are asked (tests hold both to the same result).
"""

from typing import Literal

import msgspec
from msgspec import Raw

from kenari.core.events import Close, Event, Meter, Open, Start, Text
from kenari.core.request import TextPart, Turn
from kenari.dialects.chat.wire import UsageSeen, UsageWire
from kenari.dialects.frames import lenient
from kenari.wire import jsonx

_QUOTE = 0x22


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "user", "assistant"]
    content: Raw


class _Said(msgspec.Struct, gc=False):
    content: Raw
    reasoning: None = None
    reasoning_content: None = None
    refusal: None = None
    tool_calls: None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Said
    finish_reason: Literal["stop", "length"]
    index: Literal[0] = 0
    delta: None = None
    stop_reason: None = None
    logprobs: None = None
    usage: None = None


class _Answer(msgspec.Struct, gc=False):
    choices: list[_Choice]
    usage: UsageWire | None = None
    error: None = None
    x_groq: None = None


_MESSAGE = jsonx.decoder(_Message)
_ANSWER = lenient(_Answer)


def plain_turns(messages: list[Raw]) -> list[Turn] | None:
    """The turns of messages that have a role and one text each."""
    turns: list[Turn] = []
    try:
        for at, raw in enumerate(messages):
            message = _MESSAGE.decode(raw)
            content = memoryview(message.content)
            if content[0] != _QUOTE:
                return None
            text = TextPart(content[1:-1].tobytes())
            turns.append(Turn(message.role, [text], raw=raw, param=f"messages[{at}]"))
    except msgspec.DecodeError:
        return None
    return turns


def plain_answer(body: bytes) -> tuple[list[Event], str] | None:
    """The events of an answer that is one text, up to its Stop, and the provider's word for how it ended."""
    try:
        answer = _ANSWER.decode(body)
        if not body.isascii():
            body.decode()
    except (ValueError, RecursionError):  # another shape, no JSON, no UTF-8
        return None
    if not answer.choices:
        return None
    choice = answer.choices[0]
    content = bytes(choice.message.content)
    if len(content) <= 2 or content[0] != _QUOTE or b"\\u" in content:
        return None
    events: list[Event] = [Start(), Open(0, "text"), Text(0, content[1:-1])]
    if answer.usage is not None:
        usage = UsageSeen().take(answer.usage)
        if usage is not None:
            events.append(Meter(usage))
    events.append(Close(0))
    return events, choice.finish_reason
