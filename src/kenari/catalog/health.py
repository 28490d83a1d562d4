"""How a candidate fares: a breaker with half-open probes, a provider's Retry-After, a refused key, its usual speed.

Pure: each function makes the next state from a state and the time (seconds of any steady clock). Only an exclusion, which a
provider asked for by name, keeps a candidate from being called; everything else makes it one of the last (M2).
"""

from collections.abc import Sequence
from enum import IntEnum

import msgspec

FAILURES = 3
"""So many failures in a row open the breaker."""
COOL = 5.0
"""Seconds until the first probe; doubled each time that a probe fails."""
MAX_COOL = 120.0
PROBE_SECONDS = 30.0
"""A probe that has said nothing for so long is forgotten, and another may be made."""
REFUSED_SECONDS = 300.0
"""How long a refused key is set aside before it is tried in its usual place again."""
MAX_EXCLUSION = 7 * 86400.0
"""A provider that wants to be left alone for longer is not believed."""
SMOOTHING = 0.25
"""The weight of the newest measurement in the moving time to first content."""
HALF_LIFE = 300.0
"""Seconds after which a measurement counts half: what was slow once is tried again."""
SAMPLES = 64
"""How many times to first content are kept for the 95th percentile."""


class Standing(IntEnum):
    """Where a candidate stands, best first."""

    READY = 0
    PROBE = 1
    """Its breaker was open long enough: one request may see whether it works again."""
    OPEN = 2
    REFUSED = 3
    EXCLUDED = 4


class Health(msgspec.Struct, frozen=True):
    """All that is remembered of a candidate. Times are readings of the clock, None where there is none.

    `failures` counts those in a row, `cool` is the present pause of the breaker, `code` the error that excluded it.
    """

    failures: int = 0
    retry_at: float | None = None
    cool: float = 0.0
    probe: float | None = None
    excluded_until: float = 0.0
    code: str = ""
    refused_until: float = 0.0
    latency: float | None = None
    measured: float = 0.0
    samples: tuple[float, ...] = ()


UNKNOWN = Health()


def standing(health: Health, now: float) -> Standing:
    """Where it stands now."""
    if health.excluded_until > now:
        return Standing.EXCLUDED
    if health.refused_until > now:
        return Standing.REFUSED
    if health.retry_at is None:
        return Standing.READY
    probed = health.probe is not None and now - health.probe < PROBE_SECONDS
    return Standing.OPEN if now < health.retry_at or probed else Standing.PROBE


def is_well(health: Health) -> bool:
    """Whether nothing speaks against calling it."""
    return not (health.failures or health.retry_at or health.refused_until or health.excluded_until)


def wait_of(health: Health, now: float) -> float:
    """Seconds until it is worth another try; 0 when it is now."""
    return max(0.0, health.excluded_until - now, (health.retry_at or 0.0) - now)


def speed(health: Health, now: float) -> float:
    """The moving time to first content in seconds, fading while nothing is measured; 0 when nothing was."""
    if health.latency is None:
        return 0.0
    return health.latency * 0.5 ** (max(0.0, now - health.measured) / HALF_LIFE)


def began(health: Health, now: float) -> Health:
    """A call of it begins; when the breaker is half open that is the probe."""
    if standing(health, now) is not Standing.PROBE:
        return health
    return msgspec.structs.replace(health, probe=now)


def left(health: Health) -> Health:
    """The call ended without a word about the candidate: the client went away, or the request was at fault."""
    return health if health.probe is None else msgspec.structs.replace(health, probe=None)


def succeeded(health: Health, now: float, first_content: float | None) -> Health:
    """It answered; `first_content` is how many seconds its first content took, None when it had none."""
    return answered(health, now, () if first_content is None else (first_content,))


def answered(health: Health, now: float, first_contents: Sequence[float]) -> Health:
    """It answered, the last time now; in so many seconds there were first contents.

    An exclusion stays: who answers while it lasts was called before it.
    """
    latency, samples, measured = health.latency, health.samples, health.measured
    if first_contents:
        for seconds in first_contents:
            latency = seconds if latency is None else latency + SMOOTHING * (seconds - latency)
        samples, measured = (*samples, *first_contents)[-SAMPLES:], now
    until, code = (health.excluded_until, health.code) if health.excluded_until > now else (0.0, "")
    return Health(latency=latency, measured=measured, samples=samples, excluded_until=until, code=code)


def failed(health: Health, now: float, noise: float) -> Health:
    """It failed. From the third failure in a row it is out for a while: the time doubles with each failed probe.

    `noise` in 0..1 spreads the probes of several processes over a fifth of the pause.
    """
    failures = health.failures + 1
    if failures < FAILURES:
        return msgspec.structs.replace(health, failures=failures, probe=None)
    if health.retry_at is not None and health.probe is None and now < health.retry_at:
        return msgspec.structs.replace(health, failures=failures)  # the last of several calls that failed together
    cool = min(MAX_COOL, health.cool * 2 or COOL)
    retry_at = now + cool * (1 + 0.2 * noise)
    return msgspec.structs.replace(health, failures=failures, cool=cool, retry_at=retry_at, probe=None)


def excluded(health: Health, now: float, seconds: float, code: str) -> Health:
    """Its provider asked to be left alone (Retry-After)."""
    until = max(health.excluded_until, now + min(seconds, MAX_EXCLUSION))
    return msgspec.structs.replace(health, excluded_until=until, code=code, probe=None)


def refused(health: Health, now: float) -> Health:
    """Its key was refused."""
    return msgspec.structs.replace(health, refused_until=now + REFUSED_SECONDS, probe=None)


def percentile(health: Health, share: float) -> float | None:
    """The time to first content that this share of calls keep; None while too few are known."""
    if len(health.samples) < 20:
        return None
    ordered = sorted(health.samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class News(msgspec.Struct, frozen=True, array_like=True):
    """What other processes should know of a candidate: all but its speed, which each measures itself. Times are seconds from
    now, since clocks differ; 0 (or None) where there is none."""

    failures: int = 0
    retry_in: float | None = None
    cool: float = 0.0
    probed: bool = False
    excluded_in: float = 0.0
    code: str = ""
    refused_in: float = 0.0


CLEAN = News()
"""Nothing is wrong with it."""


def is_news(before: Health, after: Health) -> bool:
    """Whether other processes should hear of this change."""
    return any(getattr(before, name) != getattr(after, name) for name in _TOLD)


def news_of(health: Health, now: float) -> News:
    """What is to be told of a candidate."""
    excluded = health.excluded_until > now
    return News(
        failures=health.failures,
        retry_in=None if health.retry_at is None else max(0.0, health.retry_at - now),
        cool=health.cool,
        probed=health.probe is not None and now - health.probe < PROBE_SECONDS,
        excluded_in=health.excluded_until - now if excluded else 0.0,
        code=health.code if excluded else "",
        refused_in=max(0.0, health.refused_until - now),
    )


def learned(health: Health, news: News, now: float) -> Health:
    """The state of a candidate of which another process told this."""
    return msgspec.structs.replace(
        health,
        failures=news.failures,
        retry_at=None if news.retry_in is None else now + news.retry_in,
        cool=news.cool,
        probe=now if news.probed else None,
        excluded_until=now + min(news.excluded_in, MAX_EXCLUSION) if news.excluded_in else 0.0,
        code=news.code,
        refused_until=now + min(news.refused_in, REFUSED_SECONDS) if news.refused_in else 0.0,
    )


def aged(news: News, seconds: float) -> News:
    """The same so many seconds later; `CLEAN` when nothing of it is left."""
    excluded, refused_in = max(0.0, news.excluded_in - seconds), max(0.0, news.refused_in - seconds)
    older = News(
        failures=news.failures,
        retry_in=None if news.retry_in is None else max(0.0, news.retry_in - seconds),
        cool=news.cool,
        probed=news.probed and seconds < PROBE_SECONDS,
        excluded_in=excluded,
        code=news.code if excluded else "",
        refused_in=refused_in,
    )
    forgotten = seconds > (news.retry_in or 0.0) + KEPT  # nobody has called it since
    return CLEAN if forgotten and not (excluded or refused_in) else older


KEPT = 3600.0
"""Seconds for which processes that start later are told of a breaker that nobody has tried since."""
_TOLD = ("failures", "retry_at", "cool", "probe", "excluded_until", "code", "refused_until")
