"""What of a new configuration holds for a running process: most of it at once, the rest after a restart. Pure."""

from typing import Any

import msgspec

from kenari.config.settings import Config

LIVE = frozenset(("providers", "models", "routes", "source", "notes"))
LIVE_SERVER = frozenset(
    (
        "keepalive",
        "noop_after",
        "header_timeout",
        "first_event_timeout",
        "idle_timeout",
        "max_body",
        "drain",
        "trusted_proxies",
        "cors_origins",
        "tls_cert",
        "tls_key",
    )
)
"""Settings that new requests follow at once. All others need a restart, new ones too until they are named here."""
_SHOWN = {
    "store_url": "store.url",
    "limits_url": "limits.url",
    "currency": "billing.currency",
    "enforce": "billing.enforce",
    "keep_answers": "idempotency.keep",
    "bootstrap_key": "KENARI_BOOTSTRAP_KEY",
    "admin_token": "KENARI_ADMIN_TOKEN",
    "secret": "KENARI_SECRET",
}


def merge(running: Config, fresh: Config) -> tuple[Config, tuple[str, ...]]:
    """The configuration to go on with: `fresh`, with what needs a restart as it is in `running`; and the names of what
    differs and needs one. Names only: some of it is secret."""
    server, waiting = _kept(running.server, fresh.server, LIVE_SERVER, "server.")
    if bool(running.server.tls_cert) != bool(fresh.server.tls_cert):  # a port does not change its protocol
        old = running.server
        server = msgspec.structs.replace(server, tls_cert=old.tls_cert, tls_key=old.tls_key)
        waiting.append("server.tls")
    fresh = msgspec.structs.replace(fresh, server=server)
    merged, others = _kept(running, fresh, LIVE | {"server"}, "")
    return merged, tuple(waiting + others)


def _kept(running: msgspec.Struct, fresh: msgspec.Struct, live: frozenset[str], path: str) -> tuple[Any, list[str]]:
    names = [
        name for name in fresh.__struct_fields__ if name not in live and getattr(running, name) != getattr(fresh, name)
    ]
    old = {name: getattr(running, name) for name in names}
    return msgspec.structs.replace(fresh, **old), [path + _shown(name) for name in names]


def _shown(name: str) -> str:
    """A field's name as the operator knows it."""
    return _SHOWN.get(name, name)
