"""The effective configuration as text, secrets masked (`kenari check`)."""

from typing import Any

import msgspec

from kenari.config.settings import Config
from kenari.wire import jsonx


def show_config(config: Config) -> str:
    """TOML-like text of everything that is in force."""
    server = config.server
    lines = ["[server]"]
    for name in server.__struct_fields__:
        lines.append(f"{name} = {_value(getattr(server, name))}")
    lines += ["", "[store]", f"url = {_value(_masked_url(config.store_url))}"]
    lines += ["", "[limits]", f"url = {_value(_masked_url(config.limits_url))}"]
    lines += ["", "[billing]", f"currency = {_value(config.currency)}", f"enforce = {_value(config.enforce)}"]
    for provider in config.providers.values():
        lines += ["", f"[providers.{_key(provider.name)}]"]
        lines += [f"dialect = {_value(provider.dialect)}", f"base_url = {_value(provider.base_url)}"]
        lines.append(f"api_keys = {_value(['***'] * len(provider.keys))}")
        for name in ("connect_timeout", "header_timeout", "first_event_timeout", "idle_timeout", "proxy", "ca"):
            value = getattr(provider, name)
            lines.append(f"{name} = {_value(_masked_url(value) if isinstance(value, str) else value)}")
        lines.append(f"[providers.{_key(provider.name)}.profile]")
        for name in provider.profile.__struct_fields__:
            value = getattr(provider.profile, name)
            if value is not None:
                lines.append(f"{name} = {_value(dict.fromkeys(value, '***') if name == 'headers' else value)}")
    for model in config.models.values():
        lines += ["", f"[models.{_key(model.id)}]", f"targets = {_value([target.id for target in model.targets])}"]
        for name in model.__struct_fields__:
            value = getattr(model, name)
            if name not in ("id", "targets") and value is not None:
                lines.append(f"{name} = {_value(value)}")
    for name, route in config.routes.items():
        members = [f"{model}@{weight}" for model, weight in zip(route.models, route.weights, strict=True)]
        lines += ["", f"[routes.{_key(name)}]", f"models = {_value(members)}", f"policy = {_value(route.policy)}"]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f'"{value:g}s"'
    return jsonx.encode(msgspec.to_builtins(value, str_keys=True, enc_hook=str)).decode()


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else jsonx.encode(name).decode()


def _masked_url(url: str) -> str:
    """An address without its password."""
    scheme, colon, rest = url.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{colon}{user.partition(':')[0]}:***@{host}" if at else url
