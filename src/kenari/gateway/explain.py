"""What a request for a name would meet: its candidates in order, where each stands, and why (`kenari routes explain`)."""

import msgspec

from kenari.catalog.health import percentile, speed, wait_of
from kenari.core.request import Request
from kenari.gateway.plan import Plan
from kenari.gateway.routing import Routing


class Explained(msgspec.Struct, frozen=True):
    """One candidate. `called` is false where it would be left out; times in seconds, None where nothing is known."""

    candidate: str
    model: str
    weight: int
    called: bool
    standing: str
    why: str
    failures: int
    wait: float
    first_content: float | None
    p95: float | None


def explain(
    plan: Plan, routing: Routing, now: float, request: Request | None = None, session: tuple[str, str] | None = None
) -> list[Explained]:
    """The order for a request, with this process's health. `session` is (account, conversation): without one, a policy
    that draws is drawn by chance."""
    conversation = None
    if session is not None:
        conversation = routing.conversation_key(session[0], plan.model.id, session[1])
    out: list[Explained] = []
    for step in routing.arrange(plan, request, conversation, None):
        health = routing.health(step.candidate)
        out.append(
            Explained(
                candidate=step.candidate.name,
                model=step.candidate.model.id,
                weight=step.candidate.weight,
                called=step.standing.name != "EXCLUDED",
                standing=step.standing.name.lower(),
                why=step.why,
                failures=health.failures,
                wait=round(wait_of(health, now), 3),
                first_content=round(speed(health, now), 4) or None,
                p95=percentile(health, 0.95),
            )
        )
    return out
