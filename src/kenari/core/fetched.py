"""Things brought in from outside: what is asked of the guarded fetcher, and what comes back."""

from collections.abc import Awaitable
from typing import Literal, Protocol

import msgspec


class FetchError(Exception):
    """Something could not be brought in. `message` is in words for the caller or the model: no address of ours, no key."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An address to be read.

    `headers` are ready lines (`name: value\\r\\n`). `most` is the largest body in bytes after decompression, `seconds`
    the time for all of it, redirects included. `types` are the media types that are taken, a trailing `*` matches the
    rest; none takes any. `trusted` is for addresses that the operator configured: they may be private ones.
    """

    url: str
    method: Literal["GET", "POST"] = "GET"
    headers: bytes = b""
    body: bytes = b""
    most: int = 8 * 1024 * 1024
    seconds: float = 20.0
    types: tuple[str, ...] = ()
    trusted: bool = False


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What was read: the address at the end of all redirects, the status, the bare media type, the charset, the body."""

    url: str
    status: int
    media_type: str
    charset: str
    body: bytes


class Fetch(Protocol):
    """The guarded fetcher."""

    def fetch(self, wanted: Wanted) -> Awaitable[Fetched]:
        """Read an address. Raises FetchError when it is refused, too large, too slow, of a wrong type, or not there."""
        ...
