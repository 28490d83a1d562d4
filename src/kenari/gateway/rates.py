"""How the limits stand, as headers (A4): in OpenAI's words everywhere, in Anthropic's on Messages too."""

from collections.abc import Callable
from datetime import UTC, datetime

from kenari.core.ports import Rate


def rate_lines(requests: Rate | None, tokens: Rate | None, messages: bool, now: Callable[[], float]) -> bytes:
    """Header lines for the limits that there are. `reset` is a duration (`12.5s`), on Messages also a time (RFC 3339).

    `now` is the time in Unix seconds, asked only for that.
    """
    lines: list[str] = []
    for name, rate in (("requests", requests), ("tokens", tokens)):
        if rate is None:
            continue
        lines.append(f"x-ratelimit-limit-{name}: {rate.limit}")
        lines.append(f"x-ratelimit-remaining-{name}: {rate.remaining}")
        lines.append(f"x-ratelimit-reset-{name}: {_duration(rate.reset)}")
        if messages:
            reset = datetime.fromtimestamp(now() + rate.reset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            lines.append(f"anthropic-ratelimit-{name}-limit: {rate.limit}")
            lines.append(f"anthropic-ratelimit-{name}-remaining: {rate.remaining}")
            lines.append(f"anthropic-ratelimit-{name}-reset: {reset}")
    return "".join(line + "\r\n" for line in lines).encode()


def _duration(seconds: float) -> str:
    """As OpenAI writes it, in seconds alone: `0s`, `1.25s`, `60s`."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
