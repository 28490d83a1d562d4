"""Several provider calls joined into one answer: blocks numbered anew, usage added up, our own tools hidden (pure)."""

from collections.abc import Callable

import msgspec

from kenari.core.events import Args, Close, Event, Foreign, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.fold import Block, Fold
from kenari.core.request import CallPart, Part, ReasoningPart, TextPart, Turn
from kenari.core.usage import Usage

SealBlocks = Callable[[list[Block]], str]
"""The envelope of a reasoning block's proofs, "" where there is none to keep."""


class Legs:
    """Takes the events of one call after the other. `hidden` are the names of the tools that are run here.

    Of the current call: `calls` are those of our tools, `called` says whether a tool of the client was called too,
    `stop` how it ended. `shown` is true once the client may have seen content.
    """

    def __init__(self, hidden: frozenset[str]) -> None:
        self.shown = False
        self.started = False
        self.calls: list[CallPart] = []
        self.called = False
        self.stop: Stop | None = None
        self._names = hidden
        self._before = Usage()
        self._usage: Usage | None = None
        self._fold = Fold()
        self._next = 0  # the number of the next block that is shown
        self._places: dict[int, int] = {}  # block of the current call -> number shown
        self._hidden: set[int] = set()

    def begin(self) -> None:
        """Another call follows."""
        if self._usage is not None:
            self._before = self._before.plus(self._usage)
        self._usage, self.stop, self.called = None, None, False
        self.calls, self._fold = [], Fold()
        self._places, self._hidden = {}, set()

    def take(self, events: list[Event]) -> list[Event]:
        """What goes to the client of these events, in its numbering. Stop waits for `end`."""
        self._fold.add(events)
        out: list[Event] = []
        for event in events:
            passed = self._pass(event)
            if passed is not None:
                out.append(passed)
        return out

    def open_text(self, text: bytes) -> list[Event]:
        """A block of text of our own at this place of the answer."""
        index = self._next
        self._next += 1
        return [Open(index, "text"), Text(index, text), Close(index)]

    def end(self) -> list[Event]:
        """The end of the answer: a model that was stopped after calling our tools only has stopped."""
        stop = self.stop or Stop("stop")
        if stop.reason == "call" and not self.called:
            stop = Stop("stop")
        return [Meter(self.usage), stop]

    @property
    def usage(self) -> Usage:
        """What all calls used so far."""
        return self._before if self._usage is None else self._before.plus(self._usage)

    def turn(self, seal: SealBlocks) -> Turn:
        """What the model said in the current call, as its turn of the conversation."""
        parts: list[Part] = []
        ours = {part.call_id for part in self.calls}
        for block in self._fold.reply().blocks:
            match block.kind:
                case "reasoning" if block.text or block.seals:
                    proof = seal([block])
                    parts.append(ReasoningPart(block.text, proof, "encrypted" if proof else "mark"))
                case "text" | "refusal" if block.text:
                    parts.append(TextPart(block.text, refusal=block.kind == "refusal"))
                case "call" if block.call_id in ours:
                    parts.append(CallPart(block.call_id, block.name, block.text or b"{}"))
                case _:
                    pass
        return Turn("assistant", parts)

    def finish(self) -> None:
        """The current call is over: its calls of our tools are known."""
        if self.stop is None:
            self._fold.add([Stop("stop")])
        self.calls = [
            CallPart(block.call_id, block.name, block.text or b"{}")
            for block in self._fold.reply().blocks
            if block.kind == "call" and block.namespace is None and block.name in self._names
        ]

    def _pass(self, event: Event) -> Event | None:
        match event:
            case Open():
                return self._open(event)
            case Text() | Reason() | Args() | Seal() | Close():
                return self._placed(event)
            case Foreign() if event.index >= 0:
                return self._placed(event)
            case Start() | Meter():
                self._usage = event.usage or self._usage
                if isinstance(event, Start):
                    first, self.started = not self.started, True
                    return event if first else None
                return Meter(self.usage)
            case Stop():
                self.stop = event
                return None
            case _:
                return event

    def _open(self, event: Open) -> Open | None:
        if event.kind == "call":
            if event.namespace is None and event.name in self._names:
                self._hidden.add(event.index)
                return None
            self.called = True
        place = self._places[event.index] = self._next
        self._next += 1
        return event if place == event.index else msgspec.structs.replace(event, index=place)

    def _placed(self, event: Text | Reason | Args | Seal | Close | Foreign) -> Event | None:
        place = self._places.get(event.index)
        if place is None:
            return None
        if not isinstance(event, Close):
            self.shown = True
        return event if place == event.index else msgspec.structs.replace(event, index=place)
