"""What a node has once, whatever its number of processes: store, books, limits, keys, metrics and the admin port, put
together from the configuration."""

import asyncio
import importlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from kenari.admin_port import AdminParts, AdminPort, label_of
from kenari.config import Config
from kenari.core.currency import currency_digits
from kenari.core.ids import derive_key
from kenari.core.own_keys import NoOwnKeys, OwnKeyBook, OwnKeys
from kenari.core.ports import Answers, Books, Keys, Limits, Records
from kenari.keeper.answers import Keeping, NodeAnswers
from kenari.keeper.books import LogBooks
from kenari.keeper.caller_records import CallerRecords
from kenari.keeper.health import HealthBoard, SharedHealth
from kenari.keeper.health_valkey import ValkeyHealth
from kenari.keeper.journal import Journal
from kenari.keeper.key_refresh import KeyRefresh
from kenari.keeper.ledger_books import BooksSettings, StoreBooks
from kenari.keeper.mail import Mail, channel_of
from kenari.keeper.metrics import Metrics
from kenari.keeper.own_keys import StoredOwnKeys, master_keys
from kenari.keeper.secrets import first_key, root_secret, store_folder
from kenari.keeper.session import NodeBooks
from kenari.keeper.spool import Spool
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.box import Box
from kenari.keys.place import limits_at
from kenari.keys.stored import StoredKeys
from kenari.keys.vault import Vault
from kenari.ledger.chain import Seals
from kenari.providers.base import VERSION
from kenari.store.store import Store, StoreSettings

if TYPE_CHECKING:
    from kenari.store.notices import Notices

SPOOL_FILE = "kenari.spool"
JOURNAL_SUFFIX = ".holds"


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """Keys derived from the root secret (F10): for envelopes of proofs, for cache keys, for the HMAC of `kn-` keys; and the
    master keys of callers' own provider keys, none where they may bring none."""

    envelopes: bytes
    cache: bytes
    hmac: bytes
    byok: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return "Derived(...)"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has once, as its serving part reaches it: plain calls in one process, `keeper.remote` in a worker."""

    books: Books
    limits: Limits
    keys: Keys
    records: Records | None
    derived: Derived
    answers: Answers
    health: SharedHealth
    own: OwnKeys = NoOwnKeys()
    own_book: OwnKeyBook | None = None
    """Where callers bring their own provider keys; None where they cannot."""


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

    def own_keys_changed(self) -> None:
        """Callers have other provider keys of their own."""
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
        self._log = LogBooks(config.server.log, time.time, loop.call_later, tap=self.metrics)
        self.store = make_store(config, root)
        self.ledger = None if self.store is None else make_books(config, self.store, self._log, self.folder)
        self.books: NodeBooks = self._log if self.ledger is None else self.ledger
        self.limits = limits_at(config.limits_url, node_name(config), loop.time)
        self.derived = Derived(
            envelopes=derive_key(root, "envelopes"),
            cache=derive_key(root, "cache keys"),
            hmac=derive_key(root, "keys"),
            byok=own_masters(config, root),
        )
        self.keys = StoredKeys(self.derived.hmac, time.time, BootstrapKeys({self.bootstrap: OPERATOR}))
        self._refresh = None if self.store is None else KeyRefresh(self.store, self.keys, self._keys_changed)
        self.records = (
            None if self.store is None else CallerRecords(self.store, config.currency, currency_digits(config.currency))
        )
        self.answers = NodeAnswers(node_name(config), self.store, make_keeping(config, root))
        self._post = make_post(config, self.store, self.answers)
        self.own = make_own_keys(config, self.store, self.derived.byok)
        """Callers' own provider keys; None where they may bring none."""
        self.health = HealthBoard(loop.time)
        shared = config.limits_url.startswith("valkey:")
        self._nodes = ValkeyHealth(config.limits_url, process_name(config), time.time) if shared else None
        self.kept = Kept(
            books=self.books,
            limits=self.limits,
            keys=self.keys,
            records=self.records,
            derived=self.derived,
            answers=self.answers,
            health=self.health,
            own=self.own or NoOwnKeys(),
            own_book=self.own,
        )
        self.follow(config)
        self.admin = AdminPort(
            AdminParts(
                config=config,
                hmac=self.derived.hmac,
                folder=self.folder,
                store=self.store,
                metrics=self.metrics,
                gauges=self._gauges,
                changed=None if self._refresh is None else self._refresh.refresh,
                reload=self._reload,
                own=self.own,
                models=lambda: len(self.config.models),
            ),
            say,
        )

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
        if self.own is not None:
            await self.own.start(self._own_keys_changed)
        await self.limits.start()
        if self._post is not None:
            self._post.start()
        if self._nodes is not None:
            self._nodes.start(self.health)

    async def close(self) -> None:
        """Write what is left and part from the store. Nothing may be served any more."""
        self.admin.close()
        if self._post is not None:
            await self._post.close()
        if self.own is not None:
            self.own.close()
        if self._refresh is not None:
            await self._refresh.close()
        await self.limits.close()
        if self._nodes is not None:
            await self._nodes.close()
        if self.ledger is not None:
            await self.ledger.close()
        self._log.flush()

    # --

    def _counted_as(self, model: str) -> str:
        return self._label(model)

    def _keys_changed(self) -> None:
        if self.serving is not None:
            self.serving.keys_changed()

    def _own_keys_changed(self) -> None:
        if self.serving is not None:
            self.serving.own_keys_changed()

    async def _reload(self) -> list[tuple[str, str]]:
        """Reload for the management API; its faults."""
        if self.serving is None:
            return [("", "kenari is starting. ask again in a moment")]
        return await self.serving.reload()

    def _gauges(self) -> dict[str, float]:
        """What metrics and the status say beside what is counted; from now on all that has ended is counted."""
        (self.ledger or self._log).flush()
        gauges: dict[str, float] = {
            "uptime_seconds": round(time.time() - self._started, 3),
            "keys_loaded": len(self.keys),
        }
        if self.serving is not None:
            gauges |= self.serving.gauges()
        if self.config.limits_url.startswith("valkey:"):
            gauges |= {"limits_fallback": self.limits.down, "limits_fallbacks": self.limits.fallbacks}
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
    holds = store.beside(JOURNAL_SUFFIX)
    # a hold must outlive a power cut where lines do: then it is the store's
    journal = None if holds is None else Journal(holds, used=config.store_sync != "full")
    return StoreBooks(store, log, spool, settings, time.time, journal)


def make_keeping(config: Config, root: bytes) -> Keeping | None:
    """How answers are kept; None where they are not. Raises OSError when the library for it is missing."""
    if config.keep_answers is None:
        return None
    return Keeping(
        config.keep_answers, Box(derive_key(root, "answers"), "[idempotency] keeps answers"), secrets.token_bytes
    )


class Post:
    """The mail of a node that shares a PostgreSQL server with others, and its ear."""

    def __init__(self, config: Config, store: Store, answers: NodeAnswers) -> None:
        # the extra is there: the store could not have been made without it
        notices = importlib.import_module("kenari.store.notices")
        node = node_name(config)
        self._mail = answers.mail = Mail(node, secrets.token_bytes(8), store.notify, answers.lend)
        self._ear: Notices = notices.Notices(str(config.store_url), channel_of(node), self._mail.hear)

    def start(self) -> None:
        """Begin to listen."""
        self._ear.start()
        self._mail.start()

    async def close(self) -> None:
        """Break off what is under way."""
        await self._mail.close()
        await self._ear.close()


def make_post(config: Config, store: Store | None, answers: NodeAnswers) -> Post | None:
    """The node's mail; None where no other node can share its store."""
    if store is None or not config.store_url.startswith("postgresql:"):
        return None
    return Post(config, store, answers)


def own_masters(config: Config, root: bytes) -> tuple[bytes, ...]:
    """The master keys of callers' own provider keys; none where they may bring none."""
    if config.store_url == "none:" or not config.byok.providers:
        return ()
    return master_keys(root, config.byok.secret, config.byok.old_secrets)


def make_own_keys(config: Config, store: Store | None, masters: Sequence[bytes]) -> StoredOwnKeys | None:
    """Callers' own provider keys, where they may bring some. Raises OSError when the library for them is missing."""
    if store is None or not masters:
        return None
    return StoredOwnKeys(store, Vault(masters), frozenset(config.byok.providers), time.time, secrets.token_bytes)


def node_name(config: Config) -> str:
    """The name of this node among those that share a store: configured, else where it listens on which host."""
    return config.store_node or f"{socket.gethostname()}:{config.server.listen}".replace("/", "_")


def process_name(config: Config) -> str:
    """The name of this node's keeper, in one life of it."""
    return f"{node_name(config)}/{os.getpid()}"


def say(line: str) -> None:
    """A line for the person at the terminal; standard output holds the request log only."""
    with suppress(OSError):  # its terminal was closed: nobody reads it
        print(line, file=sys.stderr, flush=True)
