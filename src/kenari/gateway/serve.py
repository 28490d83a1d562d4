"""One request from bytes to bytes. `Gateway.complete` reads as a table of contents."""

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange, Hold, Line, Reservation
from kenari.dialects.base import Dialect
from kenari.dialects.registry import DIALECTS
from kenari.gateway.count import count_at_candidates
from kenari.gateway.estimate import estimate_prompt
from kenari.gateway.failover import serve_candidates
from kenari.gateway.faults import internal, log_fault
from kenari.gateway.heads import JSON, answer_error, id_lines
from kenari.gateway.kinds.serve import Kinds
from kenari.gateway.plans import Plans
from kenari.gateway.routing import session_of
from kenari.gateway.run import Run, Wanted
from kenari.gateway.services import Services
from kenari.keys.bootstrap import identify


class Gateway:
    """Serves requests with the services it is given."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clock = services.clock
        self._plans = Plans(services)
        self.kinds = Kinds(services, self._plans, DIALECTS["chat"])

    async def complete(self, exchange: Exchange, dialect: Dialect) -> None:
        """Answer one request of a chat endpoint. Never raises: a failure is the client's answer and the line's code."""
        started = self._clock()
        line = Line(
            id=exchange.id,
            client_format=dialect.name,
            method=exchange.method,
            path=exchange.path,
            peer=exchange.peer,
        )
        hold: Hold | None = None
        try:
            caller = identify(self._services.keys, exchange.headers)
            line.account, line.key = caller.account, caller.key
            request = dialect.decode_request(exchange.body)
            line.model, line.stream, line.notices = request.model, request.stream, request.notices
            plan = self._plans.find(request.model, "chat", caller)
            hold = await self._services.books.reserve(Reservation(id=exchange.id, caller=caller, model=plan.model.id))
            wanted = Wanted(request, plan, caller, session_of(request, exchange.headers))
            await self._answer(exchange, dialect, wanted, line)
        except KenariError as error:
            line.code, line.status = error.code, error.status
            line.ending = "failed" if hold is not None else "refused"
            answer_error(exchange, dialect, error)
        except Exception as fault:  # noqa: BLE001 - ours: the client gets an error of its format, the operator a trace
            log_fault(fault, exchange.id)
            line.code, line.ending, line.status = "internal_error", "failed", 500
            answer_error(exchange, dialect, internal())
        finally:
            line.duration_ms = (self._clock() - started) * 1000
            self._services.books.settle(hold, line)

    async def _answer(self, exchange: Exchange, dialect: Dialect, wanted: Wanted, line: Line) -> None:
        """Try the candidates in order until one's first content."""
        run = Run(self._services, exchange, dialect, wanted, line)
        try:
            error = await serve_candidates(run, self._services, wanted)
        except BaseException:
            run.abandon()
            raise
        run.conclude(error)

    async def count(self, exchange: Exchange, dialect: Dialect) -> None:
        """Answer `count_tokens`: the provider's number where it counts, else our estimate (M4). Costs nothing."""
        services = self._services
        try:
            caller = identify(services.keys, exchange.headers)
            request = dialect.decode_request(exchange.body)
            plan = self._plans.find(request.model, "chat", caller)
            number = await count_at_candidates(request, plan, services)
            body = b'{"input_tokens":%d}' % (number or estimate_prompt(request))
            exchange.answer(200, id_lines(exchange.id) + JSON, body)
        except KenariError as error:
            answer_error(exchange, dialect, error)
