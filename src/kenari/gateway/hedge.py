"""Two candidates at once for one answer: the first to have content feeds the client, the other is broken off.

Nothing of the loser reaches the client or the bill: what it cost, its provider has from the operator.
"""

from collections.abc import Callable
from typing import Protocol

from kenari.core.events import Event
from kenari.core.ports import Exchange
from kenari.core.profile import Profile
from kenari.dialects.base import Dialect, Passed, Steady
from kenari.gateway.quick import Quick
from kenari.gateway.sinks import Sink, Source
from kenari.gateway.tally import Tally


class Done(Protocol):
    """Is told, once, that nothing more comes of an attempt."""

    def done(self) -> bool:
        """It was told."""
        ...

    def set_result(self, result: None, /) -> None:
        """Tell it."""
        ...


class Inlet(Protocol):
    """What an attempt needs of a sink."""

    @property
    def exchange(self) -> Exchange:
        """The client's side."""
        ...

    def attach(self, source: Source | None) -> None:
        """From now on this call feeds the sink."""
        ...

    def put(self, events: list[Event], last: bool = False) -> None:
        """The next events."""
        ...

    def pass_on(self, body: bytes, dialect: Dialect, profile: Profile) -> Passed | None:
        """A provider's whole plain answer in one step; None: it comes as events."""
        ...

    def cork(self) -> bool:
        """Keep what comes until `uncork`. False where that cannot be done."""
        ...

    def uncork(self) -> None:
        """Write what was kept."""
        ...

    def quick(self, steady: Steady, tally: Tally | None) -> Quick | None:
        """A shorter way than `put` for pieces of one block; None: there is none."""
        ...


class Race:
    """The source of a sink while two attempts run. `won` is called once, with the winner, before its first
    events go out."""

    def __init__(self, sink: Sink, won: Callable[["Entrant"], None]) -> None:
        self._sink, self._won = sink, won
        self._entrants: list[Entrant] = []
        self.winner: Entrant | None = None

    def enter(self) -> "Entrant":
        """A place in the race."""
        entrant = Entrant(self, self._sink)
        self._entrants.append(entrant)
        return entrant

    def attach(self) -> None:
        """The race feeds the sink while nobody has won."""
        if self.winner is None:
            self._sink.attach(self)

    def claim(self, entrant: "Entrant") -> bool:
        """Whether this entrant feeds the sink: the first one that asks wins, and the others are broken off."""
        if self.winner is None:
            self.winner = entrant
            self._won(entrant)
            self._sink.attach(entrant.source)
            for other in self._entrants:
                if other is not entrant and other.source is not None:
                    other.source.leave()
        return self.winner is entrant

    def leave(self) -> None:
        """The client has gone: all of them are broken off."""
        for entrant in self._entrants:
            if entrant.source is not None:
                entrant.source.leave()

    def pause(self) -> None:
        """The client reads too slowly."""
        for entrant in self._entrants:
            if entrant.source is not None:
                entrant.source.pause()

    def resume(self) -> None:
        """The client reads again."""
        for entrant in self._entrants:
            if entrant.source is not None:
                entrant.source.resume()

    def forget(self) -> bool:
        """Nobody has won."""
        return False


class Entrant:
    """What one of the attempts sees of the sink."""

    def __init__(self, race: Race, sink: Sink) -> None:
        self._race, self._sink = race, sink
        self.source: Source | None = None

    @property
    def exchange(self) -> Exchange:
        """The client's side."""
        return self._sink.exchange

    def attach(self, source: Source | None) -> None:
        """An attempt begins, or is over."""
        self.source = source
        if source is not None:
            self._race.attach()
        elif self._race.winner is self:
            self._sink.attach(None)

    def put(self, events: list[Event], last: bool = False) -> None:
        """Content: whoever has it first wins."""
        if self._race.claim(self):
            self._sink.put(events, last)

    def pass_on(self, body: bytes, dialect: Dialect, profile: Profile) -> Passed | None:
        """Never in one step: what a body holds is known, and the race won, only when it has become events."""
        return None

    def cork(self) -> bool:
        """Only the winner writes."""
        return self._race.winner is self and self._sink.cork()

    def uncork(self) -> None:
        """Write what was kept."""
        self._sink.uncork()

    def quick(self, steady: Steady, tally: Tally | None) -> Quick | None:
        """The winner's."""
        return self._sink.quick(steady, tally) if self._race.winner is self else None
