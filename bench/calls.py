"""Counts what a request costs kenari itself: Python calls, and user-space CPU without sockets or system calls.

    python bench/calls.py [--profile] [--callgrind]

The whole of kenari stands between two transports in memory, so that the figures are the same on a busy machine as on an
idle one: calls are exact, microseconds the least of many rounds. The kernel's share, which is most of a byte proxy's, is
not in them: see run.py.
"""

import argparse
import asyncio
import cProfile
import gc
import io
import json
import os
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvloop
from provider import BURST_ONE, CHUNK, END, PLAIN_ANSWER, ROLE, SSE_HEAD, chunked

from kenari import app
from kenari.config import load_config
from kenari.upstream.connection import Connection as Outbound

KEY = "kn-bench"
EVENTS = 200


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


def request(path: str, model: str, stream: bool, size: int = 0) -> bytes:
    """One POST with the heads that an SDK sends."""
    text = "Tell me something short about the sea." + " and more" * (size // 9)
    words: dict[str, Any] = {"model": model, "stream": stream}
    words |= {"input": text} if path == "/v1/responses" else {"messages": [{"role": "user", "content": text}]}
    body = json.dumps(words).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


class Rig:
    """kenari between two wires. `pieces` are what the provider sends, one read each."""

    def __init__(self, server: app.Server) -> None:
        self.edge = server._edge  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self.http = server._http  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self.answered = asyncio.Event()
        self.bytes = 0
        self.pieces: list[bytes] = []
        self.loop = asyncio.get_running_loop()
        self.out: Outbound | None = None
        self.client = self.edge()
        self.client.connection_made(Wire(self.heard))
        self.ready = False

    def heard(self, data: bytes) -> None:
        """The client reads."""
        self.bytes += len(data)

    def asked(self, data: bytes) -> None:
        """The provider reads."""
        self.loop.call_soon(self.reply)

    def reply(self) -> None:
        """The provider answers."""
        assert self.out
        for piece in self.pieces:
            self.out.data_received(piece)

    def connect(self) -> None:
        """Put an idle connection to the provider into the pool."""
        pool = self.http._pool  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        known = self.http._known  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        origin = next(iter(known.values()))[0]
        self.out = Outbound(pool, origin)
        self.out.connection_made(Wire(self.asked))
        pool.put(self.out)

    async def one(self, data: bytes) -> None:
        """One request and its answer."""
        self.client.data_received(data)
        while self.client.busy:
            await asyncio.sleep(0)


WORKLOADS: dict[str, tuple[bytes, list[bytes], int]] = {
    "plain": (request("/v1/chat/completions", "plain", False), [PLAIN_ANSWER], 1),
    "plain 0.5 MB": (request("/v1/chat/completions", "plain", False, 500_000), [PLAIN_ANSWER], 1),
    "plain messages->chat": (request("/v1/responses", "plain", False), [PLAIN_ANSWER], 1),
    "burst, per event": (request("/v1/chat/completions", "plain", True), [BURST_ONE], EVENTS),
    "burst translated, per event": (request("/v1/responses", "plain", True), [BURST_ONE], EVENTS),
    "paced, per event": (
        request("/v1/chat/completions", "plain", True),
        [SSE_HEAD + chunked(ROLE), *[chunked(CHUNK)] * EVENTS, chunked(END) + b"0\r\n\r\n"],
        EVENTS,
    ),
}


async def measure(options: argparse.Namespace) -> None:
    """All workloads."""
    with tempfile.TemporaryDirectory(prefix="kenari-calls-") as name:
        folder = Path(name)
        (folder / "kenari.toml").write_text(
            f'[store]\nurl = "sqlite:///{folder}/k.db"\n[providers.bench]\ndialect = "chat"\n'
            f'base_url = "http://127.0.0.1:1/v1"\napi_key = "sk-bench"\n[models.plain]\ntargets = ["bench/plain"]\n'
        )
        config = load_config(str(folder / "kenari.toml"), {"KENARI_BOOTSTRAP_KEY": KEY}, folder)
        server = app.Server(config)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)  # as the server does
        server._books._out = open(os.devnull, "w")  # noqa: SIM115, SLF001
        for label, (data, pieces, count) in WORKLOADS.items():
            if options.only and label not in options.only.split("|"):
                continue
            rig = Rig(server)
            rig.pieces = pieces
            origin_warm = asyncio.ensure_future(rig.one(data))  # the first call fails: nobody listens there
            await origin_warm
            rig.connect()
            await figures(rig, label, data, count, options)


async def figures(rig: Rig, label: str, data: bytes, count: int, options: argparse.Namespace) -> None:
    """Print the figures of one workload."""
    rounds = 1 if count > 1 or len(data) > 10_000 else 20
    for _ in range(options.exactly or 20):
        await rig.one(data)
    if options.exactly:
        return
    best = 1e9
    for _ in range(options.rounds):
        began = time.process_time()
        for _ in range(rounds):
            await rig.one(data)
        best = min(best, (time.process_time() - began) / rounds)
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" or event == "c_call":
            calls[event] += 1
            if event == "call":
                code = frame.f_code
                calls[f"{code.co_filename.rpartition('kenari/')[2]}:{code.co_qualname}"] += 1

    sys.setprofile(note)
    try:
        for _ in range(10):
            await rig.one(data)
    finally:
        sys.setprofile(None)
    python, c = calls.pop("call") / 10, calls.pop("c_call") / 10
    print(f"{label:32} {python / count:8.1f} python calls {c / count:8.1f} C calls {best / count * 1e6:10.2f} us")
    if options.profile:
        for place, times in calls.most_common(120):
            print(f"    {times / 10 / count:6.1f} {place}")
    if options.cprofile:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(500):
            await rig.one(data)
        profile.disable()
        out = io.StringIO()
        pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(60)
        print(out.getvalue())


def main() -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(description="calls and microseconds of kenari alone")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--cprofile", action="store_true")
    parser.add_argument("--exactly", type=int, default=0, help="only serve so many, for valgrind")
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
