"""Who may manage: the one management token, and how guesses at it are slowed (contract A3, F11)."""

import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from kenari.core.errors import KenariError
from kenari.core.ports import Exchange

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds that a wrong token waits for its answer: doubled with each further one of a peer, up to the longest."""
FORGET_SECONDS = 900.0
AUDIT_SECONDS = 60.0
"""Wrong tokens of one peer are audited at once, then at most this often, with their number."""
MAX_PEERS = 1024
MAX_WAITING = 256
MAX_WAITING_OF_PEER = 8

Report = Callable[[str, int], Awaitable[None]]
"""Told of wrong tokens: the peer, and how many since the last report."""


class _Peer:
    """What is remembered of one source of wrong tokens."""

    __slots__ = ("audited", "failures", "last", "unreported", "waiting")

    def __init__(self) -> None:
        self.failures = self.waiting = self.unreported = 0
        self.last = 0.0
        self.audited = float("-inf")


class Guard:
    """Lets the management token in, in constant time. A wrong one is told so late, and later each time.

    Memory is bounded: the longest silent peers are forgotten first. `now` and `sleep` are in seconds.
    """

    def __init__(
        self, token: str, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]], report: Report
    ) -> None:
        self._digest = _digest(token.encode("utf-8", "surrogateescape"))
        self.actor = f"token:{self._digest.hex()[:12]}"
        """The token's id in the audit log: the beginning of its hash."""
        self._now, self._sleep, self._report = now, sleep, report
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._waiting = 0

    async def admit(self, exchange: Exchange) -> str:
        """The actor behind a request. Raises the 401, late where a token was wrong, and 429 for a crowd of guesses."""
        scheme, _, bearer = exchange.headers.get(b"authorization", b"").partition(b" ")
        token = bearer.strip()
        if scheme.lower() != b"bearer" or not token:
            raise KenariError("invalid_api_key", _MISSING)
        source = source_of(exchange.peer)
        known = self._peers.get(source)
        if self._waiting >= MAX_WAITING or (known is not None and known.waiting >= MAX_WAITING_OF_PEER):
            raise KenariError("rate_limited", _CROWD, retry_after=LONGEST_DELAY)  # and the guess was not looked at
        if hmac.compare_digest(_digest(token), self._digest):
            return self.actor
        await self._refuse(source)
        raise KenariError("invalid_api_key", _WRONG)

    async def _refuse(self, source: str) -> None:
        peer, now = self._remember(source), self._now()
        peer.failures = peer.failures + 1 if now - peer.last < FORGET_SECONDS else 1
        peer.last = now
        peer.unreported += 1
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(peer.failures - 1, 16))
        peer.waiting += 1
        self._waiting += 1
        try:
            if now - peer.audited >= AUDIT_SECONDS:
                peer.audited, count, peer.unreported = now, peer.unreported, 0
                await self._report(source, count)
            await self._sleep(delay)
        finally:
            peer.waiting -= 1
            self._waiting -= 1

    def _remember(self, source: str) -> _Peer:
        peer = self._peers.get(source)
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                self._peers.popitem(last=False)
            peer = self._peers[source] = _Peer()
        self._peers.move_to_end(source)
        return peer


def source_of(peer: str) -> str:
    """Whom guesses are counted for: an IPv4 address, an IPv6 network of 64 bits (one host has a whole one), or `local`."""
    if not peer:
        return "local"
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


_MISSING = "no management token was sent. send authorization: Bearer with what `kenari admin token` prints"
_WRONG = "the management token is not valid. `kenari admin token` on the server prints it; api keys do not open this"
_CROWD = "too many wrong management tokens came from here. wait, then try again"
