"""The guarded fetcher: reads an address that somebody else named, without being led inside (core.fetched.Fetch).

A name is resolved once, every address it has is checked, and the connection goes to exactly one of those checked
addresses, with the name only in SNI and the host header. A name that resolves differently the next time (DNS rebinding)
changes nothing, since there is no next time. Each redirect goes through all of it again.
"""

import asyncio
import base64
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from kenari.core.fetched import Fetched, FetchError, Wanted
from kenari.fetch.addresses import Address, may_reach
from kenari.fetch.answer import REDIRECTS, Answer
from kenari.fetch.policy import FetchPolicy, Place, matches, next_place, read_url

Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Host and port -> its addresses, the preferred one first. Raises OSError for an unknown name."""

MAX_REDIRECTS = 3
MAX_ADDRESSES = 32
CHUNK = 64 * 1024
_AGENT = b"user-agent: kenari\r\naccept-encoding: gzip, deflate\r\nconnection: close\r\n"
_REFUSED = "this address is not on the public internet and is not read from here"
_UNREACHABLE = "the server of this address cannot be reached"


class GuardedFetch:
    """Reads addresses under a policy. `resolve` is the system's resolver unless another is given (tests); `ca` is a
    file of authorities to trust instead of the system's."""

    def __init__(self, policy: FetchPolicy, resolve: Resolver | None = None, ca: str = "") -> None:
        self._policy = policy
        self._resolve = resolve or system_resolver
        self._ca = ca
        self._context: ssl.SSLContext | None = None

    async def fetch(self, wanted: Wanted) -> Fetched:
        """Read an address. Raises FetchError."""
        try:
            async with asyncio.timeout(wanted.seconds):
                return await self._follow(wanted)
        except TimeoutError:
            raise FetchError(f"the server of this address took longer than {wanted.seconds:g} s") from None
        except (OSError, ssl.SSLError, EOFError, asyncio.LimitOverrunError):
            raise FetchError(_UNREACHABLE) from None

    async def _follow(self, wanted: Wanted) -> Fetched:
        place = read_url(wanted.url)
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._once(place, wanted)
            location = answer.headers.get(b"location")
            if answer.status not in REDIRECTS or location is None:
                return Fetched(
                    url=place.url,
                    status=answer.status,
                    media_type=answer.media_type,
                    charset=answer.charset,
                    body=answer.body,
                )
            if wanted.trusted:  # a configured service has no reason to send us elsewhere, with our key in a header
                raise FetchError("the configured server answered with a redirect")
            place = next_place(place, location.decode("latin-1"))
        raise FetchError(f"this address redirects more than {MAX_REDIRECTS} times")

    async def _once(self, place: Place, wanted: Wanted) -> Answer:
        """One request to one checked address."""
        addresses = await self._addresses(place, wanted.trusted)
        reader, writer = await self._connect(place, addresses, wanted.trusted)
        answer = Answer(wanted.most, wanted.types)
        try:
            writer.write(_request(place, wanted))
            while not answer.complete:
                data = await reader.read(CHUNK)
                if not data:
                    answer.end()
                    break
                answer.feed(data)
        finally:
            writer.transport.abort()
        return answer

    async def _addresses(self, place: Place, trusted: bool) -> list[Address]:
        """All addresses of the place, each of them checked: one bad address closes the name."""
        policy = self._policy
        if not trusted and policy.domains and not matches(place.host, policy.domains):
            raise FetchError("this host is not on this server's list of hosts that may be read")
        try:
            found = (await self._resolve(place.host, place.port))[:MAX_ADDRESSES]
            addresses: list[Address] = [ipaddress.ip_address(text) for text in found]
        except (OSError, UnicodeError, ValueError):
            raise FetchError("the host of this address is not known") from None
        if not addresses:
            raise FetchError("the host of this address is not known")
        if not trusted and not all(may_reach(address, policy.networks) for address in addresses):
            raise FetchError(_REFUSED)
        return addresses

    async def _connect(
        self, place: Place, addresses: list[Address], trusted: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first checked address that accepts one."""
        context = self._tls() if place.tls else None
        fault: OSError = ConnectionError()
        for address in addresses[:4]:
            try:
                inside = trusted and not may_reach(address)  # a service of the operator in the same network
                if self._policy.proxy and not inside:
                    return await self._tunnel(place, address, context)
                return await asyncio.open_connection(
                    str(address), place.port, ssl=context, server_hostname=place.host if context else None
                )
            except OSError as error:
                fault = error
        raise fault

    async def _tunnel(
        self, place: Place, address: Address, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Through the proxy to the checked address itself: the proxy is not given the name to resolve again."""
        proxy = urlsplit(self._policy.proxy)
        reader, writer = await asyncio.open_connection(proxy.hostname, proxy.port or 3128)
        try:
            host = f"[{address}]" if address.version == 6 else str(address)
            where = f"{host}:{place.port}".encode()
            writer.write(b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (where, where, _proxy_auth(self._policy.proxy)))
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.split(b" ", 2)[1:2] == [b"200"]:
                raise FetchError("the egress proxy refuses this address")
            if context is not None:
                await writer.start_tls(context, server_hostname=place.host)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._ca or None)
            self._context.set_alpn_protocols(["http/1.1"])
        return self._context


async def system_resolver(host: str, port: int) -> list[str]:
    """The addresses of a name as the system knows them, in its order."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _request(place: Place, wanted: Wanted) -> bytes:
    head = f"{wanted.method} {place.target} HTTP/1.1\r\nhost: {place.authority}\r\n".encode()
    length = b"content-length: %d\r\n" % len(wanted.body) if wanted.method == "POST" else b""
    return head + _AGENT + wanted.headers + length + b"\r\n" + wanted.body


def _proxy_auth(proxy: str) -> bytes:
    parts = urlsplit(proxy)
    if not parts.username:
        return b""
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return b"proxy-authorization: Basic " + base64.b64encode(credentials) + b"\r\n"
