"""A fast scripted provider for the measurements: a raw uvloop protocol that speaks chat completions.

The model's name says what it does: `plain` (one JSON answer, or a short stream), `burst` (200 events at once), `paced` (one event each 20 ms),
`silent` (a head, one event, then nothing), `first5` (first event after 5 ms), `flood` (events as fast as the reader takes them, 64 MB).
`GET /arrived` tells when requests came since it was asked last (`time.perf_counter`, one clock for all processes of a Linux machine).
`GET /closed` tells how many calls were broken off by the peer and when (monotonic seconds), one per line.

    python bench/provider.py PORT
"""

import asyncio
import re
import sys
import time
from typing import cast

import uvloop

CHUNK = (
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1790000000,"model":"bench",'
    b'"system_fingerprint":"fp_1","choices":[{"index":0,"delta":{"content":"some words of it "},"logprobs":null,"finish_reason":null}]}\n\n'
)
ROLE = CHUNK.replace(b'{"content":"some words of it "}', b'{"role":"assistant","content":""}')
END = (
    CHUNK.replace(b'{"content":"some words of it "}', b"{}").replace(b'"finish_reason":null', b'"finish_reason":"stop"')
    + b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1790000000,"model":"bench","choices":[],'
    b'"usage":{"prompt_tokens":20,"completion_tokens":200,"total_tokens":220}}\n\ndata: [DONE]\n\n'
)
PLAIN = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1790000000,"model":"bench","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"'
    + b"some words of it "
    * 16
    + b'"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":20,"completion_tokens":64,"total_tokens":84},"system_fingerprint":"fp_1"}'
)
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PLAIN_ANSWER = JSON_HEAD % len(PLAIN) + PLAIN
PACED_EVENTS = 150
BURST_EVENTS = 200
FLOOD_BYTES = 64 * 1024 * 1024
_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_MODEL = re.compile(rb'"model": *"([a-z0-9]+)"')


def chunked(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


BURST = SSE_HEAD + chunked(ROLE) + b"".join(chunked(CHUNK) for _ in range(BURST_EVENTS)) + chunked(END) + b"0\r\n\r\n"
BURST_ONE = SSE_HEAD + chunked(ROLE + CHUNK * BURST_EVENTS + END) + b"0\r\n\r\n"
closed: list[float] = []
arrived: list[float] = []


class Provider(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.buffer: bytes = b""
        self.transport: asyncio.Transport | None = None
        self.busy = False
        self.paused = False
        self.handle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.handle:
            self.handle.cancel()
        if self.busy:
            closed.append(time.monotonic())
        self.transport = None

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(self.buffer, 0, head)
        end = head + 4 + (int(length.group(1)) if length else 0)
        if len(self.buffer) < end:
            return
        request, self.buffer = self.buffer[:end], self.buffer[end:]
        self.answer(request, head)

    def answer(self, request: bytes, head: int) -> None:
        """Do what the model's name says."""
        assert self.transport
        if request.startswith(b"GET /closed"):
            body = "\n".join(map(repr, closed)).encode()
            self.transport.write(JSON_HEAD % len(body) + body)
            return
        if request.startswith(b"GET /arrived"):
            body = "\n".join(map(repr, arrived)).encode()
            arrived.clear()
            self.transport.write(JSON_HEAD % len(body) + body)
            return
        arrived.append(time.perf_counter())
        found = _MODEL.search(request, head)
        model = found.group(1) if found else b"plain"
        if b'"stream":true' not in request and b'"stream": true' not in request:
            self.transport.write(PLAIN_ANSWER)
        elif model == b"burst":
            self.transport.write(BURST_ONE)
        elif model == b"first5":
            self.handle = asyncio.get_running_loop().call_later(0.005, self.transport.write, BURST_ONE)
        else:
            self.busy = True
            self.transport.write(SSE_HEAD + chunked(ROLE + CHUNK))
            if model == b"paced":
                self.pace(asyncio.get_running_loop().time(), 0)
            elif model == b"flood":
                self.flood(0)

    def pace(self, start: float, sent: int) -> None:
        """One event each 20 ms."""
        if self.transport is None:
            return
        if sent == PACED_EVENTS:
            self.busy = False
            self.transport.write(chunked(END) + b"0\r\n\r\n")
            return
        if sent:
            self.transport.write(chunked(CHUNK))
        loop = asyncio.get_running_loop()
        self.handle = loop.call_at(start + 0.02 * (sent + 1), self.pace, start, sent + 1)

    def flood(self, sent: int) -> None:
        """Events as fast as the peer takes them."""
        if self.transport is None or sent >= FLOOD_BYTES:
            return
        if not self.paused:
            block = chunked(CHUNK * 100)
            self.transport.write(block)
            sent += len(block)
        self.handle = asyncio.get_running_loop().call_later(0 if not self.paused else 0.01, self.flood, sent)


async def main(port: int) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Provider, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
