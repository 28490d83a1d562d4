"""A fast scripted provider for the measurements: a raw uvloop protocol that speaks chat completions.

The model's name says what it does: `plain` (one JSON answer, or a short stream), `burst` (200 events at once), `paced` (one event each 20 ms),
`silent` (a head, one event, then nothing), `first5` (after 5 ms the head, the role and the first piece of text, then 20 pieces, one each
ms), `flood` (events as fast as the reader takes them, 64 MB).
`GET /arrived` tells when requests came since it was asked last (`time.perf_counter`, one clock for all processes of a Linux machine).
`GET /closed` tells how many calls were broken off by the peer and when (monotonic seconds), one per line.

    python bench/provider.py PORT
"""

import asyncio
import re
import sys
import time
from itertools import cycle, islice
from typing import cast

import uvloop

TEXTS = (
    b"some words of it ",
    b"and a quick fox. ",
    b"\\n\\nThen it went on",
    b" over the old dog",
    b" to a caf\xc3\xa9 nearby",
    b" where nobody ate",
    b', \\"quoted words\\"',
    b" and the others, ",
    b"most of them long",
    b" enough for this.",
    b"\\n- an item of it: ",
    b"which is no more ",
    b"than a few words ",
    b"in a list \xe2\x80\x94 so, ",
    b"as they come here",
    b", one by one, end",
)
"""Pieces of an answer as they stand in its JSON: of the sixteen, five have escapes or characters beyond ASCII."""


def chunk_of(delta: bytes) -> bytes:
    """The frame of a delta."""
    return (
        b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1790000000,"model":"bench",'
        b'"system_fingerprint":"fp_1","choices":[{"index":0,"delta":{%b},"logprobs":null,"finish_reason":null}]}\n\n'
    ) % delta


CHUNKS = [chunk_of(b'"content":"%b"' % text) for text in TEXTS]
ROLE = chunk_of(b'"role":"assistant","content":""')
END = (
    chunk_of(b"").replace(b'"finish_reason":null', b'"finish_reason":"stop"')
    + b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1790000000,"model":"bench","choices":[],'
    b'"usage":{"prompt_tokens":20,"completion_tokens":200,"total_tokens":220}}\n\ndata: [DONE]\n\n'
)
PLAIN = (
    b'{"id":"chatcmpl-bench","object":"chat.completion","created":1790000000,"model":"bench","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"%b"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":20,"completion_tokens":64,"total_tokens":84},"system_fingerprint":"fp_1"}'
) % b"".join(TEXTS)
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PLAIN_ANSWER = JSON_HEAD % len(PLAIN) + PLAIN
PACED_EVENTS = 150
FIRST_EVENTS = 21
BURST_EVENTS = 200
FLOOD_BYTES = 64 * 1024 * 1024
_LENGTH = re.compile(rb"content-length: *(\d+)", re.I)
_MODEL = re.compile(rb'"model": *"([a-z0-9]+)"')


def chunked(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def events(many: int) -> list[bytes]:
    """So many pieces, in turn."""
    return list(islice(cycle(CHUNKS), many))


LAST = chunked(END) + b"0\r\n\r\n"
BURST_ONE = SSE_HEAD + chunked(ROLE + b"".join(events(BURST_EVENTS)) + END) + b"0\r\n\r\n"
PACED = [SSE_HEAD + chunked(ROLE + CHUNKS[0]), *map(chunked, events(PACED_EVENTS)[1:])]
FIRST = [SSE_HEAD + chunked(ROLE + CHUNKS[0]), *map(chunked, events(FIRST_EVENTS)[1:])]
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
            now = asyncio.get_running_loop().time()
            self.handle = asyncio.get_running_loop().call_at(now + 0.005, self.pace, FIRST, 0.001, now + 0.005, 0)
        else:
            self.busy = True
            if model == b"paced":
                self.pace(PACED, 0.02, asyncio.get_running_loop().time(), 0)
                return
            self.transport.write(PACED[0])
            if model == b"flood":
                self.flood(0)

    def pace(self, pieces: list[bytes], each: float, start: float, sent: int) -> None:
        """One piece each so many seconds, the first of them at `start` in the loop's time."""
        if self.transport is None:
            return
        if sent == len(pieces):
            self.busy = False
            self.transport.write(LAST)
            return
        self.transport.write(pieces[sent])
        loop = asyncio.get_running_loop()
        self.handle = loop.call_at(start + each * (sent + 1), self.pace, pieces, each, start, sent + 1)

    def flood(self, sent: int) -> None:
        """Events as fast as the peer takes them."""
        if self.transport is None or sent >= FLOOD_BYTES:
            return
        if not self.paused:
            block = chunked(b"".join(events(96)))
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
