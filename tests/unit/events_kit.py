"""What the tests of every dialect say of events."""

from typing import Any

from kenari.core.events import Event, Failure
from kenari.core.fold import fold


def essence(events: list[Event]) -> Any:
    """All that an answer says, without how it was cut into events."""
    last = events[-1]
    if isinstance(last, Failure):
        return last.error.code
    reply = fold(events)
    return reply.blocks, reply.stop, reply.usage
