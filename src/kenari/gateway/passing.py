"""Requests that pass: nothing but texts, for a model of one provider of the same format, from a caller without limits.

Most requests of programs are of this kind, with the same model and numbers each time, and what is done for them is the same:
so it is found out once for all that differ in their conversation only (`Pattern`), and a request goes to its provider, and the
answer to the client, in one step each. Nothing is decided here: as soon as anything is out of the ordinary (the client goes,
the provider takes its time, the answer is a stream, or no plain text) the request becomes one that is served by callback
(`Direct`), as if it had always been one (tests/unit/test_passing.py). Here is found out what passes; `lane.py` does it.
"""

from collections.abc import Coroutine
from typing import Any

from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.outbound import Outgoing
from kenari.core.ports import Exchange
from kenari.core.request import Request
from kenari.dialects.base import Cut, Dialect
from kenari.dialects.fit import fit
from kenari.gateway.admission import Entry
from kenari.gateway.failover import deadline_of
from kenari.gateway.heads import target_lines
from kenari.gateway.lane import Lane, Passage, Pattern, Waiting
from kenari.gateway.plan import Plan
from kenari.gateway.run import Wanted
from kenari.gateway.services import Services
from kenari.keys.identify import identify, only_secret
from kenari.wire import jsonx

LEAST_TIMEOUT = 1.0
"""Seconds; a provider that has less time for an answer is watched from the beginning."""
MAX_PATTERNS = 4096
MAX_AROUND = 2048
"""Bytes around the conversation of requests that are remembered: names and numbers. What is longer changes more often."""
_NAMING = frozenset((b"idempotency-key", b"x-session-id", b"anthropic-beta"))
"""Headers that change what is done with a request."""


class Passing:
    """Serves the requests of one format that pass, and learns from others which will."""

    def __init__(self, services: Services, dialect: Dialect) -> None:
        self._services, self._dialect = services, dialect
        self._catalog = services.catalog
        self._patterns: dict[tuple[bytes, bytes], Pattern | None] = {}  # None: those do not pass
        self._once: set[int] = set()  # what came once, by its hash
        self._waiting = Waiting(services)

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
        pattern, cut = found
        lane = Lane(self._waiting, services, pattern, caller)
        secret = only_secret(exchange.headers)
        if secret is not None:
            lane.lead(cut, secret)
            exchange.lead(lane.take)
        return lane.pass_on(exchange, cut.conversation)

    def _find(self, exchange: Exchange) -> tuple[Pattern, Cut] | None:
        """The pattern of a request and its pieces, None for one that does not pass."""
        cut = self._dialect.cut(exchange.body)
        pattern = None if cut is None else self._patterns.get((cut.before, cut.after))
        if cut is None or pattern is None or not _NAMING.isdisjoint(exchange.headers):
            return None
        passes = self._services.routing.is_well(pattern.mark) and self._dialect.is_texts(cut.conversation)
        return (pattern, cut) if passes else None

    def go_on(self, entry: Entry, wanted: Wanted) -> bool:
        """The same for a request that was let in already, whoever sent it. True: it is answered, and its entry closed, from
        here."""
        services, request, exchange = self._services, wanted.request, entry.exchange
        if request.stream or not request.plain or request.max_output is not None or entry.hold is None or exchange.gone:
            return False
        found = self._find(exchange)
        if found is None or found[0].plan is not wanted.plan:
            return False
        pattern, cut = found
        lane = Lane(self._waiting, services, pattern, wanted.caller)
        entry.detach()
        lane.send(Passage(lane, exchange, entry.began, entry.hold, entry, wanted), cut.conversation)
        return True

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
        request.sample = fitted.sample = True
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
            request=request,
            fitted=fitted,
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
