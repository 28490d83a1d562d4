"""The admin port of a node, put together: the management API and /metrics behind an inbound end of its own (A3)."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from kenari.config import Config, ServerSettings
from kenari.core.currency import currency_digits
from kenari.core.own_keys import OwnKeyBook
from kenari.doors.admin.door import MAX_BODY, AdminDoor
from kenari.doors.admin.guard import Guard
from kenari.doors.admin.services import Management
from kenari.doors.admin.values import Money
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import cannot_listen, listen
from kenari.keeper.metrics import Metrics
from kenari.keeper.secrets import admin_token
from kenari.keys.secrets import fingerprint, make_key
from kenari.providers.base import VERSION
from kenari.store.records import StoreDown
from kenari.store.store import Store
from kenari.wire.address import is_loopback

_log = logging.getLogger("kenari.admin")
AUDIT_PATIENCE = 2.0
"""Seconds that the audit log may take for a wrong token; then it stands in the server's log only."""


class AdminParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's admin port is made from. `hmac` is the key of `kn-` secrets' digests, `folder` where secrets lie that
    kenari makes.

    `changed` is awaited after each change of accounts and keys, so that it holds in this node when its answer is out.
    `reload` reads the configuration again and returns its faults; `models` says how many are served since.
    """

    config: Config
    hmac: bytes
    folder: Path
    store: Store | None
    metrics: Metrics
    gauges: Callable[[], Mapping[str, float]]
    models: Callable[[], int]
    changed: Callable[[], Awaitable[None]] | None = None
    reload: Callable[[], Awaitable[list[tuple[str, str]]]] | None = None
    own: OwnKeyBook | None = None


class AdminPort:
    """The admin port: `open` listens, `close` ends it. Nothing where `admin_listen` is ""."""

    def __init__(self, parts: AdminParts, say: Callable[[str], None]) -> None:
        self._parts, self._say = parts, say
        self._edge = self._make_edge() if parts.config.server.admin_listen else None

    async def open(self) -> None:
        """Listen. The default port may be taken by another kenari: that one is no reason not to serve.

        Raises OSError for another address that cannot be had."""
        address = self._parts.config.server.admin_listen
        if self._edge is None:
            return
        try:
            listening = await listen(self._edge, address)
        except OSError as error:
            if address != ServerSettings().admin_listen:
                raise cannot_listen("admin_listen", address, error) from error
            _log.warning("the management api is not served: %s is in use. set [server] admin_listen", address)
            return
        self._say(f"management api: {listening} (its token: kenari admin token)")

    def close(self) -> None:
        """End it; what is under way there is broken off."""
        if self._edge is not None:
            self._edge.close()

    def _make_edge(self) -> Edge:
        parts = self._parts
        config = parts.config

        def mint() -> tuple[str, bytes]:
            secret = make_key(secrets.token_bytes(32))
            return secret, fingerprint(parts.hmac, secret.encode())

        house = Management(
            store=parts.store,
            money=Money(config.currency, currency_digits(config.currency)),
            mint=mint,
            now=time.time,
            started=time.time(),
            version=VERSION,
            gauges=parts.gauges,
            models=parts.models,
            zone=ZoneInfo(config.time_zone),
            changed=parts.changed,
            own=parts.own,
            reload=parts.reload,
        )
        token = admin_token(config.admin_token, parts.folder, secrets.token_bytes(32))
        guard = Guard(token, asyncio.get_running_loop().time, asyncio.sleep, self._report)
        door = AdminDoor(house, guard, parts.metrics.render, is_loopback(config.server.admin_listen))
        return Edge(door.serve, door.refuse, EdgeLimits(max_body=MAX_BODY))

    async def _report(self, peer: str, count: int) -> None:
        """Wrong management tokens: in the log, and in the audit log when the store is there."""
        _log.warning("%d wrong management tokens came from %s", count, peer)
        if self._parts.store is not None:
            with contextlib.suppress(StoreDown, TimeoutError):
                async with asyncio.timeout(AUDIT_PATIENCE):
                    await self._parts.store.audit(f"peer:{peer}", "token.refused", "admin", b'{"count":%d}' % count)


def label_of(config: Config) -> Callable[[str], str]:
    """The name that metrics count a model under: its own when it is served by that name, else `other`."""
    aliases = [alias for model in config.models.values() for alias in model.aliases]
    names = frozenset([*config.models, *aliases, *config.routes])
    return lambda name: name if name in names else "other"
