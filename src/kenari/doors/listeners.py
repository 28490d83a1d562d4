"""Listening sockets: host and port, IPv6, Unix sockets, TLS from certificate files."""

import asyncio
import os
import socket
import ssl
import stat

from kenari.doors.edge import Edge

BACKLOG = 4096
HANDSHAKE_SECONDS = 15.0
"""A client that does not finish its TLS handshake has no connection yet that the edge could time."""


async def listen(edge: Edge, address: str, tls: ssl.SSLContext | None = None, shared: bool = False) -> str:
    """Listen on `host:port`, `[::1]:port` or `unix:/path`; the address clients can use, with the real port.

    A `shared` port may be had by several processes at once (SO_REUSEPORT): the kernel spreads connections over them.
    Raises OSError when the address cannot be had.
    """
    loop = asyncio.get_running_loop()
    patience = HANDSHAKE_SECONDS if tls is not None else None
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        _remove_stale(path)
        edge.add_server(
            await loop.create_unix_server(edge, path, ssl=tls, backlog=BACKLOG, ssl_handshake_timeout=patience)
        )
        return address
    host, _, port = address.rpartition(":")
    server = await loop.create_server(
        edge,
        host.strip("[]") or None,
        int(port),
        ssl=tls,
        backlog=BACKLOG,
        reuse_port=shared or None,
        ssl_handshake_timeout=patience,
    )
    edge.add_server(server)
    chosen: int = server.sockets[0].getsockname()[1]
    return f"{host}:{chosen}"


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
