"""What the calls of providers within one request are billed (U5, U6, F7), and their sum, which the client is told (L7)."""

from collections.abc import Iterable
from functools import reduce

from kenari.core.ports import Leg
from kenari.core.usage import Usage
from kenari.gateway.attempt import Attempt


def leg_of(target: str, attempt: Attempt, plain: bool, ms: float, fee: int = 0) -> Leg:
    """One attempt as a leg. `plain` says that the provider was asked for one JSON object, `fee` is what
    a billed one costs beside its tokens.

    One that failed before content costs nothing. The input of a client that left before any output is billed if the
    provider had begun to answer; of a plain call once it was sent, since nothing shows when a provider begins one (F7).
    """
    outcome = "client_closed" if attempt.left else attempt.error.code if attempt.error is not None else "ok"
    said = attempt.gate.content or outcome == "ok"
    billed = said or (attempt.left and (attempt.began or (plain and attempt.sent)))
    usage = attempt.usage if billed else attempt.gate.usage or Usage()
    return Leg(target, usage, outcome, ms, billed, fee if billed else 0)


def billed_usage(legs: Iterable[Leg]) -> Usage:
    """The tokens of all legs that are billed: what stands in the line, and what the client is told."""
    found = [leg.usage for leg in legs if leg.billed]
    return reduce(Usage.plus, found) if found else Usage()
