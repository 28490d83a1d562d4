"""A request with very many parts costs in proportion to them: nobody else's stream waits for one long list."""

import json
import time
from typing import Any

import pytest
from gateway_kit import Rig, Script

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
SECONDS = 5.0
"""Of a processor. Each of these takes a fraction of it, and took much more when it grew with the square."""


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def calls(count: int) -> list[dict[str, Any]]:
    """Many calls in one turn, answered in the opposite order."""
    made = [{"id": f"c{number}", **CALL} for number in range(count)]
    answers = [{"role": "tool", "tool_call_id": one["id"], "content": "r"} for one in reversed(made)]
    return [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": made}, *answers]


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


LARGE: dict[str, dict[str, Any]] = {
    "images": {"messages": user(*[IMAGE] * 15_000)},
    "empty texts": {"messages": user({"type": "text", "text": "x"}, *[{"type": "text", "text": ""}] * 15_000)},
    "calls": {"messages": calls(20_000)},
    "results of one id": {
        "messages": [*calls(1), *[{"role": "tool", "tool_call_id": "c0", "content": "r"} for _ in range(20_000)]]
    },
    "tools": {"tools": [tool(f"f{number}") for number in range(25_000)]},
    "tools of one name": {"tools": [tool("f") for _ in range(5_000)]},
    "tools that have to be renamed": {"tools": [tool("a.b") for _ in range(5_000)]},
}


@pytest.mark.parametrize("provider", ["chat", "messages", "responses"])
@pytest.mark.parametrize("large", LARGE)
def test_many_parts_cost_in_proportion(large: str, provider: str) -> None:
    made = Rig(Script([(0, b"{}"), (0, None)], status=404), dialect=provider)
    began = time.process_time()
    answer = made.ask("chat", stream=False, **LARGE[large])
    assert time.process_time() - began < SECONDS
    assert answer.status == 502
    sent = json.loads(made.upstream.requests[0].body)
    if "tools" in LARGE[large]:
        names = {one.get("name") or one["function"]["name"] for one in sent["tools"]}
        assert len(names) == len(LARGE[large]["tools"])
