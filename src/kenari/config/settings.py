"""The configuration as frozen values. `load.py` makes it from TOML and the environment."""

import ipaddress
from typing import Literal, TypeAlias

import msgspec

from kenari.catalog.models import Model, Route
from kenari.gateway.outside import OutsideSettings
from kenari.providers.base import Provider

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[server]`. Times in seconds, sizes in bytes."""

    listen: str = "127.0.0.1:8080"
    admin_listen: str = "127.0.0.1:8081"
    workers: int = 1
    keepalive: float = 15.0
    noop_after: float = 120.0
    header_timeout: float = 600.0
    first_event_timeout: float = 600.0
    idle_timeout: float = 600.0
    max_body: int = 32 * 1024 * 1024
    drain: float = 30.0
    tls_cert: str = ""
    tls_key: str = ""
    trusted_proxies: tuple[Network, ...] = ()
    cors_origins: tuple[str, ...] = ()
    deadline: float = 900.0
    show_target: Literal["operator", "everyone", "nobody"] = "nobody"
    log: Literal["json", "text"] = "json"
    responses_formats: bool = False


class ByokSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[byok]`: for which providers callers may bring their own keys, and the secret under which these are kept.

    `fee` is what each such request costs, in 1e-9 currency units. `old_secrets` still open what was sealed before a rotation.
    """

    providers: tuple[str, ...] = ()
    fee: int = 0
    secret: str = ""
    old_secrets: tuple[str, ...] = ()


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that kenari is told. What is secret in it is a `Secret`: its repr shows `***` there."""

    server: ServerSettings = ServerSettings()
    store_url: str = "sqlite:///kenari.db"
    limits_url: str = "memory://"
    currency: str = "USD"
    enforce: bool = True
    byok: ByokSettings = ByokSettings()
    store_node: str = ""
    """"" for the host's name and the address that is listened on."""
    store_sync: Literal["normal", "full"] = "normal"
    retention: float | None = None
    """Seconds that bill lines are kept; None for ever."""
    offline_allowance: int = 0
    """1e-9 currency units for each account and outage of the store."""
    time_zone: str = "UTC"
    keep_answers: float | None = None
    """Seconds that answers of requests with an Idempotency-Key are kept, to be sent again; None for not at all."""
    providers: dict[str, Provider] = {}
    models: dict[str, Model] = {}
    routes: dict[str, Route] = {}
    outside: OutsideSettings = OutsideSettings()
    bootstrap_key: str = ""
    admin_token: str = ""
    secret: str = ""
    source: str = ""
    """The file it came from, "" for the built-in one."""
    notes: tuple[str, ...] = ()
    """What is set but has no effect yet."""
