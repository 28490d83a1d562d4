"""One attempt: a provider's bytes -> frames -> events -> gate -> the client's sink, by callback and without a queue."""

import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from kenari.core.errors import KenariError, interrupted
from kenari.core.events import Event, Failure, Meter
from kenari.core.outbound import Call, Outgoing, Upstream
from kenari.core.request import Request
from kenari.core.usage import Usage
from kenari.dialects.base import Decoder
from kenari.dialects.failures import failure_of_status, late, no_answer, retry_after
from kenari.gateway.estimate import completed_usage
from kenari.gateway.gate import Gate, Phase
from kenari.gateway.hedge import Done, Inlet
from kenari.gateway.plan import Candidate
from kenari.gateway.quick import Quick
from kenari.gateway.runs import TOGETHER, opening_of
from kenari.gateway.tally import Count, Tally
from kenari.wire.sse import Frames

MAX_ERROR_BODY = 256 * 1024
MAX_ANSWER = 64 * 1024 * 1024
"""A plain answer larger than this is broken; text alone never comes near it."""
_BLANK = b"\xef\xbb\xbf \t\r\n"
_FIELDS = frozenset((b"d", b"e", b"i", b"r", b":"))
"""What the lines of a stream begin with (data, event, id, retry, comments), and no JSON."""
_ENDLESS = "the model's provider sent an answer without end. send the request again"
DRAIN_SECONDS = 5.0
"""F5: how long usage and `[DONE]` are awaited after a finish."""


class Attempt:
    """Hears of one provider call and feeds the sink. `done` is told when nothing more comes of it.

    After that `error` says how it failed (None: it did not), `left` that the client went away and `sent` that the provider had
    the request by then, `gate.content` whether the client may have seen something, `usage` what it used, `status` the
    provider's (0 for none). `clock` is the loop's time, `asked` the request that the provider's was made of.
    """

    # said of few attempts, and so the class's: an object with more than thirty members takes three times the memory
    error: KenariError | None = None
    left = sent = cut = paused = False  # while it is paused a provider's silence is not its own
    names: tuple[str, str] = ("", "")
    tally: Tally | None = None
    _headers: Mapping[bytes, bytes] = MappingProxyType({})  # of an error
    asked: Request | None = None
    until = math.inf
    """The loop's time by which the first content has to be there, whatever the provider's own time-outs."""

    def __init__(
        self,
        candidate: Candidate,
        request: Request,
        sink: Inlet,
        done: Done,
        clock: Callable[[], float],
    ) -> None:
        self._candidate = candidate
        cap = request.max_output if candidate.provider.profile.cuts_silently else None
        self.gate = Gate(request.names, cap)
        self.done = done
        self.first_content: float | None = None
        self._request, self._sink = request, sink
        self._decoder: Decoder | None = None  # of a stream
        self._frames: Frames | None = None
        self._ready: tuple[Frames, Decoder] | None = None  # made before there was a stream
        self._quick: Quick | None = None  # takes the next frame, if that looks as is most likely
        self._trusts = True  # that it will, which is so until once it did not
        self._call: Call | None = None
        self._mode = ""
        self.status = self._size = 0
        self._body: list[bytes] = []
        self._unsure = False  # no stream by its type; its first letter may say otherwise
        self._over = False  # the transport has said its last word
        self._clock = clock
        self._last = self._since = clock()
        self._used: Usage | None = None  # once it is final
        self._count: Count | None = None
        self._spent = False
        self._forget: Callable[[Attempt], None] = _nobody

    def start(self, upstream: Upstream, outgoing: Outgoing) -> None:
        """Call the provider."""
        self._call = upstream.start(outgoing, self)
        self._prepare()

    def adopt(self, call: Call, began: float) -> None:
        """Go on with a call that was begun at this time of the loop, and of which nothing was heard."""
        self._call = call
        self._last = self._since = began
        self._prepare()

    def _prepare(self) -> None:
        """Make what reads and writes an answer, while the provider thinks."""
        self._sink.attach(self)
        if self._request.stream:
            self._ready = self._reader()

    def _reader(self) -> tuple[Frames, Decoder]:
        candidate = self._candidate
        return Frames(), candidate.dialect.decoder(candidate.provider.profile, self._sink.exchange.id)

    @property
    def request(self) -> Request:
        """What the provider was asked; of what passed only a sample was read."""
        sample = self._request.sample
        return self._candidate.dialect.decode_request(self._sink.exchange.body) if sample else self._request

    @property
    def count(self) -> Count:
        """How its tokens are counted where its provider does not say; by the guess until something else is set."""
        if self._count is None:
            self._count = Count(self.request)
        return self._count

    @count.setter
    def count(self, count: Count) -> None:
        self._count = count

    @property
    def wait(self) -> float | None:
        """Seconds for which the provider wants to be left alone: the Retry-After of an error."""
        return retry_after(self._headers, time.time()) if self._mode == "error" else None

    @property
    def usage(self) -> Usage:
        """What this attempt used (so far), estimated where the provider did not say."""
        if self._used is not None:
            return self._used
        self._note_quick()
        gate, tally = self.gate, self.tally
        said = (gate.output_bytes + 3) // 4 if tally is None else tally.tokens
        if self._spent and tally is not None:
            said = min(said, int(tally.most))
        return completed_usage(gate.usage, self._prompt, said, partial=self._spent or gate.stop is None)

    def _prompt(self) -> int:
        return self.count.prompt()

    @property
    def began(self) -> bool:
        """The provider has begun to answer: a head that is no error was heard."""
        return self._mode in ("stream", "json")

    # -- the provider speaks (core.outbound.Receiver)

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Status and headers. A status of 200 does not mean yet that the provider works."""
        self._last = self._since = self._clock()
        self.status = status
        if status != 200:
            self._mode, self._headers = "error", headers
            return
        if headers.get(b"content-type", b"").lower().startswith(b"text/event-stream"):
            self._listen()
        else:
            self._mode, self._unsure = "json", True

    def on_body(self, data: bytes) -> None:
        """The next bytes: one write to the client at most."""
        self._last = now = self._clock()
        quick = self._quick
        if quick is not None and quick.one(data, now):
            if not quick.chunked:
                self._hasten(quick)
            return
        if self.done.done():
            return
        if self._unsure and self._body_is_stream(data):
            self._listen()
        frames, decoder = self._frames, self._decoder
        if frames is not None and decoder is not None:
            if len(data) >= TOGETHER and self._sink.cork():
                try:
                    self._read_many(frames, decoder, data)
                finally:
                    self._sink.uncork()
            else:
                self._read(frames, decoder, data)
                if self._quick is not None and self._trusts:
                    self._hasten(self._quick)
        else:
            self._gather(data)

    def _gather(self, data: bytes) -> None:
        """A piece of a body that is read when it is whole."""
        self._size += len(data)
        if self._size <= (MAX_ANSWER if self._mode == "json" else MAX_ERROR_BODY):
            self._body.append(data)
        elif self._mode == "json":
            self._fail(KenariError("upstream_error", _ENDLESS, elsewhere=True))

    def _listen(self) -> None:
        """The answer is a stream."""
        self._mode = "stream"
        self._frames, self._decoder = self._ready or self._reader()

    def _body_is_stream(self, data: bytes) -> bool:
        """Whether a body under no or a wrong type is a stream all the same, by the first letter of its first line."""
        start = data.lstrip(_BLANK)
        self._unsure = not start
        return start[:1] in _FIELDS if start else False

    def _read_many(self, frames: Frames, decoder: Decoder, data: bytes) -> None:
        """The same of bytes that may hold a run of frames which differ in their text only."""
        if self._quick is None:
            opening = opening_of(data)
            self._read(frames, decoder, data[:opening])
            data = data[opening:]
        if self._quick is not None:
            data = data[self._quick.many(data, self._last) :]
        if data and not self.done.done():
            self._read(frames, decoder, data)

    def _read(self, frames: Frames, decoder: Decoder, data: bytes) -> None:
        """Bytes of a stream, frame by frame."""
        if self._quick is not None:
            self._trusts = False
            self._slow_down()
        try:
            whole = frames.feed(data)
        except KenariError as error:
            self._fail(error)
            return
        if whole:
            events = decoder.feed(whole[0]) if len(whole) == 1 else decoder.feed_all(whole)
            if events or decoder.done:
                self._advance(events)
                if self.gate.phase is Phase.FLOW and frames.level:
                    self._expect(decoder)

    def _expect(self, decoder: Decoder) -> None:
        """Pieces of one block look the same but for their text: remember how, and who takes them (test_short_ways)."""
        steady = decoder.steady()
        if steady is not None:
            self._quick = self._sink.quick(steady, self.tally)

    def _hasten(self, quick: Quick) -> None:
        """Let the pieces that follow go from connection to connection."""
        take, call = quick.hasten(self._sink.exchange.raw()), self._call
        if take is not None and call is not None:
            call.hasten(take)

    def _slow_down(self) -> None:
        """What comes is no longer known."""
        quick = self._quick
        if quick is not None:
            self._note_quick()
            self._quick = None
            if quick.chunked and self._call is not None:
                self._call.hasten(None)

    def _note_quick(self) -> None:
        """What went by without us."""
        quick = self._quick
        if quick is not None:
            self.gate.output_bytes += quick.said
            quick.said, self._last = 0, max(self._last, quick.last)

    def on_end(self) -> None:
        """The body is complete."""
        self._slow_down()
        self._over, self._call = True, None
        if self.done.done():
            self._forget(self)
            return
        if self._frames is not None and self._decoder is not None:
            self._end_stream(self._frames, self._decoder)
            return
        if self._mode == "error":
            self._fail(self._told())
            return
        body, dialect, profile = b"".join(self._body), self._candidate.dialect, self._candidate.provider.profile
        passed = self._sink.pass_on(body, dialect, profile)
        if passed is not None:
            self.gate.note(passed)
            self.first_content, self._used = self._clock(), passed.usage
            self._sink.attach(None)
            self.done.set_result(None)
            return
        self._advance(dialect.decode_reply(body, profile, self._sink.exchange.id))
        if not self.done.done():
            self._fail(interrupted())

    def on_lost(self, error: KenariError) -> None:
        """The transport broke."""
        self._slow_down()
        self._over, self._call = True, None
        if self.done.done():
            self._forget(self)
            return
        if self._mode == "error":  # the status is known, only its words are not whole
            error = self._told()
        if self.gate.phase is Phase.DRAIN:
            self._complete([])
        else:
            self._fail(error)

    # -- the client's side (gateway.sinks.Source)

    def leave(self) -> None:
        """The client has gone: the provider's call is broken off at once."""
        if not self.done.done():
            self.left, self.sent = True, self._call is not None and self._call.sent
            self._slow_down()
            self._close()
            self._sink.attach(None)
            self.done.set_result(None)

    def pause(self) -> None:
        """The client reads too slowly."""
        self.paused = True
        if self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        """The client reads again."""
        self.paused, self._last = False, self._clock()
        if self._call is not None:
            self._call.resume()

    def forget(self) -> bool:
        """Let go of what was asked, for nobody else will be asked once there is content."""
        if not self.gate.content or not self.count.settle():
            return False
        for request in filter(None, (self._request, self.asked)):
            request.forget()
        return True

    # -- time

    def tick(self, now: float) -> bool:
        """Timeouts: head, first content, silence in mid-stream, the deadline, and the short wait after a last word. True
        when it is over."""
        if not self._over:
            self._note_quick()
            self._look(now)
        return self._over

    def _look(self, now: float) -> None:
        settled = now - self._since >= DRAIN_SECONDS  # whatever comes: comments would keep it waiting for ever
        phase = self.gate.phase
        if self.done.done():
            if settled:
                self._close()
        elif phase is Phase.DRAIN:
            if settled:
                self._complete([])
                self._close()
        elif phase is Phase.HOLD and now >= self.until:
            self.cut = True
            self._fail(late("said nothing"))
        elif self._mode == "error":
            if settled:  # the status is known; its words may never be whole
                self._fail(self._told())
        elif not self.paused:
            self._wait_for(phase, now)

    def _wait_for(self, phase: Phase, now: float) -> None:
        """The provider's own time-outs: for its head, from there to its first content, and in mid-stream, where its
        comments count as life."""
        provider, waited = self._candidate.provider, now - self._last
        if not self._mode:
            if waited >= provider.header_timeout:
                self._fail(late("did not begin to answer"))
        elif phase is Phase.HOLD:
            if now - self._since >= provider.first_event_timeout:
                self._fail(late("began but said nothing"))
        elif waited >= provider.idle_timeout:
            self._fail(late("fell silent"))

    def leave_to(self, forget: Callable[["Attempt"], None]) -> None:
        """Nobody waits for it any more: it is to be forgotten as soon as it needs no ticks. (Thousands of streams that are
        over, kept until the next tick, would take memory out of the caches.)"""
        if self._over:
            forget(self)
        else:
            self._forget = forget

    # --

    def _told(self) -> KenariError:
        """The error that the provider's status and as much of its body as is there tell of."""
        body = b"".join(self._body)
        return failure_of_status(
            self.status, self._headers, body, secrets=(self._candidate.key,), names=self.names, now=time.time()
        )

    def _end_stream(self, frames: Frames, decoder: Decoder) -> None:
        events = decoder.feed_all(frames.flush())
        if not self.gate.content and self.gate.stop is None and not events and not decoder.done:
            events = decoder.finish()
            if not self.gate.content and all(isinstance(event, Failure) for event in events):
                self._fail(no_answer())
                return
        else:
            events += decoder.finish()
        self._advance(events)
        if not self.done.done():
            if self.gate.phase is Phase.DRAIN:
                self._complete([])
            else:
                self._fail(interrupted())

    def _advance(self, events: list[Event]) -> None:
        gate, tally = self.gate, self.tally
        if tally is not None:
            tally.add(events)
        stopped = gate.stop is not None
        out = gate.take(events)
        if gate.stop is not None and not stopped:
            self._since = self._clock()
        if out and self.first_content is None:
            self.first_content = self._clock()
        if gate.error is not None:
            if out:
                self._sink.put(out)
            self._fail(gate.error)
        elif gate.stop is not None and (self._decoder is None or self._decoder.done):
            self._complete(out)
        elif tally is not None and tally.over and gate.content and self._mode == "stream" and gate.stop is None:
            self._spent = True
            self._close()
            ending = tally.ending()
            gate.take(ending)
            self._complete(out + ending)
        elif out:
            self._sink.put(out)

    def _complete(self, out: list[Event]) -> None:
        usage = self._used = self.usage
        if usage is not self.gate.usage:
            out = [*out, Meter(usage)]
        self.gate.phase = Phase.OVER
        self._slow_down()
        self._sink.attach(None)
        self._sink.put(out, last=True)
        self.done.set_result(None)

    def _fail(self, error: KenariError) -> None:
        self.gate.fail(error)
        self._slow_down()
        self.error = self.gate.error or error
        self._close()
        self._sink.attach(None)
        if not self.done.done():
            self.done.set_result(None)

    def _close(self) -> None:
        call, self._call = self._call, None
        if call is not None and not self._over:
            self._over = True
            call.abort()


def _nobody(attempt: Attempt) -> None:
    """Nothing has to be told."""
