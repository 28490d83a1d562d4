"""The client of a Valkey server: an extra, which costs memory and start-up time, so that only who shares something pays."""

import importlib
import importlib.util
from typing import Any

LIBRARY = "valkey"
"""The client library, which the extra of the same name brings."""


def lacks_client(url: str) -> bool:
    """Whether what is kept at an address needs a client library that is not installed."""
    return url.startswith("valkey://") and importlib.util.find_spec(LIBRARY) is None


def make_client(url: str, seconds: float, **options: Any) -> tuple[Any, type[Exception]]:
    """A client of the server at an address, which waits `seconds` for it at most; and what it raises when it fails.

    Raises OSError when the client library is not installed or the address is none.
    """
    try:
        library = importlib.import_module(f"{LIBRARY}.asyncio")
        failed: type[Exception] = importlib.import_module(f"{LIBRARY}.exceptions").ValkeyError
    except ImportError:
        message = "limits.url names a valkey server, but its client is missing. pip install 'kenari[valkey]'"
        raise OSError(message) from None
    try:
        client = library.Valkey.from_url(url, socket_connect_timeout=seconds, socket_timeout=seconds, **options)
    except ValueError:
        raise OSError("limits.url is no address like valkey://host:6379/0") from None
    return client, failed
