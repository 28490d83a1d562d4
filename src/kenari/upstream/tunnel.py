"""TLS to a provider through an egress proxy, by CONNECT."""

import asyncio
import ssl

from kenari.upstream.origin import Origin

MAX_ANSWER = 64 * 1024


class ProxyError(OSError):
    """The egress proxy gave no tunnel."""


class Knock(asyncio.Protocol):
    """Waits for a proxy's answer to CONNECT; `opened` becomes true when there is a tunnel, else false."""

    def __init__(self, opened: "asyncio.Future[bool]") -> None:
        self.opened = opened
        self._answer = b""

    def data_received(self, data: bytes) -> None:
        """Bytes of the proxy's answer. Nobody speaks after it before we do: more than the head is no tunnel."""
        self._answer += data
        head, end, rest = self._answer.partition(b"\r\n\r\n")
        if end:
            status = head.split(b"\r\n", 1)[0].split(b" ")[1:2]
            self._tell(bool(status) and len(status[0]) == 3 and status[0].startswith(b"2") and not rest)
        elif len(self._answer) > MAX_ANSWER:
            self._tell(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy has hung up."""
        self._tell(False)

    def _tell(self, opened: bool) -> None:
        if not self.opened.done():
            self.opened.set_result(opened)


async def tunnel(origin: Origin, connection: asyncio.Protocol, context: ssl.SSLContext) -> None:
    """Connect `connection` to its origin through the origin's proxy. Raises OSError, ProxyError among them."""
    loop = asyncio.get_running_loop()
    try:
        plain, knock = await loop.create_connection(
            lambda: Knock(loop.create_future()), origin.proxy_host, origin.proxy_port
        )
    except OSError as error:
        raise ProxyError from error
    try:
        where = origin.place.encode()
        plain.write(b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (where, where, origin.proxy_auth))
        if not await knock.opened:
            raise ProxyError
        transport = await loop.start_tls(plain, connection, context, server_hostname=origin.host)
        if transport is None or transport.is_closing():
            raise ConnectionAbortedError
    except BaseException:  # cancelled too: the socket must not outlive the call
        plain.abort()
        raise
    connection.connection_made(transport)
