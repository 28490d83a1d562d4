"""What nodes that share one PostgreSQL server say to each other: an answer of one on its way to another (F14).

Words travel as notices of that server, which keeps nothing of them. A text of a notice has at most 8,000 bytes, so that
what is said is cut; each end counts what it sends, and whoever misses something breaks off what was under way.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from kenari.core.ports import Outlet, Repeat, Share
from kenari.keeper.relay import Relay
from kenari.keeper.words import Relayed, Word

_log = logging.getLogger("kenari.keeper")
MOST_BYTES = 5400
"""Of words in one notice: as text and with its envelope that stays below 8,000."""
ALIVE_SECONDS = 2.0
SILENT_SECONDS = 9.0
"""A node that has said nothing for so long, while an answer is on its way, is gone."""
_WORDS: "msgspec.msgpack.Decoder[list[Relayed]]" = msgspec.msgpack.Decoder(list[Relayed])


class Letter(msgspec.Struct, frozen=True, array_like=True):
    """One notice: who says it, in which of its lives, the how manyth of it; `last` ends what was cut."""

    node: str
    life: bytes
    count: int
    last: bool
    data: bytes


class _Peer:
    """Another node."""

    def __init__(self) -> None:
        self.relay: Relay | None = None
        self.waiting: list[Word] = []
        self.sending = False
        self.sent = 0
        self.life, self.heard, self.came = b"", 0, b""
        self.last = 0.0


class Mail:
    """This node's end. `send` says a text on a channel; `share` answers what other nodes ask for; `life` is random."""

    def __init__(self, node: str, life: bytes, send: Callable[[str, str], Awaitable[None]], share: Share) -> None:
        self._node, self._life, self._send, self._share = node, life, send, share
        self._loop = asyncio.get_running_loop()
        self._peers: dict[str, _Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to look after what is under way."""
        self._begin(self._watch())

    async def close(self) -> None:
        """Break off what is under way."""
        for peer in self._peers.values():
            self._drop(peer)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(self, node: str, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        """Ask another node for an answer; whether it is under way now."""
        return await self._relay(node).ask(account, repeat, outlet)

    def hear(self, text: str | None) -> None:
        """A notice; None when some may have been lost."""
        if text is None:
            for peer in self._peers.values():
                self._drop(peer)
            return
        try:
            letter = msgspec.msgpack.decode(base64.b64decode(text), type=Letter)
            self._take(letter)
        except (msgspec.MsgspecError, ValueError):
            _log.error("another node said something that cannot be read")

    def _take(self, letter: Letter) -> None:
        relay = self._relay(letter.node)
        peer = self._peers[letter.node]
        if peer.life and (letter.life != peer.life or letter.count != peer.heard + 1):
            self._drop(peer)  # it was started anew, or something of it is missing
            relay = self._relay(letter.node)
            peer.came = b""
        peer.life, peer.heard, peer.last = letter.life, letter.count, self._loop.time()
        peer.came += letter.data
        if letter.last:
            came, peer.came = peer.came, b""
            for word in _WORDS.decode(came):
                relay.hear(word)

    def _relay(self, node: str) -> Relay:
        peer = self._peers.setdefault(node, _Peer())
        if peer.relay is None:
            peer.last = self._loop.time()
            peer.relay = Relay(partial(self._say, node, peer), self._share)
        return peer.relay

    def _drop(self, peer: _Peer) -> None:
        relay, peer.relay = peer.relay, None
        if relay is not None:
            relay.close()

    def _say(self, node: str, peer: _Peer, word: Word) -> None:
        peer.waiting.append(word)
        if not peer.sending:
            peer.sending = True
            self._begin(self._sending(node, peer))

    async def _sending(self, node: str, peer: _Peer) -> None:
        """Say what waits, one notice after the other; meanwhile more may come."""
        try:
            while peer.waiting:
                words, peer.waiting = peer.waiting, []
                data = msgspec.msgpack.encode(words)
                for start in range(0, len(data), MOST_BYTES):
                    peer.sent += 1
                    piece = data[start : start + MOST_BYTES]
                    letter = Letter(self._node, self._life, peer.sent, start + MOST_BYTES >= len(data), piece)
                    await self._send(channel_of(node), base64.b64encode(msgspec.msgpack.encode(letter)).decode())
        except Exception as fault:  # noqa: BLE001 - a store that is down: what was under way breaks off
            _log.info("another node cannot be reached: %s", type(fault).__name__)
            peer.waiting.clear()
            self._drop(peer)
        finally:
            peer.sending = False

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_SECONDS)
            now = self._loop.time()
            for peer in self._peers.values():
                if peer.relay is not None and peer.relay.busy:
                    if now - peer.last > SILENT_SECONDS:
                        self._drop(peer)
                    else:
                        peer.relay.alive()

    def _begin(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def channel_of(node: str) -> str:
    """The channel on which a node listens."""
    return "kenari_" + hashlib.sha256(node.encode()).hexdigest()[:24]
