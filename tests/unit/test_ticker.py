"""The one ticker that drives every time-out."""

import asyncio

import pytest
import virtual_time

from kenari.gateway.ticker import Ticker


class Item:
    """Counts; `breaks` makes it fail."""

    def __init__(self, breaks: bool) -> None:
        self.ticks, self._breaks = 0, breaks

    def tick(self, now: float) -> None:
        self.ticks += 1
        if self._breaks:
            raise RuntimeError("a secret")


def test_an_item_that_fails_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise no request of the process would have a time-out, or a keepalive, any more."""

    async def play() -> None:
        ticker = Ticker(asyncio.get_running_loop(), 0.1)
        items = [Item(number == 3) for number in range(8)]
        for item in items:
            ticker.add(item)
        await asyncio.sleep(0.55)
        ticker.close()
        assert sorted(item.ticks for item in items) == [1, 5, 5, 5, 5, 5, 5, 5]

    virtual_time.run(play())
    assert "RuntimeError" in caplog.text
    assert "a secret" not in caplog.text
