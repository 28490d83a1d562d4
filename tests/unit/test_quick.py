"""What goes from connection to connection is what the ordinary way gives (gateway/quick.py): both ends, without sockets."""

import asyncio
import contextlib
import itertools
import json
import operator
import re
import time
from collections.abc import Generator
from typing import Any, NamedTuple, cast
from unittest import mock

import gateway_kit as kit
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from money_kit import paid
from texts_kit import BROKEN, SPELLED, WHOLE, spelled

from kenari.core.events import Text
from kenari.core.ports import Line
from kenari.core.request import Request
from kenari.dialects.base import Speaker, Steady
from kenari.dialects.messages.decode import MessagesDecoder
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.gateway.quick import Quick
from kenari.gateway.tally import Count, Tally
from kenari.upstream.connection import Connection, HttpCall
from kenari.upstream.http import HttpUpstream
from kenari.upstream.origin import origin_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that keeps what is written, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 5) if name == "peername" else default


class Ends(HttpUpstream):
    """An outbound end with one idle connection to the provider `p1`."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: dict[str, Any] = {"p1": []}
        self.wire = Wire()
        self.connection = Connection(self._pool, origin_of("http://p1/v1"))
        self.connection.connection_made(self.wire)
        self._pool.put(self.connection)


class Both:
    """A gateway between a client's wire and a provider's, and the request of a stream on its way."""

    def __init__(self, rig: kit.Rig) -> None:
        self.rig, self.wire = rig, Wire()
        self.http = Ends()
        rig.upstream = cast("Any", self.http)
        door = rig.build()
        edge = Edge(door.serve, door.refuse, EdgeLimits())
        edge.begin = door.begin
        edge.new_id = lambda: "0123456789abcdef"
        self.client = edge()
        self.client.connection_made(self.wire)

    async def ask(self, client: str) -> None:
        """Send the request and wait until the provider has it."""
        said: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
        body = {"model": "m", "stream": True} | ({"input": "hi"} if client == "responses" else said)
        data = json.dumps(body).encode()
        head = b"POST %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\ncontent-length: %d\r\n\r\n"
        self.client.data_received(head % (kit.PATHS[client].encode(), kit.KEY.encode(), len(data)) + data)
        for _ in range(100):
            if self.http.wire.written:
                break
            await asyncio.sleep(0)
        assert self.http.wire.written, self.wire.written

    def read(self, data: bytes) -> None:
        """The provider sends bytes that come in one reading."""
        if not self.http.wire.closed:
            self.http.connection.data_received(data)

    async def settled(self) -> Line:
        """The line of the request, once it is over."""
        for _ in range(200):
            if self.rig.books.lines:
                break
            await asyncio.sleep(0.001)
        (line,) = self.rig.books.lines
        self.client.connection_lost(None)
        self.http.close()
        return line


@contextlib.contextmanager
def quicks(allowed: bool = True) -> Generator[list[bytes]]:
    """The readings that are taken unread; none where that is not allowed."""
    taken: list[bytes] = []
    take = Quick.take

    def noted(self: Quick, data: bytes) -> bool:
        done = take(self, data)
        if done and (not taken or taken[-1] is not data):  # one that looks again counts once
            taken.append(data)
        return done

    def never(self: HttpCall, quick: Any) -> None:
        """As if it were no connection."""

    with (
        mock.patch.object(Quick, "take", noted),
        mock.patch.object(HttpCall, "hasten", HttpCall.hasten if allowed else never),
    ):
        yield taken


def chunks(*pieces: bytes, capitals: bool = False) -> bytes:
    """Pieces of a body as HTTP chunks."""
    return b"".join((b"%X\r\n%b\r\n" if capitals else b"%x\r\n%b\r\n") % (len(piece), piece) for piece in pieces)


async def played(reads: list[bytes], client: str, rig: kit.Rig) -> tuple[list[bytes], Line]:
    """What a client is sent, write by write, and the line, when the provider's bytes come in these reads."""
    both = Both(rig)
    await both.ask(client)
    for data in reads:
        both.read(data)
    line = await both.settled()
    return [undated(data) for data in both.wire.written], line


def undated(data: bytes) -> bytes:
    """A write without its times."""
    return re.sub(rb'("created":|_at":)\d*|date: [^\r]*', rb"\1", data)


def rigs(payer: bool) -> kit.Rig:
    """A gateway for a caller without limits or for one that pays."""
    return paid(kit.Script())[0] if payer else kit.Rig(kit.Script())


TEXTS: st.SearchStrategy[list[str | bytes]] = st.lists(
    st.sampled_from(
        ["word ", "word ", "a", "%", "%b%d", "x" * 99, "y" * 5000, 'q"', "\\", "\n", "\u00e9", "", "0", "more"]
    )
    | SPELLED,
    max_size=20,
)
"""Texts, or how one is spelled."""


def delta_of(name: str, text: str) -> dict[str, str]:
    """A delta of this text; one of them ends as the others do, and says more."""
    return {name: text} | ({"refusal": "no"} if text == "more" else {})


def told(name: str, text: str | bytes) -> bytes:
    """A frame of it."""
    return kit.chunk(delta_of(name, text)) if isinstance(text, str) else spelled(name, text)


class Cut(NamedTuple):
    """How frames are put together in chunks, chunks in reads, where these are cut, and how lengths are written."""

    together: list[int]
    joined: list[bool]
    places: list[int]
    capitals: bool

    def reads(self, frames: list[bytes]) -> list[bytes]:
        """The readings of an answer of these frames."""
        reads = [HEAD]
        while frames:
            many = self.together[len(reads) % len(self.together)]
            data = chunks(b"".join(frames[:many]), capitals=self.capitals)
            if self.joined[len(reads) % len(self.joined)]:
                reads[-1] += data
            else:
                reads.append(data)
            frames = frames[many:]
        reads[-1] += b"0\r\n\r\n"
        if not self.places:
            return reads
        whole = b"".join(reads)
        places = [0, *sorted({place for place in self.places if 0 < place < len(whole)}), len(whole)]
        return [whole[at:to] for at, to in itertools.pairwise(places)]


CUTS = st.builds(
    Cut,
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.lists(st.integers(0, 6000), max_size=5),
    st.booleans(),
)
EACH = Cut([1], [False], [], False)


@given(
    texts=TEXTS,
    client=st.sampled_from(kit.FORMATS),
    name=st.sampled_from(["content", "content", "reasoning_content"]),
    cut=CUTS,
    payer=st.booleans(),
    said=st.booleans(),
)
@settings(max_examples=150, deadline=None)
@example(["word "] * 9, "chat", "content", EACH, False, True)
@example(["word "] * 9, "responses", "content", EACH, True, False)
@example([*["word "] * 3, *WHOLE], "chat", "content", EACH, True, False)
@example([*["word "] * 3, *WHOLE], "responses", "content", EACH, False, False)
@example(
    ["word ", "word ", *(text for broken in BROKEN for text in (broken, b"a", b"a"))],
    "chat",
    "content",
    EACH,
    False,
    False,
)
@example(["word "] * 9, "messages", "content", EACH, True, False)
@example(["word ", "word ", "word ", "more", "word "], "chat", "content", EACH, False, False)
@example(["word "] * 9, "chat", "content", Cut([1], [False, False, False, True], [], True), True, False)
def test_what_is_taken_unread_is_what_reading_gives(
    texts: list[str | bytes], client: str, name: str, cut: Cut, payer: bool, said: bool
) -> None:
    """L1, S14, U3: the same bytes in the same writes, the same usage and line, however frames, chunks and reads are cut."""
    usage = {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}} if said else {}
    frames = [kit.ROLE, *(told(name, text) for text in texts), kit.chunk({}, "stop", **usage), kit.DONE]
    heard: list[Any] = []
    for allowed in (True, False):
        with quicks(allowed) as taken:
            writes, line = asyncio.run(played(cut.reads(frames), client, rigs(payer)))
        assert allowed or not taken
        legs = [(leg.usage, leg.billed, leg.fee) for leg in line.legs]
        heard.append((writes, line.ending, line.usage, legs, line.charge, line.code))
    assert heard[0] == heard[1]


@pytest.mark.parametrize("client", kit.FORMATS)
@pytest.mark.parametrize("payer", [False, True])
@pytest.mark.parametrize("capitals", [False, True])
def test_nearly_all_of_a_steady_stream_is_taken_so(client: str, payer: bool, capitals: bool) -> None:
    """All but the first piece, by which its form becomes known; one write for each."""
    texts = [b"word", *WHOLE]
    frames = [spelled("content", texts[number % len(texts)] * (1 + number % 40)) for number in range(60)]
    ends = [kit.STOP, kit.DONE]
    reads = [HEAD, *(chunks(frame, capitals=capitals) for frame in [kit.ROLE, *frames, *ends]), b"0\r\n\r\n"]
    with quicks() as taken:
        writes, line = asyncio.run(played(reads, client, rigs(payer)))
    assert len(taken) == len(frames) - 1
    assert line.ending == "done"
    assert len(writes) <= len(frames) + 5


def steady_of(text: bytes = b"word ") -> tuple[list[bytes], bytes]:
    """Reads until a stream is steady, and one more piece of it."""
    piece = chunks(kit.chunk({"content": text.decode()}))
    return [HEAD + chunks(kit.ROLE), piece, piece], piece


def test_a_client_that_goes_hears_no_more_and_its_provider_is_closed() -> None:
    """U6: in the middle of a steady stream."""

    async def main() -> None:
        both = Both(kit.Rig(kit.Script()))
        await both.ask("chat")
        first, piece = steady_of()
        for data in [*first, piece]:
            both.read(data)
        assert both.http.connection.quick is not None
        count = len(both.wire.written)
        both.client.connection_lost(None)
        assert both.http.wire.closed
        assert both.http.connection.quick is None
        both.http.connection.data_received(piece)
        assert len(both.wire.written) == count
        line = await both.settled()
        assert line.ending == "client_closed"
        assert line.usage.output == 4  # 3 pieces of 5 letters, by the guess (U3)

    asyncio.run(main())


def test_a_slow_client_pauses_its_provider_as_ever() -> None:
    """In the middle of a steady stream; it goes on in the same way."""

    async def main() -> None:
        both = Both(kit.Rig(kit.Script()))
        await both.ask("chat")
        first, piece = steady_of()
        for data in first:
            both.read(data)
        both.client.pause_writing()
        assert not both.http.wire.reading
        both.client.resume_writing()
        assert both.http.wire.reading
        count = len(both.wire.written)
        both.read(piece)
        assert len(both.wire.written) == count + 1
        both.read(chunks(kit.STOP, kit.DONE) + b"0\r\n\r\n")
        assert (await both.settled()).ending == "done"

    asyncio.run(main())


def test_pieces_that_go_by_are_signs_of_life() -> None:
    """S15: no comment between them, one after a silence; and the provider is not taken to be silent before it is."""

    async def main() -> None:
        rig = kit.Rig(kit.Script())
        rig.silence, rig.timing["idle_timeout"] = (0.2, 9.0), 0.5
        both = Both(rig)
        await both.ask("chat")
        first, piece = steady_of()
        for data in first:
            both.read(data)
        for _ in range(14):
            await asyncio.sleep(0.05)
            both.read(piece)
            assert both.http.connection.quick is not None
        assert b": keepalive" not in b"".join(both.wire.written)
        assert not rig.books.lines
        await asyncio.sleep(0.35)
        assert b": keepalive" in both.wire.written[-1]
        assert not rig.books.lines
        await asyncio.sleep(0.3)
        line = await both.settled()
        assert (line.ending, line.code) == ("failed", "stream_interrupted")

    asyncio.run(main())


def test_a_stream_that_breaks_off_is_told_of_at_once() -> None:
    """D7, D8: after pieces that went by."""

    async def main() -> None:
        both = Both(kit.Rig(kit.Script()))
        await both.ask("chat")
        first, piece = steady_of()
        for data in [*first, piece]:
            both.read(data)
        both.http.connection.connection_lost(None)
        line = await both.settled()
        assert (line.ending, line.code) == ("failed", "stream_interrupted")
        assert b"stream_interrupted" in b"".join(both.wire.written)
        assert line.legs[0].usage.output == 4

    asyncio.run(main())


def test_the_piece_that_is_too_much_is_left_to_the_ordinary_way() -> None:
    """F8: what a caller who pays may still hear is counted piece by piece."""
    steady = Steady(b"data: ", b"\n\n", Text, 0)
    written: list[bytes] = []
    tally = Tally(Count(Request(model="m", turns=[], origin="chat", fields={})), most=3)
    quick = Quick(steady, Speaker(b"<%b", b"".join), written.append, time.monotonic, tally)
    assert quick.hasten(written.append) is not None
    assert quick.take(chunks(b"data: 12345678\n\n"))
    assert not quick.take(chunks(b"data: 12345678\n\n"))
    assert written == [b"9\r\n<12345678\r\n"]
    assert (tally.tokens, quick.said) == (2, 8)
    assert not quick.take(chunks(b"data: 1\n\n", b"data: 2\n\n"))
    assert not quick.take(chunks(b"data: \n\n"))
    assert not quick.take(b"")


@pytest.mark.parametrize("client", kit.FORMATS)
@pytest.mark.parametrize("times", [1, 60])
def test_one_reading_is_one_write_with_the_head_and_the_end_too(client: str, times: int) -> None:
    """A whole stream that comes at once, short or long; then one whose first words come with its head."""
    said = [kit.ROLE, *([kit.chunk({"content": "word "})] * times)]
    ends = [kit.STOP, kit.DONE]
    writes, line = asyncio.run(played([HEAD + chunks(*said, *ends) + b"0\r\n\r\n"], client, rigs(payer=False)))
    assert len(writes) == 1
    assert line.ending == "done"
    assert writes[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert writes[0].endswith(b"\r\n0\r\n\r\n")
    apart, _ = asyncio.run(played([HEAD + chunks(*said), chunks(*ends) + b"0\r\n\r\n"], client, rigs(payer=False)))
    assert len(apart) == 2
    assert apart[0].startswith(b"HTTP/1.1 200 OK\r\n")
    error = b'data: {"error":{"message":"boom","code":503}}\n\n'
    failed, line = asyncio.run(played([HEAD + chunks(*said), chunks(error) + b"0\r\n\r\n"], client, rigs(payer=False)))
    assert (len(failed), line.ending) == (2, "failed")
    assert failed[1].endswith(b"\r\n0\r\n\r\n")


def named(kind: str, **members: Any) -> bytes:
    """A frame of a Messages provider."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def message_of(deltas: list[tuple[str, str]]) -> list[bytes]:
    """A stream of such a provider: a block for each row of deltas of one kind."""
    usage = {"input_tokens": 9, "output_tokens": 1}
    frames = [named("message_start", message={"id": "m", "role": "assistant", "content": [], "usage": usage})]
    for index, (kind, group) in enumerate(itertools.groupby(deltas, key=operator.itemgetter(0))):
        block = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
        frames.append(named("content_block_start", index=index, content_block=block))
        for _, text in group:
            frames.append(named("content_block_delta", index=index, delta={"type": kind + "_delta", kind: text}))
        if kind == "thinking":
            proof = {"type": "signature_delta", "signature": "cHJvb2Y="}
            frames.append(named("content_block_delta", index=index, delta=proof))
        frames.append(named("content_block_stop", index=index))
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    return [*frames, named("message_delta", delta=end, usage={"output_tokens": 7}), named("message_stop")]


KINDS = st.tuples(
    st.sampled_from(["text", "text", "thinking"]), st.sampled_from(["word ", "a", "%b", 'q"', "", "\u00e9"])
)


@given(
    deltas=st.lists(KINDS, min_size=1, max_size=12),
    times=st.sampled_from([1, 3, 30]),
    client=st.sampled_from(kit.FORMATS),
    cut=CUTS,
)
@settings(max_examples=80, deadline=None)
@example([("thinking", "word "), ("text", "word ")], 30, "messages", EACH)
@example([("text", "word ")], 30, "chat", EACH)
@example([("text", "word ")], 30, "responses", Cut([40], [False], [], False))
def test_a_messages_provider_is_heard_in_the_same_way(
    deltas: list[tuple[str, str]], times: int, client: str, cut: Cut
) -> None:
    """L1, U3: unread or read, the same answer and the same line."""
    frames = message_of([delta for delta in deltas for _ in range(times)])
    heard: list[Any] = []
    for unread in (True, False):
        steady = MessagesDecoder.steady if unread else never_steady
        with quicks() as taken, mock.patch.object(MessagesDecoder, "steady", steady):
            writes, line = asyncio.run(
                played(cut.reads(list(frames)), client, kit.Rig(kit.Script(), dialect="messages"))
            )
        heard.append((unchunked(writes), len(writes), line.ending, line.usage))
        assert unread or not taken
        if unread and cut == EACH and len({*deltas}) == 1 and deltas[0][1] == "word " and times == 30:
            assert len(taken) >= len(deltas) * times - 3
    assert heard[0] == heard[1]


def never_steady(decoder: MessagesDecoder) -> Steady | None:
    """As if each frame looked otherwise."""


def unchunked(writes: list[bytes]) -> bytes:
    """The body of an answer, without the frames of its chunks."""
    _, _, rest = b"".join(writes).partition(b"\r\n\r\n")
    return re.sub(rb"\r\n[0-9a-f]+\r\n", b"", b"\r\n" + rest)
