"""What a client of the inbound end may use, and whose address it has."""

import ipaddress
from typing import TypeAlias

import msgspec

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class EdgeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client may use. Bytes and seconds.

    `max_body` holds after decompression. A request head must be whole within `head_seconds`; a body must bring
    something at least every `body_idle_seconds` and `body_rate` bytes a second on average after that time; a kept-alive
    connection may be idle for `idle_seconds`.
    """

    max_body: int = 32 * 1024 * 1024
    max_head: int = 64 * 1024
    max_headers: int = 256
    head_seconds: float = 15.0
    body_idle_seconds: float = 20.0
    body_rate: int = 1024
    idle_seconds: float = 75.0
    trusted_proxies: tuple[Network, ...] = ()


def client_address(peer: str, forwarded: bytes, trusted: tuple[Network, ...]) -> str:
    """The client's address: the rightmost forwarded one that no trusted proxy has, if the peer is one (F13)."""
    address = peer
    if not trusted or not _is_in(address, trusted):
        return address
    for hop in reversed(forwarded.decode("latin-1").split(",")):
        candidate = hop.strip().strip("[]")
        try:
            ipaddress.ip_address(candidate)
        except ValueError:
            break
        address = candidate
        if not _is_in(address, trusted):
            break
    return address


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return any(parsed in network for network in networks)
