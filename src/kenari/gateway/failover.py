"""From candidate to candidate until the first content (M2, D7): when to go on, how long, and what to say when all are out."""

import asyncio
import random
from collections.abc import Sequence
from typing import Protocol

from kenari.catalog.health import Standing, percentile
from kenari.core.errors import KenariError
from kenari.gateway.plan import Candidate
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


async def serve_candidates(run: Run, services: Services, wanted: Wanted) -> KenariError | None:
    """Order the candidates of what is wanted and try them; the error to tell the client, None when it was answered."""
    plan, routing, conversation = wanted.plan, services.routing, None
    if wanted.session is not None:
        conversation = routing.conversation_key(wanted.caller.account, plan.model.id, wanted.session)
    steps = await routing.steps(plan, wanted.request, conversation)
    deadline = services.deadline if plan.entry.deadline is None else plan.entry.deadline
    if plan.entry.hedge and len(steps) > 1 and steps[1].standing is Standing.READY:
        after = percentile(routing.health(steps[0].candidate), HEDGED_SHARE)
        if after is not None:
            return await _hedge(run, routing, steps, (after, run.now() + deadline), conversation)
    return await try_candidates(run, routing, steps, run.now() + deadline, conversation)


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


async def _hedge(
    run: Run, routing: Routing, steps: list[Step], times: tuple[float, float], conversation: str | None
) -> KenariError | None:
    """The first two side by side when the first is late, then the others in turn. `times` are after how many seconds the
    second begins, and the loop's time by which there has to be content."""
    first, rival = steps[0].candidate, steps[1].candidate
    routing.began(first)
    outcomes = await run.hedged(first, rival, *times)
    for outcome in outcomes:
        routing.note(outcome)
    last = outcomes[-1]
    if last.error is None and not last.left and conversation is not None:
        routing.pins.put(conversation, last.candidate.name)
    if last.error is None or run.committed or not last.error.elsewhere:
        return last.error
    rest = steps[1:] if len(outcomes) == 1 else steps[2:]
    return await try_candidates(run, routing, rest, times[1], conversation, outcomes)


async def try_candidates(
    run: Tries,
    routing: Routing,
    steps: list[Step],
    until: float,
    conversation: str | None,
    before: Sequence[Outcome] = (),
) -> KenariError | None:
    """Try the steps in order until one answers; the error to tell the client, None when it was answered.

    `until` is the loop's time by which there has to be content. The one that answers is pinned to the conversation (M3).
    `before` are the outcomes of candidates that were tried already.
    """
    outcomes: list[Outcome] = list(before)
    pause = FIRST_PAUSE
    for step in steps:
        candidate = step.candidate
        if step.standing is Standing.EXCLUDED or not _worth(candidate, outcomes):
            continue
        if outcomes and outcomes[-1].called and outcomes[-1].candidate.provider.name == candidate.provider.name:
            await asyncio.sleep(min(pause * random.random(), max(0.0, until - run.now())))
            pause = min(LONGEST_PAUSE, pause * 2)
        if run.committed:
            break
        if run.now() >= until:
            return KenariError("upstream_timeout", _TOO_LATE)
        routing.began(candidate)
        outcome = await run.attempt(candidate, until)
        routing.note(outcome)
        outcomes.append(outcome)
        if outcome.error is None and not outcome.left and conversation is not None and len(steps) > 1:
            routing.pins.put(conversation, candidate.name)
        if outcome.error is None or run.committed or not outcome.error.elsewhere:
            return outcome.error
    return all_out(outcomes, [step for step in steps if step.standing is Standing.EXCLUDED], routing)


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
