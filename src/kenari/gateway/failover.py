"""From candidate to candidate until the first content (M2, D7): when to go on, how long, and what to say when all are out."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from kenari.catalog.health import Standing, percentile
from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.request import Request
from kenari.gateway.plan import Candidate, Plan
from kenari.gateway.routing import Outcome, Routing, Step
from kenari.gateway.run import Run, Wanted
from kenari.gateway.services import Services

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds at most before another candidate of the same provider, doubled each time; chance takes a share of it."""
HEDGED_SHARE = 0.95
"""A hedged route starts its second candidate when the first is later than it is in this share of calls."""
USUAL_WAIT = 1.0
"""Seconds until a request may be sent again when nobody named a time."""

_ALL_OUT = "none of the model's providers can answer now. wait and send the request again"
_ALL_LIMITED = "all of the model's providers are rate limiting. wait and send the request again"
_TOO_LATE = "the model's providers did not answer in time. send the request again"


class Way(msgspec.Struct, frozen=True):
    """The way of one request: its candidates in order, the loop's time by which there has to be content, and the name
    under which its conversation is pinned (M3), None without one."""

    steps: list[Step]
    until: float
    conversation: str | None


async def find_way(
    services: Services, plan: Plan, caller: Caller, session: str | None, request: Request | None = None
) -> Way:
    """Order the candidates of a plan for a request of a caller in a session."""
    routing, conversation = services.routing, None
    if session is not None:
        conversation = routing.conversation_key(caller.account, plan.model.id, session)
    steps = await routing.steps(plan, request, conversation)
    return Way(steps, services.clock() + deadline_of(services, plan), conversation)


def deadline_of(services: Services, plan: Plan) -> float:
    """Seconds within which there has to be content."""
    return services.deadline if plan.entry.deadline is None else plan.entry.deadline


async def serve_candidates(run: Run, services: Services, wanted: Wanted) -> KenariError | None:
    """Order the candidates of what is wanted and try them; the error to tell the client, None when it was answered."""
    plan, routing = wanted.plan, services.routing
    way = await find_way(services, plan, wanted.caller, wanted.session, wanted.request)
    if plan.entry.hedge and len(way.steps) > 1 and way.steps[1].standing is Standing.READY:
        after = percentile(routing.health(way.steps[0].candidate), HEDGED_SHARE)
        if after is not None:
            return await _hedge(run, routing, way, after)
    return await try_candidates(run, routing, way)


class Tries(Protocol):
    """One request's way through its candidates, whatever its endpoint."""

    @property
    def committed(self) -> bool:
        """No other candidate may be tried."""
        ...

    def now(self) -> float:
        """The loop's time."""
        ...

    async def attempt(self, candidate: Candidate, until: float) -> Outcome:
        """Try one candidate until a time of the loop by which there has to be content."""
        ...


async def _hedge(run: Run, routing: Routing, way: Way, after: float) -> KenariError | None:
    """The first two side by side when the first has no content `after` so many seconds, then the others in turn."""
    first, rival = way.steps[0].candidate, way.steps[1].candidate
    routing.began(first)
    outcomes = await run.hedged(first, rival, after, way.until)
    for outcome in outcomes:
        routing.note(outcome)
    last = outcomes[-1]
    if last.error is None and not last.left and way.conversation is not None:
        routing.pins.put(way.conversation, last.candidate.name)
    if last.error is None or run.committed or not last.error.elsewhere:
        return last.error
    rest = msgspec.structs.replace(way, steps=way.steps[len(outcomes) :])
    return await try_candidates(run, routing, rest, outcomes)


async def try_candidates(run: Tries, routing: Routing, way: Way, before: Sequence[Outcome] = ()) -> KenariError | None:
    """Try the steps of a way until one answers; the error to tell the client, None when it was answered.

    The one that answers is pinned to the conversation. `before` are the outcomes of candidates that were tried already.
    """
    outcomes: list[Outcome] = list(before)
    pause = FIRST_PAUSE
    for step in way.steps:
        candidate = step.candidate
        if step.standing is Standing.EXCLUDED or not _worth(candidate, outcomes):
            continue
        if outcomes and outcomes[-1].called and outcomes[-1].candidate.provider.name == candidate.provider.name:
            await asyncio.sleep(min(routing.jitter(pause), max(0.0, way.until - run.now())))
            pause = min(LONGEST_PAUSE, pause * 2)
        if run.committed:
            break
        if run.now() >= way.until:
            return KenariError("upstream_timeout", _TOO_LATE)
        routing.began(candidate)
        outcome = await run.attempt(candidate, way.until)
        routing.note(outcome)
        outcomes.append(outcome)
        if outcome.error is None and not outcome.left and way.conversation is not None and len(way.steps) > 1:
            routing.pins.put(way.conversation, candidate.name)
        if outcome.error is None or run.committed or not outcome.error.elsewhere:
            return outcome.error
    return all_out(outcomes, [step for step in way.steps if step.standing is Standing.EXCLUDED], routing)


def _worth(candidate: Candidate, outcomes: list[Outcome]) -> bool:
    """Whether a candidate may serve what others refused: a conversation too long for one window wants a larger one."""
    for outcome in outcomes:
        if outcome.error is not None and outcome.error.code == "context_length_exceeded":
            before, window = outcome.candidate.model.context_window, candidate.model.context_window
            if before is None or window is None or window <= before:
                return False
    return True


def all_out(outcomes: list[Outcome], left_out: list[Step], routing: Routing) -> KenariError:
    """What to say when no candidate answered: 429 when all said so, else 503, with the smallest honest wait (E2).

    The only candidate's own error is more use than that. Where all refused the request itself, that is a 400 (E7).
    """
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    codes = [error.code for error in errors] + [routing.health(step.candidate).code for step in left_out]
    refusals = [error for error in errors if error.kind.status in (400, 413)]
    if refusals and len(refusals) == len(codes):
        return refusals[0]
    if len(codes) == 1 and errors:
        return errors[0]
    hopeless = [error for error in errors if error.should_retry is False and error.kind.status >= 500]
    if hopeless and len(hopeless) + len(refusals) == len(codes):
        return hopeless[0]
    waits = [routing.wait_of(step.candidate) for step in left_out]
    waits += [_wait(outcome) for outcome in outcomes if outcome.error not in (*hopeless, *refusals)]
    wait = max(0.001, min(waits, default=USUAL_WAIT))
    if all(code == "upstream_rate_limited" for code in codes):
        return KenariError("upstream_rate_limited", _ALL_LIMITED, retry_after=wait)
    return KenariError("upstream_unavailable", _ALL_OUT, retry_after=wait)


def _wait(outcome: Outcome) -> float:
    """Seconds until this candidate may serve again, as far as its provider said."""
    if outcome.wait is not None:
        return outcome.wait
    return (outcome.error.retry_after if outcome.error else None) or USUAL_WAIT
