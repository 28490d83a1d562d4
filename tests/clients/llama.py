"""A real llama.cpp server with a small model, started as `kenari serve --demo` starts it, for tests that are synchronous."""

import asyncio
import os
import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from real_model import skip_or_fail, skip_where_it_cannot_run

from kenari.demo.place import demo_folder, find_installed
from kenari.demo.server import DemoModel, start_demo

ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS = 280.0
LAUNCHED = re.compile(rb"slot launch_slot_: id +\d+ \| task \d+ \| processing task")
RELEASED = re.compile(rb"slot +release: id +\d+ \| task \d+ \| stop processing: n_tokens = (\d+)")


def demo_data() -> Path:
    """Where the 127 MB of model and server are kept from run to run."""
    kept = os.environ.get("KENARI_TEST_CACHE")
    return Path(kept) if kept else ROOT / ".cache" / "demo"


class LlamaServer:
    """The running server: `base_url` ends in /v1, `model` is the name that it knows the model by."""

    def __init__(self, data: Path, model: DemoModel) -> None:
        self.base_url = model.base_url
        self.model = model.model_name
        self._log = demo_folder(data) / "llama-server.log"

    def mark(self) -> int:
        """The present end of the server's log."""
        return self._log.stat().st_size

    def launched(self, mark: int, patience: float) -> bool:
        """Whether a slot took work up after `mark`, or does within `patience` seconds."""
        return self._wait_for(LAUNCHED, mark, patience) is not None

    def released(self, mark: int, patience: float) -> int | None:
        """Tokens in the slot that was freed first after `mark`; None when none is within `patience` seconds."""
        found = self._wait_for(RELEASED, mark, patience)
        return None if found is None else int(found.group(1))

    def _wait_for(self, pattern: re.Pattern[bytes], mark: int, patience: float) -> re.Match[bytes] | None:
        until = time.monotonic() + patience
        while True:
            with self._log.open("rb") as log:
                log.seek(mark)
                found = pattern.search(log.read())
            if found is not None or time.monotonic() > until:
                return found
            time.sleep(0.02)


@contextmanager
def llama_server() -> Generator[LlamaServer]:
    """The server for as long as the block lasts; it is installed when it is not here yet. Skips where it cannot run.

    Its loop runs in a thread that lives as long as it does, since the server ends with the thread that started it.
    """
    skip_where_it_cannot_run()
    data = demo_data()
    data.mkdir(parents=True, exist_ok=True)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="llama-server", daemon=True)
    thread.start()
    try:
        started = asyncio.run_coroutine_threadsafe(start_demo(print, data), loop).result(INSTALL_SECONDS)
        if isinstance(started, str):
            skip_or_fail(started)
        assert find_installed(data) is not None
        try:
            yield LlamaServer(data, started)
        finally:
            asyncio.run_coroutine_threadsafe(started.stop(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
