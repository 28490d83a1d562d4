"""What a request leaves behind: nothing that has to wait for the collector, which runs rarely."""

import asyncio
import gc
import json
from collections import Counter
from typing import Any

import gateway_kit as kit
import pytest
import virtual_time

from kenari.core.errors import KenariError

REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
    "input": "hi",
}
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_request_leaves_no_cycles(client: str, stream: bool, at_once: bool) -> None:
    """Bodies, events and connections are freed as soon as their request has ended: large ones would pile up."""
    scripts: list[kit.Script | KenariError] = [kit.GOOD] * 4
    rig = kit.Rig(scripts)
    rig.books.at_once = at_once  # by callback, by a task
    body = json.dumps(REQUEST | {"stream": stream}).encode()

    async def run() -> Counter[str]:
        door = rig.build()
        await ask(door)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await ask(door)
            gc.collect()
            return Counter(type(one).__name__ for one in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()

    async def ask(door: Any) -> None:
        exchange = kit.Exchange(PATHS[client], body, {b"authorization": f"Bearer {kit.KEY}".encode()})
        await kit.serve(door, exchange)
        assert exchange.status == 200
        await asyncio.sleep(0.03)

    left = virtual_time.run(run())
    ours = {
        "Attempt",
        "Run",
        "Direct",
        "Entry",
        "Gate",
        "StreamSink",
        "PlainSink",
        "Request",
        "Answer",
        "Line",
        "Exchange",
    }
    assert ours.isdisjoint(left), left


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [None, KenariError("upstream_error", "gone", elsewhere=True)])
def test_an_attempt_whose_end_comes_late_is_forgotten(at_once: bool, error: KenariError | None) -> None:
    """The last word of a stream and the end of its bytes often come apart: between them the request is answered, and
    after the end nothing of it stays with the ticker, not even until it ticks."""
    rig = kit.Rig(kit.Script([(0, kit.ROLE + kit.chunk({"content": "x"}) + kit.STOP + kit.DONE), (0.05, error)]))
    rig.books.at_once = at_once

    async def run() -> tuple[int, int]:
        door = rig.build()
        ticker = door._gateway._services.ticker  # pyright: ignore[reportPrivateUsage]
        ticker.interval = 60
        body = json.dumps(REQUEST | {"stream": True}).encode()
        await kit.serve(door, kit.Exchange(PATHS["chat"], body))
        waits = len(ticker._items)  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(0.2)
        return waits, len(ticker._items)  # pyright: ignore[reportPrivateUsage]

    assert virtual_time.run(run()) == (1, 0)
