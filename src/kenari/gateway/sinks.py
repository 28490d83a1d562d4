"""Where an answer goes: to a client's stream as it comes, or folded into one JSON object.

Both are the exchange's watcher: a client that goes away aborts the provider's call, one that reads slowly pauses it.
"""

from collections.abc import Callable
from typing import Protocol

from kenari.core.errors import KenariError
from kenari.core.events import Event
from kenari.core.fold import Fold
from kenari.core.ports import Exchange
from kenari.core.profile import Profile
from kenari.dialects.base import Answer, Dialect, Encoder, Named, Passed, Steady
from kenari.gateway.quick import Quick
from kenari.gateway.tally import Tally
from kenari.wire import jsonx
from kenari.wire.sse import KEEPALIVE

LARGE = 16 * 1024
"""Bytes of a request from which on it is worth letting go of it while it is answered."""


class Source(Protocol):
    """The provider's call that feeds a sink at the moment."""

    def leave(self) -> None:
        """The client has gone."""
        ...

    def pause(self) -> None:
        """The client reads too slowly."""
        ...

    def resume(self) -> None:
        """The client reads again."""
        ...

    def forget(self) -> bool:
        """Let go of what was asked. False, and nothing is done, where it is still needed."""
        ...


class Sink:
    """What the two sinks share: the client's side of the exchange, and the source behind it at the moment.

    `head` are the header lines of the answer. `begun` is true once the status is out: failures are in-stream from then
    on. `ended` is true when the last byte has been handed over.
    """

    __slots__ = ("_paused", "_source", "begun", "ended", "exchange", "head")

    def __init__(self, exchange: Exchange, head: bytes) -> None:
        self.exchange = exchange
        self.head = head
        self.begun = False
        self.ended = False
        self._source: Source | None = None
        self._paused = False
        exchange.watcher = self

    @property
    def gone(self) -> bool:
        """The client has gone."""
        return self.exchange.gone

    def attach(self, source: Source | None) -> None:
        """From now on this call feeds the sink."""
        self._source = source
        if source is not None and self._paused:
            source.pause()

    def on_gone(self) -> None:
        """The client has gone: cancel its provider at once (U6)."""
        if self._source is not None:
            self._source.leave()

    def on_pause(self) -> None:
        """Back-pressure: the provider is not read while the client does not read."""
        self._paused = True
        if self._source is not None:
            self._source.pause()

    def on_resume(self) -> None:
        """The client reads again."""
        self._paused = False
        if self._source is not None:
            self._source.resume()

    def tick(self, now: float) -> None:
        """How late it is; a sink that has to show signs of life does so here."""

    def put(self, events: list[Event], last: bool = False) -> None:
        """The next events; `last` with those that complete the answer."""
        raise NotImplementedError

    def pass_on(self, body: bytes, dialect: Dialect, profile: Profile) -> Passed | None:
        """A provider's whole plain answer, where the client can have it in one step. None: it comes as events."""
        return None

    def cork(self) -> bool:
        """Keep what comes until `uncork`, so that it is one write. False where that cannot be done."""
        return False

    def uncork(self) -> None:
        """Write what was kept."""

    def quick(self, steady: Steady, tally: Tally | None) -> Quick | None:
        """What does for such frames what `put` does for their events, until `put` is called again; None where there is nothing
        shorter. `tally` counts along."""
        return None

    def fail(self, error: KenariError) -> None:
        """The answer failed after `begun`."""
        raise NotImplementedError


class StreamSink(Sink):
    """A client's stream. What writes it is made once a provider has been asked. `silence` are the seconds after which a comment
    and a real no-op are due, `clock` is the loop's time."""

    __slots__ = (
        "_answer",
        "_clock",
        "_dialect",
        "_keepalive",
        "_kept",
        "_last_bytes",
        "_last_event",
        "_made",
        "_noop_after",
        "_quick",
    )

    def __init__(
        self,
        exchange: Exchange,
        dialect: Dialect,
        answer: Answer,
        head: bytes,
        clock: Callable[[], float],
        silence: tuple[float, float],
    ) -> None:
        super().__init__(exchange, head)
        self._dialect, self._answer = dialect, answer
        self._made: Encoder | None = None
        self._clock = clock
        self._keepalive, self._noop_after = silence
        self._last_bytes = self._last_event = clock()
        self._kept: list[bytes] | None = None
        self._quick: Quick | None = None  # the last one: it knows when it wrote

    @property
    def _encoder(self) -> Encoder:
        made = self._made
        if made is None:
            made = self._made = self._dialect.encoder(self._answer)
        return made

    def attach(self, source: Source | None) -> None:
        super().attach(source)
        if self._made is None:
            self._made = self._dialect.encoder(self._answer)
        self._note_quick()
        self._quick = None  # it refers to this sink

    def cork(self) -> bool:
        self._kept = []
        self.exchange.cork()
        return True

    def uncork(self) -> None:
        kept, self._kept = self._kept, None
        if kept:
            self.exchange.write(b"".join(kept))
        self.exchange.uncork()

    def put(self, events: list[Event], last: bool = False) -> None:
        encoder = self._made or self._encoder
        data = encoder.encode(events)
        if last:
            self._end(data + encoder.finish())
        elif data:
            self._last_bytes = self._last_event = self._clock()
            if self._kept is not None:
                self._begin()
                self._kept.append(data)
            elif self.begun:
                self.exchange.write(data)
            else:
                self._begin(data)

    def _end(self, data: bytes) -> None:
        """The last bytes; the head, the data and the end of an answer are not three writes."""
        if not self.begun:
            self.exchange.cork()
            self._begin()
        if self._kept:
            data = b"".join([*self._kept, data])
        self._kept, self.ended = None, True
        self.exchange.end(data)

    def quick(self, steady: Steady, tally: Tally | None) -> Quick | None:
        encoder = self._made if self.begun and not self.ended else None
        speaker = None if encoder is None else encoder.speaker(steady.kind, steady.index)
        if speaker is None:
            return None
        self._quick = Quick(steady, speaker, self._write, self._clock, tally)
        return self._quick

    def _write(self, data: bytes) -> None:
        if self._kept is None:
            self.exchange.write(data)
        else:
            self._kept.append(data)

    def _note_quick(self) -> None:
        """What went by without us."""
        if self._quick is not None and self._quick.last > self._last_event:
            self._last_bytes = self._last_event = self._quick.last

    def fail(self, error: KenariError) -> None:
        self._end(self._encoder.fail(error))

    def tick(self, now: float) -> None:
        """A comment after each silent `keepalive` (S15), a real no-op after each silent `noop_after` (D15)."""
        if self.begun:
            self._forget()
        if self.ended or self.gone or self._paused:
            return
        self._note_quick()
        if now - self._last_event >= self._noop_after:
            self._begin()
            self.exchange.write(self._encoder.noop())
            self._last_bytes = self._last_event = now
        elif now - self._last_bytes >= self._keepalive:
            self._begin()
            self.exchange.write(KEEPALIVE)
            self._last_bytes = now

    def _forget(self) -> None:
        """Streams are long and conversations are large, and this one is not needed any more unless kenari calls again."""
        request, exchange = self._answer.request, self.exchange
        again = request.served or request.format is not None
        if len(exchange.body) >= LARGE and not again and self._source is not None and self._source.forget():
            request.forget()
            exchange.drop_body()

    def _begin(self, data: bytes = b"") -> None:
        if not self.begun:
            self.begun = True
            head, self.head = self.head, b""
            self.exchange.begin(200, head, data)


class PlainSink(Sink):
    """One JSON object of the client's dialect; a plain answer has no sign of life, and needs none (D22)."""

    __slots__ = ("_answer", "_dialect", "_fold")

    def __init__(self, exchange: Exchange, dialect: Dialect, answer: Answer, head: bytes) -> None:
        super().__init__(exchange, head)
        self._fold: Fold | None = None
        self._dialect, self._answer = dialect, answer

    def put(self, events: list[Event], last: bool = False) -> None:
        if self._fold is None:
            self._fold = Fold()
        self._fold.add(events)
        if last:
            self.begun = self.ended = True
            self.exchange.answer(200, self.head, self._dialect.encode_reply(self._fold.reply(), self._answer))

    def pass_on(self, body: bytes, dialect: Dialect, profile: Profile) -> Passed | None:
        if dialect is not self._dialect or self._fold is not None:
            return None
        answer = self._answer
        passed = dialect.pass_reply(body, Named(answer.id, answer.created, jsonx.encode(answer.model)), profile)
        if passed is not None:
            self.begun = self.ended = True
            self.exchange.answer(200, self.head, passed.body)
        return passed
