"""The gate: which events of an attempt may go out, as one small pure table.

HOLD   opening frames are kept; a failure here means the next candidate or a real HTTP error (D7)
FLOW   the first content was seen: events go straight through, a failure is in-stream
DRAIN  a finish was seen: only usage is awaited, for a few seconds (F5)
OVER   nothing more is heard
"""

from enum import Enum

from kenari.core.errors import KenariError, interrupted
from kenari.core.events import Args, Close, Event, Failure, Meter, Open, Reason, Seal, Start, Stop, Text
from kenari.core.request import ToolName
from kenari.core.usage import Usage
from kenari.dialects.base import Passed
from kenari.dialects.failures import no_answer

MAX_HELD = 4096
"""Events that may wait for the first content; a provider that opens more without saying anything is broken."""

_CONTENT = frozenset({Text, Reason, Args})


class Phase(Enum):
    """Where an attempt stands."""

    HOLD = "hold"
    FLOW = "flow"
    DRAIN = "drain"
    OVER = "over"


class Gate:
    """Passes the events of one attempt, renames its calls, counts what it said.

    `error` is set when the attempt failed; what `take` returned before stays valid. `content` is true once the client
    may have seen something of it. `names` maps the tool names that
    the provider saw to the client's own. An answer of `cap` tokens is taken to be cut, for providers that do not say so.
    `output_bytes` counts the escaped bytes of all it said, for estimates.
    """

    __slots__ = ("_calls", "_cap", "_held", "_names", "content", "error", "output_bytes", "phase", "stop", "usage")

    def __init__(self, names: dict[str, ToolName], cap: int | None = None) -> None:
        self.phase = Phase.HOLD
        self.error: KenariError | None = None
        self.usage: Usage | None = None
        self.stop: Stop | None = None
        self.output_bytes = 0
        self.content = False
        self._names, self._cap = names, cap
        self._held: list[Event] = []
        self._calls: set[int] | None = None  # the blocks that are calls

    def take(self, events: list[Event]) -> list[Event]:
        """What of these events goes to the client now."""
        if self.phase is Phase.FLOW and len(events) == 1 and type(events[0]) in _CONTENT:  # nearly every call
            self.output_bytes += len(events[0].delta)  # type: ignore[union-attr]
            return events
        if self.phase is Phase.OVER:
            return []
        out: list[Event] = []
        for event in events:
            kind = type(event)  # by exact type: this runs for each event
            if kind in _CONTENT:
                size = len(event.delta)  # type: ignore[union-attr]
                self.output_bytes += size
                if size and not self.content:
                    self.phase, self.content = Phase.FLOW, True
            elif isinstance(event, Failure):
                self._fail(event.error)
                break
            elif isinstance(event, Open):
                out.append(self._renamed(event) if event.kind == "call" else event)
                continue
            elif kind is Start or kind is Meter:
                self.usage = event.usage or self.usage  # type: ignore[union-attr]
            elif isinstance(event, Stop):
                out.append(self._stopped(event))
                continue
            elif kind is Seal or (kind is Close and self._calls and event.index in self._calls):  # type: ignore[union-attr]
                self._flow()
            out.append(event)
        if self.content and not self._held:
            return out
        return self._release(out)

    def note(self, passed: Passed) -> None:
        """The whole answer went to the client in one step."""
        self.content, self.phase = True, Phase.OVER
        self.usage, self.stop, self.output_bytes = passed.usage, passed.stop, passed.size

    def fail(self, error: KenariError) -> None:
        """The attempt's transport failed. After a finish that is no loss (D6)."""
        if self.phase is not Phase.DRAIN:
            self._fail(error)

    def _release(self, out: list[Event]) -> list[Event]:
        if not self.content:
            self._held += out
            if len(self._held) > MAX_HELD:
                self._fail(no_answer())
            return []
        if self._held:
            out = self._held + out
            self._held = []
        return out

    def _stopped(self, event: Stop) -> Stop:
        """The model has finished: how, where its provider calls a cut answer complete."""
        self.content = True
        used = self.usage
        cut = self._cap is not None and used is not None and (used.output or 0) >= self._cap
        if cut and event.reason in ("stop", "call"):
            event = Stop("length", event.raw)
        self.stop = event
        self.phase = Phase.DRAIN
        return event

    def _flow(self) -> None:
        if self.phase is Phase.HOLD:
            self.phase = Phase.FLOW
            self.content = True

    def _renamed(self, event: Open) -> Open:
        """A call under the client's own name for the tool."""
        if self._calls is None:
            self._calls = set()
        self._calls.add(event.index)
        own = self._names.get(event.name)
        if own is None or (own.name == event.name and own.namespace is None and not own.custom):
            return event
        return Open(event.index, "call", event.call_id, own.name, own.namespace, own.custom)

    def _fail(self, error: KenariError) -> None:
        """Before content an attempt fails with its own error, after it the answer was interrupted (D7)."""
        self.error = interrupted() if self.content else error
        self.phase = Phase.OVER
