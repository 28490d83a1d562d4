"""The commonest shapes, read in C: requests and answers that are nothing but text.

What is read here is what the general readers make of the same bytes; for anything else these functions return None and
the general ones are asked (tests hold both to the same result).
"""

from typing import Literal

import msgspec
from msgspec import Raw

from kenari.core.events import Escaped
from kenari.core.request import Request, TextPart, Turn
from kenari.core.usage import Usage
from kenari.dialects.base import Cut
from kenari.dialects.chat.wire import UsageWire, usage_of
from kenari.wire import jsonx

_QUOTE = 0x22


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "user", "assistant"]
    content: Raw


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    model: str
    messages: list[Raw]
    stream: bool = False
    stream_options: Raw = Raw()


class Words(msgspec.Struct, gc=False):
    """A message, or a piece of one, that has a text and nothing else."""

    content: Raw = Raw()
    reasoning: None = None
    reasoning_content: None = None
    reasoning_details: None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None


class _Choice(msgspec.Struct, gc=False):
    message: Words
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


class Said(msgspec.Struct, frozen=True, gc=False):
    """An answer that is one text: its escaped text, the provider's word for how it ended, what it used."""

    text: Escaped
    word: Literal["stop", "length"]
    usage: Usage | None


class _Text(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "user", "assistant"]
    content: str


SAMPLE = b'[{"role":"user","content":"the conversation"}]'
_NAME = b'"messages":'
_TEXTS = jsonx.decoder(list[_Text])
_BODY = jsonx.decoder(_Body)
_MESSAGES = jsonx.decoder(list[_Message])
_ANSWER = jsonx.decoder(_Answer)  # not the lenient one: it takes the text "null" for nothing


def plain_request(body: bytes, fields: dict[str, Raw]) -> Request | None:
    """The request of this body, whose members are `fields`, when it is model, messages, stream and its options and
    nothing else, and each of its messages is a role with one text."""
    turns: list[Turn] = []
    try:
        read = _BODY.decode(body)
        messages = _MESSAGES.decode(fields["messages"])
    except (msgspec.DecodeError, RecursionError):
        return None
    for raw, message in zip(read.messages, messages, strict=True):
        content = memoryview(message.content)
        if content[0] != _QUOTE:
            return None
        text = TextPart(content[1:-1].tobytes())
        turns.append(Turn(message.role, [text], raw=raw, param=f"messages[{len(turns)}]"))
    if not read.model or not turns:
        return None
    return Request(origin="chat", model=read.model, turns=turns, fields=fields, stream=read.stream, plain=True)


def cut(body: bytes) -> Cut | None:
    """The messages are taken to be what begins with the first bracket behind their name and ends with the last object that is
    the last of an array. Whether they are is for who knows what stands around them."""
    start = body.find(b"[", body.find(_NAME))
    end = body.rfind(b"}]") + 2
    return Cut(body[:start], body[start:end], body[end:]) if 0 < start < end else None


def is_texts(conversation: bytes) -> bool:
    """Whether `plain_request` takes these messages, and they are UTF-8."""
    try:
        return bool(_TEXTS.decode(conversation))
    except (ValueError, RecursionError):  # another shape, no JSON, no UTF-8
        return False


def holds_texts(messages: Raw) -> bool:
    """Whether each of these messages is a role with one text."""
    try:
        read = _MESSAGES.decode(messages)
    except (msgspec.DecodeError, RecursionError):
        return False
    return all(memoryview(message.content)[0] == _QUOTE for message in read)


def plain_answer(body: bytes) -> Said | None:
    """What a provider's plain answer says when it is one text."""
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
    if len(content) <= 2 or content[0] != _QUOTE:
        return None
    text = content[1:-1]
    if b"\\u" in text:  # perhaps half a pair
        return None
    return Said(text, choice.finish_reason, None if answer.usage is None else usage_of(answer.usage))
