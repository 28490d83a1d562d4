"""The Open Responses project's own acceptance suite, where its sources lie beside (CONTRIBUTING says how)."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway import KEY, Gateway, config_text, running_gateway
from rig import DIALECTS, WEATHER
from upstream import Play, ScriptedProvider, Seen

SUITE = os.environ.get("KENARI_TEST_OPEN_RESPONSES", "")
TESTS = 17
MODEL = "willing"


class WillingModel(ScriptedProvider):
    """A model that calls the function which it is offered, and says a few words otherwise."""

    def play_of(self, seen: Seen) -> Play:
        if seen.body.get("tools"):
            return Play(calls=WEATHER[:1], finish="tool_calls")
        return Play(reasoning=("A greeting.",), text=("Hello ", "there."))


@pytest.fixture(scope="module", params=DIALECTS)
def gateway(request: pytest.FixtureRequest) -> Iterator[Gateway]:
    """kenari before this model, in each of the formats."""
    model = WillingModel({})
    model.start()
    provider: dict[str, Any] = {"dialect": request.param, "base_url": model.base_url(request.param), "api_key": "sk-up"}
    try:
        entry = {"targets": [f"up/{MODEL}"], "vision": True, "reasoning": True}
        with running_gateway(config_text({"up": provider}, {MODEL: entry})) as running:
            yield running
    finally:
        model.stop()


@pytest.mark.skipif(not SUITE, reason="KENARI_TEST_OPEN_RESPONSES names no folder with the suite")
def test_the_acceptance_suite_passes_whole(gateway: Gateway, tmp_path: Path) -> None:
    """D24, S104, D14: all of it, over HTTP and over a WebSocket."""
    socket = tmp_path / "socket.mjs"
    module = Path(SUITE) / "node_modules" / "ws" / "wrapper.mjs"
    socket.write_text(f'import {{ WebSocket }} from "{module}";\nglobalThis.WebSocket = WebSocket;\n')
    words = ["--import", "tsx", "--import", str(socket), "bin/compliance-test.ts", "--json"]
    where = ["--base-url", f"{gateway.url}/v1", "--api-key", KEY, "--model", MODEL]
    node = os.environ.get("KENARI_TEST_NODE", "node")
    done = subprocess.run([node, *words, *where], cwd=SUITE, capture_output=True, text=True, check=False, timeout=120)
    report = json.loads(done.stdout[done.stdout.index("{") :])
    failed = [one for one in report["results"] if one["status"] != "passed"]
    assert not failed, json.dumps(failed, indent=1)[:4000]
    assert report["summary"]["passed"] == TESTS
    assert done.returncode == 0
