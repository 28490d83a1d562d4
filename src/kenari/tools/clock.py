"""`kenari:datetime`: what time it is, since models do not know."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kenari.core.request import Served
from kenari.tools.base import Outcome, ToolError


class DateTime:
    """Tells date and time. `now` is the clock, in Unix seconds."""

    kind = "kenari:datetime"
    fee = 0
    name = "datetime"
    description = "The current date and time, with the day of the week, in a time zone (UTC when none is given)."
    schema = b'{"type":"object","properties":{"timezone":{"type":"string","description":"a name like Asia/Jakarta"}}}'

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    async def run(self, arguments: Mapping[str, Any], served: Served) -> Outcome:
        """Tell it."""
        name = arguments.get("timezone") or "UTC"
        zone = _zone(name) if isinstance(name, str) else None
        if zone is None:
            raise ToolError("the time zone is not known. use a name like Asia/Jakarta, or leave it out for UTC")
        moment = datetime.fromtimestamp(self._now(), zone)
        return Outcome(text=f"{moment.strftime('%A')} {moment.isoformat(timespec='seconds')} ({name})")


def _zone(name: str) -> tzinfo | None:
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
