"""One request from bytes to bytes. `Gateway.complete` reads as a table of contents."""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable

import msgspec

from kenari.catalog.models import Catalog, Model
from kenari.core.caller import Caller
from kenari.core.errors import KenariError, interrupted
from kenari.core.fold import Reply
from kenari.core.ids import Envelopes, Sealed, SealedPiece, cache_key
from kenari.core.ports import Books, Exchange, Hold, Keys, Leg, Line, Outgoing, Reservation, Upstream
from kenari.core.request import Notice, Request
from kenari.dialects.base import Answer, Dialect, Proof
from kenari.dialects.fit import fit
from kenari.gateway.attempt import Attempt
from kenari.gateway.count import count_at_provider
from kenari.gateway.estimate import estimate_prompt
from kenari.gateway.heads import JSON, STREAM, answer_error, id_lines, ignored_line
from kenari.gateway.plan import Candidate, Plan, headers_for, make_plan
from kenari.gateway.sinks import PlainSink, Sink, StreamSink
from kenari.gateway.ticker import Ticker
from kenari.keys.bootstrap import identify
from kenari.providers.base import Provider

_log = logging.getLogger("kenari.gateway")


class Gateway:
    """Everything that serving a request needs. `upstreams` maps an address scheme to the outbound end that serves it.

    `keepalive` and `noop_after` are seconds of silence (S15, D15). `envelopes` and `cache_key` are derived from the
    one secret (F10).
    """

    def __init__(  # noqa: PLR0913 - the ports of the house, each by name
        self,
        *,
        catalog: Catalog,
        providers: dict[str, Provider],
        keys: Keys,
        books: Books,
        upstreams: dict[str, Upstream],
        ticker: Ticker,
        envelopes: Envelopes,
        cache_key: bytes,
        keepalive: float,
        noop_after: float,
    ) -> None:
        self.catalog = catalog
        self.providers = providers
        self.keys = keys
        self.books = books
        self.upstreams = upstreams
        self.ticker = ticker
        self.envelopes = envelopes
        self.cache_key = cache_key
        self.silence = (keepalive, noop_after)
        self._plans: dict[str, Plan] = {}
        self.clock: Callable[[], float] = asyncio.get_running_loop().time

    async def complete(self, exchange: Exchange, dialect: Dialect) -> None:
        """Answer one request of a chat endpoint. Never raises: a failure is the client's answer and the line's code."""
        started = self.clock()
        line = Line(
            id=exchange.id,
            client_format=dialect.name,
            method=exchange.method,
            path=exchange.path,
            peer=exchange.peer,
        )
        hold: Hold | None = None
        try:
            caller = identify(self.keys, exchange.headers)
            line.account, line.key = caller.account, caller.key
            request = dialect.decode_request(exchange.body)
            line.model, line.stream, line.notices = request.model, request.stream, request.notices
            model = self.catalog.chat_model(request.model)
            hold = await self.books.reserve(Reservation(id=exchange.id, caller=caller, model=model.id))
            await self._answer(exchange, dialect, request, model, caller, line)
        except KenariError as error:
            line.code, line.status = error.code, error.status
            line.ending = "failed" if hold is not None else "refused"
            answer_error(exchange, dialect, error)
        except Exception as fault:  # noqa: BLE001 - ours: the client gets an error of its format, the operator a trace
            log_fault(fault, exchange.id)
            line.code, line.ending, line.status = "internal_error", "failed", 500
            answer_error(exchange, dialect, _internal())
        finally:
            line.duration_ms = (self.clock() - started) * 1000
            self.books.settle(hold, line)

    async def _answer(
        self, exchange: Exchange, dialect: Dialect, request: Request, model: Model, caller: Caller, line: Line
    ) -> None:
        """Try the candidates in order until one's first content."""
        plan = self.plan(model)
        if not plan.candidates:
            raise KenariError(
                "upstream_unavailable", "no provider of this model is configured. tell the operator", retry_after=30
            )
        run = _Run(self, exchange, dialect, Wanted(request, plan, caller), line)
        error: KenariError | None = None
        try:
            for candidate in plan.candidates:
                try:
                    error = await run.attempt(candidate)
                except KenariError as refused:  # this target cannot take the request
                    error = refused
                if error is None or run.committed or not error.elsewhere:
                    break
        except BaseException:
            run.abandon()
            raise
        run.conclude(error)

    async def count(self, exchange: Exchange, dialect: Dialect) -> None:
        """Answer `count_tokens`: the provider's number where it counts, else our estimate (M4). Costs nothing."""
        try:
            identify(self.keys, exchange.headers)
            request = dialect.decode_request(exchange.body)
            model = self.catalog.chat_model(request.model)
            number: int | None = None
            candidate = next(iter(self.plan(model).candidates), None)
            if candidate is not None and _counts(candidate):
                fitted = fit(request, candidate.target)
                number = await count_at_provider(fitted, candidate, self.upstream(candidate), self.ticker)
            body = b'{"input_tokens":%d}' % (number or estimate_prompt(request))
            exchange.answer(200, id_lines(exchange.id) + JSON, body)
        except KenariError as error:
            answer_error(exchange, dialect, error)

    def plan(self, model: Model) -> Plan:
        """The model's plan, made once: configuration does not change while it is served."""
        plan = self._plans.get(model.id)
        if plan is None:
            plan = self._plans[model.id] = make_plan(model, self.providers, self.envelopes)
        return plan

    def upstream(self, candidate: Candidate) -> Upstream:
        """The outbound end for a candidate's address."""
        scheme = candidate.provider.base_url.partition(":")[0]
        return self.upstreams[scheme]


class Wanted(msgspec.Struct, frozen=True):
    """What a caller wants: the decoded request, the plan of the model it names, and who asks."""

    request: Request
    plan: Plan
    caller: Caller


class _Run:
    """One request's way through its candidates, with the one sink that all of them share."""

    def __init__(self, gateway: Gateway, exchange: Exchange, dialect: Dialect, wanted: "Wanted", line: Line) -> None:
        self._gateway, self._exchange, self._dialect, self._line = gateway, exchange, dialect, line
        self._request, self._caller = wanted.request, wanted.caller
        request = wanted.request
        self._maker = ""
        self._content = False
        self._started = gateway.clock()
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
        gateway, provider, line = self._gateway, candidate.provider, self._line
        fitted = fit(self._request, candidate.target, self._seal_key)
        if provider.profile.stream_always:
            fitted.stream = True
        self._maker = candidate.target.maker
        line.target, line.provider_format = candidate.id, provider.dialect
        self._note(fitted.notices)
        attempt = Attempt(candidate, fitted, self._sink, asyncio.get_running_loop().create_future())
        attempt.names = (candidate.target.model, self._request.model)
        began = gateway.clock()
        attempt.start(
            gateway.upstream(candidate),
            Outgoing(
                url=candidate.url,
                headers=headers_for(candidate, self._exchange.headers, self._request.origin),
                body=candidate.dialect.encode_request(fitted, provider.profile),
                connect_timeout=provider.connect_timeout,
                proxy=provider.proxy,
                ca=provider.ca,
            ),
        )
        gateway.ticker.add(attempt)
        try:
            await attempt.done
        finally:
            if attempt.over:
                gateway.ticker.remove(attempt)
        self._content = self._content or attempt.gate.content
        self._account(candidate, attempt, began)
        return attempt.error

    def abandon(self) -> None:
        """Give up because of a fault of ours: a stream that has begun must not look like a clean end (D16)."""
        self._gateway.ticker.remove(self._sink)
        if self._sink.begun and not self._sink.ended:
            self._exchange.abort()

    def conclude(self, error: KenariError | None) -> None:
        """Say how it ended: to the client, if it is still there and was not told, and in the line."""
        line, sink = self._line, self._sink
        self._gateway.ticker.remove(sink)
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
        now = self._gateway.clock()
        if attempt.first_content is not None and line.first_content_ms is None:
            line.first_content_ms = (attempt.first_content - self._started) * 1000
        outcome = "client_closed" if attempt.left else attempt.error.code if attempt.error else "ok"
        used = attempt.gate.content or attempt.error is None
        leg = Leg(candidate.id, attempt.usage, outcome, (now - began) * 1000) if used else None
        if leg is None:
            return
        line.legs = [*line.legs, leg]
        line.usage = leg.usage
        if attempt.error is None and attempt.gate.stop is not None:
            line.ending = "length" if attempt.gate.stop.reason == "length" else "done"

    def _make_sink(self) -> Sink:
        gateway, exchange = self._gateway, self._exchange
        if not self._request.stream:
            return PlainSink(exchange, self._finish_plain)
        sink = StreamSink(
            exchange, self._dialect.encoder(self._answer), self._head(STREAM), gateway.clock, gateway.silence
        )
        gateway.ticker.add(sink)
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
        return cache_key(self._gateway.cache_key, self._caller.account, key)

    def _seal(self, proofs: list[Proof]) -> str:
        pieces = [SealedPiece(proof.kind, proof.value, proof.length) for proof in proofs]
        return self._gateway.envelopes.seal(Sealed(self._maker, pieces))


def _counts(candidate: Candidate) -> bool:
    flag = candidate.provider.profile.count_tokens
    return candidate.provider.dialect == "messages" and flag is not False


def log_fault(fault: BaseException, request_id: str) -> None:
    """Log where a fault of ours arose. Its message is left out: it may quote a prompt or a secret."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = " < ".join(f"{frame.filename.rpartition('kenari/')[2]}:{frame.lineno}" for frame in reversed(frames[-8:]))
    _log.error("internal error in request %s: %s at %s", request_id, type(fault).__name__, where)


def _internal() -> KenariError:
    return KenariError("internal_error", "something went wrong in kenari. send the request again; tell the operator")
