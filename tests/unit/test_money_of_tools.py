"""Where money meets rounds, fees and own keys: what is set aside, where an answer ends, who pays for what was not shown."""

import json
from typing import Any

import msgspec
import pytest
from gateway_kit import DONE, KEY, ROLE, Rig, Script, chunk, error, plain
from money_kit import FREE, PAYER, PaidBooks, pricing_of, told
from money_kit import PRICE as MODEL_PRICE
from test_byok import SECRET, byok_rig
from test_server_tools import PRICE, SEARCH, USAGE, Backend, ask, call, calling, deltas_of, rig, saying

from kenari.core.price import Price
from kenari.core.search import Hit
from kenari.documents.limits import Reading
from kenari.gateway.media import Media, MediaLimits
from kenari.keys.bootstrap import BootstrapKeys


def paying(made: Rig, balance: int = 10**12, price: Price = MODEL_PRICE) -> PaidBooks:
    """The rig's key belongs to a caller that pays."""
    books = PaidBooks(balance)
    made.books = books
    made.keys = BootstrapKeys({KEY: msgspec.structs.replace(PAYER, account="operator")})
    made.more = {"pricing": pricing_of(price)}
    return books


def test_f8_each_round_of_a_covered_request_has_the_whole_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prompt is paid again in each round; that must not end the answer of a caller whose balance covers it."""
    monkeypatch.setitem(USAGE, "prompt_tokens", 1000)
    words = [f"word{at} " for at in range(12)]
    made = rig(calling(call()), saying(*words))
    books = paying(made)
    got = made.ask(
        "chat", stream=True, tools=SEARCH, max_tokens=50, messages=[{"role": "user", "content": "word " * 1000}]
    )
    assert "".join(deltas_of("chat", got.data)) == "".join(words)
    assert books.lines[0].ending == "done"


def test_u5_what_a_tool_cost_is_noted_as_soon_as_it_ran() -> None:
    """A crash after the search is billed the search too."""
    made = rig(calling(call()), saying("ok"))
    books = paying(made)
    ask(made, "chat")
    assert books.noted == [15, 15 + PRICE, 30 + PRICE]


@pytest.mark.parametrize("price", [FREE, MODEL_PRICE])
def test_s163_a_tool_with_a_price_wants_a_balance_that_covers_it(price: Price) -> None:
    made = rig(calling(call()), saying("ok"))
    books = paying(made, PRICE - 1, price)
    got = ask(made, "chat")
    assert (got.status, got.json["error"]["code"]) == (402, "insufficient_balance")
    assert (books.balance, made.upstream.requests) == (PRICE - 1, [])
    made = rig(calling(call()), saying("ok"))
    books = paying(made, 2 * PRICE, price)
    assert ask(made, "chat", max_tokens=50).status == 200
    assert books.reservations[0].amount >= PRICE
    assert books.balance == 2 * PRICE - books.lines[0].charge


@pytest.mark.parametrize("kind", ["chat", "embedding"])
def test_s163_the_fee_of_an_own_key_wants_a_balance_that_covers_it(kind: str) -> None:
    reply: dict[str, Any] = {"data": [1], "usage": {"prompt_tokens": 3}}

    def asked(balance: int) -> tuple[int, int]:
        made = byok_rig(plain(reply) if kind == "embedding" else saying("ok"), fee=7, p1=SECRET)
        books = paying(made, balance, FREE)
        if kind == "chat":
            got = made.ask("chat", model="byok/p1/some-model", stream=True)
        else:
            got = made.post("/v1/embeddings", json.dumps({"model": "byok/p1/some-model", "input": "hi"}).encode())
        return got.status, books.balance

    assert asked(6) == (402, 6)
    assert asked(7) == (200, 0)


def test_u7_the_fee_of_an_own_key_is_for_the_request_not_for_each_round() -> None:
    made = rig(calling(call()), saying("ok"))
    made.own = byok_rig(fee=7, p1=SECRET).own
    books = paying(made, price=FREE)
    assert ask(made, "chat", model="byok/p1/some-model").status == 200
    line = books.lines[0]
    assert [(leg.target, leg.fee) for leg in line.legs] == [
        ("p1/some-model", 7),
        ("kenari:web_search", PRICE),
        ("p1/some-model", 0),
    ]
    assert line.charge == 7 + PRICE


@pytest.mark.parametrize("stream", [True, False])
def test_u5_l7_rounds_of_a_candidate_that_failed_unseen_are_nobodys_bill(stream: bool) -> None:
    """The client is told what is billed: the rounds of the candidate that answered."""
    made = rig(calling(call()), error(503))
    made.upstream.scripts["p2"] = [calling(call()), saying("from the second")]
    books = paying(made)
    got = ask(made, "chat", stream)
    line = books.lines[0]
    assert [(leg.target.partition("/")[0], leg.billed, leg.fee) for leg in line.legs] == [
        ("p1", False, 0),
        ("kenari:web_search", False, 0),
        ("p1", False, 0),
        ("p2", True, 0),
        ("kenari:web_search", True, PRICE),
        ("p2", True, 0),
    ]
    assert told("chat", got) == (line.usage.prompt, line.usage.output) == (18, 6)
    assert line.charge == 10**12 - books.balance == 30 + PRICE
    made = rig(calling(call()), error(503))
    made.upstream.scripts["p2"] = [error(503)]
    books = paying(made)
    assert ask(made, "chat", stream).status == 503
    assert (books.lines[0].charge, books.balance) == (0, 10**12)


@pytest.mark.parametrize("vocabulary", [True, False])
def test_u3_a_round_whose_provider_does_not_count_is_counted_with_what_the_tools_said(vocabulary: bool) -> None:
    """The second call carries the results: it is estimated as it was sent."""
    silent = Script([(0, ROLE), (0, chunk({"content": "ok"})), (0, chunk({}, "stop") + DONE), (0, None)])
    long = [Hit("https://a.example/", "t", "word " * 400)]
    made = rig(calling(call()), silent, backend=Backend(long))
    if vocabulary:
        made.services["counter"] = Letters()
    paying(made)
    ask(made, "chat")
    first, second = (leg.usage for leg in made.books.lines[0].legs if leg.usage.total)
    assert (first.fresh, second.estimated) == (9, True)
    assert (second.fresh or 0) > 300


class Letters:
    """A vocabulary of letters."""

    def encoding(self, model: str) -> str:
        """Its name, for every model."""
        return "letters"

    def count(self, encoding: str, text: str) -> int:
        """One token for each."""
        return len(text)


class Unpacking:
    """A reader of files that are much longer than they look."""

    def __init__(self, words: int) -> None:
        self._words = words

    async def read(self, data: bytes, name: str = "", media_type: str = "") -> Reading:
        """A text."""
        return Reading(text="word " * self._words)


@pytest.mark.parametrize(("balance", "status"), [(2_000, 402), (10**9, 200)])
def test_f8_a_small_file_with_a_long_text_is_paid_before_the_provider_is_called(balance: int, status: int) -> None:
    """What a document holds is known when it is read; a balance that does not cover it calls no provider."""
    made = Rig(saying("ok"))
    books = paying(made, balance)
    made.services["media"] = Media(NoFetch(), Unpacking(5000), MediaLimits())
    file = {"filename": "a.docx", "file_data": f"data:{DOCX};base64,UEsDBBQAAAA="}
    content: list[Any] = [{"type": "file", "file": file}, {"type": "text", "text": "hi"}]
    got = made.ask("chat", max_tokens=300, messages=[{"role": "user", "content": content}])
    assert got.status == status, got.out
    assert len(made.upstream.requests) == (status == 200)
    assert books.balance == balance - books.lines[0].charge
    assert (books.lines[0].charge > 0) == (status == 200)


DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


class NoFetch:
    """Fetches nothing."""

    async def fetch(self, wanted: Any) -> Any:
        """Never asked."""
        raise AssertionError(wanted)
