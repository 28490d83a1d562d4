"""When the windows of budgets begin: calendar days, weeks and months of a time zone. Pure; the clock is an argument."""

from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from kenari.core.caller import Window


def zone_of(name: str) -> tzinfo:
    """The time zone of an IANA name. Raises ValueError for one that is not known here. UTC needs no database of zones."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(f"{name!r} is no time zone known here. use a name like Asia/Jakarta") from None


def window_start(window: Window, now: float, zone: tzinfo) -> float:
    """When the window that holds `now` began, in Unix seconds; 0 for `total`. Weeks begin on Monday."""
    if window == "total":
        return 0.0
    local = datetime.fromtimestamp(now, zone)
    day = datetime(local.year, local.month, local.day, tzinfo=zone)
    if window == "week":
        day -= timedelta(days=local.weekday())
    elif window == "month":
        day = day.replace(day=1)
    return day.timestamp()


def day_of(now: float, zone: tzinfo) -> str:
    """The date of a time, as YYYY-MM-DD."""
    return datetime.fromtimestamp(now, zone).strftime("%Y-%m-%d")
