"""Money and limits on a request's way: refusals before the stream, quotes, admission, headers (S17, S163, S174, S175)."""

import asyncio
import ipaddress
import json
import time
from typing import Any

import msgspec
import pytest
import virtual_time
from gateway_kit import FORMATS, GOOD, KEY, PATHS, ROLE, Exchange, Rig, Script, chunk, error
from money_kit import FREE, PAYER, PRICE, PaidBooks, paid, pricing_of

from kenari.catalog.models import Model
from kenari.core.caller import Caller, Rates, Scope
from kenari.core.errors import KenariError
from kenari.core.ports import Admission, Rate
from kenari.core.request import Request
from kenari.dialects.registry import DIALECTS
from kenari.gateway.quote import LEAST_OUTPUT, lower_cap, make_quote
from kenari.gateway.rates import rate_lines
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.memory import MemoryLimits
from kenari.keys.scopes import check_use


def refusal(rig: Rig, client: str, status: int, code: str, **more: Any) -> Exchange:
    """Ask, and be refused before any provider was called, with nothing held and no charge (S175)."""
    got = rig.ask(client, **more)
    assert got.status == status
    assert got.header["content-type"] == "application/json"
    kind = got.json["error"]
    if client != "messages":
        assert kind["code"] == code
    else:
        assert got.json["type"] == "error"
    assert rig.upstream.requests == []
    line = rig.books.lines[0]
    assert (line.code, line.status, line.ending, line.charge, line.legs) == (code, status, "refused", 0, [])
    return got


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("stream", [True, False])
def test_s163_s17_an_insufficient_balance_is_402_before_the_stream(client: str, stream: bool) -> None:
    rig, books = paid(GOOD, balance=10)
    got = refusal(rig, client, 402, "insufficient_balance", stream=stream)
    assert got.header["x-should-retry"] == "false"  # E1
    assert "retry-after" not in got.header
    assert books.balance == 10


@pytest.mark.parametrize("client", FORMATS)
def test_s174_s17_a_rate_limit_is_429_before_the_stream(client: str) -> None:
    caller = msgspec.structs.replace(PAYER, rates=Rates(rpm=0, tpm=1000))
    rig, _ = paid(GOOD, caller=caller)
    got = refusal(rig, client, 429, "rate_limited")
    assert int(got.header["retry-after"]) >= 1
    assert int(got.header["retry-after-ms"]) >= 1
    assert (got.header["x-ratelimit-limit-requests"], got.header["x-ratelimit-remaining-requests"]) == ("0", "0")
    assert got.header["x-ratelimit-limit-tokens"] == "1000"


@pytest.mark.parametrize("client", FORMATS)
def test_a4_headers_say_how_the_limits_stand(client: str) -> None:
    caller = msgspec.structs.replace(PAYER, rates=Rates(rpm=5, tpm=1000))
    rig, _ = paid(GOOD, error(500), caller=caller)
    got = rig.ask(client)
    both = got.header
    assert both["x-ratelimit-limit-requests"] == "5"
    assert both["x-ratelimit-remaining-requests"] == "4"
    assert both["x-ratelimit-reset-requests"] == "60s"
    assert both["x-ratelimit-limit-tokens"] == "1000"
    assert 980 < int(both["x-ratelimit-remaining-tokens"]) < 1000
    assert ("anthropic-ratelimit-requests-limit" in both) == (client == "messages")
    if client == "messages":
        assert both["anthropic-ratelimit-tokens-remaining"] == both["x-ratelimit-remaining-tokens"]
        assert both["anthropic-ratelimit-requests-reset"].endswith("Z")


def test_a4_errors_after_admission_say_it_too_and_the_bootstrap_key_never() -> None:
    caller = msgspec.structs.replace(PAYER, rates=Rates(rpm=5))
    rig, _ = paid(error(500), caller=caller)
    got = rig.ask("chat")
    assert got.status == 502
    assert b"x-ratelimit-remaining-requests: 4" in got.extra_headers
    rig, _ = paid(GOOD, caller=caller, balance=0)
    assert b"x-ratelimit-remaining-requests: 4" in rig.ask("chat").extra_headers
    rig = Rig(GOOD)
    assert b"ratelimit" not in rig.ask("chat").extra_headers


def test_a4_the_times_of_the_headers() -> None:
    lines = rate_lines(Rate(10, 3, 12.5), Rate(7, 0, 0.0), True, lambda: 1_700_000_000.0).decode()
    assert "x-ratelimit-reset-requests: 12.5s\r\n" in lines
    assert "x-ratelimit-reset-tokens: 0s\r\n" in lines
    assert "anthropic-ratelimit-requests-reset: 2023-11-14T22:13:32Z\r\n" in lines
    assert rate_lines(None, None, True, lambda: 0.0) == b""


# -- quotes


def request(**more: Any) -> Request:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}
    return DIALECTS["chat"].decode_request(json.dumps(body).encode())


MODEL = Model(id="m", targets=(), max_output_tokens=1000)


def test_f8_the_quote_is_the_prompt_and_the_cap() -> None:
    quote = make_quote(request(), MODEL, PRICE, 10)
    assert (quote.amount, quote.least) == (10 + 2000, 10 + 2 * LEAST_OUTPUT)
    named = make_quote(request(max_tokens=50), MODEL, PRICE, 10)
    assert (named.amount, named.least) == (110, 110)
    assert make_quote(request(max_tokens=5000), MODEL, PRICE, 10).amount == 2010  # clamped (D23)
    small = make_quote(request(), msgspec.structs.replace(MODEL, max_output_tokens=100), PRICE, 10)
    assert small.least == small.amount == 210


def test_f8_a_cap_that_nobody_named_is_lowered_to_the_balance_and_that_is_noted() -> None:
    asked = request()
    quote = make_quote(asked, MODEL, PRICE, 10)
    lower_cap(asked, quote, 1010)
    assert asked.max_output == 500
    assert [notice.name for notice in asked.notices] == ["max_output_tokens"]
    untouched = request()
    lower_cap(untouched, quote, quote.amount)
    assert (untouched.max_output, untouched.notices) == (None, [])


@pytest.mark.parametrize("client", FORMATS)
def test_f8_the_provider_is_asked_for_what_is_held(client: str) -> None:
    rig, books = paid(GOOD, balance=2000, max_output_tokens=4000)
    got = rig.ask(client)
    assert got.status == 200
    held = books.reservations[0]
    assert held.price is PRICE
    assert 2000 - 2 * 4000 < 0 < rig.upstream.sent[0]["max_tokens"] <= 1000
    assert "max_output_tokens" in got.header["x-kenari-ignored"]
    rig, books = paid(GOOD, balance=2000, max_output_tokens=4000)
    more: dict[str, Any] = {CAPS[client]: 2000}
    refusal(rig, client, 402, "insufficient_balance", **more)
    rig, books = paid(GOOD, balance=2000, max_output_tokens=4000)
    more[CAPS[client]] = 600
    assert rig.ask(client, **more).status == 200
    assert 1200 < books.reservations[0].amount < 1300
    assert books.balance == 2000 - 9 - 2 * 3  # only what was used (U5)


CAPS: dict[str, Any] = {"chat": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}


def test_s162_u7_a_free_model_holds_nothing_and_has_a_line() -> None:
    rig, books = paid(GOOD, balance=0, price=FREE)
    assert rig.ask("chat").status == 200
    line = books.lines[0]
    assert (line.charge, line.price, line.usage.output) == (0, FREE, 3)
    assert books.reservations[0].amount == 0


def test_f9_a_model_without_a_price_serves_unlimited_keys_only() -> None:
    rig, _ = paid(GOOD, price=None)
    got = refusal(rig, "chat", 403, "model_not_allowed")
    assert "price" in got.json["error"]["message"]
    rig, _ = paid(GOOD, price=None, caller=OPERATOR)
    assert rig.ask("chat").status == 200


def test_money_that_is_not_enforced_refuses_nobody_and_is_written_down() -> None:
    rig, books = paid(GOOD, balance=0)
    rig.more["pricing"] = pricing_of(PRICE, enforce=False)
    assert rig.ask("chat").status == 200
    assert (books.reservations[0].amount, books.lines[0].charge) == (0, 15)


def test_a1_the_bootstrap_key_has_a_line_with_a_charge_and_no_hold() -> None:
    rig, books = paid(GOOD, balance=0, caller=OPERATOR)
    assert rig.ask("chat").status == 200
    assert (books.reservations[0].amount, books.lines[0].charge) == (0, 15)


def test_the_running_charge_is_noted_while_the_answer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash is billed the last note: it grows, and its end is the bill."""
    monkeypatch.setattr("kenari.gateway.tab.NOTE_SECONDS", 0.02)
    words = [(0.02, chunk({"content": "twelve bytes"})) for _ in range(8)]
    rig, books = paid(Script([(0, ROLE), *words, (0, chunk({}, "stop")), (0, None)]))
    rig.ask("chat")
    assert len(books.noted) >= 3
    assert books.noted == sorted(books.noted)
    assert books.noted[-1] == books.lines[0].charge


def test_a_client_that_leaves_while_money_is_set_aside_calls_no_provider() -> None:
    rig, books = paid(GOOD)
    books.wait = 0.15
    rig.ask("chat", act=lambda exchange: exchange.leave())
    line = books.lines[0]
    assert (line.ending, line.charge, line.status) == ("client_closed", 0, 499)
    assert rig.upstream.requests == []


# -- limits over a network are asked beside the books


class FarLimits:
    """Limits that take a while; `error` refuses."""

    local = False

    def __init__(self, error: KenariError | None = None) -> None:
        self.error = error
        self.released: list[int] = []

    async def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Admission:
        await asyncio.sleep(0.1)
        if self.error is not None:
            raise self.error
        return Admission(request_id, caller, requests=Rate(9, 8, 1.0))

    def release(self, admission: Admission, tokens: int) -> None:
        self.released.append(tokens)


def test_limits_and_books_are_one_wait() -> None:
    rig, books = paid(GOOD)
    books.wait = 0.1
    limits = FarLimits()
    rig.more["limits"] = limits

    async def run() -> float:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        exchange = Exchange(PATHS["chat"], json.dumps(body).encode())
        door = rig.build()
        began = time.monotonic()
        await door.serve(exchange)
        assert exchange.status == 200
        return time.monotonic() - began

    assert virtual_time.run(run()) < 0.19
    assert limits.released == [books.lines[0].usage.total]


def test_e1_who_is_out_of_money_is_told_that_however_often_the_same_is_sent() -> None:
    """A hundred times the same on a balance for ten: ten pass, all others are 402, none is taken for a loop (D25)."""
    rig, books = paid([GOOD] * 10, balance=10 * 103)
    books.keep = True
    body = {"model": "m", "stream": True, "max_tokens": 48, "messages": [{"role": "user", "content": "hi"}]}

    async def run() -> list[int]:
        door = rig.build()
        every = [Exchange(PATHS["chat"], json.dumps(body).encode()) for _ in range(100)]
        for number, exchange in enumerate(every):
            exchange.id = f"{number:016x}"
        await asyncio.gather(*(door.serve(exchange) for exchange in every))
        return [exchange.status for exchange in every]

    found = virtual_time.run(run())
    assert (found.count(200), found.count(402)) == (10, 90)
    assert books.reserved == 0


def test_the_bootstrap_key_is_not_counted_anywhere() -> None:
    """A1: limits over a network are not even asked."""
    rig, books = paid(GOOD, caller=OPERATOR)
    limits = FarLimits(KenariError("rate_limited", "wait"))
    rig.more["limits"] = limits
    assert rig.ask("chat").status == 200
    assert (limits.released, books.lines[0].ending) == ([], "done")


def test_a_hold_beside_refused_limits_is_given_back() -> None:
    rig, books = paid(GOOD)
    limit = KenariError("rate_limited", "wait", retry_after=2)
    from_limits = FarLimits(limit)
    rig.more["limits"] = from_limits
    got = rig.ask("chat")
    assert (got.status, got.header["retry-after"]) == (429, "2")
    assert (books.reserved, books.balance) == (0, 10**9)
    assert books.lines[0].ending == "refused"
    assert from_limits.released == []
    rig, books = paid(GOOD, balance=0)
    rig.more["limits"] = near = FarLimits()
    assert rig.ask("chat").status == 402
    assert near.released == [0]


def test_a_local_limit_is_asked_first_and_freed_when_money_is_refused() -> None:
    caller = msgspec.structs.replace(PAYER, rates=Rates(concurrent=1))
    rig, _ = paid(GOOD, balance=0, caller=caller)
    limits: list[MemoryLimits] = []

    class Once:
        local = True

        def __init__(self) -> None:
            self.inner = MemoryLimits(lambda: 0.0)
            limits.append(self.inner)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    rig.more["limits"] = Once()
    assert rig.ask("chat").status == 402
    assert limits[0].in_flight == 0


# -- scopes (A2)


def scoped(**scope: Any) -> Caller:
    return msgspec.structs.replace(PAYER, scope=Scope(**scope))


def test_a2_models_of_a_key() -> None:
    for models, status in ((("m",), 200), (("m*",), 200), (("*",), 200), (("other", "x*"), 403), (("m2",), 403)):
        rig, _ = paid(GOOD, caller=scoped(models=models))
        got = rig.ask("chat")
        assert got.status == status, models
        if status == 403:
            assert (got.json["error"]["code"], got.json["error"]["param"]) == ("model_not_allowed", "model")


def test_a2_a_key_for_responses_may_compact_and_one_for_messages_may_not() -> None:
    """An agent compacts by itself in the middle of its work: a key that serves it must not fail there."""
    check_use(scoped(endpoints=("responses",)), "/v1/responses/compact", "127.0.0.1")
    with pytest.raises(KenariError) as caught:
        check_use(scoped(endpoints=("messages",)), "/v1/responses/compact", "127.0.0.1")
    assert caught.value.code == "not_allowed"


def test_a2_endpoints_and_networks_of_a_key() -> None:
    rig, _ = paid(GOOD, caller=scoped(endpoints=("messages",)))
    got = refusal(rig, "chat", 403, "not_allowed")
    assert "/v1/messages" in got.json["error"]["message"]
    rig, _ = paid(GOOD, caller=scoped(endpoints=("messages",)))
    assert rig.ask("messages").status == 200
    for network, status in (("127.0.0.0/8", 200), ("10.0.0.0/8", 403), ("::1/128", 403)):
        rig, _ = paid(GOOD, caller=scoped(networks=(ipaddress.ip_network(network),)))
        assert rig.ask("chat").status == status


def test_a2_scopes_hold_for_counting_too() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    for scope, status in ((scoped(models=("x",)), 403), (scoped(endpoints=("messages",)), 403), (PAYER, 200)):
        rig, books = paid(GOOD, caller=scope)
        assert rig.post("/v1/messages/count_tokens", body).status == status
        assert books.lines == []  # M4: it costs nothing


def test_models_for_subscribers_want_a_plan() -> None:
    rig, _ = paid(GOOD, access="subscribers")
    got = refusal(rig, "responses", 403, "subscribers_only")
    assert got.json["error"]["type"] == "permission_error"
    rig, _ = paid(GOOD, access="subscribers", caller=msgspec.structs.replace(PAYER, plan="pro"))
    assert rig.ask("chat").status == 200
    rig, _ = paid(GOOD, access="subscribers", caller=OPERATOR)
    assert rig.ask("chat").status == 200


def test_d25_a_client_in_a_loop_is_slowed_on_its_own_key() -> None:
    rig, books = paid([GOOD] * 30)
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()

    async def run(keys: Any) -> list[int]:
        rig.keys = keys
        door = rig.build()
        found: list[int] = []
        for _ in range(22):
            exchange = Exchange(PATHS["chat"], body)
            await door.serve(exchange)
            found.append(exchange.status)
        return found

    assert virtual_time.run(run(rig.keys)) == [200] * 20 + [429] * 2
    rig.upstream.scripts["p1"] = [GOOD] * 30
    assert virtual_time.run(run(BootstrapKeys({KEY: OPERATOR}))) == [200] * 22
    assert isinstance(books, PaidBooks)
