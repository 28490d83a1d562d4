"""`count_tokens` is a request for the limits of requests, and for nothing else (A4, M4)."""

import json
from typing import Any

from gateway_kit import GOOD, Rig
from money_kit import PAYER, paid

from kenari.core.caller import Rates
from kenari.core.errors import KenariError
from kenari.core.ports import Admission
from kenari.keys.memory import MemoryLimits

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 50}]}).encode()
COUNT = "/v1/messages/count_tokens"


class Kept:
    """The same limits for every door of a rig."""

    local = True

    def __init__(self) -> None:
        self.inner = MemoryLimits(lambda: 0.0)
        self.admitted = 0

    async def admit(self, *asked: Any) -> Admission:
        self.admitted += 1
        return await self.inner.admit(*asked)

    def release(self, admission: Admission, tokens: int) -> None:
        self.inner.release(admission, tokens)


def limited(**rates: int) -> tuple[Rig, Any, Kept]:
    caller = type(PAYER)(account="acc", key="key_1", rates=Rates(**rates))
    rig, books = paid([GOOD, GOOD, GOOD], caller=caller)
    rig.more["limits"] = limits = Kept()
    return rig, books, limits


def test_a4_counting_is_one_of_the_requests_of_a_minute() -> None:
    rig, books, limits = limited(rpm=3)
    first = rig.post(COUNT, BODY)
    assert (first.status, first.header["x-ratelimit-remaining-requests"]) == (200, "2")
    assert first.header["anthropic-ratelimit-requests-remaining"] == "2"
    assert rig.ask("chat").header_lines["x-ratelimit-remaining-requests"] == "1"
    assert rig.post(COUNT, BODY).status == 200
    over = rig.post(COUNT, BODY)
    assert (over.status, over.json["error"]["type"]) == (429, "rate_limit_error")
    assert int(over.header["retry-after"]) >= 1
    assert over.header["x-ratelimit-remaining-requests"] == "0"
    assert rig.ask("messages").status == 429
    assert [line.ending for line in books.lines] == ["done", "refused"]  # M4: counting leaves no line
    assert limits.inner.in_flight == 0


def test_m4_counting_uses_no_tokens_and_no_place() -> None:
    rig, _, limits = limited(tpm=5, concurrent=1)
    assert [rig.post(COUNT, BODY).status for _ in range(30)] == [200] * 30  # no loop (D25) either
    assert limits.admitted == 0  # there is nothing to count


def test_a_count_that_cannot_be_admitted_says_so() -> None:
    rig, _, limits = limited(rpm=1)

    async def refuse(*asked: Any) -> Admission:
        raise KenariError("upstream_unavailable", "kenari cannot admit requests at this moment", retry_after=1.0)

    limits.admit = refuse  # type: ignore[method-assign]
    assert rig.post(COUNT, BODY).status == 503


def test_the_accounts_limit_counts_too() -> None:
    caller = type(PAYER)(account="acc", key="key_1", account_rates=Rates(rpm=1))
    rig, _ = paid([GOOD], caller=caller)
    rig.more["limits"] = Kept()
    assert [rig.post(COUNT, BODY).status for _ in range(2)] == [200, 429]
