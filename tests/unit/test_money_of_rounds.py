"""Rounds of server tools set aside what they may cost before they begin, and end cleanly where money does not reach (F8)."""

import asyncio
from typing import Any

import pytest
from gateway_kit import FORMATS
from test_money_of_tools import paying
from test_server_tools import PRICE, SEARCH, USAGE, Backend, ask, call, calling, deltas_of, rig, saying
from test_structured import text_of

from kenari.core.errors import KenariError
from kenari.core.ports import Hold

CLOCK: list[Any] = [{"type": "kenari:datetime"}]
MORE = '{"query": "more"}'
LAST = '{"query": "last"}'


def finish_of(client: str, got: Any, stream: bool) -> str:
    """Why the answer ended, in the format's own words."""
    if client == "chat":
        whole = next(one for one in reversed(got.data[:-1]) if one.get("choices")) if stream else got.json
        return whole["choices"][0]["finish_reason"]
    if client == "messages":
        return (
            next(one["delta"] for one in got.data if one["type"] == "message_delta")["stop_reason"]
            if stream
            else got.json["stop_reason"]
        )
    return (got.data[-1]["response"] if stream else got.json)["status"]


def test_f8_each_round_is_set_aside_before_it_begins() -> None:
    """One question to the books for each further call; what is held covers all that was spent and the call that follows."""
    made = rig(calling(call("datetime", "{}")), calling(call("datetime", '{"timezone": "Asia/Jakarta"}')), saying("ok"))
    books = paying(made, balance=100_000)
    got = ask(made, "chat", tools=CLOCK, max_tokens=1000)
    assert got.status == 200
    assert len(made.upstream.requests) == 3
    assert len(books.extended) == 2
    held = books.reservations[0].amount
    for number, (amount, least) in enumerate(books.extended, 1):
        held += amount
        assert held >= 15 * number + 9 + 2 * 1000  # what earlier rounds have used, a prompt, the whole cap
        assert 0 <= least < amount
    assert (books.reserved, books.balance) == (0, 100_000 - 45)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", FORMATS)
def test_f8_where_no_further_call_is_covered_the_answer_ends_as_cut_by_length(
    client: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(USAGE, "prompt_tokens", 100)
    monkeypatch.setitem(USAGE, "completion_tokens", 100)
    made = rig(calling(call("datetime", "{}"), text="Let me see."), saying("never"))
    books = paying(made, balance=450)
    cap: dict[str, Any] = {"max_output_tokens" if client == "responses" else "max_tokens": 100}
    got = made.ask(client, stream=stream, tools=CLOCK, **cap)
    assert got.status == 200, got.out
    assert len(made.upstream.requests) == 1
    assert ("".join(deltas_of(client, got.data)) if stream else text_of(client, got.json)) == "Let me see."
    assert finish_of(client, got, stream) in ("length", "max_tokens", "incomplete")
    line = books.lines[0]
    assert (line.ending, line.status, line.charge) == ("length", 200, 300)
    assert (books.balance, books.reserved) == (150, 0)


def test_f8_a_further_call_has_what_the_balance_still_covers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap of the next call is lowered to what is left, so that the account is not overdrawn by rounds."""
    monkeypatch.setitem(USAGE, "prompt_tokens", 100)
    made = rig(calling(call("datetime", "{}")), saying("ok"))
    books = paying(made, balance=2150)
    got = ask(made, "chat", tools=CLOCK, max_tokens=1000)
    assert got.status == 200
    first, second = made.upstream.sent
    assert first["max_tokens"] == 1000
    assert 256 <= second["max_tokens"] < 1000
    assert books.lines[0].ending == "done"
    assert "max_output_tokens" in [notice.name for notice in books.lines[0].notices]
    assert books.balance == 2150 - books.lines[0].charge


@pytest.mark.parametrize("stream", [True, False])
def test_f8_a_tool_that_is_not_covered_is_not_run_and_the_model_answers_with_what_it_has(stream: bool) -> None:
    backend = Backend()
    made = rig(calling(call()), calling(call(arguments=MORE)), saying("What I have."), backend=backend)
    books = paying(made, balance=PRICE + 50_000)
    got = ask(made, "chat", stream, max_tokens=300)
    assert got.status == 200, got.out
    assert ("".join(deltas_of("chat", got.data)) if stream else text_of("chat", got.json)) == "What I have."
    assert len(backend.asked) == 1  # the second search would have cost what nobody has
    last = made.upstream.sent[2]
    assert "balance does not cover another use of tools" in last["messages"][-1]["content"]
    assert last["tool_choice"] == "none"
    line = books.lines[0]
    assert (line.ending, line.charge) == ("done", PRICE + 45)
    assert books.balance == 50_000 - 45


def test_f8_the_run_of_a_tool_beside_a_call_of_the_clients_own_is_covered_too() -> None:
    own = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
    backend = Backend()
    both = calling(call(), call("web_search", MORE, 1), call("mine", "{}", 2))
    made = rig(both, backend=backend)
    books = paying(made, balance=PRICE + 50_000)
    got = ask(made, "chat", tools=[*SEARCH, own], max_tokens=300)
    assert got.status == 200
    assert backend.asked == []  # two runs, and money for one
    assert "balance does not cover" in "".join(deltas_of("chat", got.data))
    assert books.lines[0].charge == 15
    made = rig(both, backend=backend)
    books = paying(made, balance=2 * PRICE + 50_000)
    ask(made, "chat", tools=[*SEARCH, own], max_tokens=300)
    assert (len(backend.asked), books.lines[0].charge) == (2, 2 * PRICE + 15)


def test_f8_a_store_that_cannot_say_ends_the_answer_as_cut() -> None:
    """What cannot be guaranteed is not guessed, and an answer that was begun is not broken."""
    made = rig(calling(call("datetime", "{}"), text="First."), saying("never"))
    books = paying(made, balance=10**9)

    async def down(hold: Hold, amount: int, least: int) -> Hold:
        raise KenariError("upstream_unavailable", "balances cannot be checked at the moment", retry_after=5.0)

    books.extend = down  # type: ignore[method-assign]
    got = made.ask("chat", stream=True, tools=CLOCK, max_tokens=10)
    assert finish_of("chat", got, stream=True) == "length"
    assert len(made.upstream.requests) == 1
    assert books.lines[0].charge == 15


def test_a_client_that_leaves_while_more_is_set_aside_calls_no_provider() -> None:
    made = rig(calling(call("datetime", "{}")), saying("never"))
    books = paying(made, balance=10**9)
    extend = books.extend

    async def slowly(hold: Hold, amount: int, least: int) -> Hold:
        await asyncio.sleep(0.2)
        return await extend(hold, amount, least)

    books.extend = slowly  # type: ignore[method-assign]
    made.ask("chat", stream=True, tools=CLOCK, max_tokens=1000, act=lambda exchange: exchange.leave())
    assert len(made.upstream.requests) == 1
    assert (books.lines[0].ending, books.lines[0].charge) == ("client_closed", 15)
    assert books.reserved == 0


def test_a_request_of_the_operator_asks_nobody() -> None:
    made = rig(calling(call()), calling(call(arguments=MORE)), calling(call(arguments=LAST)), saying("ok"))
    assert ask(made, "chat").status == 200
    assert len(made.upstream.requests) == 4
