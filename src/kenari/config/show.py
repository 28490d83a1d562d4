"""The effective configuration as TOML, secrets masked (`kenari check`). It loads back as a configuration of the same
shape; where a secret was, stands `***`."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

import msgspec

from kenari.config.settings import Config, ServerSettings
from kenari.config.table import BYTES
from kenari.config.tools import show_outside
from kenari.core.price import format_amount
from kenari.gateway.outside import OutsideSettings
from kenari.providers.base import Provider
from kenari.wire import jsonx

MASK = "***"
_DURATIONS = ("connect_timeout", "header_timeout", "first_event_timeout", "idle_timeout")


def show_config(config: Config) -> str:
    """The text of everything that is in force."""
    lines = _server(config.server)
    lines += ["", "[store]", f"url = {_value(_masked_url(config.store_url))}", f"node = {_value(config.store_node)}"]
    kept = '""' if config.retention is None else _duration(config.retention)
    lines += [f"sync = {_value(config.store_sync)}", f"retention = {kept}"]
    lines += ["", "[limits]", f"url = {_value(_masked_url(config.limits_url))}"]
    lines += ["", "[billing]", f"currency = {_value(config.currency)}", f"enforce = {_value(config.enforce)}"]
    allowance = format_amount(config.offline_allowance, 0)
    lines += [f"offline_allowance = {_value(allowance)}", f"time_zone = {_value(config.time_zone)}"]
    kept = '""' if config.keep_answers is None else _duration(config.keep_answers)
    lines += ["", "[idempotency]", f"keep = {kept}"]
    byok = config.byok
    lines += ["", "[byok]", f"providers = {_value(byok.providers)}", f"fee = {_value(format_amount(byok.fee, 0))}"]
    lines += [f"secret = {_value(MASK)}"] if byok.secret else []
    lines += [f"old_secrets = {_value([MASK] * len(byok.old_secrets))}"]
    lines += _outside(config.outside)
    for provider in config.providers.values():
        lines += _provider(provider)
    for model in config.models.values():
        lines += ["", f"[models.{_key(model.id)}]", f"targets = {_value([target.id for target in model.targets])}"]
        for name in model.__struct_fields__:
            value = getattr(model, name)
            if name not in ("id", "targets") and value is not None:
                lines.append(f"{name} = {_value(value)}")
    for name, route in config.routes.items():
        members = [f"{model}@{weight}" for model, weight in zip(route.models, route.weights, strict=True)]
        lines += ["", f"[routes.{_key(name)}]", f"models = {_value(members)}", f"policy = {_value(route.policy)}"]
        lines += [f"deadline = {_duration(route.deadline)}"] if route.deadline is not None else []
        lines += [f"hedge = {_value(route.hedge)}"]
    return "\n".join(lines) + "\n"


def _server(server: ServerSettings) -> list[str]:
    lines = ["[server]"]
    for name in server.__struct_fields__:
        value = getattr(server, name)
        if name == "max_body":
            lines.append(f"max_body = {_size(value)}")
        elif name == "tls_cert":
            lines.append(f"tls = {_value({'cert': server.tls_cert, 'key': server.tls_key})}")
        elif name != "tls_key":
            lines.append(f"{name} = {_duration(value) if isinstance(value, float) else _value(value)}")
    return lines


def _outside(settings: OutsideSettings) -> list[str]:
    lines: list[str] = []
    for table, values in show_outside(settings).items():
        lines += ["", f"[{table}]"]
        for name, value in values.items():
            if name in ("max_size", "memory"):
                shown = _size(value)
            elif isinstance(value, float):
                shown = _duration(value)
            elif name == "api_key":
                shown = _value(MASK if value else "")
            else:
                shown = _value(_masked_url(value) if name in ("proxy", "url") else value)
            lines.append(f"{name} = {shown}")
    return lines


def _provider(provider: Provider) -> list[str]:
    path = f"providers.{_key(provider.name)}"
    lines = ["", f"[{path}]", f"dialect = {_value(provider.dialect)}", f"base_url = {_value(provider.base_url)}"]
    lines.append(f"api_keys = {_value([MASK] * len(provider.keys))}")
    lines += [f"{name} = {_duration(getattr(provider, name))}" for name in _DURATIONS]
    lines += [f"proxy = {_value(_masked_url(provider.proxy))}", f"ca = {_value(provider.ca)}", f"[{path}.profile]"]
    for name in provider.profile.__struct_fields__:
        value = getattr(provider.profile, name)
        if value is not None:
            lines.append(f"{name} = {_value(dict.fromkeys(value, MASK) if name == 'headers' else value)}")
    return lines


def _duration(seconds: float) -> str:
    """Seconds without an exponent, to the microsecond."""
    return f'"{Decimal(f"{seconds:.6f}").normalize():f}s"'


def _size(size: int) -> str:
    """Bytes in the largest unit that leaves a whole number."""
    return next(f'"{size // unit}{word}"' for word, unit in BYTES.items() if size % unit == 0)


def _value(value: Any) -> str:
    """A value in TOML, which is JSON but for tables and for null, which it does not have."""
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    if isinstance(plain, Mapping):
        members = cast("Mapping[str, Any]", plain).items()
        return "{ " + ", ".join(f"{_key(name)} = {_value(one)}" for name, one in members if one is not None) + " }"
    return jsonx.encode(plain).decode().replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else jsonx.encode(name).decode().replace("\x7f", "\\u007f")


def _masked_url(url: str) -> str:
    """An address without its user, password and query, which may hold secrets."""
    scheme, colon, rest = url.partition("://")
    rest, query, _ = rest.partition("?")
    _, at, host = rest.rpartition("@")
    return f"{scheme}{colon}{MASK + at if at else ''}{host}{query + MASK if query else ''}"
