"""The legal order of events, as one table of rules, and the serialiser for formats that open one block at a time.

    Start (Ping | Foreign | Open | Text | Reason | Args | Seal | Close | Sources | Meter)* ((Stop Meter?) | Failure)

A Failure may also come first (nothing was answered). Several blocks may be open at once: parallel tool deltas
interleave. Stop comes only when every block is closed.
"""

from collections.abc import Iterable

from kenari.core.errors import interrupted
from kenari.core.events import (
    Args,
    Close,
    Event,
    Failure,
    Foreign,
    Meter,
    Open,
    Reason,
    Seal,
    Start,
    Stop,
    Text,
)

DELTA_OF: dict[str, type[Event]] = {
    "text": Text,
    "refusal": Text,
    "reasoning": Reason,
    "call": Args,
    "opaque": Foreign,
}
"""Which delta a block of each kind takes."""


class Grammar:
    """Watches one stream of events and names the first thing that is out of order."""

    def __init__(self) -> None:
        self.open: dict[int, str] = {}
        self.blocks = 0
        self.started = False
        self.stopped = False
        self.failed = False

    def check(self, event: Event) -> str | None:
        """None when the event is legal here, else what is wrong with it."""
        if self.failed:
            return f"{type(event).__name__} after Failure"
        if isinstance(event, Failure):
            self.failed = True
            return None if not self.stopped else "Failure after Stop"
        if self.stopped:
            return None if isinstance(event, Meter) else f"{type(event).__name__} after Stop"
        if isinstance(event, Start):
            if self.started:
                return "two Starts"
            self.started = True
            return None
        if not self.started:
            return f"{type(event).__name__} before Start"
        return self._check_block(event)

    def _check_block(self, event: Event) -> str | None:
        match event:
            case Open():
                if event.index != self.blocks:
                    return f"Open({event.index}) where {self.blocks} is next"
                if event.kind == "call" and not (event.name and event.call_id):
                    return "a call opens without its id or name"
                self.open[event.index] = event.kind
                self.blocks += 1
            case Close():
                if self.open.pop(event.index, None) is None:
                    return f"Close({event.index}) of a block that is not open"
            case Text() | Reason() | Args():
                kind = self.open.get(event.index)
                if kind is None or DELTA_OF[kind] is not type(event):
                    return f"{type(event).__name__}({event.index}) in a block of kind {kind}"
            case Seal():
                if self.open.get(event.index) != "reasoning":
                    return f"Seal({event.index}) outside a reasoning block"
            case Stop():
                if self.open:
                    return f"Stop while blocks {sorted(self.open)} are open"
                self.stopped = True
            case _:
                pass
        return None


def check(events: Iterable[Event]) -> str | None:
    """What is wrong with a whole stream, None when it is legal and ends with Stop or Failure."""
    grammar = Grammar()
    for event in events:
        fault = grammar.check(event)
        if fault:
            return fault
    return None if grammar.stopped or grammar.failed else "the stream just ends"


def mend(stopped: bool) -> list[Event]:
    """What a decoder adds at the end of the provider's bytes: nothing after a finish, else `stream_interrupted` (D6)."""
    return [] if stopped else [Failure(interrupted())]


class Serial:
    """Turns interleaved blocks into blocks that follow each other, in order of opening.

    Events of a block wait until every earlier block is closed; a Stop or Failure lets everything out. Block indexes
    stay as they are, since they are dense in order of opening.
    """

    def __init__(self) -> None:
        self._current: int | None = None
        self._waiting: dict[int, list[Event]] = {}

    def order(self, events: list[Event]) -> list[Event]:
        """The events that may go out now. Returns the list itself when nothing interleaves (the usual case)."""
        current = self._current
        if not self._waiting:
            straight = True
            for event in events:
                kind = type(event)
                if kind is Open:
                    if current is not None:
                        straight = False
                        break
                    current = event.index  # type: ignore[union-attr]
                elif kind is Close:
                    current = None
            if straight:
                self._current = current
                return events
        return self._reorder(events)

    def only(self, index: int) -> bool:
        """Whether this block is open and nothing waits for its end."""
        return self._current == index and not self._waiting

    def _reorder(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            index = getattr(event, "index", -1)
            if isinstance(event, (Stop, Failure)):
                if isinstance(event, Stop):
                    for held in self._waiting.values():
                        out.extend(held)
                self._waiting.clear()
                out.append(event)
            elif index < 0:
                out.append(event)
            elif index == self._current or (self._current is None and not self._waiting):
                self._current = index
                out.append(event)
                if isinstance(event, Close):
                    self._current = None
                    self._release(out)
            else:
                self._waiting.setdefault(index, []).append(event)
        return out

    def _release(self, out: list[Event]) -> None:
        while self._current is None and self._waiting:
            index = min(self._waiting)
            held = self._waiting.pop(index)
            out.extend(held)
            if not isinstance(held[-1], Close):
                self._current = index
