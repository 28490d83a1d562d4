"""Idempotency-Key in the store (F14): once over nodes too, whoever asks."""

import asyncio
from collections.abc import Callable

from store_kit import differences, opened, wanted

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Repeat

OPERATOR = Caller(account="operator", key="bootstrap", unlimited=True)


def test_f14_two_nodes_admit_a_key_of_a_caller_without_limits_once(new_postgres: Callable[[], str]) -> None:
    """Such a caller has no account whose row would be locked."""
    url = new_postgres()

    async def run() -> None:
        async with opened(url, node="one") as one, opened(url, node="two") as two:
            for turn in range(40):
                repeat = Repeat(b"key %d" % turn, b"body")
                asked = [node.reserve(wanted(OPERATOR, repeat=repeat), "n") for node in (one, two)]
                outcomes = await asyncio.gather(*asked, return_exceptions=True)
                granted = [outcome for outcome in outcomes if isinstance(outcome, Hold)]
                refused = [outcome for outcome in outcomes if isinstance(outcome, KenariError)]
                assert (len(granted), [error.code for error in refused]) == (1, ["idempotency_conflict"])
                assert granted[0].id in refused[0].message
                await one.release(granted[0].id, "operator", True)
        assert differences(url) == []

    asyncio.run(run())
