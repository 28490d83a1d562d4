"""Limits of use as pure functions of state and now: what is checked, whether it fits, how long to wait, what to tell.

Requests and tokens are counted over the last 60 seconds, not over calendar minutes: no span of a minute ever holds more
than the limit. A window is at most 61 slots of a second each; a slot leaves as a whole 60 seconds after its last entry,
so that memory is bounded and a wait is never too short. `valkey.py` runs the same steps as a script in the server.
"""

import math
from typing import Literal, TypeAlias

import msgspec

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Rate

SECONDS = 60.0
SLOT_SECONDS = 1.0
SAME_BODY = 20
"""D25: this many requests with one body on one key within a minute are no loop yet."""
BUSY_SECONDS = 1.0
"""When a request in flight ends is not known; this is the wait that is told."""

Kind: TypeAlias = Literal["requests", "tokens", "loop", "concurrent"]


class Check(msgspec.Struct, frozen=True):
    """One limit that a request has to pass. `subject` names whose it is (`k:` a key's, `a:` an account's), `amount`
    what the request adds to it."""

    kind: Kind
    subject: str
    limit: int
    amount: int = 1


def checks_of(caller: Caller, tokens: int, body: bytes) -> list[Check]:
    """Every limit of a caller, those of its account too. An unlimited caller has none."""
    if caller.unlimited:
        return []
    key, account = f"k:{caller.key}", f"a:{caller.account}"
    found = [Check("loop", f"{key}:{body.hex()}", SAME_BODY)] if body else []
    for subject, rates in ((key, caller.rates), (account, caller.account_rates)):
        if rates.rpm is not None:
            found.append(Check("requests", subject, rates.rpm))
        if rates.tpm is not None:
            found.append(Check("tokens", subject, rates.tpm, max(1, tokens)))
        if rates.concurrent is not None:
            found.append(Check("concurrent", subject, rates.concurrent))
    return found


class Window(msgspec.Struct):
    """What was used within the last minute: slots of [first second, last second, amount], the oldest first."""

    slots: list[list[float]] = []
    total: int = 0


def expire(window: Window, now: float) -> None:
    """Forget the slots that are a minute old."""
    gone = 0
    for slot in window.slots:
        if now < slot[1] + SECONDS:
            break
        window.total -= int(slot[2])
        gone += 1
    if gone:
        del window.slots[:gone]


def wait_for(window: Window, now: float, check: Check) -> float:
    """Seconds until the check's amount fits: 0 when it does now, infinity when it never will. The window is fresh."""
    over = window.total + check.amount - check.limit
    if over <= 0:
        return 0.0
    if check.amount > check.limit:
        return math.inf
    for slot in window.slots:
        over -= int(slot[2])
        if over <= 0:
            return max(0.001, slot[1] + SECONDS - now)
    return SECONDS


def add(window: Window, now: float, amount: int) -> None:
    """Count an amount in."""
    slots = window.slots
    if slots and now - slots[-1][0] < SLOT_SECONDS:
        slots[-1][1] = max(slots[-1][1], now)
        slots[-1][2] += amount
    else:
        slots.append([now, now, amount])
    window.total += amount


def correct(window: Window, now: float, counted_at: float, difference: int) -> None:
    """A request that was counted in at `counted_at` used so much more, or less, than was thought then.

    More is used now; less is given back to the slot where it was counted, unless that has left the window already.
    """
    if difference > 0:
        add(window, now, difference)
        return
    for slot in window.slots:
        if slot[0] <= counted_at <= slot[1]:
            given = min(-difference, int(slot[2]))
            slot[2] -= given
            window.total -= given
            return


def surplus(check: Check, tokens: int) -> int:
    """By how much a limit's count is to be corrected at the end of a request that used `tokens`.

    A request that used none (its provider failed, or it was refused for money) is no sign of a client in a loop: whoever
    repeats a failure does what should be done.
    """
    if check.kind == "tokens":
        return tokens - check.amount
    return -check.amount if check.kind == "loop" and not tokens else 0


def rate_of(window: Window, now: float, limit: int) -> Rate:
    """A limit as the headers tell it. The window is fresh."""
    reset = window.slots[-1][1] + SECONDS - now if window.slots else 0.0
    return Rate(limit, max(0, limit - window.total), max(0.0, reset))


def tightest(rates: list[Rate]) -> Rate | None:
    """Of several limits of one kind the one that will be met first."""
    return min(rates, key=lambda rate: rate.remaining, default=None)


def refusal(check: Check, wait: float) -> KenariError:
    """The 429 of a check that did not pass. `wait` is in seconds; infinity says that waiting does not help."""
    whose = "key" if check.subject.startswith("k:") else "account"
    if math.isinf(wait) and check.kind == "tokens":
        message = (
            f"this request alone has more tokens ({check.amount}) than the {whose} may use in a minute ({check.limit}). "
            "send less"
        )
        return KenariError("rate_limited", message, retry_after=SECONDS, should_retry=False)
    what = {
        "requests": f"the {whose} may send {check.limit} requests a minute",
        "tokens": f"the {whose} may use {check.limit} tokens a minute",
        "concurrent": f"the {whose} may have {check.limit} requests in flight at a time",
        "loop": f"the same request came more than {check.limit} times within a minute",
    }[check.kind]
    wait = min(wait, SECONDS)
    return KenariError("rate_limited", f"{what}. wait as long as retry-after says", retry_after=wait)
