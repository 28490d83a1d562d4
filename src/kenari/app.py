"""The composition root: the only file that knows every room. It starts kenari, keeps it running and ends it."""

import asyncio
import gc
import logging
import secrets
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from kenari.admin_port import AdminParts, AdminPort, label_of
from kenari.catalog.models import Catalog, Model, TargetRef
from kenari.config import Config, ServerSettings
from kenari.core.currency import currency_digits
from kenari.core.ids import Envelopes, derive_key
from kenari.demo.server import DemoModel, start_demo
from kenari.demo.welcome import welcome
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import listen, server_context
from kenari.doors.public import PublicDoor
from kenari.gateway.prices import pricing
from kenari.gateway.serve import Gateway
from kenari.gateway.services import Services
from kenari.gateway.ticker import Ticker
from kenari.gateway.vocabulary import Vocabularies
from kenari.keeper.books import LogBooks
from kenari.keeper.caller_records import CallerRecords
from kenari.keeper.key_refresh import KeyRefresh
from kenari.keeper.ledger_books import BooksSettings, StoreBooks
from kenari.keeper.metrics import Metrics
from kenari.keeper.secrets import first_key, root_secret
from kenari.keeper.spool import Spool
from kenari.keys.bootstrap import OPERATOR, BootstrapKeys
from kenari.keys.place import limits_at
from kenari.keys.stored import StoredKeys
from kenari.ledger.chain import Seals
from kenari.providers.base import VERSION, Provider
from kenari.store.records import Conflict, StoreDown
from kenari.store.store import Store, StoreSettings
from kenari.upstream.http import HttpUpstream
from kenari.upstream.scripted import ScriptedUpstream

try:
    from uvloop import new_event_loop
except ImportError:  # a platform without uvloop: the stock loop serves too, slower
    from asyncio import new_event_loop

_log = logging.getLogger("kenari")
SPOOL_FILE = "kenari.spool"
DEMO_MODEL = "smollm2-135m:free"


def run(config: Config, demo: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(config, demo))


async def _serve(config: Config, demo: bool) -> int:
    model: DemoModel | None = None
    if demo:
        started = await start_demo(_say)
        if isinstance(started, str):
            _say(f"the real demo model is not available here: {started}. the scripted one is served instead")
        else:
            model = started
            config = with_demo(config, model.base_url, model.model_name)
    try:
        return await Server(config).run()
    except OSError as error:
        _say(f"kenari cannot start: {error.strerror or error}")
        return 1
    except (Conflict, StoreDown) as error:
        _say(f"kenari cannot start: {error}")
        return 1
    finally:
        if model is not None:
            await model.stop()


def with_demo(config: Config, base_url: str, name: str) -> Config:
    """The configuration with the real demo model in front of its own models."""
    provider = Provider(name="demo-model", dialect="chat", base_url=base_url)
    model = Model(
        id=DEMO_MODEL,
        targets=(TargetRef(provider.name, name),),
        reasoning=False,
        vision=False,
        context_window=8192,
        max_output_tokens=4096,
    )
    return msgspec.structs.replace(
        config, providers=config.providers | {provider.name: provider}, models={model.id: model} | config.models
    )


class Server:
    """One process of kenari: every room, put together."""

    def __init__(self, config: Config) -> None:
        self._config = config
        settings = config.server
        loop = asyncio.get_running_loop()
        folder = store_folder(config.store_url)
        root = root_secret(config.secret, folder, secrets.token_bytes(32))
        self._key, self._key_made = first_key(config.bootstrap_key, folder, secrets.token_bytes(32))
        self._started = time.time()
        self._folder = folder
        self._metrics = Metrics(config.currency, VERSION, label_of(config), self._gauges)
        log = LogBooks(settings.log, time.time, loop.call_later, tap=self._metrics.count)
        self._store = make_store(config, root)
        self._ledger = None if self._store is None else make_books(config, self._store, log, folder)
        self._books = log if self._ledger is None else self._ledger
        self._log = log
        self._ticker = Ticker(loop, tick_seconds(config))
        self._http = HttpUpstream()
        keys = self._keys = StoredKeys(derive_key(root, "keys"), time.time, BootstrapKeys({self._key: OPERATOR}))
        self._refresh = None if self._store is None else KeyRefresh(self._store, keys)
        self._limits = limits_at(config.limits_url, node_name(config), loop.time)
        catalog = Catalog(config.models, {name: route.models for name, route in config.routes.items()})
        services = Services(
            catalog=catalog,
            providers=config.providers,
            keys=keys,
            books=self._books,
            upstreams={"http": self._http, "https": self._http, "scripted": ScriptedUpstream()},
            ticker=self._ticker,
            envelopes=Envelopes(derive_key(root, "envelopes")),
            cache_key=derive_key(root, "cache keys"),
            keepalive=settings.keepalive,
            noop_after=settings.noop_after,
            limits=self._limits,
            pricing=pricing(config.currency, config.enforce),
            counter=Vocabularies() if Vocabularies.there() else None,
        )
        gateway = Gateway(services)
        self._draining = False
        door = PublicDoor(gateway, keys, catalog, settings.cors_origins, lambda: not self._draining)
        if self._store is not None:
            door.records = CallerRecords(self._store, config.currency, currency_digits(config.currency))
        limits = EdgeLimits(max_body=settings.max_body, trusted_proxies=settings.trusted_proxies)
        self._edge = Edge(door.serve, door.refuse, limits)
        parts = AdminParts(
            config=config,
            root=root,
            folder=folder,
            store=self._store,
            metrics=self._metrics,
            gauges=self._gauges,
            changed=None if self._refresh is None else self._refresh.refresh,
        )
        self._admin = AdminPort(parts, _say)

    async def run(self) -> int:
        """Listen, serve, drain, end."""
        settings = self._config.server
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, stop)
        tls = server_context(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
        if self._ledger is not None:
            patient = not self._config.store_url.startswith("sqlite:")
            await self._ledger.start(patient)
            if self._refresh is not None:
                await self._refresh.start(patient)
        await self._limits.start()
        gc.freeze()  # what is here now stays: the collector need not look at it again
        gc.set_threshold(50_000, 20, 50)  # requests leave few cycles; collecting after each 700 objects only costs
        address = await listen(self._edge, settings.listen, tls)
        self._welcome(settings, address)
        await self._admin.open()
        await stop.wait()
        self._draining = True
        self._edge.drain()
        if not await self._edge.wait_closed(settings.drain):
            _log.warning("some requests did not end within drain and were broken off")
        self._edge.close()
        self._admin.close()
        await asyncio.sleep(0)  # what was broken off leaves its lines
        self._ticker.close()
        self._http.close()
        if self._refresh is not None:
            await self._refresh.close()
        await self._limits.close()
        if self._ledger is not None:
            await self._ledger.close()
        self._log.flush()
        return 0

    def _gauges(self) -> dict[str, float]:
        """What metrics and the status say beside what is counted."""
        gauges: dict[str, float] = {
            "in_flight": self._edge.in_flight,
            "connections": len(self._edge.connections),
            "keys_loaded": len(self._keys),
            "workers": 1,
            "uptime_seconds": round(time.time() - self._started, 3),
        }
        if self._store is not None and self._ledger is not None:
            spool = self._folder / SPOOL_FILE
            gauges |= {
                "store_up": self._ledger.outage is None,
                "store_queue": self._store.waiting,
                "store_slowest_seconds": round(self._store.slowest, 6),
                "open_holds": self._ledger.open_requests,
                "spool_bytes": spool.stat().st_size if spool.exists() else 0,
            }
        gauges |= {"limits_fallback": self._limits.down, "limits_fallbacks": self._limits.fallbacks}
        return gauges

    def _signalled(self, stop: asyncio.Event) -> None:
        """The first signal drains, the second one ends at once."""
        if stop.is_set():
            self._edge.close()
        stop.set()

    def _welcome(self, settings: ServerSettings, address: str) -> None:
        """Tell the person at the terminal where kenari is; the key only when it was made now (F11)."""
        scheme = "https" if settings.tls_cert else "http"
        base = address if address.startswith("unix:") else f"{scheme}://{address}"
        _say(welcome(base, self._key if self._key_made else None, list(self._config.models)).rstrip("\n"))


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


def node_name(config: Config) -> str:
    """The name of this process among those that share a store: configured, else where it listens on which host."""
    return config.store_node or f"{socket.gethostname()}:{config.server.listen}".replace("/", "_")


def store_folder(url: str) -> Path:
    """Where secrets made by kenari lie: beside the store, or here when the store is a server."""
    return Path(url.removeprefix("sqlite:///")).expanduser().parent if url.startswith("sqlite:///") else Path()


def tick_seconds(config: Config) -> float:
    """How often time-outs are looked at: a quarter of the shortest one, at least 20 times and at most once a second."""
    server = config.server
    shortest = min(server.keepalive, server.noop_after, server.idle_timeout, server.first_event_timeout)
    for provider in config.providers.values():
        shortest = min(shortest, provider.idle_timeout, provider.first_event_timeout, provider.header_timeout)
    return max(0.05, min(1.0, shortest / 4))


def _say(line: str) -> None:
    """A line for the person at the terminal; standard output holds the request log only."""
    print(line, file=sys.stderr, flush=True)
