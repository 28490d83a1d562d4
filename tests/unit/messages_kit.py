"""What the tests of the messages dialect share: fixtures, an Answer, and a tolerant reading of client streams."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kenari.core.events import Event
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.dialects.base import Answer, Proof
from kenari.dialects.messages import MESSAGES
from kenari.wire.sse import Frames

FIXTURES = Path(__file__).parent.parent / "fixtures" / "messages"
SHARED = Path(__file__).parents[3] / "shared"
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse"))
ID = "4f1c9a2e7b3d5a60"
MINIMAL: dict[str, Any] = {"model": "kenari-test", "messages": [{"role": "user", "content": "hi"}]}


def stream(name: str) -> bytes:
    """A provider's stream among the fixtures."""
    return (FIXTURES / f"{name}.sse").read_bytes()


def decode(data: bytes, cut: Iterable[int] = ()) -> list[Event]:
    """The events of a provider's bytes, cut at these places."""
    frames, decoder = Frames(), MESSAGES.decoder(Profile(), ID)
    events: list[Event] = []
    edges = [0, *sorted(cut), len(data)]
    for begin, end in itertools.pairwise(edges):
        for frame in frames.feed(data[begin:end]):
            events += decoder.feed(frame)
    for frame in frames.flush():
        events += decoder.feed(frame)
    return events + decoder.finish()


def request(**members: Any) -> Request:
    """A decoded request: the minimal one with these members."""
    return MESSAGES.decode_request(json.dumps(MINIMAL | members).encode())


def seal(proofs: list[Proof]) -> str:
    """An envelope that shows what is inside."""
    return "kn1." + ",".join(f"{proof.kind}:{proof.value}:{proof.length}" for proof in proofs)


def answer(raw_signatures: bool = False, model: str = "step-3-7-flash:free") -> Answer:
    """What an encoder needs."""
    return Answer(
        id=ID,
        created=1790000000,
        now=lambda: 1790000000.0,
        model=model,
        request=request(),
        seal=seal,
        raw_signatures=raw_signatures,
    )


def encode(events: list[Event], raw_signatures: bool = False) -> bytes:
    """A whole successful client stream, one event at a time."""
    encoder = MESSAGES.encoder(answer(raw_signatures))
    return b"".join(encoder.encode([event]) for event in events) + encoder.finish()


def frames_of(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of a client's stream; the event line must name each (S7)."""
    out: list[dict[str, Any]] = []
    assert data.endswith(b"\n\n")
    for block in data[:-2].split(b"\n\n"):
        if block.startswith(b":"):
            continue
        first, second = block.split(b"\n")
        body: dict[str, Any] = json.loads(second.removeprefix(b"data: "))
        assert first == b"event: " + body["type"].encode()
        out.append(body)
    return out


def encoded(members: dict[str, Any] | Request, profile: Profile | None = None) -> dict[str, Any]:
    """The provider's body of a request, parsed."""
    made = members if isinstance(members, Request) else request(**members)
    return json.loads(MESSAGES.encode_request(made, profile or Profile()))
