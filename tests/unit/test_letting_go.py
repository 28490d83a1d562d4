"""A stream that is under way lets go of what was asked (gateway/sinks.py): conversations are large and streams are long."""

import asyncio
import gc
import json
from typing import Any

import gateway_kit as kit
import pytest
import virtual_time
from test_direct import heard, untimed

from kenari.core.errors import KenariError
from kenari.core.request import Request, TextPart
from kenari.dialects.registry import DIALECTS
from kenari.gateway import sinks
from kenari.gateway.tally import Count

WORDS = "words of a long conversation, "
TEXT = kit.chunk({"content": "Hello"})
END = (5, kit.chunk({}, "stop") + kit.DONE)
UNCOUNTED = kit.Script([(0, kit.ROLE + TEXT), (4, TEXT), END, (0, None)])
"""An answer that takes nine seconds, and whose provider counts nothing."""
LATE = kit.Script([(4, kit.ROLE + TEXT), END, (0, None)])
"""It has no content before the fourth."""
BROKEN = kit.Script([(4, KenariError("upstream_error", "gone", elsewhere=True))])
LARGE = 3 * sinks.LARGE


class Vocabulary:
    """A vocabulary of bytes, for each model."""

    def encoding(self, model: str) -> str:
        """Its name."""
        return "bytes"

    def count(self, encoding: str, text: str) -> int:
        """One token each."""
        return len(text)


def body_of(client: str, tools: bool = True, size: int = LARGE, **more: Any) -> bytes:
    """A stream's request with so many bytes of conversation, and as many of a tool."""
    text = WORDS * (size // len(WORDS))
    schema: dict[str, Any] = {"type": "object", "properties": {}, "description": text}
    turns = [{"role": "user", "content": text}]
    words: dict[str, Any] = {"model": "m", "stream": True, "input" if client == "responses" else "messages": turns}
    match client:
        case "chat":
            tool: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": schema}}
        case "messages":
            words["max_tokens"] = 100
            tool = {"name": "f", "input_schema": schema}
        case _:
            tool = {"type": "function", "name": "f", "parameters": schema}
    return json.dumps(words | ({"tools": [tool]} if tools else {}) | more).encode()


def said(request: Request) -> int:
    """The bytes that it holds."""
    texts = [part.text for turn in request.turns for part in turn.parts if isinstance(part, TextPart)]
    schemas = [bytes(tool.schema) for tool in request.tools if tool.schema is not None]
    return sum(map(len, [*texts, *schemas, *map(bytes, request.fields.values())]))


def is_there() -> bool:
    """Whether some request in memory says much."""
    gc.collect()
    found = [one for one in gc.get_objects() if isinstance(one, Request) and not one.sample]
    return any(said(one) >= LARGE // 2 for one in found)


def served(
    rig: kit.Rig, client: str, body: bytes, before: bytes = b"", headers: dict[bytes, bytes] | None = None
) -> tuple[Any, bool]:
    """What the client, the books and the providers hear of a request, and whether anything of it was there after three
    seconds. `before` is sent before it."""

    async def run() -> tuple[Any, bool]:
        door = rig.build()
        if before:
            await kit.serve(door, kit.Exchange(kit.PATHS[client], before))
        exchange = kit.Exchange(kit.PATHS[client], body, headers)
        task = asyncio.get_running_loop().create_task(kit.serve(door, exchange))
        await asyncio.sleep(3)
        there = len(exchange.body) >= LARGE // 2 or is_there()
        await task
        return (heard(exchange), untimed(rig.books.lines[-1]), rig.upstream.sent), there

    return virtual_time.run(run())


@pytest.fixture
def keeps(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes nothing large enough to be let go of."""
    return lambda: monkeypatch.setattr(sinks, "LARGE", 1 << 40)


@pytest.mark.parametrize("dialect", ["chat", "messages"])
@pytest.mark.parametrize("client", kit.FORMATS)
@pytest.mark.parametrize("headers", [{}, {b"x-session-id": b"s"}, {b"idempotency-key": b"once"}])
def test_with_the_first_content_nobody_needs_what_was_asked(
    client: str, dialect: str, headers: dict[bytes, bytes], keeps: Any
) -> None:
    """U3: the answer, the bill and the provider's request are those of a gateway that keeps everything."""
    script = UNCOUNTED if dialect == "chat" else MESSAGES
    body, lines = body_of(client), {b"authorization": b"Bearer " + kit.KEY.encode()} | headers
    seen, there = served(kit.Rig([script], dialect=dialect), client, body, headers=lines)
    assert not there
    keeps()
    assert served(kit.Rig([script], dialect=dialect), client, body, headers=lines) == (seen, True)


def event(kind: str, **members: Any) -> bytes:
    """A frame of a Messages provider."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind} | members).encode())


MESSAGES = kit.Script(
    [
        (0, event("message_start", message={"id": "x", "type": "message", "role": "assistant", "content": []})),
        (0, event("content_block_start", index=0, content_block={"type": "text", "text": ""})),
        (0, event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello"})),
        (5, event("content_block_stop", index=0)),
        (0, event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})),
        (0, event("message_stop")),
        (0, None),
    ]
)
"""A provider that does not count what it was sent."""


def test_one_that_passes_is_not_even_read(keeps: Any) -> None:
    """Its tokens are those of its own conversation, not of the sample."""
    body, before = body_of("chat", tools=False), body_of("chat", tools=False, size=30)
    seen, there = served(kit.Rig([kit.GOOD, UNCOUNTED, UNCOUNTED]), "chat", body, before)
    assert not there
    assert seen[1][8].estimated
    assert seen[1][8].prompt > LARGE // 8
    keeps()
    assert served(kit.Rig([kit.GOOD, UNCOUNTED, UNCOUNTED]), "chat", body, before) == (seen, True)


def test_what_may_be_needed_stays() -> None:
    """Before there is content; where kenari may call again; and where counting takes long."""
    body = body_of("chat")
    late, there = served(kit.Rig([LATE]), "chat", body)
    assert there
    assert late[0][0] == 200
    fallen, there = served(kit.Rig(BROKEN, UNCOUNTED), "chat", body)
    assert there
    assert len(fallen[2]) == 2
    assert fallen[2][0] == fallen[2][1]
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    assert served(kit.Rig([UNCOUNTED]), "chat", body_of("chat", response_format=form))[1]
    rig = kit.Rig([UNCOUNTED])
    rig.services["counter"] = Vocabulary()
    counted, there = served(rig, "chat", body)
    assert there
    assert counted[1][8].prompt > 2 * LARGE - 2 * len(WORDS)


def test_what_a_vocabulary_has_counted_is_let_go_of_too() -> None:
    """It was counted when its money was set aside."""
    asked = Request(model="m", turns=[], origin="chat", fields={})
    count = Count(asked, Vocabulary(), "m")
    assert not count.settle()
    tokens = count.prompt()
    assert count.settle()
    assert count.prompt() == tokens == 1


def test_a_sample_is_not_emptied() -> None:
    """It is everybody's; what is no sample is emptied with its copies."""
    decoded = DIALECTS["chat"].decode_request(body_of("chat"))
    decoded.sample = True
    decoded.forget()
    assert decoded.turns
    assert decoded.tools
    assert decoded.fields
    decoded.sample = False
    decoded.forget()
    assert said(decoded) == 0
    assert not decoded.sampling
