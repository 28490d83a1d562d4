"""How long a client has read nothing of what waits for it: it is slow, or it has gone and its system does not say so."""

import asyncio


class Unread:
    """What waits for a client that reads too slowly since `now`, the loop's time."""

    __slots__ = ("_since", "_size")

    def __init__(self, now: float) -> None:
        self._size, self._since = 0, now

    def lasts(self, transport: asyncio.WriteTransport | None, now: float) -> float:
        """Seconds for which nothing of it was read."""
        size = 0 if transport is None else transport.get_write_buffer_size()
        if size < self._size:
            self._since = now
        self._size = size
        return now - self._since
