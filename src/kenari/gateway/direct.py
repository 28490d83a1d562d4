"""A request that waits for nothing but its provider: it is served by callback, without a task and without a future.

Most requests of a caller without limits are of this kind: one candidate, nothing to prepare, no tool to run, no store to
ask. Everything they do is done by the same parts as for any other (Entry, Run, Attempt, Sink); only who waits differs.
`begin` gives what the coroutine of `Gateway.complete` gives, or says that it is not for it (tests/unit/test_direct.py).
"""

from collections.abc import Callable

from kenari.core.caller import Caller
from kenari.core.outbound import Call
from kenari.core.ports import Reservation
from kenari.core.price import Price
from kenari.core.request import Request
from kenari.gateway.admission import Entry
from kenari.gateway.attempt import Attempt
from kenari.gateway.failover import deadline_of
from kenari.gateway.media import has_media
from kenari.gateway.plan import Plan
from kenari.gateway.routing import Outcome
from kenari.gateway.run import Run, Try, Wanted
from kenari.gateway.services import Services


class Bell:
    """Stands where a future would: what is rung is called at once, once."""

    __slots__ = ("_call", "_rung")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._rung = False

    def done(self) -> bool:
        """It was rung."""
        return self._rung

    def set_result(self, result: None) -> None:
        """Ring."""
        self._rung = True
        self._call()


def is_direct(services: Services, caller: Caller, plan: Plan, request: Request) -> bool:
    """Whether nothing but one provider has to be waited for, as far as the request and its plan say."""
    if not caller.unlimited or len(plan.candidates) != 1 or deadline_of(services, plan) <= 0:
        return False
    routing = services.routing
    if routing.health(plan.candidates[0]).excluded_until > services.clock():
        return False
    return (
        request.format is None
        and not request.served
        and (request.plain or services.media is None or not has_media(request))
    )


class Direct:
    """Serves one such request: `begin` calls its provider, `_finish` is called when nothing more comes of that."""

    __slots__ = ("_entry", "_run", "_services", "_try", "_wanted")

    def __init__(self, services: Services, entry: Entry, run: Run, wanted: Wanted) -> None:
        self._services, self._entry, self._run, self._wanted = services, entry, run, wanted
        self._try: Try | None = None

    def begin(self) -> bool:
        """Call the only candidate. True when that was the end of it: it cannot take the request."""
        run, services, plan = self._run, self._services, self._wanted.plan
        candidate = plan.candidates[0]
        services.routing.began(candidate)
        opened = run.open(candidate, services.clock() + deadline_of(services, plan), Bell(self._finish))
        if isinstance(opened, Outcome):
            self._conclude(opened)
            return True
        self._try = opened
        run.begin(opened)
        return False

    def adopt(self, call: Call, began: float) -> Attempt:
        """Go on with a call of the only candidate that was begun at this time of the loop; who hears of it."""
        services = self._services
        candidate = self._wanted.plan.candidates[0]
        until = began + deadline_of(services, self._wanted.plan)
        opened = self._run.open(candidate, until, Bell(self._finish), began)
        assert not isinstance(opened, Outcome)  # it was sent
        self._try = opened
        if self._wanted.tab is not None:
            services.ticker.add(self._wanted.tab)
        self._run.adopt(opened, call)
        return opened.attempt

    def _finish(self) -> None:
        run, opened, self._try = self._run, self._try, None
        assert opened is not None
        if self._wanted.tab is not None:
            self._services.ticker.remove(self._wanted.tab)
        fault: Exception | None = None
        try:
            self._conclude(run.end(opened))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told and the line is written
            run.abandon()
            fault = error
        self._entry.close(fault)

    def _conclude(self, outcome: Outcome) -> None:
        """The only candidate's outcome is the request's (`all_out` says so too)."""
        self._services.routing.note(outcome)
        self._run.conclude(outcome.error)


def reservation_of(request_id: str, caller: Caller, plan: Plan, price: Price | None) -> Reservation:
    """Nothing is set aside for a caller without limits."""
    return Reservation(id=request_id, caller=caller, model=plan.model.id, price=price)
