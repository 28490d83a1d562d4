"""What a node has once, whatever its number of processes: store, books, limits, keys, metrics and the admin port, put
together from the configuration."""

import asyncio
import contextlib
import logging
import secrets
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

import msgspec

from kenari.config import Config, ServerSettings
from kenari.core.currency import currency_digits
from kenari.core.ids import derive_key
from kenari.core.ports import Books, Keys, Limits, Records
from kenari.doors.admin.door import MAX_BODY, AdminDoor
from kenari.doors.admin.guard import Guard
from kenari.doors.admin.services import Management
from kenari.doors.admin.values import Money
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import listen
from kenari.keeper.books import LogBooks
from kenari.keeper.caller_records import CallerRecords
from kenari.keeper.key_refresh import KeyRefresh
from kenari.keeper.ledger_books import BooksSettings, StoreBooks
from kenari.keeper.metrics import Metrics
from kenari.keeper.secrets import admin_token, first_key, root_secret
from kenari.keeper.session import NodeBooks
from kenari.keeper.spool import Spool
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.memory import MemoryLimits
from kenari.keys.secrets import fingerprint, make_key
from kenari.keys.stored import StoredKeys
from kenari.keys.valkey import ValkeyLimits
from kenari.ledger.chain import Seals
from kenari.providers.base import VERSION
from kenari.store.records import StoreDown
from kenari.store.store import Store, StoreSettings
from kenari.wire.address import is_loopback

_log = logging.getLogger("kenari")
SPOOL_FILE = "kenari.spool"


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """Keys derived from the root secret (F10): for envelopes of proofs, for cache keys, for the HMAC of `kn-` keys."""

    envelopes: bytes
    cache: bytes
    hmac: bytes


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has once, as its serving part reaches it: plain calls in one process, `keeper.remote` in a worker."""

    books: Books
    limits: Limits
    keys: Keys
    records: Records | None
    derived: Derived


class Serving(Protocol):
    """The part of the node that serves, as the management API sees it."""

    def gauges(self) -> Mapping[str, float]:
        """How it does: `in_flight`, `connections`, `workers`."""
        ...

    def reload(self) -> "Awaitable[list[tuple[str, str]]]":
        """Read the configuration again; its faults."""
        ...

    def keys_changed(self) -> None:
        """There is a new snapshot of the keys."""
        ...


class Keep:
    """What a node has once. `serving` is told to it before `start`."""

    def __init__(self, config: Config) -> None:
        """Raises OSError when secrets cannot be had, Conflict when the store's address cannot be used."""
        loop = asyncio.get_running_loop()
        self.config = config
        """The one in force: a reload puts the new one here."""
        self.folder = store_folder(config.store_url)
        root = root_secret(config.secret, self.folder, secrets.token_bytes(32))
        self.bootstrap, self.bootstrap_made = first_key(config.bootstrap_key, self.folder, secrets.token_bytes(32))
        self.serving: Serving | None = None
        self._started = time.time()
        self.metrics = Metrics(config.currency, VERSION, self._counted_as, self._gauges)
        self._log = LogBooks(config.server.log, time.time, loop.call_later, tap=self.metrics.count)
        self.store = make_store(config, root)
        self.ledger = None if self.store is None else make_books(config, self.store, self._log, self.folder)
        self.books: NodeBooks = self._log if self.ledger is None else self.ledger
        self.limits = make_limits(config)
        self.derived = Derived(
            envelopes=derive_key(root, "envelopes"), cache=derive_key(root, "cache keys"), hmac=derive_key(root, "keys")
        )
        self.keys = StoredKeys(self.derived.hmac, time.time, BootstrapKeys({self.bootstrap: OPERATOR}))
        self._refresh = None if self.store is None else KeyRefresh(self.store, self.keys, self._keys_changed)
        self.records = (
            None if self.store is None else CallerRecords(self.store, config.currency, currency_digits(config.currency))
        )
        self.kept = Kept(
            books=self.books, limits=self.limits, keys=self.keys, records=self.records, derived=self.derived
        )
        self.follow(config)
        self._admin = self._admin_edge() if config.server.admin_listen else None

    def follow(self, config: Config) -> None:
        """A new configuration is in force."""
        self.config, self._label = config, label_of(config)

    async def start(self) -> None:
        """Open the store, settle what the last process left open, load the keys. Raises StoreDown or Conflict."""
        patient = not self.config.store_url.startswith("sqlite:")
        if self.ledger is not None:
            await self.ledger.start(patient)
        if self._refresh is not None:
            await self._refresh.start(patient)
        if isinstance(self.limits, ValkeyLimits):
            await self.limits.start()

    async def listen(self) -> None:
        """Open the admin port. The default one may be taken by another kenari: that one is no reason not to serve."""
        if self._admin is None:
            return
        address = self.config.server.admin_listen
        try:
            listening = await listen(self._admin, address)
        except OSError as error:
            if address != ServerSettings().admin_listen:
                raise OSError(f"[server] admin_listen {address}: {error.strerror or error}") from error
            _log.warning("the management api is not served: %s is in use. set [server] admin_listen", address)
            return
        print(f"management api: {listening} (its token: kenari admin token)", file=sys.stderr, flush=True)

    def close_door(self) -> None:
        """Close the admin port; after the drain, so that it can be watched."""
        if self._admin is not None:
            self._admin.close()

    async def close(self) -> None:
        """Write what is left and part from the store. Nothing may be served any more."""
        self.close_door()
        if self._refresh is not None:
            await self._refresh.close()
        if isinstance(self.limits, ValkeyLimits):
            await self.limits.close()
        if self.ledger is not None:
            await self.ledger.close()
        self._log.flush()

    # --

    def _counted_as(self, model: str) -> str:
        return self._label(model)

    def _keys_changed(self) -> None:
        if self.serving is not None:
            self.serving.keys_changed()

    def _admin_edge(self) -> Edge:
        """The admin port's end: the management API and /metrics (A3)."""
        config = self.config
        token = admin_token(config.admin_token, self.folder, secrets.token_bytes(32))

        def mint() -> tuple[str, bytes]:
            secret = make_key(secrets.token_bytes(32))
            return secret, fingerprint(self.derived.hmac, secret.encode())

        house = Management(
            store=self.store,
            money=Money(config.currency, currency_digits(config.currency)),
            mint=mint,
            now=time.time,
            started=self._started,
            version=VERSION,
            gauges=self._gauges,
            models=lambda: len(self.config.models),
            zone=ZoneInfo(config.time_zone),
            reload=self._reload,
        )
        guard = Guard(token, asyncio.get_running_loop().time, asyncio.sleep, self._report_guess)
        door = AdminDoor(house, guard, self.metrics.render, is_loopback(config.server.admin_listen))
        return Edge(door.serve, door.refuse, EdgeLimits(max_body=MAX_BODY))

    async def _reload(self) -> list[str]:
        """Reload for the management API; faults as text."""
        if self.serving is None:
            return ["kenari is starting"]
        return [f"{path}: {message}" for path, message in await self.serving.reload()]

    async def _report_guess(self, peer: str, count: int) -> None:
        """Wrong management tokens: in the log, and in the audit log when the store is there."""
        _log.warning("%d wrong management tokens came from %s", count, peer)
        if self.store is not None:
            with contextlib.suppress(StoreDown):
                await self.store.audit(f"peer:{peer}", "token.refused", "admin", b'{"count":%d}' % count)

    def _gauges(self) -> dict[str, float]:
        """What metrics and the status say beside what is counted."""
        gauges: dict[str, float] = {
            "uptime_seconds": round(time.time() - self._started, 3),
            "keys_loaded": len(self.keys),
        }
        if self.serving is not None:
            gauges |= self.serving.gauges()
        if isinstance(self.limits, ValkeyLimits):
            gauges["limits_fallback"] = self.limits.down
        if self.store is not None and self.ledger is not None:
            spool = self.folder / SPOOL_FILE
            gauges |= {
                "store_up": self.ledger.outage is None,
                "store_queue": self.store.waiting,
                "store_slowest_seconds": round(self.store.slowest, 6),
                "open_holds": self.ledger.open_requests,
                "spool_bytes": spool.stat().st_size if spool.exists() else 0,
            }
        return gauges


def label_of(config: Config) -> Callable[[str], str]:
    """The name that metrics count a model under: its own when it is served by that name."""
    aliases = [alias for model in config.models.values() for alias in model.aliases]
    names = frozenset([*config.models, *aliases, *config.routes])
    return lambda name: name if name in names else "other"


def make_store(config: Config, root: bytes) -> Store | None:
    """The configured store, not started yet; None for `none:`."""
    if config.store_url == "none:":
        return None
    settings = StoreSettings(
        url=config.store_url,
        node=node_name(config),
        currency=config.currency,
        time_zone=config.time_zone,
        enforce=config.enforce,
        sync=config.store_sync,
    )
    return Store(settings, Seals(derive_key(root, "ledger")), time.time, secrets.token_bytes)


def make_books(config: Config, store: Store, log: LogBooks, folder: Path) -> StoreBooks:
    """The books over a store; what it cannot take waits in a spool beside the secret."""
    settings = BooksSettings(
        node=node_name(config),
        offline_allowance=config.offline_allowance,
        enforce=config.enforce,
        retention=config.retention,
    )
    spool = Spool(folder / SPOOL_FILE, sync=config.store_sync == "full")
    return StoreBooks(store, log, spool, settings, time.time)


def make_limits(config: Config) -> MemoryLimits | ValkeyLimits:
    """The limits of this node, or of all nodes that share a Valkey server. Raises OSError."""
    clock = asyncio.get_running_loop().time
    if config.limits_url.startswith("valkey:"):
        return ValkeyLimits(config.limits_url, node_name(config), clock)
    return MemoryLimits(clock)


def node_name(config: Config) -> str:
    """The name of this node among those that share a store: configured, else where it listens on which host."""
    return config.store_node or f"{socket.gethostname()}:{config.server.listen}".replace("/", "_")


def store_folder(url: str) -> Path:
    """Where secrets made by kenari lie: beside the store, or here when the store is a server."""
    return Path(url.removeprefix("sqlite:///")).expanduser().parent if url.startswith("sqlite:///") else Path()
