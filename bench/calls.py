"""Counts what a request costs kenari itself: Python calls, and user-space CPU without sockets or system calls.

    python bench/calls.py [--only plain] [--profile] [--exactly 10000]

The whole of kenari stands between two transports in memory, so that calls are the same on a busy machine as on an idle
one. Microseconds are the least of many short rounds, and still depend on the neighbours. The kernel's share, which is
most of a byte proxy's, is not in them: see run.py.
"""

import argparse
import asyncio
import gc
import io
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import uvloop
from provider import BURST_EVENTS, BURST_ONE, LAST, PLAIN_ANSWER, ROLE, SSE_HEAD, chunked, events

from kenari import app
from kenari.config import load_config
from kenari.keep import Keep
from kenari.keeper.books import LogBooks
from kenari.upstream.connection import Connection as Outbound

# pyright: reportPrivateUsage=false

KEY = "kn-bench"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


def request(path: str, stream: bool, size: int = 0) -> bytes:
    """One POST."""
    text = "Tell me something short about the sea." + " and more" * (size // 9)
    words: dict[str, Any] = {"model": "plain", "stream": stream}
    words |= {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}
    body = json.dumps(words).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


PACED = [SSE_HEAD + chunked(ROLE), *map(chunked, events(BURST_EVENTS)), LAST]
WORKLOADS: dict[str, tuple[bytes, list[bytes], int]] = {
    "plain": (request(CHAT, False), [PLAIN_ANSWER], 1),
    "plain 0.5 MB": (request(CHAT, False, 500_000), [PLAIN_ANSWER], 1),
    "plain translated": (request(RESPONSES, False), [PLAIN_ANSWER], 1),
    "burst": (request(CHAT, True), [BURST_ONE], BURST_EVENTS),
    "burst translated": (request(RESPONSES, True), [BURST_ONE], BURST_EVENTS),
    "paced": (request(CHAT, True), PACED, BURST_EVENTS),
    "paced translated": (request(RESPONSES, True), PACED, BURST_EVENTS),
}
"""A request, what the provider answers (one read each), and by how many things the figures are divided."""


class Wire(asyncio.Transport):
    """A transport in memory: what is written to it is given to `sink`."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        super().__init__()
        self._sink = sink

    def write(self, data: Any) -> None:
        """Hand it over at once."""
        self._sink(data)

    def is_closing(self) -> bool:
        """Never."""
        return False

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A client's address."""
        return ("127.0.0.1", 1) if name == "peername" else default


class Rig:
    """kenari between two wires. `pieces` are what the provider sends."""

    def __init__(self, server: app.Server, pieces: list[bytes]) -> None:
        self.http = server._http
        self.pieces = pieces
        self.loop = asyncio.get_running_loop()
        self.out: Outbound | None = None
        self.bytes = 0
        self.client = server._edge()
        self.client.connection_made(Wire(self.heard))

    def heard(self, data: bytes) -> None:
        """The client reads."""
        self.bytes += len(data)

    def asked(self, data: bytes) -> None:
        """The provider reads a request, and answers soon."""
        self.loop.call_soon(self.reply)

    def reply(self) -> None:
        """The provider answers."""
        assert self.out
        for piece in self.pieces:
            self.out.data_received(piece)

    async def connect(self, data: bytes) -> None:
        """Put an idle connection to the provider into the pool; a first request, which fails, makes its address known."""
        await self.one(data)
        origin = next(iter(self.http._known.values())).origin
        self.out = Outbound(self.http._pool, origin)
        self.out.connection_made(Wire(self.asked))
        self.http._pool.put(self.out)

    async def one(self, data: bytes) -> None:
        """One request and its answer."""
        self.client.data_received(data)
        while self.client.busy:  # noqa: ASYNC110 - turn by turn of the loop
            await asyncio.sleep(0)


async def least(rig: Rig, data: bytes, rounds: int, each: int) -> float:
    """The least CPU seconds of a request."""
    best = 1e9
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(each):
            await rig.one(data)
        best = min(best, (time.process_time() - began) / each)
    return best


async def counted(rig: Rig, data: bytes) -> Counter[str]:
    """How often each Python function was called in ten requests; "C" for all that are written in C."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            calls["C"] += 1
        elif event == "call":
            code = frame.f_code
            calls[f"{code.co_filename.rpartition('kenari/')[2]}:{code.co_qualname}"] += 1

    sys.setprofile(note)
    try:
        for _ in range(10):
            await rig.one(data)
    finally:
        sys.setprofile(None)
    return calls


async def measure(options: argparse.Namespace) -> None:
    """All workloads."""
    with tempfile.TemporaryDirectory(prefix="kenari-calls-") as name:
        folder = Path(name)
        file = folder / "kenari.toml"
        file.write_text(
            '[store]\nurl = "none:"\n[providers.bench]\ndialect = "chat"\n'
            'base_url = "http://127.0.0.1:1/v1"\napi_key = "sk-bench"\n[models.plain]\ntargets = ["bench/plain"]\n'
        )
        config = load_config(str(file), {"KENARI_BOOTSTRAP_KEY": KEY, "KENARI_SECRET": "bench"}, folder)
        books = LogBooks(config.server.log, time.time, asyncio.get_running_loop().call_later, io.StringIO())
        kept = msgspec.structs.replace(Keep(config).kept, books=books)
        server = app.Server(config, kept)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)  # as the server does
        for label, (data, pieces, count) in WORKLOADS.items():
            if options.only and label not in options.only.split(","):
                continue
            rig = Rig(server, pieces)
            await rig.connect(data)
            for _ in range(options.exactly or 20):
                await rig.one(data)
            if options.exactly:
                continue
            best = await least(rig, data, options.rounds, 1 if count > 1 or len(data) > 10_000 else 20)
            books.flush()
            calls = await counted(rig, data)
            c, python = calls.pop("C") / 10 / count, calls.total() / 10 / count
            print(f"{label:20} {python:8.1f} Python calls {c:8.1f} C calls {best / count * 1e6:10.2f} us")
            if options.profile:
                for place, times in calls.most_common(150):
                    print(f"    {times / 10 / count:8.2f} {place}")


def main() -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(description="calls and microseconds of kenari alone")
    parser.add_argument("--only", default="", help="workloads, by commas")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--profile", action="store_true", help="list the functions that were called")
    parser.add_argument("--exactly", type=int, default=0, help="only serve so many requests, for valgrind or perf")
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
