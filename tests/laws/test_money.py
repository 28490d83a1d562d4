"""L7: what a client is told of usage equals the sum of its bill's billed legs, at every ending and in every format."""

from typing import Any

import pytest
from gateway_kit import COMPLETION, DONE, FORMATS, GOOD, LOST, ROLE, Exchange, Rig, Script, chunk, error, plain
from money_kit import PRICE, PaidBooks, paid, told

from kenari.core.ports import Line
from kenari.core.profile import Profile
from kenari.core.usage import Usage
from kenari.gateway.billing import billed_usage
from kenari.ledger.price import charge

ALWAYS = Profile(stream_always=True)
TEXT = chunk({"content": "Hello there, this is an answer"})
NO_USAGE = chunk({}, "stop")
LENGTH = chunk({}, "length", usage={"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12})
CACHED = chunk(
    {},
    "stop",
    usage={
        "prompt_tokens": 100,
        "completion_tokens": 3,
        "total_tokens": 103,
        "prompt_tokens_details": {"cached_tokens": 75},
    },
)


def steps(*parts: Any, end: Any = None) -> Script:
    return Script([*((0, part) for part in parts), (0, end)])


def hang(*parts: Any) -> Script:
    return Script([*((0, part) for part in parts), (30, None)])


def leave(exchange: Exchange) -> None:
    exchange.leave()


ENDINGS: dict[str, tuple[list[Any], Any, str, bool]] = {
    # name: the providers' scripts, what the client does, the line's ending, billed
    "done": ([GOOD], None, "done", True),
    "done, cached": ([steps(ROLE, TEXT, CACHED + DONE)], None, "done", True),
    "done, usage not reported": ([steps(ROLE, TEXT, NO_USAGE + DONE)], None, "done", True),
    "cut by the provider": ([steps(ROLE, TEXT, LENGTH + DONE)], None, "length", True),
    "failed before content": ([error(500)], None, "failed", False),
    "failed, then another answered": ([error(500), GOOD], None, "done", True),
    "failed after content": ([steps(ROLE, TEXT, end=LOST)], None, "failed", True),
    "client gone before the provider began": ([Script([(30, None)], head_after=30)], leave, "client_closed", False),
    "client gone before output": ([hang(ROLE)], leave, "client_closed", True),
    "client gone after output": ([hang(ROLE, TEXT)], leave, "client_closed", True),
}


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("name", ENDINGS)
def test_what_is_told_is_what_is_billed(client: str, name: str) -> None:
    """L7, U3, U5, U6, S161: one line; its charge is its legs' price; the client was told the same tokens."""
    scripts, act, ending, billed = ENDINGS[name]
    rig, books = paid(*scripts)
    before = books.balance
    got = rig.ask(client, act=act)
    check(client, got, books, ending, billed)
    assert before - books.balance == books.lines[0].charge
    assert books.reserved == 0


@pytest.mark.parametrize("client", FORMATS)
def test_a_plain_answer_is_told_and_billed_alike(client: str) -> None:
    """L7 for one JSON object, with and without the provider's usage."""
    for body in (COMPLETION, {**COMPLETION, "usage": None}):
        rig, books = paid(plain(body))
        check(client, rig.ask(client, stream=False), books, "done", billed=True)
    assert books.lines[0].usage.estimated
    assert books.lines[0].counted == "estimate"


@pytest.mark.parametrize("client", FORMATS)
def test_f7_an_abandoned_plain_call_is_billed_its_input(client: str) -> None:
    rig, books = paid(Script([(30, None)], head_after=30))
    rig.ask(client, stream=False, act=leave)
    line = only(books)
    assert (line.ending, line.usage.output or 0, line.usage.estimated) == ("client_closed", 0, True)
    assert line.charge == line.usage.prompt > 0


@pytest.mark.parametrize("client", FORMATS)
def test_keepalive_only(client: str) -> None:
    """U6: a client that saw nothing but signs of life and left before the provider began pays nothing."""
    rig, books = paid(Script([(30, None)], head_after=30))
    rig.silence = (0.01, 120.0)
    got = rig.ask(client, act=leave)
    assert b": keepalive" in got.out
    check(client, got, books, "client_closed", billed=False)


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("stream", [True, False])
def test_f8_an_answer_that_outgrows_what_is_held_is_cut_as_by_length(client: str, stream: bool) -> None:
    """Our own count ends it cleanly in each format; what is charged is what was held, the provider is broken off."""
    words = [(0.001, chunk({"content": "word " * 20})) for _ in range(200)]
    rig, books = paid(Script([(0, ROLE), *words, (30, None)]), balance=700, profile=ALWAYS)
    got = rig.ask(client, stream=stream)
    line = check(client, got, books, "length", billed=True)
    assert rig.upstream.calls[0].aborted
    assert 0 <= books.balance <= 60  # a batch of words at most is left over
    assert line.usage.estimated
    assert finish_of(client, got) in ("length", "max_tokens", "incomplete")
    assert rig.upstream.sent[0].get("max_tokens", 0) >= 256  # the lowered cap was sent too


def test_f8_a_call_is_cut_too_and_its_blocks_are_closed() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": "'}}
    more = [(0.001, chunk({"tool_calls": [{"index": 0, "function": {"arguments": "word " * 20}}]})) for _ in range(200)]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    rig, books = paid(Script([(0, ROLE), (0, chunk({"tool_calls": [call]})), *more, (30, None)]), balance=700)
    got = rig.ask("chat", tools=tools)
    check("chat", got, books, "length", billed=True)
    assert finish_of("chat", got) == "length"


def only(books: PaidBooks) -> Line:
    """The one line."""
    assert len(books.lines) == 1
    assert books.open == 0
    return books.lines[0]


def check(client: str, got: Exchange, books: PaidBooks, ending: str, billed: bool) -> Line:
    """The law."""
    line = only(books)
    assert line.ending == ending
    assert line.usage == billed_usage(line.legs)
    assert line.charge == charge(line.legs, PRICE)
    assert (line.charge > 0) == billed
    said = told(client, got)
    if said is not None:
        assert said == (line.usage.prompt, line.usage.output)
    elif ending in ("done", "length"):
        raise AssertionError("a finished answer tells its usage")
    return line


def finish_of(client: str, got: Exchange) -> str:
    """The format's own word for why the answer ended."""
    if "event-stream" not in got.header["content-type"]:
        body = got.json
    elif client == "chat":
        body = next(one for one in reversed(got.data) if one != "[DONE]" and one["choices"])
    elif client == "messages":
        body = next(one["delta"] for one in got.data if one["type"] == "message_delta")
    else:
        body = got.data[-1]["response"]
    match client:
        case "chat":
            return body["choices"][0]["finish_reason"]
        case "messages":
            return body["stop_reason"]
        case _:
            return body["status"]


def test_the_sum_of_legs_keeps_what_nobody_reported() -> None:
    """U1: None is not zero, over legs too."""
    rig = Rig(GOOD)
    rig.ask("chat")
    legs = rig.books.lines[0].legs
    assert billed_usage([]) == Usage()
    assert billed_usage(legs) is legs[0].usage
    assert billed_usage([*legs, *legs]).output == 2 * (legs[0].usage.output or 0)
    assert billed_usage([*legs, *legs]).cache_read is None
