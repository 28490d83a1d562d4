"""Listening sockets: host and port, IPv6, Unix sockets, TLS from certificate files."""

import asyncio
import errno
import os
import socket
import ssl
import stat
import sys
from collections.abc import Sequence
from typing import Any

from kenari.doors.edge import Edge

BACKLOG = 4096
HANDSHAKE_SECONDS = 15.0
"""A client that does not finish its TLS handshake has no connection yet that the edge could time."""
_WHY = {
    errno.EADDRINUSE: "it is in use. end the program that has it, or set another address",
    errno.EADDRNOTAVAIL: "this machine has no such address. set one that it has",
    errno.EACCES: "it is not allowed. set a port from 1024 on, a folder that can be written to, or give kenari the right",
}


def cannot_listen(setting: str, address: str, error: OSError) -> OSError:
    """The same failure in words for the operator: which setting, which address, what to do."""
    why = _WHY.get(error.errno or 0) or str(error.strerror or error).lower()
    return OSError(f"[server] {setting} {address}: {why}")


async def listen(edge: Edge, address: str, tls: ssl.SSLContext | None = None) -> str:
    """Listen on `host:port`, `[::1]:port` or `unix:/path`; the address clients can use, with the real port.

    Raises OSError when the address cannot be had.
    """
    loop = asyncio.get_running_loop()
    secured = _secured(edge, tls)
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        _remove_stale(path)
        edge.add_server(await loop.create_unix_server(edge, path, backlog=BACKLOG, **secured))
        return address
    host, _, port = address.rpartition(":")
    server = await loop.create_server(
        edge,
        host.strip("[]") or None,
        int(port),
        backlog=BACKLOG,
        **secured,
    )
    edge.add_server(server)
    chosen: int = server.sockets[0].getsockname()[1]
    return f"{host}:{chosen}"


async def listen_on(edge: Edge, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None = None) -> None:
    """Listen on sockets that were bound by another process and inherited."""
    loop = asyncio.get_running_loop()
    secured = _secured(edge, tls)
    for one in sockets:
        create = loop.create_unix_server if one.family == socket.AF_UNIX else loop.create_server
        edge.add_server(await create(edge, sock=one, backlog=BACKLOG, **secured))


def _secured(edge: Edge, tls: ssl.SSLContext | None) -> dict[str, Any]:
    """What a server is told of TLS. How long an end may take is the connection's own matter, as without TLS."""
    if tls is None:
        return {}
    return {
        "ssl": tls,
        "ssl_handshake_timeout": HANDSHAKE_SECONDS,
        "ssl_shutdown_timeout": edge.limits.idle_seconds + 1,
    }


class SharedAddress:
    """An address whose listening sockets several processes inherit.

    On Linux each process has a socket of its own for the same port (SO_REUSEPORT), and the kernel spreads connections
    over them evenly; elsewhere, and for a Unix socket, all have the same one. The opener keeps its copies, so that what
    waits in a socket is not lost with a process.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        """What clients can use; with the real port once a socket is open."""
        self._spread = sys.platform == "linux" and not address.startswith("unix:")
        self._one: list[socket.socket] = []

    def open(self) -> list[socket.socket]:
        """The sockets for one more process, to be closed by the caller. Raises OSError when the address cannot be had,
        or belongs to somebody else."""
        if self._spread:
            if not self._one:  # a port that is shared would be taken along with whoever else shares it
                self._one = self._bind(False)
                self.close()
            return self._bind(True)
        if not self._one:
            self._one = _bind_unix(self.address) if self.address.startswith("unix:") else self._bind(False)
        return [one.dup() for one in self._one]

    def close(self) -> None:
        """Close what is kept here."""
        for one in self._one:
            one.close()

    def _bind(self, spread: bool) -> list[socket.socket]:
        """A socket for each address of the host, all with the same port."""
        host, _, port = self.address.rpartition(":")
        bound: list[socket.socket] = []
        found = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, place in dict.fromkeys(found):
                if family not in (socket.AF_INET, socket.AF_INET6) or not _is_here(family):
                    continue
                one = socket.socket(family, kind, protocol)
                bound.append(one)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if spread:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((place[0], int(port), *place[2:]))
                if not int(port):
                    port = str(one.getsockname()[1])
        except BaseException:
            for one in bound:
                one.close()
            raise
        if not bound:
            raise OSError(f"{host} has no address here")
        self.address = f"{host}:{port}"
        return bound


def _is_here(family: int) -> bool:
    """Whether this machine speaks a protocol; many have no IPv6."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    except OSError:
        return False
    return True


def _bind_unix(address: str) -> list[socket.socket]:
    path = address.removeprefix("unix:")
    _remove_stale(path)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.bind(path)
    except BaseException:
        one.close()
        raise
    return [one]


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """TLS for clients, from PEM files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _remove_stale(path: str) -> None:
    """Remove a socket file that nobody listens on; one that answers is somebody else's."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"{path} is there and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:  # one that is too busy to answer is alive
            raise OSError(f"{path} may be in use: {error.strerror or error}") from error
    raise OSError(f"{path} is in use")
