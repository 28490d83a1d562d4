"""The demo as a newcomer meets it: the real wheels, the real server, an answer, and nothing left behind."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kenari.demo.place import find_installed, this_machine, unsupported
from kenari.demo.server import MODEL_NAME, start_demo


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where the 161 MB go: `KENARI_TEST_CACHE` keeps them for the next run."""
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
@pytest.mark.skipif(unsupported(this_machine()) is not None, reason="the server binary does not run here")
def test_the_real_model_answers_and_is_gone_after_stop(cache: Path) -> None:
    async def work() -> None:
        model = await start_demo(print, cache)
        assert not isinstance(model, str), model
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
