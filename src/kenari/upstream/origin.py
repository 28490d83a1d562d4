"""Where calls go: the origin of an address, and the way to it."""

import base64
from urllib.parse import unquote, urlsplit

import msgspec


class Origin(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Where a connection leads: scheme, host, port, and how it is reached.

    `authority` is host and port as the host header names them, `place` the same with the port always.
    """

    tls: bool
    host: str
    port: int
    authority: str
    place: str
    ca: str = ""
    proxy: str = ""
    proxy_host: str = ""
    proxy_port: int = 0
    proxy_auth: bytes = b""


def origin_of(url: str, proxy: str = "", ca: str = "") -> Origin:
    """The origin of an address, reached through a proxy or not. Raises ValueError for what is no http address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http address")
    tls = parts.scheme == "https"
    host, default = parts.hostname, 443 if tls else 80
    port = parts.port or default
    shown = f"[{host}]" if ":" in host else host
    place = f"{shown}:{port}"
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else None
    if through is not None and (through.scheme != "http" or not through.hostname):
        raise ValueError("egress proxies are spoken to in plain http")
    return Origin(
        tls=tls,
        host=host,
        port=port,
        place=place,
        authority=shown if port == default else place,
        ca=ca,
        proxy=proxy,
        proxy_host=(through.hostname or "") if through else "",
        proxy_port=(through.port or 3128) if through else 0,
        proxy_auth=_basic(through.username, through.password) if through else b"",
    )


def request_line(url: str, origin: Origin) -> bytes:
    """The first lines of a request to this address, the same for every call of it."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    relayed = bool(origin.proxy) and not origin.tls
    target = f"http://{origin.authority}{path}" if relayed else path
    line = f"POST {target} HTTP/1.1\r\nhost: {origin.authority}\r\nconnection: keep-alive\r\n".encode()
    return line + origin.proxy_auth if relayed else line


def _basic(user: str | None, password: str | None) -> bytes:
    if not user:
        return b""
    credentials = f"{unquote(user)}:{unquote(password or '')}".encode()
    return b"proxy-authorization: Basic " + base64.b64encode(credentials) + b"\r\n"
