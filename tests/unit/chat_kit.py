"""What the tests of the chat dialect share: fixtures, an Answer, and a reading of client streams."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kenari.core.events import Event
from kenari.core.fold import Reply, fold
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.dialects.base import Answer, Proof
from kenari.dialects.chat import CHAT
from kenari.wire.sse import Frames

FIXTURES = Path(__file__).parent.parent / "fixtures" / "chat"
SHARED = Path(__file__).parents[3] / "shared"
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse"))
ID = "4f1c9a2e7b3d5a60"
MINIMAL: dict[str, Any] = {"model": "kenari-test", "messages": [{"role": "user", "content": "hi"}]}


def stream(name: str) -> bytes:
    """A provider's stream among the fixtures."""
    return (FIXTURES / f"{name}.sse").read_bytes()


def profile(name: str) -> Profile:
    """The profile of a fixture's provider."""
    return Profile(think_tags=name.startswith("think_tags"))


def decode(data: bytes, quirks: Profile | None = None, cut: Iterable[int] = ()) -> list[Event]:
    """The events of a provider's bytes, cut at these places."""
    frames, decoder = Frames(), CHAT.decoder(quirks or Profile(), ID)
    events: list[Event] = []
    for begin, end in itertools.pairwise([0, *sorted(cut), len(data)]):
        for frame in frames.feed(data[begin:end]):
            events += decoder.feed(frame)
    for frame in frames.flush():
        events += decoder.feed(frame)
    return events + decoder.finish()


def said(name: str) -> Reply:
    """What a fixture's provider said."""
    return fold(decode(stream(name), profile(name)))


def text(reply: Reply, kind: str = "text") -> bytes:
    """The joined blocks of one kind."""
    return b"".join(block.text for block in reply.blocks if block.kind == kind)


def calls(reply: Reply) -> list[tuple[str, str, Any]]:
    """(id, name, arguments) of each call."""
    return [
        (block.call_id, block.name, json.loads(json.loads(b'"' + block.text + b'"')))
        for block in reply.blocks
        if block.kind == "call"
    ]


def request(**members: Any) -> Request:
    """A decoded request: the minimal one with these members."""
    return CHAT.decode_request(json.dumps(MINIMAL | members).encode())


def seal(proofs: list[Proof]) -> str:
    """An envelope that shows what is inside."""
    return "kn1." + ",".join(f"{proof.kind}:{proof.value}:{proof.length}" for proof in proofs)


def answer(model: str = "step-3-7-flash:free", **members: Any) -> Answer:
    """What an encoder needs to answer the minimal request with these members."""
    return Answer(
        id=ID, created=1790000000, now=lambda: 1790000000.0, model=model, request=request(**members), seal=seal
    )


def encode(events: list[Event], **members: Any) -> bytes:
    """A whole successful client stream, one event at a time."""
    encoder = CHAT.encoder(answer(**members))
    return b"".join(encoder.encode([event]) for event in events) + encoder.finish()


def chunks_of(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of a client's stream, which must be `data:` lines only (S6) and end with `[DONE]` (S9)."""
    assert data.endswith(b"data: [DONE]\n\n")
    out: list[dict[str, Any]] = []
    for block in data.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")[:-1]:
        assert block.startswith(b"data: {")
        assert b"\n" not in block
        out.append(json.loads(block[6:]))
    return out


def deltas(chunks: list[dict[str, Any]], name: str) -> list[Any]:
    """The values of one delta member over a stream."""
    return [chunk["choices"][0]["delta"][name] for chunk in chunks if name in chunk["choices"][0]["delta"]]
