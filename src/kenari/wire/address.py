"""Addresses to listen on, as the configuration writes them: host:port, [::1]:port, unix:/path."""

import ipaddress


def is_loopback(listen: str) -> bool:
    """Whether an address is reached from this machine only."""
    if listen.startswith("unix:"):
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
