"""One request from bytes to bytes. `Gateway.complete` reads as a table of contents."""

from collections.abc import Coroutine
from typing import Any, cast

import msgspec

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Exchange, Line, Repeat, Reservation
from kenari.core.price import Price
from kenari.core.request import Request
from kenari.dialects.base import Dialect
from kenari.dialects.registry import DIALECTS
from kenari.gateway.admission import Entry, allowed_price, counted, digest_of, known_caller, line_of, repeat_name
from kenari.gateway.count import count_prompt
from kenari.gateway.direct import Direct, is_direct, reservation_of
from kenari.gateway.failover import serve_candidates
from kenari.gateway.heads import JSON, answer_error, id_lines
from kenari.gateway.kinds.serve import Kinds
from kenari.gateway.passing import Passing
from kenari.gateway.plan import Plan
from kenari.gateway.plans import Plans
from kenari.gateway.quote import Quote, lower_cap, make_quote
from kenari.gateway.repeats import Claim
from kenari.gateway.routing import session_of
from kenari.gateway.run import Run, Wanted
from kenari.gateway.services import Services
from kenari.gateway.tab import Tab
from kenari.gateway.tally import Count
from kenari.keys.scopes import check_model

COUNT_PATH = "/v1/messages/count_tokens"
IDEMPOTENCY_KEY = b"idempotency-key"


class Asked(msgspec.Struct, frozen=True):
    """Who asks for what: a request that may be served, and the price of its model."""

    caller: Caller
    request: Request
    plan: Plan
    price: Price | None


class Sent(msgspec.Struct, frozen=True):
    """What is known of a request's body: its digest ("" where nobody wants it), and the Idempotency-Key it came under."""

    digest: bytes
    repeat: Repeat | None


class Gateway:
    """Serves requests with the services it is given."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._plans = Plans(services)
        self.kinds = Kinds(services, self._plans, DIALECTS["chat"])
        self._passing = Passing(services, DIALECTS["chat"])

    def begin(self, exchange: Exchange, dialect: Dialect) -> Coroutine[Any, Any, bool] | None:
        """Answer one request of a chat endpoint, by callback if nothing but its provider has to be waited for; else the
        coroutine that answers it, or says that it goes on by callback. Never raises."""
        services = self._services
        taken = self._passing.begin(exchange, dialect)
        if taken is not False:
            return None if taken is True else taken
        line = line_of(exchange, dialect.name)
        dialect = services.dialects.get(dialect.name, dialect)
        entry = Entry(services, exchange, dialect, line)
        run: Run | None = None
        try:
            asked = self._asked(exchange, dialect, line)
            if IDEMPOTENCY_KEY in exchange.headers:
                return self._complete(entry, asked, dialect, line)
            caller, plan = asked.caller, asked.plan
            self._passing.learn(asked.request, exchange.body, plan)
            direct = is_direct(services, caller, plan, asked.request)
            if not direct or not entry.admit(reservation_of(line.id, caller, plan, asked.price)):
                return self._complete(entry, asked, dialect, line, detaches=True)
            line.price = asked.price
            wanted = Wanted(asked.request, plan, caller, None, session_of(asked.request, exchange.headers))
            run = Run(services, exchange, dialect, wanted, line)
            ended = Direct(services, entry, run, wanted).begin()
        except Exception as fault:  # noqa: BLE001 - whatever it is, the client is told and the line is written
            if run is not None:
                run.abandon()
            entry.close(fault)
            return None
        if ended:
            entry.close(None)
        return None

    async def complete(self, exchange: Exchange, dialect: Dialect) -> None:
        """Answer one request of a chat endpoint. Never raises: a failure is the client's answer and the line's code."""
        line = line_of(exchange, dialect.name)
        dialect = self._services.dialects.get(dialect.name, dialect)
        await self._complete(Entry(self._services, exchange, dialect, line), None, dialect, line)

    async def _complete(
        self, entry: Entry, asked: Asked | None, dialect: Dialect, line: Line, detaches: bool = False
    ) -> bool:
        """The same by waiting. `asked` is given where it is known already. True: it goes on by callback, as it may if it
        `detaches`."""
        exchange = entry.exchange
        claim: Claim | None = None
        try:
            with entry:
                if asked is None:
                    asked = self._asked(exchange, dialect, line)
                digest = await self._digest(exchange, dialect, asked.caller)
                claim = self._claim(exchange, asked.caller, digest)
                if claim is not None:
                    if claim.late:
                        await claim.attach(exchange, line)
                        return False
                    exchange = entry.exchange = cast("Exchange", claim.shared)
                try:
                    tab = await self._enter(entry, asked, line, Sent(digest, claim.repeat if claim else None))
                except KenariError as error:
                    if claim is None or entry.hold is not None:
                        raise
                    if not await self._services.repeats.elsewhere(claim, asked.caller.account, line, error):
                        raise
                    return False
                wanted = Wanted(asked.request, asked.plan, asked.caller, tab)
                if detaches and claim is None and self._passing.go_on(entry, wanted):
                    return True
                await self._answer(exchange, dialect, asked, tab, line)
                if claim is not None:
                    self._services.repeats.keep(claim, asked.caller.account)
        finally:
            if claim is not None:
                claim.end(line)
        return False

    def _asked(self, exchange: Exchange, dialect: Dialect, line: Line) -> Asked:
        """Who asks for what, and whether they may: all that is refused before anything is counted or held (S175)."""
        services = self._services
        caller = known_caller(services, exchange, dialect.path)
        line.account, line.key = caller.account, caller.key
        request = dialect.decode_request(exchange.body)
        line.model, line.stream, line.notices = request.model, request.stream, request.notices
        plan = self._plans.find(request.model, "chat", caller)
        return Asked(caller, request, plan, allowed_price(services, caller, request.model, plan.model))

    async def _digest(self, exchange: Exchange, dialect: Dialect, caller: Caller) -> bytes:
        """The body's digest, where somebody wants it."""
        if caller.unlimited and IDEMPOTENCY_KEY not in exchange.headers:
            return b""
        return await digest_of(dialect.path, exchange.body)

    def _claim(self, exchange: Exchange, caller: Caller, digest: bytes) -> Claim | None:
        """The request's place under its Idempotency-Key, None without one. Raises the 409."""
        value = exchange.headers.get(IDEMPOTENCY_KEY)
        return self._services.repeats.claim(repeat_name(caller, value), digest, exchange) if value else None

    async def _enter(self, entry: Entry, asked: Asked, line: Line, sent: Sent) -> Tab | None:
        """Past the limits and the books, with one wait; the running bill of a request that is paid."""
        services, caller, request, model = self._services, asked.caller, asked.request, asked.plan.model
        quote: Quote | None = None
        prompt = 0
        if not caller.unlimited:
            prompt = Count(request, services.counter, model.targets[0].model).prompt()
            fees = self._fees(asked)
            if asked.price is not None and (fees or not asked.price.free) and services.pricing.enforce:
                quote = make_quote(request, model, asked.price, prompt, fees)
        reservation = Reservation(
            id=line.id,
            caller=caller,
            model=model.id,
            amount=quote.amount if quote else 0,
            least=quote.least if quote else 0,
            price=asked.price,
            repeat=sent.repeat,
        )
        hold = await entry.enter(reservation, prompt, sent.digest)
        line.price = asked.price
        if quote is None:
            return None
        lower_cap(request, quote, hold.amount)
        line.notices = request.notices
        return Tab(services.books, hold, quote, services.pricing.charge, line)

    def _fees(self, asked: Asked) -> int:
        """What is set aside beside tokens: the fee for an own key, and one run of each server tool that has a price."""
        services = self._services
        if not asked.request.served and not services.own.fee:
            return 0
        found = (services.tools.get(served.kind) for served in asked.request.served)
        own = services.own.fee if any(one.own for one in asked.plan.candidates) else 0
        return own + sum(tool.fee for tool in found if tool is not None)

    async def _answer(self, exchange: Exchange, dialect: Dialect, asked: Asked, tab: Tab | None, line: Line) -> None:
        """Try the candidates in order until one's first content."""
        services = self._services
        wanted = Wanted(asked.request, asked.plan, asked.caller, tab, session_of(asked.request, exchange.headers))
        run = Run(services, exchange, dialect, wanted, line)
        if tab is not None:
            services.ticker.add(tab)
        try:
            error = await serve_candidates(run, services, wanted)
        except BaseException:
            run.abandon()
            raise
        finally:
            if tab is not None:
                services.ticker.remove(tab)
        run.conclude(error)

    async def count(self, exchange: Exchange, dialect: Dialect) -> None:
        """Answer `count_tokens`: the provider's number where it counts, else our estimate (M4). Costs nothing, but is a request
        like others for the limit of those."""
        services = self._services
        try:
            caller = known_caller(services, exchange, COUNT_PATH)
            request = dialect.decode_request(exchange.body)
            plan = self._plans.find(request.model, "chat", caller)
            check_model(caller, request.model, plan.model.id, plan.model.access == "subscribers")
            async with counted(services, exchange, dialect, caller):
                number = await count_prompt(request, plan, services, exchange)
                exchange.answer(200, id_lines(exchange.id) + JSON, b'{"input_tokens":%d}' % number)
        except KenariError as error:
            answer_error(exchange, dialect, error)
