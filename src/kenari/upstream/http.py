"""The only outbound socket: HTTP/1.1 to providers on bare protocols, with a pool of kept-alive connections.

Callbacks go straight from `data_received` to the receiver; there is no queue and no task per chunk. No redirects are
followed. Errors name no key and no address.
"""

import asyncio
import base64
import logging
import ssl
import traceback
from collections.abc import Callable
from typing import cast
from urllib.parse import SplitResult, unquote, urlsplit

import httptools

from kenari.core.errors import KenariError, interrupted
from kenari.core.ports import Outgoing, Receiver
from kenari.upstream.pool import Origin, Pool
from kenari.wire.inflate import CodingError, Inflater, TooLargeError

_log = logging.getLogger("kenari.upstream")

MAX_HEADERS = 64 * 1024
_UNREACHABLE = "the model's provider cannot be reached. wait and send the request again"
_SLOW = "the model's provider did not accept a connection in time. send the request again"
_BROKEN = "the model's provider sent a malformed answer. send the request again"


class HttpCall:
    """One call under way (core.ports.Call): it may wait for a connection, be on one, or be over."""

    def __init__(self, receiver: Receiver, head: bytes, body: bytes) -> None:
        self.receiver = receiver
        self.request = head + body
        self.connection: Connection | None = None
        self.task: asyncio.Task[None] | None = None
        self.over = False
        self.paused = False
        self.began = False  # a byte of the answer has come
        self.reopen: Callable[[], None] | None = None

    def abort(self) -> None:
        """Close the connection at once; the receiver hears nothing more."""
        self.finish()
        if self.task is not None:
            self.task.cancel()
        if self.connection is not None:
            self.connection.abort()

    def pause(self) -> None:
        """Stop reading from the provider."""
        self.paused = True
        if self.connection is not None:
            self.connection.set_paused(True)

    def resume(self) -> None:
        """Read on."""
        self.paused = False
        if self.connection is not None:
            self.connection.set_paused(False)

    def lose(self, error: KenariError) -> None:
        """Tell the receiver that the call failed, once."""
        if not self.over:
            self.finish()
            self.receiver.on_lost(error)

    def finish(self) -> None:
        """Nothing more is heard of it."""
        self.over = True
        self.reopen = None  # it refers to this call: a cycle would keep the request's body


class Connection(asyncio.Protocol):
    """One connection to an origin. It carries one call at a time."""

    def __init__(self, pool: Pool["Connection"], origin: Origin) -> None:
        self._pool, self.origin = pool, origin
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._call: HttpCall | None = None
        self._headers: dict[bytes, bytes] = {}
        self._size = 0
        self._inflater: Inflater | None = None
        self._bodied = False
        self._complete = False
        self._keeps = False  # it can carry another call after this answer
        self._used = False
        self._paused = False
        self.idle_since = 0.0

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class is no subclass

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        call, parser = self._call, self._parser
        if call is None or parser is None:  # nobody asked: the connection is of no use any more
            self.abort()
            return
        call.began = True
        if not self._bodied:
            self._size += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keeps = False
            if not self._complete:
                self._note_fault(error)
                if self._call is call:
                    self._break(KenariError("upstream_error", _BROKEN, elsewhere=True))
                return
        if self._complete:
            self._settle(call)
        elif not self._bodied and self._size > MAX_HEADERS and self._call is call:
            self._break(KenariError("upstream_error", _BROKEN, elsewhere=True))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended: an answer without a length is complete with it, any other is broken off."""
        self._pool.forget(self)
        self._transport = None
        call, self._call = self._call, None
        if call is None or call.over:
            return
        if exc is None and self._bodied and self._delimited_by_close():
            self._finish(call)
        elif self._used and not call.began and call.reopen is not None:  # it died while it was idle: once more (M2)
            call.connection = None
            call.reopen()
        elif self._bodied:
            call.lose(_lost())
        else:
            call.lose(KenariError("upstream_error", _UNREACHABLE, elsewhere=True))

    # -- the pool and the call

    def send(self, call: HttpCall) -> None:
        """Send a call's request; its answer comes on this connection."""
        transport = self._transport
        assert transport is not None
        self._call = call
        call.connection = self
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        self._headers, self._inflater = {}, None
        self._bodied = self._complete = False
        self._size = 0
        transport.write(call.request)
        if call.paused:
            self.set_paused(True)

    def abort(self) -> None:
        """Close without ceremony."""
        self._call = None
        if self._transport is not None:
            self._transport.abort()

    def set_paused(self, paused: bool) -> None:
        """Read, or do not."""
        transport = self._transport
        if transport is None or transport.is_closing() or paused is self._paused:
            return
        self._paused = paused
        if paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it."""
        return self._transport is not None and not self._transport.is_closing()

    # -- httptools

    def on_message_begin(self) -> None:
        """An answer begins; one that nobody asked for makes the connection useless."""
        if self._complete:
            self._keeps = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers are not for us."""
        if self._bodied:
            return
        name = name.lower()
        self._headers[name] = self._headers[name] + b", " + value if name in self._headers else value

    def on_headers_complete(self) -> None:
        """The head is whole; interim answers (1xx) are skipped."""
        call, parser = self._call, self._parser
        if call is None or parser is None:
            return
        status = parser.get_status_code()
        if status < 200:
            self._headers = {}
            return
        self._bodied = True
        coding = self._headers.get(b"content-encoding", b"identity")
        if coding.strip().lower() not in (b"identity", b""):
            self._inflater = Inflater(coding)
        if not call.over:
            call.receiver.on_head(status, self._headers)

    def on_body(self, data: bytes) -> None:
        """Bytes of the body, transfer coding removed."""
        call = self._call
        if call is None or call.over:
            return
        if self._inflater is not None:
            data = self._inflater.feed(data)
        if data:
            call.receiver.on_body(data)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        call = self._call
        if call is None or not self._bodied or self._complete:
            return
        self._complete = True
        self._call = None
        self._keeps = self._parser is not None and self._parser.should_keep_alive()

    def _settle(self, call: HttpCall) -> None:
        """The answer is complete and all bytes that came with it are read: keep the connection or end it."""
        self._complete = False
        transport = self._transport
        if self._keeps and transport is not None and self.usable and not transport.get_write_buffer_size():
            self.set_paused(False)
            self._used = True
            self._pool.put(self)
        else:
            self.abort()
        self._finish(call)

    def _finish(self, call: HttpCall) -> None:
        call.connection = None
        if self._inflater is not None and not self._inflater.complete:
            call.lose(_lost())
        elif not call.over:
            call.finish()
            call.receiver.on_end()

    def _note_fault(self, error: Exception) -> None:
        """A fault of our own inside a callback must not pass for a provider's: log where it arose."""
        cause = error.__context__
        if cause is not None and not isinstance(cause, (CodingError, TooLargeError)):
            last = traceback.extract_tb(cause.__traceback__)[-1]
            _log.error("%s while reading an answer, at %s:%s", type(cause).__name__, last.name, last.lineno)

    def _break(self, error: KenariError) -> None:
        call = self._call
        self.abort()
        if call is not None:
            call.connection = None
            call.lose(error)

    def _delimited_by_close(self) -> bool:
        headers = self._headers
        return b"content-length" not in headers and b"chunked" not in headers.get(b"transfer-encoding", b"").lower()


class Knock(asyncio.Protocol):
    """Waits for a proxy's answer to CONNECT. `opened` fails with OSError when there is no tunnel."""

    def __init__(self, opened: "asyncio.Future[None]") -> None:
        self.opened = opened
        self._head = b""

    def data_received(self, data: bytes) -> None:
        """Bytes of the proxy's answer."""
        self._head += data
        if self.opened.done():
            return
        if b"\r\n\r\n" in self._head and self._head.split(b"\r\n", 1)[0].split(b" ")[1:2] == [b"200"]:
            self.opened.set_result(None)
        elif b"\r\n\r\n" in self._head or len(self._head) > MAX_HEADERS:
            self.opened.set_exception(OSError("the proxy refused the tunnel"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy has hung up."""
        if not self.opened.done():
            self.opened.set_exception(OSError("the proxy did not answer the CONNECT"))


class HttpUpstream:
    """The outbound end for http and https (core.ports.Upstream)."""

    def __init__(self, idle_seconds: float = 60.0, max_idle: int = 256) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool: Pool[Connection] = Pool(self._loop, idle_seconds, max_idle)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._origins: dict[tuple[str, str, str], tuple[Origin, bytes]] = {}

    def start(self, request: Outgoing, receiver: Receiver) -> HttpCall:
        """Begin a call; the receiver hears the rest later."""
        origin, target = self._resolve(request)
        head = target + request.headers + b"content-length: %d\r\n\r\n" % len(request.body)
        call = HttpCall(receiver, head, request.body)
        call.reopen = lambda: self._open(call, origin, request)
        connection = self._pool.take(origin)
        if connection is not None:
            connection.send(call)
        else:
            self._open(call, origin, request)
        return call

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def _open(self, call: HttpCall, origin: Origin, request: Outgoing) -> None:
        call.reopen = None
        call.task = self._loop.create_task(self._connect(call, origin, request.connect_timeout))

    async def _connect(self, call: HttpCall, origin: Origin, seconds: float) -> None:
        """Open a connection (DNS, TCP and TLS within one time-out) and send the request on it."""
        try:
            async with asyncio.timeout(seconds):
                connection = await self._dial(origin)
        except TimeoutError:
            call.lose(KenariError("upstream_timeout", _SLOW, elsewhere=True))
            return
        except (OSError, ssl.SSLError, ValueError):
            call.lose(KenariError("upstream_unavailable", _UNREACHABLE, retry_after=2.0, elsewhere=True))
            return
        finally:
            call.task = None
        if call.over:
            connection.abort()
        elif connection.usable:
            connection.send(call)
        else:  # it was closed as soon as it stood
            call.lose(KenariError("upstream_error", _UNREACHABLE, elsewhere=True))

    async def _dial(self, origin: Origin) -> Connection:
        if origin.proxy.startswith("https:"):
            raise OSError("TLS towards an egress proxy is not served")
        context = self._context(origin.ca) if origin.tls else None
        if origin.proxy and origin.tls:
            return await self._tunnel(origin, context)
        host, port = (origin.proxy_host, origin.proxy_port) if origin.proxy else (origin.host, origin.port)
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._pool, origin), host, port, ssl=context, server_hostname=host if context else None
        )
        return connection

    async def _tunnel(self, origin: Origin, context: ssl.SSLContext | None) -> Connection:
        """TLS through an egress proxy's CONNECT."""
        plain, knock = await self._loop.create_connection(
            lambda: Knock(self._loop.create_future()), origin.proxy_host, origin.proxy_port
        )
        try:
            where = origin.place.encode()
            plain.write(b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (where, where, origin.proxy_auth))
            await knock.opened
            connection = Connection(self._pool, origin)
            transport = await self._loop.start_tls(
                plain, connection, context or ssl.create_default_context(), server_hostname=origin.host
            )
            if transport is None:
                raise OSError("no TLS through the proxy")
        except BaseException:  # cancelled too: the socket must not outlive the call
            plain.abort()
            raise
        connection.connection_made(transport)
        return connection

    def _context(self, ca: str) -> ssl.SSLContext:
        context = self._contexts.get(ca)
        if context is None:
            context = self._contexts[ca] = ssl.create_default_context(cafile=ca or None)
            context.set_alpn_protocols(["http/1.1"])
        return context

    def _resolve(self, request: Outgoing) -> tuple[Origin, bytes]:
        """The origin of an address, and the request line with host; computed once for each address."""
        key = (request.url, request.proxy, request.ca)
        known = self._origins.get(key)
        if known is None:
            parts = urlsplit(request.url)
            origin = origin_of(parts, request.proxy, request.ca)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            target = f"http://{origin.authority}{path}" if origin.proxy and not origin.tls else path
            line = f"POST {target} HTTP/1.1\r\nhost: {origin.authority}\r\naccept-encoding: identity\r\n".encode()
            if origin.proxy and not origin.tls:
                line += origin.proxy_auth
            if len(self._origins) > 1024:
                self._origins.clear()
            known = self._origins[key] = (origin, line)
        return known


def origin_of(parts: SplitResult, proxy: str, ca: str) -> Origin:
    """The origin of an address, reached through a proxy or not."""
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    port = parts.port or (443 if tls else 80)
    shown = f"[{host}]" if ":" in host else host
    place = f"{shown}:{port}"
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}") if proxy else None
    auth = b""
    if through is not None and through.username:
        credentials = f"{unquote(through.username)}:{unquote(through.password or '')}".encode()
        auth = b"proxy-authorization: Basic " + base64.b64encode(credentials) + b"\r\n"
    return Origin(
        tls=tls,
        host=host,
        port=port,
        place=place,
        authority=shown if port == (443 if tls else 80) else place,
        ca=ca,
        proxy=proxy,
        proxy_host=(through.hostname or "") if through else "",
        proxy_port=(through.port or 3128) if through else 0,
        proxy_auth=auth,
    )


def _lost() -> KenariError:
    """The provider broke off in the middle of its answer."""
    error = interrupted()
    error.elsewhere = True
    return error
