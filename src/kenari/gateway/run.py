"""One request's way through its candidates: each attempt in turn, one sink for all of them, and what the line says."""

import asyncio
import time

import msgspec

from kenari.core.caller import Caller
from kenari.core.errors import KenariError, interrupted
from kenari.core.fold import Reply
from kenari.core.ids import Sealed, SealedPiece, cache_key
from kenari.core.ports import Exchange, Leg, Line, Outgoing
from kenari.core.request import Notice, Request
from kenari.dialects.base import Answer, Dialect, Proof
from kenari.dialects.fit import fit
from kenari.gateway.attempt import Attempt
from kenari.gateway.heads import JSON, STREAM, id_lines, ignored_line
from kenari.gateway.loop import Loop, Waiting, needs_loop
from kenari.gateway.media import Preparation, has_media
from kenari.gateway.plan import Candidate, Plan, headers_for
from kenari.gateway.services import Services
from kenari.gateway.sinks import PlainSink, Sink, StreamSink


class Wanted(msgspec.Struct, frozen=True):
    """What a caller wants: the decoded request, the plan of the model it names, and who asks."""

    request: Request
    plan: Plan
    caller: Caller


class Run:
    """One request's way through its candidates, with the one sink that all of them share."""

    def __init__(self, services: Services, exchange: Exchange, dialect: Dialect, wanted: Wanted, line: Line) -> None:
        self._services, self._exchange, self._dialect, self._line = services, exchange, dialect, line
        self._request, self._caller = wanted.request, wanted.caller
        request = wanted.request
        self._maker = ""
        self._content = False
        self._started = services.clock()
        self._answer = Answer(
            id=exchange.id,
            created=int(time.time()),
            model=request.model,
            request=request,
            seal=self.seal,
            now=time.time,
            raw_signatures=wanted.plan.raw_signatures,
        )
        media = services.media
        self._media = Preparation(media, request) if media is not None and has_media(request) else None
        self._sink = self._make_sink()

    @property
    def committed(self) -> bool:
        """No other candidate may be tried: content was seen, or the client has gone."""
        return self._content or self._sink.gone

    @property
    def services(self) -> Services:
        """What serving needs (loop.Runner)."""
        return self._services

    @property
    def sink(self) -> Sink:
        """Where the answer goes."""
        return self._sink

    def bill(self, legs: list[Leg]) -> None:
        """Runs of tools: legs of this request like calls of providers."""
        self._line.legs = [*self._line.legs, *legs]

    async def attempt(self, candidate: Candidate) -> KenariError | None:
        """Try one candidate; its error, or None when it answered."""
        request = self._request
        if self._media is not None:
            ready = await self._prepare(self._media, candidate)
            if ready is None:
                return None
            request = ready
        if not (request.served or request.format) or not needs_loop(request, candidate):
            return await self.leg(candidate, request, self._sink)
        loop = Loop(self, request, candidate)
        try:
            return await loop.run()
        finally:
            self._content = self._content or loop.shown

    async def _prepare(self, media: Preparation, candidate: Candidate) -> Request | None:
        """The request with its images and documents as the candidate takes them; None when the client went away."""
        task = asyncio.ensure_future(media.ready_for(candidate.target))
        self._sink.attach(Waiting(task))
        try:
            return await task
        except asyncio.CancelledError:
            if self._sink.gone:
                return None
            raise
        finally:
            self._sink.attach(None)
            task.cancel()

    async def leg(self, candidate: Candidate, request: Request, sink: Sink) -> KenariError | None:
        """One call of a candidate; its error, or None when it answered. `sink` is ours, or the loop's before it."""
        services, provider, line = self._services, candidate.provider, self._line
        fitted = fit(request, candidate.target, self._seal_key)
        if provider.profile.stream_always:
            fitted.stream = True
        self._maker = candidate.target.maker
        line.target, line.provider_format = candidate.id, provider.dialect
        self._note(fitted.notices)
        attempt = Attempt(candidate, fitted, sink, asyncio.get_running_loop().create_future())
        attempt.names = (candidate.target.model, self._request.model)
        began = services.clock()
        attempt.start(
            services.upstream(candidate),
            Outgoing(
                url=candidate.url,
                headers=headers_for(candidate, self._exchange.headers, self._request.origin),
                body=candidate.dialect.encode_request(fitted, provider.profile),
                connect_timeout=provider.connect_timeout,
                proxy=provider.proxy,
                ca=provider.ca,
            ),
        )
        services.ticker.add(attempt)
        try:
            await attempt.done
        finally:
            if attempt.over:
                services.ticker.remove(attempt)
        if sink is self._sink:
            self._content = self._content or attempt.gate.content
        self._account(candidate, attempt, began)
        return attempt.error

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

    def _account(self, candidate: Candidate, attempt: Attempt, began: float) -> None:
        line = self._line
        now = self._services.clock()
        if attempt.first_content is not None and line.first_content_ms is None:
            line.first_content_ms = (attempt.first_content - self._started) * 1000
        outcome = "client_closed" if attempt.left else attempt.error.code if attempt.error else "ok"
        used = attempt.gate.content or attempt.error is None
        leg = Leg(candidate.id, attempt.usage, outcome, (now - began) * 1000) if used else None
        if leg is None:
            return
        line.legs = [*line.legs, leg]
        line.usage = line.usage.plus(leg.usage) if len(line.legs) > 1 else leg.usage
        if attempt.error is None and attempt.gate.stop is not None:
            line.ending = "length" if attempt.gate.stop.reason == "length" else "done"

    def _make_sink(self) -> Sink:
        services, exchange = self._services, self._exchange
        if not self._request.stream:
            return PlainSink(exchange, self._finish_plain)
        sink = StreamSink(
            exchange, self._dialect.encoder(self._answer), self._head(STREAM), services.clock, services.silence
        )
        services.ticker.add(sink)
        return sink

    def _finish_plain(self, reply: Reply) -> None:
        self._exchange.answer(200, self._head(JSON), self._dialect.encode_reply(reply, self._answer))

    def _head(self, kind: bytes) -> bytes:
        return id_lines(self._exchange.id) + kind + ignored_line(self._line.notices)

    def _note(self, notices: list[Notice]) -> None:
        self._line.notices = notices
        if isinstance(self._sink, StreamSink) and not self._sink.begun:
            self._sink.head = self._head(STREAM)

    def _seal_key(self, key: str) -> str:
        return cache_key(self._services.cache_key, self._caller.account, key)

    def seal(self, proofs: list[Proof]) -> str:
        pieces = [SealedPiece(proof.kind, proof.value, proof.length) for proof in proofs]
        return self._services.envelopes.seal(Sealed(self._maker, pieces))
