"""The composition root: the only file that knows every room. It starts kenari, keeps it running and ends it."""

import asyncio
import logging
import random
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from kenari.catalog.models import NOTHING, Catalog, Model, TargetRef
from kenari.config import Config, ConfigError, ServerSettings
from kenari.core.ids import Envelopes, derive_key
from kenari.core.outbound import Upstream
from kenari.demo.server import DemoModel, start_demo
from kenari.demo.welcome import welcome
from kenari.dialects.responses.dialect import ResponsesDialect
from kenari.doors.byok import ByokDoor
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import cannot_listen, listen, listen_on, server_context
from kenari.doors.public import STREAMED_PATHS, PublicDoor
from kenari.gateway.outside import make_outside
from kenari.gateway.pins import MemoryPins
from kenari.gateway.plans import candidates_of
from kenari.gateway.prices import pricing
from kenari.gateway.repeats import Repeats
from kenari.gateway.routing import Routing
from kenari.gateway.serve import Gateway
from kenari.gateway.services import Own, Services
from kenari.gateway.ticker import Ticker
from kenari.gateway.vocabulary import Vocabularies
from kenari.keep import Keep, Kept, say
from kenari.keeper.pins import ValkeyPins
from kenari.keeper.secrets import KEY_FILE
from kenari.memory import allow_many_files, give_back, settle_memory
from kenari.node import Fault, Read, Reload, Signals, WorkersNode
from kenari.providers.base import Provider
from kenari.store.records import Conflict, StoreDown
from kenari.upstream.http import HttpUpstream
from kenari.upstream.scripted import ScriptedUpstream

try:
    from uvloop import new_event_loop
except ImportError:  # a platform without uvloop: the stock loop serves too, slower
    from asyncio import new_event_loop

_log = logging.getLogger("kenari")
LOOP = new_event_loop
LAST_SECONDS = 1.0
"""How long a request may take to leave its line once its connection is closed."""
DEMO_MODEL = "smollm2-135m:free"


def run(config: Config, read: Read, demo: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. `read` reads the configuration again, for a reload."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    allow_many_files()
    with asyncio.Runner(loop_factory=LOOP) as runner:
        return runner.run(_serve(config, read, demo))


async def _serve(config: Config, read: Read, demo: bool) -> int:
    model: DemoModel | None = None
    if demo:
        started = await start_demo(say)
        if isinstance(started, str):
            say(f"the real demo model is not available here: {started}. the scripted one is served instead")
        else:
            model = started
            add = partial(with_demo, base_url=model.base_url, name=model.model_name)
            config, read = add(config), partial(_with, add, read)
    try:
        return await serve_node(config, read)
    except OSError as error:
        say(f"kenari cannot start: {error.strerror or error}")
        return 1
    except (Conflict, StoreDown) as error:
        say(f"kenari cannot start: {error}")
        return 1
    finally:
        if model is not None:
            await model.stop()


def _with(add: Callable[[Config], Config], read: Read) -> Config:
    return add(read())


async def serve_node(config: Config, read: Read) -> int:
    """One node, of one process or of several; the exit status. Raises OSError, Conflict, StoreDown."""
    keep = Keep(config)
    await keep.start()
    try:
        return await (serve_alone if config.server.workers == 1 else serve_with_workers)(keep, read)
    finally:
        await keep.close()


async def serve_with_workers(keep: Keep, read: Read) -> int:
    """A node of several processes: this one keeps, the others serve."""
    node = WorkersNode(keep, read, check_tls)
    keep.serving = node
    return await node.run(partial(_welcome, keep))


async def serve_alone(keep: Keep, read: Read) -> int:
    """A node of one process: listen, serve, drain, end."""
    server = Server(keep.config, keep.kept)

    async def use(config: Config) -> None:
        check_tls(config)
        server.apply(config)
        keep.follow(config)

    reload = Reload(keep.config, read, use)
    keep.serving = Alone(server, reload)
    signals = Signals(server.end, reload.begin)
    settle_memory()
    await _welcome(keep, await server.listen())
    await signals.stop.wait()
    await server.drain()
    await server.close()
    return 0


class Alone:
    """The serving part of a node of one process, as the management API sees it (keep.Serving)."""

    def __init__(self, server: "Server", reload: Reload) -> None:
        self._server, self._reload = server, reload

    def gauges(self) -> dict[str, float]:
        """How it does."""
        return {"in_flight": self._server.in_flight, "connections": self._server.connections, "workers": 1}

    async def reload(self) -> list[Fault]:
        """Read the configuration again."""
        return await self._reload.reload()

    def keys_changed(self) -> None:
        """The keys are looked up where they were changed."""

    def own_keys_changed(self) -> None:
        """These too."""


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
        price=NOTHING,
    )
    return msgspec.structs.replace(
        config, providers=config.providers | {provider.name: provider}, models={model.id: model} | config.models
    )


class Server:
    """The serving part of a process: the rooms that a client's request passes, put together.

    The configuration is an immutable snapshot: a request that has begun keeps the gateway it began with.
    """

    def __init__(self, config: Config, kept: Kept) -> None:
        self._config, self._kept = config, kept
        self._ticker = Ticker(asyncio.get_running_loop(), tick_seconds(config))
        self._http = HttpUpstream()
        self._upstreams: dict[str, Upstream] = {
            "http": self._http,
            "https": self._http,
            "scripted": ScriptedUpstream(),
        }
        self._counter = Vocabularies() if Vocabularies.there() else None
        clock = asyncio.get_running_loop().time
        self._repeats = Repeats(clock, kept.answers)
        self._pins = ValkeyPins(config.limits_url, clock) if config.limits_url.startswith("valkey:") else None
        pins_key = derive_key(kept.derived.cache, "pins")
        chance = random.Random(secrets.randbits(128))
        self._routing = Routing(clock, self._pins or MemoryPins(clock), pins_key, chance)
        health = kept.health.join(self._routing.hear)
        self._routing.tell = health.tell
        self._draining = False
        settings = config.server
        self._tls = server_context(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
        door = self._door(config)
        self._edge = Edge(door.serve, door.refuse, edge_limits(settings), STREAMED_PATHS)
        self._edge.begin, self._edge.screen = door.begin, door.screen
        self._edge.give_back = give_back

    def apply(self, config: Config) -> None:
        """Serve new requests by this configuration. Raises OSError when its certificate cannot be had."""
        settings = config.server
        if self._tls is not None:
            self._tls.load_cert_chain(settings.tls_cert, settings.tls_key)
        door = self._door(config)
        catalog = Catalog(config.models, config.routes)
        self._routing.keep_only(candidates_of(catalog, config.providers, Envelopes(self._kept.derived.envelopes)))
        self._edge.hand_to(door.serve, door.begin, door.refuse, door.screen)
        self._http.renew()
        self._edge.limits = edge_limits(settings)
        self._ticker.interval = tick_seconds(config)
        self._config = config

    async def listen(self) -> str:
        """Listen on the configured address; the address that clients can use. Raises OSError."""
        address = self._config.server.listen
        try:
            return await listen(self._edge, address, self._tls)
        except OSError as error:
            raise cannot_listen("listen", address, error) from error

    async def listen_on(self, sockets: Sequence[socket.socket]) -> None:
        """Listen on inherited sockets."""
        await listen_on(self._edge, sockets, self._tls)

    async def drain(self) -> None:
        """Take nothing new; wait for the requests in flight, at most for `drain`, then break them off."""
        self._draining = True
        self._edge.drain()
        if not await self._edge.wait_closed(self._config.server.drain):
            _log.warning("some requests did not end within drain and were broken off")
        self._edge.close()

    def end(self) -> None:
        """Break off what is in flight."""
        self._edge.close()

    async def close(self) -> None:
        """Give back what it had, after `drain`."""
        await self._edge.wait_answered(LAST_SECONDS)  # what was broken off leaves its lines
        self._ticker.close()
        self._http.close()
        if self._pins is not None:
            await self._pins.close()

    @property
    def in_flight(self) -> int:
        """Requests that are being answered."""
        return self._edge.in_flight

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        return len(self._edge.connections)

    def _door(self, config: Config) -> PublicDoor:
        """All that depends on the configuration."""
        kept, settings = self._kept, config.server
        catalog = Catalog(config.models, config.routes)
        outside = make_outside(config.outside, time.time)
        services = Services(
            catalog=catalog,
            providers=config.providers,
            keys=kept.keys,
            books=kept.books,
            upstreams=self._upstreams,
            ticker=self._ticker,
            envelopes=Envelopes(kept.derived.envelopes),
            cache_key=kept.derived.cache,
            keepalive=settings.keepalive,
            noop_after=settings.noop_after,
            limits=kept.limits,
            pricing=pricing(config.currency, config.enforce),
            counter=self._counter,
            repeats=self._repeats,
            routing=self._routing,
            deadline=settings.deadline,
            show_target=settings.show_target,
            tools=outside.tools,
            tool_settings=config.outside.tools,
            dialects={"responses": ResponsesDialect(formats=True)} if settings.responses_formats else {},
            media=outside.media,
            own=Own(kept.own, frozenset(config.byok.providers), config.byok.fee),
        )
        door = PublicDoor(
            Gateway(services), kept.keys, catalog, settings.cors_origins, lambda: not self._draining, settings.max_body
        )
        door.records = kept.records
        door.byok = None if kept.own_book is None else ByokDoor(kept.keys, kept.own_book)
        return door


def edge_limits(settings: ServerSettings) -> EdgeLimits:
    """What clients may use of the inbound end."""
    return EdgeLimits(max_body=settings.max_body, trusted_proxies=settings.trusted_proxies)


def check_tls(config: Config) -> None:
    """Raises ConfigError when the certificate of a configuration cannot be used."""
    settings = config.server
    try:
        if settings.tls_cert:
            server_context(settings.tls_cert, settings.tls_key)
    except OSError as error:  # ssl.SSLError is one
        wanted = "cert must hold a certificate and key its private key, both in PEM"
        raise ConfigError([("server.tls", f"cannot be used: {error.strerror or error}. {wanted}")]) from None


async def _welcome(keep: Keep, address: str) -> None:
    """Tell the person at the terminal where kenari is; the key only when it was made now (F11); it is
    the last word, when the admin port is open too."""
    await keep.admin.open()
    config = keep.config
    scheme = "https" if config.server.tls_cert else "http"
    base = address if address.startswith("unix:") else f"{scheme}://{address}"
    key = keep.bootstrap if keep.bootstrap_made else None
    file = shlex.quote(str(keep.folder / KEY_FILE))
    held = "$KENARI_BOOTSTRAP_KEY" if config.bootstrap_key else f'"$(cat {file})"'
    say(welcome(base, key, list(config.models), held).rstrip("\n"))


def tick_seconds(config: Config) -> float:
    """How often time-outs are looked at: a quarter of the shortest one, at least 20 times and at most once a second."""
    server = config.server
    shortest = min(server.keepalive, server.noop_after, server.idle_timeout, server.first_event_timeout)
    for provider in config.providers.values():
        shortest = min(shortest, provider.idle_timeout, provider.first_event_timeout, provider.header_timeout)
    return max(0.05, min(1.0, shortest / 4))
