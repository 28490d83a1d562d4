"""One request's way through its candidates: each attempt in turn, one sink for all of them, and what the line says."""

import asyncio
import math
import time
from collections.abc import Sequence

import msgspec

from kenari.core.caller import Caller
from kenari.core.errors import KenariError, interrupted
from kenari.core.ids import Envelopes, Sealed, SealedPiece, cache_key
from kenari.core.outbound import Call, Outgoing
from kenari.core.ports import Exchange, Leg, Line
from kenari.core.request import Notice, Request
from kenari.core.usage import Usage
from kenari.dialects.base import Answer, Dialect, Proof
from kenari.dialects.fit import fit
from kenari.gateway.attempt import Attempt
from kenari.gateway.billing import billed_usage, leg_of
from kenari.gateway.heads import JSON, STREAM, id_lines, ignored_line, target_lines
from kenari.gateway.hedge import Done, Entrant, Inlet, Race
from kenari.gateway.loop import Loop, needs_loop
from kenari.gateway.media import Preparation, has_media
from kenari.gateway.plan import Candidate, Plan, headers_for, own_refused
from kenari.gateway.quote import lowered
from kenari.gateway.routing import Outcome
from kenari.gateway.services import Services
from kenari.gateway.sinks import PlainSink, Sink, StreamSink
from kenari.gateway.tab import Tab
from kenari.gateway.tally import Count, Tally
from kenari.gateway.waiting import while_waiting


class Wanted(msgspec.Struct, frozen=True):
    """What a caller wants: the decoded request, the plan of the model it names, who asks, and in which conversation.
    `tab` is the running bill of a request that is paid. `fitted` is the request as its only candidate takes it, where that is
    known before: then both are those of all requests that differ in their conversation only, and have another one than it."""

    request: Request
    plan: Plan
    caller: Caller
    tab: Tab | None = None
    session: str | None = None
    fitted: Request | None = None


class Try(msgspec.Struct, frozen=True, eq=False):
    """An attempt under way: with what request, from when, and by which inlet it reaches the sink."""

    candidate: Candidate
    fitted: Request
    attempt: Attempt
    inlet: Inlet
    began: float


class Sealer:
    """Seals proofs for the caller; `maker` is who made them: the target that is being tried."""

    __slots__ = ("_envelopes", "maker")

    def __init__(self, envelopes: Envelopes) -> None:
        self.maker = ""
        self._envelopes = envelopes

    def seal(self, proofs: list[Proof]) -> str:
        """The envelope of these proofs."""
        pieces = [SealedPiece(proof.kind, proof.value, proof.length) for proof in proofs]
        return self._envelopes.seal(Sealed(self.maker, pieces))


class Run:
    """One request's way through its candidates, with the one sink that all of them share."""

    def __init__(
        self,
        services: Services,
        exchange: Exchange,
        dialect: Dialect,
        wanted: Wanted,
        line: Line,
        began: float | None = None,
    ) -> None:
        """`began` is when the request came, by the loop's time; now by default."""
        self._services, self._exchange, self._dialect, self._line = services, exchange, dialect, line
        self._request, self._caller, self._tab = wanted.request, wanted.caller, wanted.tab
        self._fitted = wanted.fitted
        request = wanted.request
        self._sealer = Sealer(services.envelopes)
        self._content = False
        self._attempts = 0
        self._tries: Sequence[Try] = ()
        self._first_until = math.inf  # when the first call of a loop has to have content
        self._last: Outcome | None = None
        self._lines = exchange.extra_headers
        self._started = services.clock() if began is None else began
        self._answer = Answer(
            id=exchange.id,
            created=int(time.time()),
            model=request.model,
            request=request,
            seal=self._sealer.seal,
            now=time.time,
            raw_signatures=wanted.plan.raw_signatures,
        )
        if wanted.session is not None and wanted.session != request.cache_key:
            self._request = msgspec.structs.replace(request, cache_key=wanted.session)
        media = services.media
        self._media = Preparation(media, self._request) if media and not request.plain and has_media(request) else None
        self._sink = self._make_sink()

    @property
    def committed(self) -> bool:
        """No other candidate may be tried: content was seen, or the client has gone."""
        return self._content or self._sink.gone

    def now(self) -> float:
        """The loop's time."""
        return self._services.clock()

    @property
    def exchange(self) -> Exchange:
        """The client's side."""
        return self._exchange

    @property
    def services(self) -> Services:
        """What serving needs (loop.Runner)."""
        return self._services

    @property
    def sink(self) -> Sink:
        """Where the answer goes."""
        return self._sink

    def ignored(self, notice: Notice) -> None:
        """Something that was asked for was not done (loop.Runner)."""
        self._note([*self._line.notices, notice])

    def bill(self, legs: list[Leg]) -> None:
        """Runs of tools: legs of this request like calls of providers."""
        self._line.legs = [*self._line.legs, *legs]
        if self._tab is not None:
            self._tab.note()

    async def cover(self, candidate: Candidate, request: Request, more: int = 0, fees: int = 0) -> Request | None:
        """Set aside what another call with this request costs (and `more` tokens of what tools will say), and runs of
        tools for `fees`: the request with the output cap that is covered, None where the money does not reach."""
        tab = self._tab
        if tab is None:
            return request
        cap = await tab.cover(Count(request, self._services.counter, candidate.target.model).prompt() + more, fees)
        asked = request.max_output if request.max_output is not None else tab.quote.cap
        if cap >= asked:
            return request
        return lowered(request, cap) if cap > 0 else None

    async def cover_fees(self, fees: int) -> bool:
        """Set aside what runs of tools cost that no other call follows; whether they are covered."""
        return self._tab is None or await self._tab.cover_fees(fees)

    def cut(self) -> None:
        """The answer ended because the money did not reach for more of it."""
        self._line.ending = "length"

    def seal(self, proofs: list[Proof]) -> str:
        """The envelope of these proofs of the candidate that is being tried."""
        return self._sealer.seal(proofs)

    async def attempt(self, candidate: Candidate, until: float) -> Outcome:
        """Try one candidate, and tell how it fared. `until` is when there has to be content."""
        request = self._request
        if self._media is None and not request.served and request.format is None:
            return await self._call(candidate, request, self._sink, until)
        try:
            if self._media is not None:
                ready = await self._prepare(self._media, candidate)
                if ready is None:  # the client has gone
                    return Outcome(candidate=candidate, error=None, left=True, called=False)
                request = ready
                if self._tab is not None and request is not self._request:
                    prompt = Count(request, self._services.counter, candidate.target.model).prompt()
                    self._tab.quote.check(self._tab.hold.amount, prompt)
            if not needs_loop(request, candidate):
                return await self._call(candidate, request, self._sink, until)
            if self._tab is not None:
                self._tab.restart()
            self._first_until = until
            loop, before = Loop(self, request, candidate), len(self._line.legs)
            try:
                error = await loop.run()
            finally:
                self._content = self._content or loop.shown
            if error is not None and not self.committed:
                self._forgive(before)
        except KenariError as refused:  # this target cannot take the request
            return Outcome(candidate=candidate, error=refused, called=False)
        last = self._last or Outcome(candidate=candidate, error=error)
        return msgspec.structs.replace(last, error=error)

    def _forgive(self, before: int) -> None:
        """A candidate failed after some rounds of which nothing was shown: none of them is the caller's bill (U5)."""
        line, legs = self._line, self._line.legs
        forgiven = (msgspec.structs.replace(leg, billed=False, fee=0) for leg in legs[before:])
        line.legs = [*legs[:before], *forgiven]
        line.usage = billed_usage(line.legs)
        if self._tab is not None:
            self._tab.note()

    async def _prepare(self, media: Preparation, candidate: Candidate) -> Request | None:
        """The request with its images and documents as the candidate takes them; None when the client went away."""
        return await while_waiting(self._sink, media.ready_for(candidate.target))

    async def leg(self, candidate: Candidate, request: Request, sink: Sink) -> KenariError | None:
        """One call of a candidate for a loop; its error, or None when it answered. The time by which there has to be
        content holds for the first one only."""
        until, self._first_until = self._first_until, math.inf
        self._last = await self._call(candidate, request, sink, until)
        return self._last.error

    async def _call(self, candidate: Candidate, request: Request, sink: Inlet, until: float) -> Outcome:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        opened = self._open(candidate, request, until, sink, done)
        if isinstance(opened, Outcome):
            return opened
        self.begin(opened)
        try:
            await done
        finally:
            self._rest(opened)
        return self._closed(opened)

    def open(self, candidate: Candidate, until: float, done: Done, began: float | None = None) -> "Try | Outcome":
        """An attempt that is ready to begin, or that began at some time; the outcome of a candidate that cannot take the
        request. `done` is told when nothing more comes of it."""
        opened = self._open(candidate, self._request, until, self._sink, done)
        return opened if began is None or isinstance(opened, Outcome) else msgspec.structs.replace(opened, began=began)

    def begin(self, one: "Try") -> None:
        """Call the provider."""
        self._present(one)
        self._start(one)

    def adopt(self, one: "Try", call: Call) -> None:
        """Go on with a call that was begun."""
        self._present(one)
        self._meter(one)
        one.attempt.adopt(call, one.began)
        self._count(one)

    def end(self, one: "Try") -> Outcome:
        """How it fared; it is over."""
        self._rest(one)
        return self._closed(one)

    async def hedged(self, candidate: Candidate, rival: Candidate, after: float, until: float) -> list[Outcome]:
        """Try a candidate, and a rival beside it when it has no content after so many seconds; whoever has content first
        answers. The outcome of the one that answered stands last."""
        request = self._request
        if self._media is not None or request.served or request.format is not None:
            return [await self.attempt(candidate, until)]
        race = Race(self._sink, self._won)
        waits: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future()]
        first = self._open(candidate, request, until, race.enter(), waits[0])
        if isinstance(first, Outcome):
            return [first]
        self._present(first)
        self._start(first)
        tries = [first]
        try:
            await asyncio.wait([waits[0]], timeout=after)
            if not first.attempt.done.done() and race.winner is None and not self.committed:
                other: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                second = self._open(rival, request, until, race.enter(), other)
                if not isinstance(second, Outcome):
                    waits.append(other)
                    tries.append(second)
                    self._tries = tries
                    self._start(second)
            await asyncio.wait(waits)
        finally:
            for one in tries:
                self._rest(one)
        tries.sort(key=lambda one: one.inlet is race.winner and race.winner is not None)
        # who pays when the client goes: one of the two, never both
        payer = race.winner or next((one.inlet for one in tries if one.attempt.left), None)
        return [self._closed(one, lost=one.attempt.left and one.inlet is not payer) for one in tries]

    def _open(self, candidate: Candidate, request: Request, until: float, inlet: Inlet, done: Done) -> "Try | Outcome":
        """An attempt that is ready to start, or the outcome of a candidate that cannot take the request."""
        fitted = self._fitted
        if fitted is None:
            try:
                fitted = fit(request, candidate.target, self._seal_key)
            except KenariError as refused:
                return Outcome(candidate=candidate, error=refused, called=False)
            if candidate.provider.profile.stream_always:
                fitted.stream = True
        attempt = Attempt(candidate, fitted, inlet, done, self._services.clock)
        attempt.asked, attempt.names, attempt.until = request, (candidate.target.model, self._request.model), until
        return Try(candidate, fitted, attempt, inlet, self._services.clock())

    def _start(self, one: "Try") -> None:
        candidate, provider = one.candidate, one.candidate.provider
        self._meter(one)
        one.attempt.start(
            self._services.upstream(candidate),
            Outgoing(
                url=candidate.url,
                headers=headers_for(candidate, self._exchange.headers, self._request.origin),
                body=candidate.dialect.encode_request(one.fitted, provider.profile),
                connect_timeout=provider.connect_timeout,
                proxy=provider.proxy,
                ca=provider.ca,
            ),
        )
        self._count(one)

    def _count(self, one: "Try") -> None:
        self._attempts += 1
        self._tell(one.candidate)
        self._services.ticker.add(one.attempt)

    def _present(self, one: "Try") -> None:
        """What the answer and the line say of a candidate, as far as it is the one that answers."""
        self._sealer.maker = one.candidate.target.maker
        self._line.target, self._line.provider_format = one.candidate.id, one.candidate.provider.dialect
        if one.fitted.notices != self._line.notices:
            self._note(one.fitted.notices)

    def _won(self, winner: Entrant) -> None:
        for one in self._tries:
            if one.inlet is winner:
                self._present(one)
                if self._tab is not None:
                    self._tab.begin(one.attempt, self._services.pricing.price(one.candidate.model))
                self._tell(one.candidate)

    def _rest(self, one: "Try") -> None:
        one.attempt.leave_to(self._services.ticker.remove)

    def _closed(self, one: "Try", lost: bool = False) -> Outcome:
        candidate, attempt = one.candidate, one.attempt
        if not isinstance(one.inlet, Loop):  # a loop knows itself what it has shown
            self._content = self._content or attempt.gate.content
        self._account(one, lost)
        first = attempt.first_content
        return Outcome(
            candidate=candidate,
            error=own_refused(candidate, attempt.status, attempt.error) if candidate.own else attempt.error,
            left=attempt.left,
            status=attempt.status,
            wait=None if attempt.error is None else attempt.wait,
            first_content=None if first is None else first - one.began,
            cut=attempt.cut,
        )

    def abandon(self) -> None:
        """Give up because of a fault of ours: a stream that has begun must not look like a clean end (D16)."""
        self._services.ticker.remove(self._sink)
        if self._sink.begun and not self._sink.ended:
            self._exchange.abort()

    def conclude(self, error: KenariError | None) -> None:
        """Say how it ended: to the client, if it is still there and was not told, and in the line."""
        line, sink = self._line, self._sink
        self._services.ticker.remove(sink)
        if sink.gone and not sink.ended:
            line.ending, line.status = "client_closed", 200 if sink.begun else 499
            return
        if error is None:
            line.status = 200
            return
        line.code, line.ending = error.code, "failed"
        if not sink.begun:
            raise interrupted() if self._content else error
        line.status = 200
        sink.fail(error)

    def _meter(self, one: "Try") -> None:
        """Count along where it may be needed: for a caller that pays, and where a vocabulary is at hand."""
        services, tab, attempt = self._services, self._tab, one.attempt
        counter, model = services.counter, one.candidate.target.model
        counts = counter is not None and counter.encoding(model) != ""
        if counts:
            attempt.count = Count(attempt.request, counter, model)
        if tab is not None:
            attempt.tally = tab.tally(attempt.count)
            tab.begin(attempt, services.pricing.price(one.candidate.model))
        elif counts and attempt.count.by_vocabulary:
            attempt.tally = Tally(attempt.count)

    def _account(self, one: "Try", lost: bool) -> None:
        """The leg of an attempt. One that lost a race is not the caller's bill."""
        line, attempt, services = self._line, one.attempt, self._services
        if attempt.first_content is not None and line.first_content_ms is None and not lost:
            line.first_content_ms = (attempt.first_content - self._started) * 1000
        ms = (services.clock() - one.began) * 1000
        own = one.candidate.own and not any(leg.billed and leg.target == one.candidate.id for leg in line.legs)
        fee = services.own.fee if own else 0  # once for a request, however many rounds it takes (U7)
        if lost:
            leg = Leg(one.candidate.id, attempt.gate.usage or Usage(), "hedged", ms, billed=False)
        else:
            leg = leg_of(one.candidate.id, attempt, not one.fitted.stream, ms, fee)
        line.usage = leg.usage if leg.billed and not line.legs else billed_usage([*line.legs, leg])
        line.legs = [*line.legs, leg]
        if leg.billed:
            line.price = services.pricing.price(one.candidate.model)
            if leg.usage.estimated:
                line.counted = attempt.count.encoding
        if self._tab is not None and not lost:
            self._tab.end()
        if attempt.error is None and attempt.gate.stop is not None:
            line.ending = "length" if attempt.gate.stop.reason == "length" else "done"

    def _tell(self, candidate: Candidate) -> None:
        """The headers that say who answers after how many attempts, for keys that may see it."""
        if self._services.tells_target(self._caller):
            self._exchange.extra_headers = self._lines + target_lines(candidate.id, self._attempts)

    def _make_sink(self) -> Sink:
        services, exchange = self._services, self._exchange
        if not self._request.stream:
            return PlainSink(exchange, self._dialect, self._answer, self._head(JSON))
        head = self._head(STREAM)
        sink = StreamSink(exchange, self._dialect, self._answer, head, services.clock, services.silence)
        services.ticker.add(sink)
        return sink

    def _head(self, kind: bytes) -> bytes:
        lines, notices = id_lines(self._exchange.id) + kind, self._line.notices
        return lines + ignored_line(notices) if notices else lines

    def _note(self, notices: list[Notice]) -> None:
        self._line.notices = notices
        if not self._sink.begun:
            self._sink.head = self._head(STREAM if self._request.stream else JSON)

    def _seal_key(self, key: str) -> str:
        return cache_key(self._services.cache_key, self._caller.account, key)
