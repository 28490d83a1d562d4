"""Which addresses a request from outside may lead to: those of the public internet and no others.

An allow-list, not a block-list, for IPv6: of its space only 2000::/3 is given out to the public at all, which leaves out
mapped, compatible, NAT64, unique-local, link-local and multicast addresses by itself.
"""

import ipaddress
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, where clouds keep their metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_CLOSED_6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)


def may_reach(address: Address, allowed: tuple[Network, ...] = ()) -> bool:
    """Whether this address may be connected to. `allowed` are networks that the operator has opened."""
    if any(address.version == network.version and address in network for network in allowed):
        return getattr(address, "scope_id", None) is None
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    if address.scope_id is not None or address not in _PUBLIC_6:
        return False
    tunnelled = (int(address) >> 32) & 0xFFFFFFFF in _ISATAP  # an IPv4 address in the last four bytes
    return not tunnelled and not any(address in network for network in _CLOSED_6)
