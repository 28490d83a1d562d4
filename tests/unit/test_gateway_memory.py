"""What a request leaves behind: nothing that has to wait for the collector, which runs rarely."""

import asyncio
import gc
import json
from collections import Counter
from typing import Any

import gateway_kit as kit
import pytest

REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
    "input": "hi",
}
PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", PATHS)
def test_a_request_leaves_no_cycles(client: str, stream: bool) -> None:
    """Bodies, events and connections are freed as soon as their request has ended: large ones would pile up."""
    rig = kit.Rig([kit.GOOD] * 4)
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
        await door.serve(exchange)
        assert exchange.status == 200
        await asyncio.sleep(0.03)

    left = asyncio.run(run())
    ours = {"Attempt", "Run", "Gate", "StreamSink", "PlainSink", "Request", "Answer", "Line", "Exchange"}
    assert ours.isdisjoint(left), left
