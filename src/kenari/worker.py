"""A worker process: `python -m kenari.worker NUMBER CHANNEL SOCKET...`, started by the keeper and by nobody else.

The numbers are file descriptors that it inherits: one end of the socket pair to the keeper, and its listening sockets.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence

from kenari.app import LOOP, Server
from kenari.core.own_keys import NoOwnKeys
from kenari.core.ports import Books
from kenari.keep import Derived, Kept
from kenari.keeper.books import LogBooks
from kenari.keeper.callers import PackedCallers, sealed_of, secrets_of
from kenari.keeper.own_keys import SealedOwnKeys
from kenari.keeper.remote import (
    Link,
    RemoteAnswers,
    RemoteBooks,
    RemoteHealth,
    RemoteLimits,
    RemoteOwnKeys,
    RemoteRecords,
)
from kenari.keeper.words import Applied, Configure, Drain, End, Fared, KeySet, Leaving, OwnKeySet, Push, Ready, Setup
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.stored import StoredKeys
from kenari.keys.vault import Vault
from kenari.memory import settle_memory
from kenari.node import Signals, unpacked

_log = logging.getLogger("kenari.worker")
SETUP_SECONDS = 30.0


class Worker:
    """Serves clients with the keeper's books, limits and keys, for as long as there is a keeper."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._setup: asyncio.Future[Setup] = self._loop.create_future()
        self._keys: StoredKeys | None = None
        self._own: SealedOwnKeys | None = None
        self._newest_own: OwnKeySet | None = None
        self._server: Server | None = None
        self._version, self._config, self._newest_keys = 0, b"", KeySet(-1, [])
        self._ready = False
        self.link = Link(self._pushed)
        self._health = RemoteHealth(self.link)
        self.link.channel.closed.add_done_callback(lambda _: self._signals.stop.set())
        self._signals = Signals(self._end, None)

    async def run(self, channel: socket.socket) -> int:
        """Serve until the keeper says drain, a signal comes, or the keeper is gone; the exit status."""
        await self._loop.create_unix_connection(lambda: self.link.channel, sock=channel)
        try:
            async with asyncio.timeout(SETUP_SECONDS):
                await asyncio.wait((self._setup, self.link.channel.closed), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            return 1
        if not self._setup.done():
            return 1
        config = unpacked(self._config)
        orphaned = LogBooks(config.server.log, time.time, self._loop.call_later)
        self._server = server = Server(config, self._kept(self._setup.result(), orphaned))
        settle_memory()
        await server.listen_on(self._sockets)
        self._ready = True
        self.link.say(Ready(self._version))
        await self._signals.stop.wait()
        self.link.say(Leaving())
        if not self.link.up:
            _log.warning("the keeper has gone; requests in flight end, nothing new is taken")
        await server.drain()
        await server.close()
        self.link.channel.close()
        await self.link.channel.closed
        orphaned.flush()
        return 0

    def _kept(self, setup: Setup, orphaned: Books) -> Kept:
        """What the node has once, through the keeper's ports."""
        self._keys = StoredKeys(setup.hmac, time.time, BootstrapKeys({setup.bootstrap: OPERATOR}))
        self._keys.replace(self._newest_keys.sequence, secrets_of(self._newest_keys))
        if self._newest_own is not None:
            self._own = SealedOwnKeys(Vault(setup.byok))
            self._own.sealed = sealed_of(self._newest_own)
        callers = PackedCallers()
        return Kept(
            books=RemoteBooks(self.link, callers, orphaned),
            limits=RemoteLimits(self.link, callers),
            keys=self._keys,
            records=RemoteRecords(self.link, callers) if setup.stored else None,
            derived=Derived(envelopes=setup.envelopes, cache=setup.cache, hmac=setup.hmac, byok=setup.byok),
            answers=RemoteAnswers(self.link, setup.keeps),
            health=self._health,
            own=self._own or NoOwnKeys(),
            own_book=None if self._own is None else RemoteOwnKeys(self.link),
        )

    def _pushed(self, word: Push) -> None:
        match word:
            case Setup():
                self._version, self._config = word.version, word.config
                self._newest_keys, self._newest_own = word.keys, word.own
                self._setup.set_result(word)
            case KeySet():
                self._newest_keys = word
                if self._keys is not None:
                    self._keys.replace(word.sequence, secrets_of(word))
            case OwnKeySet():
                self._newest_own = word
                if self._own is not None:
                    self._own.sealed = sealed_of(word)
            case Fared():
                self._health.heard(word)
            case Configure():
                self._configure(word)
            case Drain():
                self._signals.stop.set()
            case End():
                self._signals.stop.set()
                self._end()

    def _configure(self, word: Configure) -> None:
        """Follow a new configuration."""
        fault = ""
        try:
            if self._server is not None:
                self._server.apply(unpacked(word.config))
        except (OSError, ValueError, TypeError) as error:
            fault = f"cannot follow a new configuration: {type(error).__name__}"
        else:
            self._version, self._config = word.version, word.config
        if self._ready or fault:  # else `Ready` says it
            self.link.say(Applied(word.version, fault))

    def _end(self) -> None:
        if self._server is not None:
            self._server.end()


async def _work(number: str, channel: int, sockets: Sequence[int]) -> int:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(levelname)s %(name)s: worker {number}: %(message)s"
    )
    for one in (channel, *sockets):
        os.set_inheritable(one, False)
    return await Worker([socket.socket(fileno=one) for one in sockets]).run(socket.socket(fileno=channel))


def main(argv: Sequence[str]) -> int:
    """Work; the exit status."""
    number, channel, *sockets = argv
    with asyncio.Runner(loop_factory=LOOP) as runner:
        return runner.run(_work(number, int(channel), [int(one) for one in sockets]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
