"""A provider: a dialect, an address, keys and a profile of quirks. Pure functions make its addresses and headers."""

import re
from collections.abc import Mapping

import msgspec

from kenari.core.profile import Profile

VERSION = "0.1.0"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BETA = re.compile(r"[A-Za-z0-9._-]{1,80}\Z")


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A configured provider. Times are in seconds; `base_url` has no slash at its end."""

    name: str
    dialect: str
    base_url: str
    keys: tuple[str, ...] = ()
    profile: Profile = Profile()
    connect_timeout: float = 10.0
    header_timeout: float = 600.0
    first_event_timeout: float = 600.0
    idle_timeout: float = 600.0
    proxy: str = ""
    ca: str = ""


def endpoint(provider: Provider, path: str) -> str:
    """The absolute address of a path of this provider."""
    return provider.base_url + path


def sign(
    provider: Provider,
    key: str,
    client_headers: Mapping[bytes, bytes],
    origin: str,
    content_type: bytes = b"application/json",
) -> bytes:
    """The header lines of a call. Client headers do not travel, except allowed beta names from one Messages end to the
    other (F4)."""
    profile = provider.profile
    fields = {
        "content-type": _line(content_type.decode("latin-1")),
        "user-agent": f"kenari/{VERSION}",
        "accept": "application/json, text/event-stream",
    }
    auth = profile.auth or ("x-api-key" if provider.dialect == "messages" else "bearer")
    if key and auth == "bearer":
        fields["authorization"] = f"Bearer {key}"
    elif key and auth == "x-api-key":
        fields["x-api-key"] = key
    if provider.dialect == "messages":
        fields["anthropic-version"] = profile.anthropic_version
        betas = _betas(client_headers, profile.betas) if origin == "messages" else []
        if betas:
            fields["anthropic-beta"] = ",".join(betas)
    fields |= {_line(name).lower(): value for name, value in profile.headers.items()}  # the operator's word is last
    return "".join(f"{name}: {_line(value)}\r\n" for name, value in fields.items()).encode("latin-1", "replace")


def _betas(headers: Mapping[bytes, bytes], allowed: tuple[str, ...]) -> list[str]:
    asked = headers.get(b"anthropic-beta", b"").decode("latin-1").split(",")
    wanted = dict.fromkeys(one.strip() for one in asked)
    return [name for name in wanted if name in allowed and _BETA.match(name)]


def _line(value: str) -> str:
    """A header value without anything that could end its line."""
    return _CONTROL.sub("", value)
