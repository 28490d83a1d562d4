"""The only outbound end that has sockets: HTTP/1.1 to providers, with a pool of kept-alive connections.

No redirects are followed. Errors name no key and no address.
"""

import asyncio
import errno
import logging
import socket
import ssl

from kenari.core.errors import KenariError
from kenari.core.outbound import Hearer, Outgoing, Receiver, Stream
from kenari.upstream.connection import NO_ANSWER, Connection, HttpCall
from kenari.upstream.origin import Origin, origin_of, request_line
from kenari.upstream.pool import Pool
from kenari.upstream.tunnel import ProxyError, tunnel

_log = logging.getLogger("kenari.upstream")

MAX_KNOWN = 1024
"""Addresses whose origins and heads are remembered."""

_SLOW = "the model's provider did not accept a connection in time. send the request again"
_STOPPED = "kenari is stopping. send the request again"
_UNREACHABLE = "the model's provider cannot be reached. wait and send the request again"
_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (socket.gaierror, "the host name of the model's provider is not known here. wait and send the request again"),
    (ConnectionRefusedError, "the model's provider refused the connection. wait and send the request again"),
    (
        ssl.SSLCertVerificationError,
        "the certificate of the model's provider is not trusted here. ask the operator to check its address and `ca`",
    ),
    (ssl.SSLError, "no TLS connection to the model's provider could be made. wait and send the request again"),
    (ProxyError, "the egress proxy did not open a connection to the model's provider. wait and send the request again"),
)
"""What to say of a connection that could not be made; the first that fits."""


class HttpUpstream:
    """The outbound end for http and https (core.outbound.Upstream)."""

    def __init__(self, idle_seconds: float = 60.0, max_idle: int = 256) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool: Pool[Connection] = Pool(self._loop, idle_seconds, max_idle)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._known: dict[tuple[str, bytes, str, str, float], HttpWay] = {}
        self._opening: dict[asyncio.Task[None], HttpCall] = {}
        self._closed = False

    @property
    def open(self) -> int:
        """How many connections stand, idle ones too."""
        return self._pool.open

    @property
    def idle(self) -> int:
        """How many connections wait for a call."""
        return self._pool.idle

    def start(self, request: Outgoing, receiver: Receiver) -> HttpCall:
        """Begin a call; the receiver hears the rest later."""
        try:
            way = self._resolve(request)
        except ValueError as error:
            call = HttpCall(self, _NOWHERE, b"", 0.0, receiver)
            self._loop.call_soon(call.lose, _unavailable(error))
            return call
        return way.send(request.body, receiver, stream=request.stream)

    def way(self, request: Outgoing) -> "HttpWay | None":
        """The way of calls to this address with these headers; None for an address that cannot be called."""
        try:
            return self._resolve(request)
        except ValueError:
            return None

    def open_for(self, call: HttpCall) -> None:
        """Send a call's request on a connection of its own."""
        call.fresh = True
        if self._closed:
            self._loop.call_soon(call.lose, KenariError("upstream_unavailable", _STOPPED, retry_after=2.0))
            return
        task = call.task = self._loop.create_task(self._connect(call))
        self._opening[task] = call
        task.add_done_callback(self._opened)

    def renew(self) -> None:
        """Read the files of private authorities again, for the connections that follow."""
        self._contexts.clear()

    def close(self) -> None:
        """Close every connection and end every call; none can be begun afterwards."""
        self._closed = True
        for task in tuple(self._opening):
            task.cancel()
        self._pool.close()

    async def _connect(self, call: HttpCall) -> None:
        """Open a connection (DNS, TCP and TLS within one time-out) and send the request on it."""
        try:
            async with asyncio.timeout(call.connect_timeout):
                connection = await self._dial(call.origin)
        except TimeoutError:
            call.lose(KenariError("upstream_timeout", _SLOW, elsewhere=True))
            return
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: uvloop, of a socket that closed under it
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                _log.error("too many open files: raise the limit of this process (ulimit -n, LimitNOFILE)")
            call.lose(_unavailable(error))
            return
        if call.over or not connection.send(call):  # it was closed as soon as it stood
            connection.abort()
            call.lose(KenariError("upstream_error", NO_ANSWER, elsewhere=True))

    def _opened(self, task: "asyncio.Task[None]") -> None:
        """A connection stands or does not; whatever became of the task, its call hears of it."""
        call = self._opening.pop(task)
        call.task = None
        if task.cancelled():  # by `close`: a call that was aborted is over
            call.lose(KenariError("upstream_unavailable", _STOPPED, retry_after=2.0))
        elif (fault := task.exception()) is not None:
            _log.error("%s while connecting to a provider", type(fault).__name__)
            call.lose(_unavailable(fault))

    async def _dial(self, origin: Origin) -> Connection:
        context = self._context(origin.ca) if origin.tls else None
        connection = Connection(self._pool, origin)
        try:
            if origin.proxy and context is not None:
                await tunnel(origin, connection, context)
            else:
                host, port = (origin.proxy_host, origin.proxy_port) if origin.proxy else (origin.host, origin.port)
                await self._loop.create_connection(
                    lambda: connection, host, port, ssl=context, server_hostname=host if context else None
                )
        except BaseException:  # cancelled as it came to stand: uvloop closes it then and tells nobody
            connection.abort()
            connection.connection_lost(None)
            raise
        return connection

    def _context(self, ca: str) -> ssl.SSLContext:
        """TLS with the system's authorities, or those of a file. Raises OSError when there is no such file."""
        context = self._contexts.get(ca)
        if context is None:
            context = ssl.create_default_context(cafile=ca or None)
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[ca] = context
        return context

    def _resolve(self, request: Outgoing) -> "HttpWay":
        """The way to an address with these headers, made once."""
        key = (request.url, request.headers, request.proxy, request.ca, request.connect_timeout)
        known = self._known.get(key)
        if known is None:
            origin = origin_of(request.url, request.proxy, request.ca)
            headers = request.headers
            # compressed only where the caller asks for it: small events gain nothing by it
            coding = b"" if b"accept-encoding:" in headers.lower() else b"accept-encoding: identity\r\n"
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            head = request_line(request.url, origin) + headers + coding
            known = self._known[key] = HttpWay(self, self._pool, origin, head, request.connect_timeout)
        return known


class HttpWay:
    """Calls of one address with one head (core.outbound.Way)."""

    __slots__ = ("_head", "_idle", "_opener", "_timeout", "origin")

    def __init__(
        self, opener: HttpUpstream, pool: Pool[Connection], origin: Origin, head: bytes, timeout: float
    ) -> None:
        self._opener, self._idle, self.origin, self._timeout = opener, pool.idle_to(origin), origin, timeout
        self._head = head.replace(b"%", b"%%") + b"content-length: %d\r\n\r\n%b"

    def send(
        self, body: bytes, receiver: Receiver, hearer: Hearer | None = None, stream: Stream | None = None
    ) -> HttpCall:
        """Begin a call. `stream` is the body where it is sent while it comes."""
        message = self._head % (len(body) if stream is None else stream.size, body)
        call = HttpCall(self._opener, self.origin, message, self._timeout, receiver, hearer, stream)
        idle = self._idle
        while idle:
            if idle.pop().send(call):
                return call
        self._opener.open_for(call)
        return call


_NOWHERE = Origin(tls=False, host="", port=0, authority="", place="")


def _unavailable(error: BaseException) -> KenariError:
    """The error of a connection that could not be made; its own words may hold an address and are not used."""
    words = next((words for kind, words in _REASONS if isinstance(error, kind)), _UNREACHABLE)
    return KenariError("upstream_unavailable", words, retry_after=2.0, elsewhere=True)
