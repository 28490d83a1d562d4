"""One request of an endpoint beside chat, from bytes to bytes: the same keys, books, candidates and failover."""

from typing import NamedTuple

import msgspec

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.outbound import Outgoing
from kenari.core.ports import Exchange, Leg, Line, Reservation
from kenari.core.usage import Usage
from kenari.dialects.base import Dialect
from kenari.gateway.admission import Entry, allowed_price, digest_of, known_caller, line_of
from kenari.gateway.failover import find_way, try_candidates
from kenari.gateway.heads import JSON, id_lines, target_lines
from kenari.gateway.kinds.asks import SPOTS, Ask, Spot, read_ask
from kenari.gateway.kinds.form import Form
from kenari.gateway.kinds.meter import Used, expected_seconds, fee_of, used_of
from kenari.gateway.kinds.relay import Relay
from kenari.gateway.plan import Candidate, Plan, own_refused
from kenari.gateway.plans import Plans
from kenari.gateway.routing import Outcome, session_in
from kenari.gateway.services import Services
from kenari.ledger.price import quote
from kenari.providers.base import endpoint, sign

_NO_STORE = b"cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"


class Kinds:
    """Serves the endpoints of SPOTS. `dialect` writes the errors: the OpenAI envelope."""

    def __init__(self, services: Services, plans: Plans, dialect: Dialect) -> None:
        self._services, self._plans, self._dialect = services, plans, dialect

    async def serve(self, exchange: Exchange, path: str) -> None:
        """Answer one request. Never raises: a failure is the client's answer and the line's code."""
        services, spot = self._services, SPOTS[path]
        line = line_of(exchange, spot.kind)
        with Entry(services, exchange, self._dialect, line) as entry:
            caller = known_caller(services, exchange, path)
            line.account, line.key = caller.account, caller.key
            if not spot.form:
                await self._answer(entry, caller, spot, Wish(read_ask(spot.kind, exchange.body), None), line)
                return
            form = Form(exchange, services.clock)
            try:
                if await form.ready():
                    await self._answer(entry, caller, spot, Wish(form.ask(), form), line)
                else:
                    line.ending, line.status = "client_closed", 499
            finally:
                form.close()

    async def _answer(self, entry: Entry, caller: Caller, spot: Spot, wish: "Wish", line: Line) -> None:
        services, exchange, ask = self._services, entry.exchange, wish.ask
        line.model, line.stream = ask.model, ask.stream
        plan = self._plans.find(ask.model, spot.kind, caller)
        await self._enter(entry, exchange, caller, ask, plan)
        run = _KindRun(services, exchange, spot, wish, line, services.tells_target(caller))
        way = await find_way(services, plan, caller, session_in(exchange.headers))
        run.conclude(await try_candidates(run, services.routing, way))

    async def _enter(self, entry: Entry, exchange: Exchange, caller: Caller, ask: Ask, plan: Plan) -> None:
        """Past scopes, limits and books, with what the request may cost set aside (F8)."""
        model = plan.model
        price = allowed_price(self._services, caller, ask.model, model)
        amount = 0
        if price is not None and self._services.pricing.enforce and not caller.unlimited:
            expected = Used(images=ask.images, characters=ask.characters, seconds=expected_seconds(ask))
            amount = quote(ask.tokens, 0, price) + fee_of(model.price, expected)
            amount += self._services.own.fee if any(one.own for one in plan.candidates) else 0
        reservation = Reservation(
            id=exchange.id, caller=caller, model=model.id, amount=amount, least=amount, price=price
        )
        digest = b"" if caller.unlimited else await digest_of(exchange.path, ask.seen)
        await entry.enter(reservation, ask.tokens, digest)


class Wish(NamedTuple):
    """What a client wants, and the form that it still comes in, None for JSON."""

    ask: Ask
    form: Form | None


class _KindRun:
    """One request's way through its candidates."""

    def __init__(self, services: Services, exchange: Exchange, spot: Spot, wish: Wish, line: Line, tells: bool) -> None:
        self.exchange = exchange
        self._ask, self._form = wish
        self._services, self._spot, self._line, self._tells = services, spot, line, tells
        self._lines = exchange.extra_headers
        self._attempts = 0
        self._passing = False
        self._started = services.clock()

    @property
    def committed(self) -> bool:
        """No other candidate may be tried: bytes of an answer are out, or the client has gone."""
        return self._passing or self.exchange.gone

    def now(self) -> float:
        """The loop's time, less what the client took to send its form."""
        now = self._services.clock()
        return now if self._form is None else now - self._form.late(now)

    async def attempt(self, candidate: Candidate, until: float) -> Outcome:
        """Try one candidate, and tell how it fared."""
        services, provider, line = self._services, candidate.provider, self._line
        if provider.dialect == "messages":
            words = "this model's provider has no such endpoint. tell the operator to check the model's entry"
            error = KenariError("upstream_error", words, should_retry=False, elsewhere=True)
            return Outcome(candidate=candidate, error=error, called=False)
        line.target, line.provider_format = candidate.id, provider.dialect
        self._attempts += 1
        if self._tells:
            self.exchange.extra_headers = self._lines + target_lines(candidate.id, self._attempts)
        ask, form = self._ask, self._form
        relay = Relay(candidate, ask, self.exchange, self._begin, form)
        relay.until = until
        began, late = services.clock(), services.clock() - self.now()
        relay.start(
            services.upstream(candidate),
            Outgoing(
                url=endpoint(provider, self._spot.upstream_path),
                headers=sign(provider, candidate.key, {}, "", ask.content_type),
                body=ask.body(candidate.target.model),
                stream=None if ask.stream_of is None else ask.stream_of(candidate.target.model),
                connect_timeout=provider.connect_timeout,
                proxy=provider.proxy,
                ca=provider.ca,
            ),
        )
        services.ticker.add(relay)
        try:
            await relay.done
        finally:
            services.ticker.remove(relay)
        late = services.clock() - self.now() - late  # for so long the provider waited for the client
        if form is not None and form.broken is None:
            self._ask = form.ask()
        self._account(candidate, relay, began)
        first = relay.first
        return Outcome(
            candidate=candidate,
            error=own_refused(candidate, relay.status, relay.error),
            left=relay.left,
            status=relay.status,
            wait=relay.wait,
            first_content=None if first is None else max(0.0, first - began - late),
            cut=relay.cut or (form is not None and form.broken is not None),
        )

    def conclude(self, error: KenariError | None) -> None:
        """Say how it ended, if the client was not told."""
        line = self._line
        if self.exchange.gone:
            line.ending, line.status = "client_closed", 200 if self._passing else 499
        elif error is None:
            line.ending, line.status = "done", 200
        elif not self._passing:
            raise error
        else:
            line.code, line.ending, line.status = error.code, "failed", 200

    def _begin(self, kind: bytes) -> None:
        self._passing = True
        lines = id_lines(self.exchange.id) + b"content-type: " + (kind or b"application/octet-stream") + b"\r\n"
        self.exchange.begin(200, lines + _NO_STORE)

    def _account(self, candidate: Candidate, relay: Relay, began: float) -> None:
        """The leg of an attempt, and the whole answer on its way to the client."""
        line, now = self._line, self._services.clock()
        if relay.first is not None and line.first_content_ms is None:
            line.first_content_ms = (relay.first - self._started) * 1000
        outcome = "client_closed" if relay.left else relay.error.code if relay.error else "ok"
        billed = relay.passing or (relay.error is None and (relay.sent or not relay.left))
        usage, fee = Usage(), 0
        if billed:
            used = used_of(self._ask, relay.answer)
            if relay.left and not relay.passing:  # what it sent is paid, nothing that it would have got (F7)
                used = msgspec.structs.replace(used, images=0)
            usage, fee = used.usage, fee_of(candidate.model.price, used)
            line.price = self._services.pricing.price(candidate.model)
            fee += self._services.own.fee if candidate.own else 0
            line.usage = usage
        leg = Leg(candidate.id, usage, outcome, (now - began) * 1000, billed=billed, fee=fee)
        line.legs = [*line.legs, leg]
        if relay.error is None and not relay.left and not relay.passing:
            kind = JSON if b"json" in relay.kind else b"content-type: " + relay.kind + b"\r\n"
            self.exchange.answer(200, id_lines(self.exchange.id) + kind, relay.whole)
