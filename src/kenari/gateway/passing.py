"""Requests that pass: nothing but texts, for a model of one provider of the same format, from a caller without limits.

Most requests of programs are of this kind, with the same model and numbers each time, and what is done for them is the same:
so it is found out once for all that differ in their conversation only (`Pattern`), and a request goes to its provider, and the
answer to the client, in one step each. Nothing is decided here: as soon as anything is out of the ordinary (the client goes,
the provider takes its time, the answer is a stream, or no plain text) the request becomes one that is served by callback (`Direct`), as if it had always been one
(tests/unit/test_passing.py).
"""

import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.outbound import Call, Outgoing, Receiver, Way
from kenari.core.ports import Admission, Exchange, Hold, Leg, Line, Reservation, Watcher
from kenari.core.price import Price
from kenari.core.request import Request
from kenari.dialects.base import Cut, Dialect, Named, Passed
from kenari.dialects.fit import fit
from kenari.gateway.admission import Entry, line_of
from kenari.gateway.direct import Direct
from kenari.gateway.failover import deadline_of
from kenari.gateway.heads import JSON, id_lines, target_lines
from kenari.gateway.plan import Candidate, Plan
from kenari.gateway.run import Run, Wanted
from kenari.gateway.services import Services
from kenari.keys.identify import identify
from kenari.wire import jsonx

PATIENCE = 0.25
"""Seconds after which a request that waits for its provider is one like others, with their time-outs."""
LEAST_TIMEOUT = 1.0
"""Seconds; a provider that has less time for an answer is watched from the beginning."""
MAX_BODY = 256 * 1024
"""Bytes of an answer that are kept until it is whole."""
MAX_PATTERNS = 4096
MAX_AROUND = 2048
"""Bytes around the conversation of requests that are remembered: names and numbers. What is longer changes more often."""
_NAMING = frozenset((b"idempotency-key", b"x-session-id", b"anthropic-beta"))
"""Headers that change what is done with a request."""
_HEAD = id_lines("%s") + JSON
_JSON_TYPES = frozenset((b"application/json", b"application/json; charset=utf-8"))


class Pattern(msgspec.Struct, frozen=True, eq=False):
    """What all requests have in common that differ in their conversation only (`model` is the model's own name, `name` the one
    they give): the plan of its model and its only candidate with its mark, what stands before and behind the conversation in a
    provider's request, and where that goes. `named` is the JSON of the `name`,
    `told` the header lines that say which target answers."""

    name: str
    stream: bool
    model: str
    plan: Plan
    candidate: Candidate
    mark: str
    way: Way
    before: bytes
    after: bytes
    price: Price | None
    named: bytes
    told: bytes


class Passing:
    """Serves the requests of one format that pass, and learns from others which will."""

    def __init__(self, services: Services, dialect: Dialect) -> None:
        self._services, self._dialect = services, dialect
        self._catalog = services.catalog
        self._patterns: dict[tuple[bytes, bytes], Pattern | None] = {}  # None: those do not pass
        self._once: set[int] = set()  # what came once, by its hash
        self._open: set[Passage] = set()
        self._ticks = False

    def begin(self, exchange: Exchange, dialect: Dialect) -> Coroutine[Any, Any, bool] | bool:
        """Take up a request that came in this format, if it is of this kind and a pattern is known for it; where the books have
        to be waited for, the coroutine that does so. False: nothing was done."""
        services = self._services
        if dialect is not self._dialect or not self._patterns or services.catalog is not self._catalog:
            return False
        try:
            caller = identify(services.keys, exchange.headers)
        except KenariError:  # it will be said by who looks at everything
            return False
        found = self._find(exchange) if caller.unlimited else None
        if found is None:
            return False
        pattern, conversation = found
        passage = Passage(self._open, services, pattern, exchange, caller, services.clock())
        reservation = Reservation(id=exchange.id, caller=caller, model=pattern.model, price=pattern.price)
        passage.hold = services.books.admit(reservation)
        if passage.hold is None:
            return self._booked(passage, reservation, conversation)
        self._send(passage, conversation)
        return True

    def _find(self, exchange: Exchange) -> tuple[Pattern, bytes] | None:
        """The pattern of a request and its conversation, None for one that does not pass."""
        cut = self._dialect.cut(exchange.body)
        pattern = None if cut is None else self._patterns.get((cut.before, cut.after))
        if cut is None or pattern is None or not _NAMING.isdisjoint(exchange.headers):
            return None
        passes = self._services.routing.is_well(pattern.mark) and self._dialect.is_texts(cut.conversation)
        return (pattern, cut.conversation) if passes else None

    async def _booked(self, passage: "Passage", reservation: Reservation, conversation: bytes) -> bool:
        """The same once the books have let it in. True: it goes on by callback."""
        try:
            passage.hold = await self._services.books.reserve(reservation)
        except BaseException as fault:
            passage.fail(fault)
            if not isinstance(fault, Exception):  # the process ends
                raise
            return False  # the books' refusal, or a fault of ours: the client was told
        if passage.exchange.gone:
            passage.leave()
            return False
        self._send(passage, conversation)
        return True

    def go_on(self, entry: Entry, wanted: Wanted) -> bool:
        """The same for a request that was let in already, whoever sent it. True: it is answered, and its entry closed, from
        here."""
        services, request, exchange = self._services, wanted.request, entry.exchange
        if request.stream or not request.plain or request.max_output is not None or entry.hold is None or exchange.gone:
            return False
        found = self._find(exchange)
        if found is None or found[0].plan is not wanted.plan:
            return False
        pattern, conversation = found
        passage = Passage(
            self._open, services, pattern, exchange, wanted.caller, entry.began, entry.hold, entry, wanted
        )
        entry.detach()
        self._send(passage, conversation)
        return True

    def _send(self, passage: "Passage", conversation: bytes) -> None:
        pattern = passage.pattern
        body = pattern.before + conversation + pattern.after
        try:
            if pattern.stream:  # it is read as others are; what is needed for that is made while the provider thinks
                passage.call = pattern.way.send(body, passage)
                passage.become()
                return
            passage.exchange.watcher = passage
            self._open.add(passage)
            if not self._ticks:
                self._ticks = True
                self._services.ticker.add(self)
            passage.call = pattern.way.send(body, passage, passage)
        except Exception as fault:  # noqa: BLE001 - ours: the client is told and the line is written
            passage.fail(fault)

    def learn(self, request: Request, body: bytes, plan: Plan) -> None:
        """A request was taken up: how those pass that have another conversation and are like it otherwise, if they can."""
        services = self._services
        if services.catalog is not self._catalog:
            self._catalog, self._patterns, self._once = services.catalog, {}, set()
        alone = len(plan.candidates) == 1
        if not (request.plain and alone and request.origin == self._dialect.name and not services.dialects):
            return
        cut = self._dialect.cut(body)
        if cut is None or len(cut.before) + len(cut.after) > MAX_AROUND:
            return
        around = (cut.before, cut.after)
        if around in self._patterns or not self._comes_again(request, around):
            return
        if len(self._patterns) >= MAX_PATTERNS:
            self._patterns = {}
        self._patterns[around] = self._pattern(cut, plan)

    def _comes_again(self, request: Request, around: tuple[bytes, bytes]) -> bool:
        """Whether there will be more requests like this one, as far as one can know: of those with numbers and words of their
        own, which may be others each time, those that came before."""
        if not (request.sampling or request.stop or request.extra or request.user or request.max_output is not None):
            return True
        mark = hash(around)
        if mark in self._once:
            return True
        if len(self._once) >= MAX_PATTERNS:
            self._once.clear()
        self._once.add(mark)
        return False

    def _pattern(self, cut: Cut, plan: Plan) -> Pattern | None:
        """What is made of such a request with a conversation of ours: where that is found in the provider's request as it
        is, any other conversation of texts may stand there."""
        services, candidate = self._services, plan.candidates[0]
        provider, profile = candidate.provider, candidate.provider.profile
        sample = self._dialect.SAMPLE
        least = min(provider.header_timeout, provider.first_event_timeout, deadline_of(services, plan))
        if candidate.own or candidate.dialect is not self._dialect or profile.stream_always or least < LEAST_TIMEOUT:
            return None
        try:
            request = self._dialect.decode_request(cut.before + sample + cut.after)
            fitted = fit(request, candidate.target)
        except KenariError:
            return None
        alone = request.plain and request.user is None and [turn.raw for turn in request.turns] == [Raw(sample[1:-1])]
        sent = candidate.dialect.encode_request(fitted, profile)
        before, _, after = sent.partition(sample)
        way = services.upstream(candidate).way(
            Outgoing(
                url=candidate.url,
                headers=candidate.signed,
                body=b"",
                connect_timeout=provider.connect_timeout,
                proxy=provider.proxy,
                ca=provider.ca,
            )
        )
        if not (alone and fitted.plain and sent.count(sample) == 1) or fitted.notices or way is None:
            return None
        return Pattern(
            name=request.model,
            stream=request.stream,
            model=plan.model.id,
            plan=plan,
            candidate=candidate,
            mark=services.routing.mark(candidate),
            way=way,
            before=before,
            after=after,
            price=services.pricing.price(plan.model),
            named=jsonx.encode(request.model),
            told=target_lines(candidate.id, 1),
        )

    def tick(self, now: float) -> bool:
        """Who waits for long is one like others; True when nobody waits."""
        for passage in tuple(self._open):
            if now - passage.began >= PATIENCE:
                passage.become()
        self._ticks = bool(self._open)
        return not self._ticks


class Passage(msgspec.Struct, eq=False):
    """One such request: hears of its provider (core.outbound.Hearer) and of its client (core.ports.Watcher). `began` is the loop's
    time. `entry` and `wanted` are there where it was let in like others. `headers` and `body` are what came of an answer that
    may pass when it is whole."""

    waiting: "set[Passage]"
    services: Services
    pattern: Pattern
    exchange: Exchange
    caller: Caller
    began: float
    hold: Hold | None = None
    entry: Entry | None = None
    wanted: Wanted | None = None
    call: Call | None = None
    headers: dict[bytes, bytes] | None = None
    body: bytes = b""

    def on_whole(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """The provider's whole answer."""
        pattern, passed = self.pattern, None
        candidate = pattern.candidate
        try:
            if headers.get(b"content-type") in _JSON_TYPES:
                named = Named(self.exchange.id, int(time.time()), pattern.named)
                passed = candidate.dialect.pass_reply(body, named, candidate.provider.profile)
            if passed is not None:
                self.call = None
                self.waiting.discard(self)
                self._answer(passed)
                return
        except Exception as fault:  # noqa: BLE001 - as above
            self.fail(fault)
            return
        self.headers, self.body = headers, body
        receiver = self.become()
        if receiver is not None:
            receiver.on_end()

    def _answer(self, passed: Passed) -> None:
        """Answer; then how its candidate fared, and the request's line."""
        exchange, services = self.exchange, self.services
        id = exchange.id.encode()
        if services.tells_target(self.caller):
            exchange.extra_headers += self.pattern.told
        exchange.answer(200, _HEAD % (id, id), passed.body)
        seconds = services.clock() - self.began
        services.routing.worked(self.pattern.candidate, self.pattern.mark, seconds)
        if self.entry is not None:
            self._fill(self.entry.line, passed, seconds)
            self.entry.close(None)
        elif self.hold is not None:  # as it always is then
            services.books.settle_later(self.hold, partial(self._line, passed, seconds))

    def _line(self, passed: Passed, seconds: float) -> Line:
        """Its line, when it was answered after so many seconds."""
        entry = self._entry()
        try:
            self._fill(entry.line, passed, seconds)
            return entry.finished(seconds)
        except Exception as fault:  # noqa: BLE001 - ours: it is told by the line
            return entry.broken(fault)

    def _fill(self, line: Line, passed: Passed, seconds: float) -> None:
        candidate = self.pattern.candidate
        line.target, line.provider_format, line.status = candidate.id, candidate.dialect.name, 200
        line.ending = "length" if passed.stop.reason == "length" else "done"
        line.first_content_ms = ms = seconds * 1000
        line.usage, line.legs = passed.usage, [Leg(candidate.id, passed.usage, "ok", ms)]

    def become(self) -> Receiver | None:
        """Go on as a request that is served by callback; who hears of the provider from now on, and has heard of what came.
        None: it is over."""
        call, self.call = self.call, None
        if call is None:
            return None
        self.waiting.discard(self)
        entry = self.entry or self._entry()
        try:
            wanted = self.wanted
            if wanted is None:
                request = entry.dialect.decode_request(self.exchange.body)
                entry.line.notices = request.notices
                wanted = Wanted(request, self.pattern.plan, self.caller)
            run = Run(self.services, self.exchange, entry.dialect, wanted, entry.line, self.began)
            receiver = Direct(self.services, entry, run, wanted).adopt(call, self.began)
        except Exception as fault:  # noqa: BLE001 - as above
            call.abort()
            entry.close(fault)
            return None
        call.hear(receiver)
        if self.headers is not None:
            receiver.on_head(200, self.headers)
            if self.body:
                receiver.on_body(self.body)
            self.headers, self.body = None, b""
        return receiver

    def fail(self, fault: BaseException) -> None:
        """A fault of ours, or the books' refusal, ends it."""
        self.call = None
        self.waiting.discard(self)
        (self.entry or self._entry()).close(fault)

    def leave(self) -> None:
        """The client went before anything was sent."""
        entry = self._entry()
        entry.line.ending, entry.line.status = "client_closed", 499
        entry.close(None)

    def _entry(self) -> Entry:
        """Its place in the books, as far as it has come."""
        exchange, dialect = self.exchange, self.pattern.candidate.dialect
        line = line_of(exchange, dialect.name)
        line.account, line.key, line.model = self.caller.account, self.caller.key, self.pattern.name
        line.stream = self.pattern.stream
        line.price = self.pattern.price if self.hold is not None else None
        entry = Entry(self.services, exchange, dialect, line, self.began)
        entry.hold, entry.admission = self.hold, Admission(exchange.id, self.caller)
        return entry

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """An answer that is one JSON text may pass when it is whole; any other has to be read as it comes."""
        if status == 200 and headers.get(b"content-type") in _JSON_TYPES:
            self.headers = headers
            return
        receiver = self.become()
        if receiver is not None:
            receiver.on_head(status, headers)

    def on_body(self, data: bytes) -> None:
        """More of it."""
        self.body = self.body + data if self.body else data
        if len(self.body) > MAX_BODY:
            self.become()

    def on_end(self) -> None:
        """It is whole."""
        headers, body = self.headers, self.body
        if headers is not None:
            self.headers, self.body = None, b""
            self.on_whole(headers, body)

    # -- all of this makes it a request like others

    def on_lost(self, error: KenariError) -> None:
        """There is no answer."""
        receiver = self.become()
        if receiver is not None:
            receiver.on_lost(error)

    def on_gone(self) -> None:
        """The client has gone."""
        watcher = self._watcher()
        if watcher is not None:
            self.exchange.watcher = None
            watcher.on_gone()

    def on_pause(self) -> None:
        """The client reads too slowly."""
        watcher = self._watcher()
        if watcher is not None:
            watcher.on_pause()

    def on_resume(self) -> None:
        """Never: who heard that it stopped to read hears of this too."""

    def _watcher(self) -> Watcher | None:
        """Who hears of the client from now on."""
        return self.exchange.watcher if self.become() is not None else None
