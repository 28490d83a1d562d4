"""What the tests of the Responses dialect share: fixtures, an Answer, readings of streams, the specification."""

import itertools
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from kenari.core.events import Event
from kenari.core.fold import Reply, fold
from kenari.core.ids import Envelopes
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.dialects.base import Answer, Proof
from kenari.dialects.fit import Target, fit
from kenari.dialects.registry import DIALECTS
from kenari.dialects.responses import RESPONSES
from kenari.wire.sse import Frames

FIXTURES = Path(__file__).parent.parent / "fixtures" / "responses"
SHARED = Path(__file__).parents[3] / "shared"
SPEC = SHARED / "open-responses-2026-04-24.openapi.json"
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse"))
ID = "4f1c9a2e7b3d5a60"

SCHEMAS = {
    "response.created": "ResponseCreatedStreamingEvent",
    "response.output_item.added": "ResponseOutputItemAddedStreamingEvent",
    "response.output_item.done": "ResponseOutputItemDoneStreamingEvent",
    "response.reasoning_summary_part.added": "ResponseReasoningSummaryPartAddedStreamingEvent",
    "response.reasoning_summary_part.done": "ResponseReasoningSummaryPartDoneStreamingEvent",
    "response.reasoning_summary_text.delta": "ResponseReasoningSummaryDeltaStreamingEvent",
    "response.reasoning_summary_text.done": "ResponseReasoningSummaryDoneStreamingEvent",
    "response.output_text.delta": "ResponseOutputTextDeltaStreamingEvent",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaStreamingEvent",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneStreamingEvent",
    "response.completed": "ResponseCompletedStreamingEvent",
    "response.failed": "ResponseFailedStreamingEvent",
}
"""Every event that a client may see (S80-S91) and its schema in the specification; `keepalive` aside (D15)."""


def stream(name: str) -> bytes:
    """A provider's stream among the fixtures."""
    return (FIXTURES / f"{name}.sse").read_bytes()


def decode(data: bytes, cut: Iterable[int] = ()) -> list[Event]:
    """The events of a provider's bytes, cut at these places."""
    frames, decoder = Frames(), RESPONSES.decoder(Profile(), ID)
    events: list[Event] = []
    for begin, end in itertools.pairwise([0, *sorted(cut), len(data)]):
        for frame in frames.feed(data[begin:end]):
            events += decoder.feed(frame)
    for frame in frames.flush():
        events += decoder.feed(frame)
    return events + decoder.finish()


def said(name: str) -> Reply:
    """What a fixture's provider said."""
    return fold(decode(stream(name)))


def blocks(reply: Reply) -> list[tuple[str, str]]:
    """(kind, text) of each block, calls with their decoded arguments text."""
    return [(block.kind, json.loads(b'"' + block.text + b'"')) for block in reply.blocks]


def calls(reply: Reply) -> list[tuple[str, str, Any]]:
    """(id, name, arguments) of each call."""
    return [
        (block.call_id, block.name, json.loads(json.loads(b'"' + block.text + b'"')))
        for block in reply.blocks
        if block.kind == "call"
    ]


def request(**members: Any) -> Request:
    """A decoded request: the smallest one with these members."""
    return RESPONSES.decode_request(json.dumps({"model": "kenari-test", "input": "hi"} | members).encode())


def seal(proofs: list[Proof]) -> str:
    """An envelope that shows what is inside."""
    return "kn1." + ",".join(f"{proof.kind}:{proof.value}:{proof.length}" for proof in proofs)


def answer(**members: Any) -> Answer:
    """What an encoder needs to answer the smallest request with these members."""
    return Answer(
        id=ID,
        created=1790000000,
        now=lambda: 1790000002.5,
        model="step-3-7-flash:free",
        request=request(**members),
        seal=seal,
    )


def encode(events: list[Event], **members: Any) -> bytes:
    """A whole successful client stream, one event at a time."""
    encoder = RESPONSES.encoder(answer(**members))
    return b"".join(encoder.encode([event]) for event in events) + encoder.finish()


def frames_of(data: bytes) -> list[dict[str, Any]]:
    """The JSON objects of a client's stream: an event line that names each and one data line (S8, S12, S13, S79)."""
    out: list[dict[str, Any]] = []
    assert data.endswith(b"\n\n")
    for block in data[:-2].split(b"\n\n"):
        first, second = block.split(b"\n")
        body: dict[str, Any] = json.loads(second.removeprefix(b"data: "))
        assert first == b"event: " + body["type"].encode()
        out.append(body)
    assert [body["sequence_number"] for body in out] == list(range(len(out)))  # S78
    return out


def target(dialect: str = "responses", **members: Any) -> Target:
    """A provider's model."""
    profile: Profile = members.pop("profile", Profile(response_format="json_schema"))
    return Target(
        dialect=dialect, model="vendor", profile=profile, maker="responses/p/v", envelopes=Envelopes(b"k"), **members
    )


def sent(made: Request, to: Target | None = None) -> dict[str, Any]:
    """The body that a provider gets of a request, parsed."""
    to = to or target()
    return json.loads(DIALECTS[to.dialect].encode_request(fit(made, to, lambda key: "hmac-" + key), to.profile))


@cache
def _validator(schema: str) -> Any:
    spec = json.loads(SPEC.read_bytes())
    return Draft202012Validator({"$ref": f"#/components/schemas/{schema}", "components": spec["components"]})


def faults(schema: str, body: Any) -> list[str]:
    """What the specification has against an object."""
    return [f"{schema}: {fault.json_path}: {fault.message}"[:300] for fault in _validator(schema).iter_errors(body)]
