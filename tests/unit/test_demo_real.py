"""The demo as a newcomer meets it: the real wheels, the real server, an answer, and nothing left behind."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from real_model import skip_or_fail, skip_where_it_cannot_run

from kenari.demo.place import find_installed
from kenari.demo.server import MODEL_NAME, start_demo


def test_only_another_processor_is_a_reason_to_leave_a_test_out() -> None:
    """Everything else stays a failure."""
    with pytest.raises(pytest.skip.Exception):
        skip_or_fail("the model's server cannot run on this processor; see the log")
    for reason in ("the model's server aborted; see the log", "the disk is full", "pip could not fetch it: see AMX"):
        with pytest.raises(AssertionError, match=reason[:10]):
            skip_or_fail(reason)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where the 127 MB go: `KENARI_TEST_CACHE` keeps them for the next run."""
    kept = os.environ.get("KENARI_TEST_CACHE")
    return Path(kept) if kept else tmp_path


def ask(base_url: str, **fields: Any) -> bytes:
    body = {"model": MODEL_NAME, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}], **fields}
    request = urllib.request.Request(
        base_url + "/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        data: bytes = answer.read()
        return data


@pytest.mark.real_upstream
def test_the_real_model_answers_and_is_gone_after_stop(cache: Path) -> None:
    skip_where_it_cannot_run()

    async def work() -> None:
        model = await start_demo(print, cache)
        if isinstance(model, str):
            skip_or_fail(model)
        assert find_installed(cache) is not None
        try:
            reply = json.loads(await asyncio.to_thread(ask, model.base_url))
            stream = await asyncio.to_thread(ask, model.base_url, stream=True)
        finally:
            await model.stop()
        assert reply["choices"][0]["message"]["content"]
        assert reply["usage"]["completion_tokens"] <= 8
        assert stream.rstrip().endswith(b"data: [DONE]")
        with pytest.raises(OSError, match="refused"):
            await asyncio.to_thread(ask, model.base_url)

    asyncio.run(work())
