"""Hypothesis strategies for what crosses the middle of the house: legal streams of events."""

import json
from typing import Any

from hypothesis import strategies as st

from kenari.core.events import Args, Close, Event, Meter, Open, Reason, Start, Stop, StopReason, Text
from kenari.core.usage import Usage

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def escaped(text: str) -> bytes:
    """A text as the inside of a JSON string, in one of its two usual spellings."""
    return json.dumps(text, ensure_ascii=len(text) % 2 == 0).encode()[1:-1]


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """A whole answer: a thought, texts and calls, in the order that every format can say."""
    events: list[Event] = [Start()]
    index = 0
    if draw(st.booleans()):
        events += [
            Open(index, "reasoning"),
            *(Reason(index, escaped(w)) for w in draw(st.lists(WORDS, min_size=1, max_size=3))),
        ]
        events.append(Close(index))
        index += 1
    if draw(st.booleans()):
        events += [
            Open(index, "text"),
            *(Text(index, escaped(w)) for w in draw(st.lists(WORDS, min_size=1, max_size=4))),
        ]
        events.append(Close(index))
        index += 1
    calls = draw(st.integers(0, 3))
    for number in range(calls):
        arguments = json.dumps(draw(st.dictionaries(WORDS, WORDS | st.integers(), max_size=2)))
        events.append(Open(index, "call", f"call_{number}", f"tool_{number}"))
        events += [Args(index, escaped(arguments[at : at + 7])) for at in range(0, len(arguments), 7)]
        events.append(Close(index))
        index += 1
    usage = Usage(fresh=draw(st.integers(1, 99)), cache_read=draw(st.integers(0, 9)), output=draw(st.integers(1, 99)))
    events.append(Meter(usage))
    plain: list[StopReason] = ["stop", "length", "filter"]
    reason: StopReason = draw(st.sampled_from(plain)) if not calls else draw(st.sampled_from(["call", "length"]))
    events.append(Stop(reason))
    return events


@st.composite
def cuts(draw: st.DrawFn, size: int) -> list[int]:
    """Places at which bytes of this size are cut."""
    return sorted(draw(st.lists(st.integers(0, size), max_size=6)))


def request_body(client: str, **more: Any) -> bytes:
    """A small request of a client format."""
    body: dict[str, Any] = {"model": "m", "stream": True, **more}
    if client == "responses":
        return json.dumps({"input": "hi", **body}).encode()
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], **body}).encode()
