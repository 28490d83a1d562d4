"""One request's way through its candidates: each attempt in turn, one sink for all of them, and what the line says."""

import asyncio
import time

import msgspec

from kenari.core.caller import Caller
from kenari.core.errors import KenariError, interrupted
from kenari.core.fold import Reply
from kenari.core.ids import Sealed, SealedPiece, cache_key
from kenari.core.ports import Exchange, Line, Outgoing
from kenari.core.request import Notice, Request
from kenari.dialects.base import Answer, Dialect, Proof
from kenari.dialects.fit import fit
from kenari.gateway.attempt import Attempt
from kenari.gateway.billing import billed_usage, leg_of
from kenari.gateway.heads import JSON, STREAM, id_lines, ignored_line
from kenari.gateway.plan import Candidate, Plan, headers_for
from kenari.gateway.services import Services
from kenari.gateway.sinks import PlainSink, Sink, StreamSink
from kenari.gateway.tab import Tab
from kenari.gateway.tally import Count, Tally


class Wanted(msgspec.Struct, frozen=True):
    """What a caller wants: the decoded request, the plan of the model it names, and who asks. `tab` is the running bill
    of one that is paid."""

    request: Request
    plan: Plan
    caller: Caller
    tab: Tab | None = None


class Run:
    """One request's way through its candidates, with the one sink that all of them share."""

    def __init__(self, services: Services, exchange: Exchange, dialect: Dialect, wanted: Wanted, line: Line) -> None:
        self._services, self._exchange, self._dialect, self._line = services, exchange, dialect, line
        self._request, self._caller, self._tab = wanted.request, wanted.caller, wanted.tab
        request = wanted.request
        self._maker = ""
        self._content = False
        self._started = services.clock()
        self._answer = Answer(
            id=exchange.id,
            created=int(time.time()),
            model=request.model,
            request=request,
            seal=self._seal,
            now=time.time,
            raw_signatures=wanted.plan.raw_signatures,
        )
        self._sink = self._make_sink()

    @property
    def committed(self) -> bool:
        """No other candidate may be tried: content was seen, or the client has gone."""
        return self._content or self._sink.gone

    async def attempt(self, candidate: Candidate) -> KenariError | None:
        """Try one candidate; its error, or None when it answered."""
        services, provider, line = self._services, candidate.provider, self._line
        fitted = fit(self._request, candidate.target, self._seal_key)
        if provider.profile.stream_always:
            fitted.stream = True
        self._maker = candidate.target.maker
        line.target, line.provider_format = candidate.id, provider.dialect
        self._note(fitted.notices)
        attempt = Attempt(candidate, fitted, self._sink, asyncio.get_running_loop().create_future())
        attempt.names = (candidate.target.model, self._request.model)
        self._meter(attempt, candidate)
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
        self._content = self._content or attempt.gate.content
        self._account(candidate, attempt, began, plain=not fitted.stream)
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

    def _meter(self, attempt: Attempt, candidate: Candidate) -> None:
        """Count along where it may be needed: for a caller that pays, and where a vocabulary is at hand."""
        services, tab = self._services, self._tab
        if services.counter is not None:
            attempt.count = Count(self._request, services.counter, candidate.target.model)
        if tab is not None:
            attempt.tally = tab.tally(attempt.count)
            tab.begin(attempt)
        elif services.counter is not None and attempt.count.by_vocabulary:
            attempt.tally = Tally(attempt.count)

    def _account(self, candidate: Candidate, attempt: Attempt, began: float, plain: bool) -> None:
        line = self._line
        now = self._services.clock()
        if attempt.first_content is not None and line.first_content_ms is None:
            line.first_content_ms = (attempt.first_content - self._started) * 1000
        leg = leg_of(candidate.id, attempt, plain, (now - began) * 1000)
        line.legs = [*line.legs, leg]
        line.usage = billed_usage(line.legs)
        if leg.billed and leg.usage.estimated:
            line.counted = attempt.count.encoding
        if self._tab is not None:
            self._tab.close(leg)
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

    def _seal(self, proofs: list[Proof]) -> str:
        pieces = [SealedPiece(proof.kind, proof.value, proof.length) for proof in proofs]
        return self._services.envelopes.seal(Sealed(self._maker, pieces))
