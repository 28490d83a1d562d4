"""What the calls of providers within one request are billed (U5, U6, F7), and their sum, which the client is told (L7)."""

from collections.abc import Iterable

from kenari.core.ports import Leg
from kenari.core.usage import Usage
from kenari.gateway.attempt import Attempt


def leg_of(target: str, attempt: Attempt, plain: bool, ms: float) -> Leg:
    """One attempt as a leg. `plain` says that the provider was asked for one JSON object.

    One that failed before content costs nothing. The input of a client that left before any output is billed if the
    provider had begun to answer; of a plain call always, since nothing shows when a provider begins one (F7).
    """
    outcome = "client_closed" if attempt.left else attempt.error.code if attempt.error is not None else "ok"
    said = attempt.gate.content or outcome == "ok"
    billed = said or (attempt.left and (plain or attempt.began))
    usage = attempt.usage if billed else attempt.gate.usage or Usage()
    return Leg(target, usage, outcome, ms, billed)


def billed_usage(legs: Iterable[Leg]) -> Usage:
    """The tokens of all legs that are billed: what stands in the line, and what the client is told."""
    found = [leg.usage for leg in legs if leg.billed]
    if not found:
        return Usage()
    total = found[0]
    for usage in found[1:]:
        total = Usage(
            fresh=_sum(total.fresh, usage.fresh),
            cache_read=_sum(total.cache_read, usage.cache_read),
            cache_write_5m=_sum(total.cache_write_5m, usage.cache_write_5m),
            cache_write_1h=_sum(total.cache_write_1h, usage.cache_write_1h),
            output=_sum(total.output, usage.output),
            reasoning=_sum(total.reasoning, usage.reasoning),
            estimated=total.estimated or usage.estimated,
        )
    return total


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
