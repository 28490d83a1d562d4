"""One request from bytes to bytes. `Gateway.complete` reads as a table of contents."""

import logging
import traceback

from kenari.catalog.models import Model
from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Exchange, Hold, Line, Reservation
from kenari.core.request import Request
from kenari.dialects.base import Dialect
from kenari.dialects.fit import fit
from kenari.gateway.count import count_at_provider
from kenari.gateway.estimate import estimate_prompt
from kenari.gateway.heads import JSON, answer_error, id_lines
from kenari.gateway.plan import Candidate, Plan, make_plan
from kenari.gateway.run import Run, Wanted
from kenari.gateway.services import Services
from kenari.keys.identify import identify

_log = logging.getLogger("kenari.gateway")


class Gateway:
    """Serves requests with the services it is given."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._clock = services.clock
        self._plans: dict[str, Plan] = {}

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
            model = self._services.catalog.chat_model(request.model)
            hold = await self._services.books.reserve(Reservation(id=exchange.id, caller=caller, model=model.id))
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
            line.duration_ms = (self._clock() - started) * 1000
            self._services.books.settle(hold, line)

    async def _answer(
        self, exchange: Exchange, dialect: Dialect, request: Request, model: Model, caller: Caller, line: Line
    ) -> None:
        """Try the candidates in order until one's first content."""
        plan = self.plan(model)
        if not plan.candidates:
            raise KenariError(
                "upstream_unavailable", "no provider of this model is configured. tell the operator", retry_after=30
            )
        run = Run(self._services, exchange, dialect, Wanted(request, plan, caller), line)
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
        services = self._services
        try:
            identify(services.keys, exchange.headers)
            request = dialect.decode_request(exchange.body)
            model = self._services.catalog.chat_model(request.model)
            number: int | None = None
            candidate = next(iter(self.plan(model).candidates), None)
            if candidate is not None and _counts(candidate):
                fitted = fit(request, candidate.target)
                number = await count_at_provider(fitted, candidate, services.upstream(candidate), services.ticker)
            body = b'{"input_tokens":%d}' % (number or estimate_prompt(request))
            exchange.answer(200, id_lines(exchange.id) + JSON, body)
        except KenariError as error:
            answer_error(exchange, dialect, error)

    def plan(self, model: Model) -> Plan:
        """The model's plan, made once: configuration does not change while it is served."""
        plan = self._plans.get(model.id)
        if plan is None:
            services = self._services
            plan = self._plans[model.id] = make_plan(model, services.providers, services.envelopes)
        return plan


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
