"""What every node does, whatever its number of processes: signals, live reload; and a node of several workers."""

import asyncio
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from kenari.config import Config, ConfigError
from kenari.config.reload import merge
from kenari.doors.listeners import SharedAddress, cannot_listen
from kenari.keep import Keep
from kenari.keeper.callers import UnpackedCallers, key_set, own_key_set
from kenari.keeper.session import Report, Session, Shared
from kenari.keeper.supervisor import Plan, Supervisor
from kenari.keeper.words import Configure, KeySet, OwnKeySet, Setup, Word

_log = logging.getLogger("kenari")

Fault: TypeAlias = tuple[str, str]
"""A path in the configuration, and what is wrong there."""
Read: TypeAlias = Callable[[], Config]
"""Reads the configuration again. Raises ConfigError."""
APPLY_SECONDS = 10.0
"""How long workers may take to follow a new configuration."""
END_SECONDS = 3.0
"""How long workers may take to leave beyond what they were given."""
_OURS = ("KENARI_SECRET", "KENARI_ADMIN_TOKEN", "KENARI_BOOTSTRAP_KEY")
"""Variables that only the keeper needs; workers do not inherit them."""


class Reload:
    """Reads the configuration again and lets it hold for new requests; those in flight keep theirs to their end.

    `use` puts a configuration in force, or raises ConfigError: then everything stays as it was.
    """

    def __init__(self, running: Config, read: Read, use: Callable[[Config], Awaitable[None]]) -> None:
        self.running = running
        self._read, self._use = read, use
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[list[Fault]]] = set()

    async def reload(self) -> list[Fault]:
        """Reload now; its faults, none when the new configuration is in force. They are in the log too."""
        async with self._one_at_a_time:
            try:
                fresh = await asyncio.to_thread(self._read)  # files may be slow, and no stream waits for them
                merged, waiting = merge(self.running, fresh)
                await self._use(merged)
            except ConfigError as error:
                for path, message in error.faults:
                    _log.error("the new configuration is not used: %s: %s", path, message)
                return error.faults
            self.running = merged
            _log.info("the configuration was read again and holds for new requests")
            for name in waiting:
                _log.warning("%s has changed, which needs a restart; until then it stays as it was", name)
            return []

    def begin(self) -> None:
        """Reload soon: what SIGHUP asks for."""
        task = asyncio.get_running_loop().create_task(self.reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Signals:
    """SIGTERM and SIGINT: the first one drains (`stop`), the second one ends at once (`end`). SIGHUP reloads; but when
    the terminal that kenari was started in has gone, it ends as programs in a terminal do."""

    def __init__(self, end: Callable[[], None], hangup: Callable[[], None] | None) -> None:
        self.stop = asyncio.Event()
        self._end, self._hangup = end, hangup
        self._terminal = sys.stderr.isatty()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _stop(self) -> None:
        if self.stop.is_set():
            self._end()
        self.stop.set()

    def _hang_up(self) -> None:
        if self._terminal and not sys.stderr.isatty():
            self.stop.set()
        elif self._hangup is not None and not self.stop.is_set():
            self._hangup()


class WorkersNode:
    """A node of several workers: this process keeps what it has once, and serves nobody itself.

    `check` raises ConfigError where a worker could not follow a configuration: then none is bothered with it.
    """

    def __init__(self, keep: Keep, read: Read, check: Callable[[Config], None]) -> None:
        config = keep.config
        self._keep, self._check = keep, check
        self._version = 1
        self._lives = 0
        self._shared = Shared(
            books=keep.books,
            limits=keep.limits,
            records=keep.records,
            callers=UnpackedCallers(),
            own_book=keep.own,
            answers=keep.answers,
            health=keep.health,
        )
        self._address = SharedAddress(config.server.listen)
        self._reload = Reload(config, read, self._use)
        self._supervisor = Supervisor(
            Plan(
                count=config.server.workers,
                command=(sys.executable, "-P", "-m", "kenari.worker"),
                environment={name: value for name, value in os.environ.items() if name not in _OURS},
                sockets=lambda number: self._sockets(),
                setup=self._setup,
                session=self._session,
            )
        )
        self._signals = Signals(self._supervisor.end, self._reload.begin)

    async def run(self, ready: Callable[[str], Awaitable[None]]) -> int:
        """Start the workers, tell `ready` the address when all of them serve, and keep them until a signal comes; the
        exit status. Raises OSError when the address cannot be had."""
        supervisor = self._supervisor
        stop = asyncio.ensure_future(self._signals.stop.wait())
        start = asyncio.ensure_future(supervisor.start())
        try:
            await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
            if start.done() and start.result():
                await ready(self._address.address)
                await stop
        finally:
            stop.cancel()
            self._address.close()
            supervisor.drain()
            if not await supervisor.wait(self._reload.running.server.drain + END_SECONDS):
                _log.warning("a worker did not end within drain and was killed")
            await asyncio.gather(start, stop, return_exceptions=True)
        if supervisor.failed.done():
            _log.error("kenari cannot start: %s", supervisor.failed.result())
            return 1
        return 0

    # -- what the management API sees (keep.Serving)

    def gauges(self) -> dict[str, float]:
        """How the workers do."""
        status = self._supervisor.status()
        return {
            "in_flight": sum(one.in_flight for one in status),
            "workers": sum(one.version > 0 for one in status),
            "worker_starts": sum(one.starts for one in status),
            "config_version": min((one.version for one in status if one.version), default=0),
        }

    async def reload(self) -> list[Fault]:
        """Read the configuration again, in every worker."""
        return await self._reload.reload()

    def keys_changed(self) -> None:
        """Tell every worker the keys."""
        self._supervisor.tell(self._keys())

    def own_keys_changed(self) -> None:
        """Tell every worker what callers have brought."""
        own = self._own_keys()
        if own is not None:
            self._supervisor.tell(own)

    # --

    def _keys(self) -> KeySet:
        keys = self._keep.keys
        return key_set(keys.sequence, keys.secrets)

    def _own_keys(self) -> OwnKeySet | None:
        own = self._keep.own
        return None if own is None else own_key_set(own.sealed)

    def _sockets(self) -> list[socket.socket]:
        """The listening sockets of one more worker. Raises OSError."""
        try:
            return self._address.open()
        except OSError as error:
            raise cannot_listen("listen", self._address.address, error) from error

    def _session(self, say: Callable[[Word], None], report: Callable[[Report], None]) -> Session:
        self._lives += 1
        return Session(f"worker-{os.getpid()}-{self._lives}", self._shared, say, report)

    def _setup(self) -> Setup:
        derived = self._keep.derived
        return Setup(
            self._version,
            packed(self._reload.running),
            derived.envelopes,
            derived.cache,
            derived.hmac,
            self._keep.bootstrap,
            self._keys(),
            self._keep.records is not None,
            derived.byok,
            self._own_keys(),
            self._keep.answers.keeps,
        )

    async def _use(self, config: Config) -> None:
        self._check(config)
        self._version += 1
        self._keep.follow(config)
        self._reload.running = config  # a worker that starts from now on starts with it
        await self._supervisor.configure(Configure(self._version, packed(config)), APPLY_SECONDS)


def packed(config: Config) -> bytes:
    """A configuration on its way to a worker, over a socket pair that only the two can reach; without what only the
    keeper needs."""
    byok = msgspec.structs.replace(config.byok, secret="", old_secrets=())
    return pickle.dumps(msgspec.structs.replace(config, bootstrap_key="", admin_token="", secret="", byok=byok))


def unpacked(data: bytes) -> Config:
    """The configuration of `packed`; secrets stay `Secret`."""
    config = pickle.loads(data)
    if not isinstance(config, Config):
        raise TypeError("no configuration")
    return config
