"""What the operator says about fetching, and the addresses that people write, read strictly."""

from urllib.parse import urljoin, urlsplit

import msgspec

from kenari.core.fetched import FetchError
from kenari.fetch.addresses import Network

MAX_URL = 4096
"""Characters of an address."""


class FetchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`[fetch]`. `proxy` is an http proxy through which everything goes, still to the checked address. `networks` are
    open though they are not public. With `domains` only those hosts, and those below them, are read. Seconds, bytes."""

    proxy: str = ""
    networks: tuple[Network, ...] = ()
    domains: tuple[str, ...] = ()
    timeout: float = 20.0
    max_size: int = 20 * 1024 * 1024


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An address taken apart: `host` in ASCII lower case, `target` what stands in the request line."""

    url: str
    tls: bool
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """Host and port as the host header names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def read_url(url: str) -> Place:
    """The place of an address. Raises FetchError for what is no plain http or https address."""
    if len(url) > MAX_URL:
        raise FetchError("the address is too long")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
        if ":" not in host:
            host = host.encode("idna").decode("ascii").lower() if not host.isascii() else host
    except (ValueError, UnicodeError):
        raise FetchError("the address is malformed") from None
    if parts.scheme not in ("http", "https"):
        raise FetchError("only http and https addresses are read")
    if parts.username is not None or parts.password is not None:
        raise FetchError("an address must not hold a user or a password")
    if not host or any(not (char.isalnum() or char in "-._:") for char in host) or port == 0:
        raise FetchError("the address has no usable host")
    tls = parts.scheme == "https"
    target = _target(parts.path or "/") + (f"?{_target(parts.query)}" if parts.query else "")
    place = Place(url=url, tls=tls, host=host, port=port or (443 if tls else 80), target=target)
    return msgspec.structs.replace(place, url=f"{parts.scheme}://{place.authority}{target}")


def next_place(place: Place, location: str) -> Place:
    """Where a redirect leads. Raises FetchError for what may not be followed."""
    there = read_url(urljoin(place.url, location))
    if place.tls and not there.tls:
        raise FetchError("a redirect leads from https to http")
    return there


def matches(host: str, domains: tuple[str, ...]) -> bool:
    """Whether a host is one of these or below one."""
    return any(host == domain or host.endswith("." + domain) for domain in domains)


def _target(text: str) -> str:
    """A path or query without anything that could end the request line."""
    return "".join(char if "!" <= char <= "~" else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text)
