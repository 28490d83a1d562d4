"""TOML and environment -> Config. Unknown keys are faults; all faults are told at once, each with its path."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import urlsplit

import msgspec

from kenari.catalog.models import Kind, Model, Price, TargetRef
from kenari.config.settings import Config, Route, ServerSettings
from kenari.config.table import Faults, Table
from kenari.core.profile import Profile
from kenari.providers.base import Provider
from kenari.providers.rows import ROWS, Row

DIALECTS = ("chat", "messages", "responses")
SCRIPTED = Provider(name="demo", dialect="chat", base_url="scripted:")
SCRIPTED_MODEL = Model(
    id="demo/scripted",
    targets=(TargetRef("demo", "scripted"),),
    reasoning=True,
    vision=True,
    context_window=32768,
    max_output_tokens=8192,
)
DEFAULT_FILE = "kenari.toml"


class ConfigError(Exception):
    """The configuration cannot be used. `faults` are (path, message) pairs."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in faults))
        self.faults = faults


def load_config(path: str | None, env: Mapping[str, str], folder: Path) -> Config:
    """The configuration of a file, of `kenari.toml` in `folder` when it is there, else the built-in one.

    Raises ConfigError with every fault.
    """
    if path is None:
        if not (folder / DEFAULT_FILE).is_file():
            return _with_env(builtin_config(), env, Faults())
        path = str(folder / DEFAULT_FILE)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError([(path, f"cannot be read: {reason}")]) from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([(path, f"is not valid TOML: {error}")]) from None
    return parse_config(values, env, path)


def builtin_config() -> Config:
    """What is served without any configuration: the scripted provider."""
    return Config(providers={"demo": SCRIPTED}, models={SCRIPTED_MODEL.id: SCRIPTED_MODEL})


def parse_config(values: Mapping[str, Any], env: Mapping[str, str], source: str) -> Config:
    """The configuration of parsed TOML. Raises ConfigError with every fault."""
    faults = Faults()
    top = Table(values, "", faults, env)
    server = _server(top.child("server"))
    store = top.child("store")
    limits = top.child("limits")
    billing = top.child("billing")
    store_url = store.text("url", "sqlite:///kenari.db")
    if not store_url.startswith(("sqlite://", "postgresql://")):
        store.fault("url", 'must begin with "sqlite://" or "postgresql://"')
    limits_url = limits.text("url", "memory://")
    if not limits_url.startswith(("memory://", "valkey://")):
        limits.fault("url", 'must begin with "memory://" or "valkey://"')
    currency = billing.text("currency", "USD")
    enforce = billing.flag("enforce", True)
    providers = {name: _provider(name, table, server) for name, table in top.child("providers").children()}
    models = {name: _model(name, table, providers) for name, table in top.child("models").children()}
    _check_names(models, faults)
    routes = {name: _route(table, models) for name, table in top.child("routes").children()}
    for table in (store, limits, billing, top):
        table.close()
    if not models:
        builtin = builtin_config()
        providers = providers | builtin.providers if "demo" not in providers else providers
        models = builtin.models if "demo" not in providers or providers["demo"] is SCRIPTED else {}
    config = Config(
        server=server,
        store_url=store_url,
        limits_url=limits_url,
        currency=currency,
        enforce=bool(enforce),
        providers=providers,
        models=models,
        routes=routes,
        source=source,
        notes=_notes(server, limits_url, models, routes),
    )
    return _with_env(config, env, faults)


def _with_env(config: Config, env: Mapping[str, str], faults: Faults) -> Config:
    key = env.get("KENARI_BOOTSTRAP_KEY", "")
    if key and not key.startswith("kn-"):
        faults.add("KENARI_BOOTSTRAP_KEY", "must start with kn-")
    table = Table({"KENARI_SECRET": env.get("KENARI_SECRET", "")}, "", faults, env)
    secret = table.secret("KENARI_SECRET")
    if faults.found:
        raise ConfigError(faults.found)
    return msgspec.structs.replace(
        config, bootstrap_key=key, admin_token=env.get("KENARI_ADMIN_TOKEN", ""), secret=secret
    )


def _server(table: Table) -> ServerSettings:
    tls = table.child("tls")
    cert, key = tls.text("cert"), tls.text("key")
    if bool(cert) != bool(key):
        table.fault("tls", "needs both cert and key, or neither")
    tls.close()
    workers = table.whole("workers", 1, least=1) or 1
    if workers > 1:
        table.fault("workers", "more than 1 is not served yet. run several nodes behind a balancer, or leave it at 1")
    settings = ServerSettings(
        listen=_address(table, "listen", "127.0.0.1:8080"),
        admin_listen=_address(table, "admin_listen", "127.0.0.1:8081"),
        workers=workers,
        keepalive=table.seconds("keepalive", 15.0),
        noop_after=table.seconds("noop_after", 120.0),
        header_timeout=table.seconds("header_timeout", 600.0),
        first_event_timeout=table.seconds("first_event_timeout", 600.0),
        idle_timeout=table.seconds("idle_timeout", 600.0),
        max_body=table.size("max_body", 32 * 1024 * 1024),
        drain=table.seconds("drain", 30.0),
        tls_cert=cert,
        tls_key=key,
        trusted_proxies=table.networks("trusted_proxies"),
        cors_origins=table.texts("cors_origins"),
        log="text" if table.choice("log", ("json", "text"), "json") == "text" else "json",
    )
    table.close()
    return settings


def _address(table: Table, key: str, default: str) -> str:
    value = table.text(key, default)
    host, colon, port = value.rpartition(":")
    unix = value.startswith("unix:/")
    if not unix and not (colon and port.isdigit() and int(port) < 65536 and (":" not in host or host[:1] == "[")):
        table.fault(key, 'must be like "127.0.0.1:8080", "[::1]:8080" or "unix:/run/kenari.sock"')
        return default
    return value


def _provider(name: str, table: Table, server: ServerSettings) -> Provider:
    preset = table.text("preset", name)
    row = ROWS.get(preset)
    if table.has("preset") and row is None:
        table.fault("preset", f"is not a known provider: {', '.join(ROWS)}")
    row = row or Row("", "")
    dialect = (
        table.choice("dialect", DIALECTS, row.dialect or "chat") if table.has("dialect") or not row.dialect else ""
    )
    if not row.dialect and not table.has("dialect"):
        table.fault("dialect", f"is required: one of {', '.join(DIALECTS)} (or name a known provider as preset)")
    table.take("dialect")
    base_url = table.text("base_url", row.base_url).rstrip("/")
    parts = urlsplit(base_url)
    if not base_url:
        table.fault("base_url", "is required: the address that the provider's paths are appended to")
    elif parts.scheme not in ("http", "https") or not parts.hostname:
        table.fault("base_url", "must be an http or https address")
    elif parts.query or parts.fragment or parts.username:
        table.fault("base_url", "must have no user, query or fragment; keys belong into api_key")
    one, several = table.secret("api_key"), table.secrets("api_keys")
    provider = Provider(
        name=name,
        dialect=dialect or row.dialect,
        base_url=base_url,
        keys=((one,) if one else ()) + several,
        profile=_profile(table.child("profile"), row.profile),
        connect_timeout=table.seconds("connect_timeout", 10.0),
        header_timeout=table.seconds("header_timeout", server.header_timeout),
        first_event_timeout=table.seconds("first_event_timeout", server.first_event_timeout),
        idle_timeout=table.seconds("idle_timeout", server.idle_timeout),
        proxy=table.text("proxy"),
        ca=table.text("ca"),
    )
    table.close()
    return provider


def _profile(table: Table, base: Profile) -> Profile:
    values: dict[str, Any] = msgspec.to_builtins(base)
    for field in msgspec.structs.fields(Profile):
        if table.has(field.name):
            value = table.take(field.name)
            try:
                msgspec.convert(values | {field.name: value}, Profile)
            except msgspec.ValidationError as error:
                table.fault(field.name, str(error).partition(" - at")[0].lower())
            else:
                values[field.name] = value
        else:
            table.take(field.name)
    table.close()
    return msgspec.convert(values, Profile)


def _model(name: str, table: Table, providers: dict[str, Provider]) -> Model:
    targets: list[TargetRef] = []
    for text in table.texts("targets"):
        provider, slash, model = text.partition("/")
        if not slash or not model:
            table.fault("targets", f'{text!r} must be "provider/model"')
        elif provider not in providers:
            table.fault("targets", f"{text!r} names the provider {provider!r}, which is not configured")
        else:
            targets.append(TargetRef(provider, model))
    if not table.has("targets"):
        table.fault("targets", 'is required: a list like ["groq/openai/gpt-oss-120b"]')
    model = Model(
        id=name,
        targets=tuple(targets),
        kind=cast("Kind", table.choice("kind", get_args(Kind), "chat")),
        reasoning=table.flag("reasoning", None),
        vision=table.flag("vision", None),
        context_window=table.whole("context_window", None, least=1),
        max_output_tokens=table.whole("max_output_tokens", 65536, least=1) or 65536,
        access="subscribers"
        if table.choice("access", ("public", "subscribers"), "public") == "subscribers"
        else "public",
        price=_price(table),
        aliases=table.texts("aliases"),
        custom_tools=bool(table.flag("custom_tools", False)),
    )
    table.close()
    return model


def _price(table: Table) -> Price | None:
    given = table.has("price")
    prices = table.child("price")
    values = [prices.decimal(name, None) for name in ("input", "output", "cache_read", "cache_write")]
    prices.close()
    if not given:
        return None
    if values[0] is None or values[1] is None:
        table.fault("price", "needs at least input and output")
        return None
    return Price(values[0], values[1], values[2], values[3])


def _check_names(models: dict[str, Model], faults: Faults) -> None:
    seen = dict.fromkeys(models, "a model")
    for model in models.values():
        for alias in model.aliases:
            if alias in seen:
                faults.add(f'models."{model.id}".aliases', f"{alias!r} is already {seen[alias]}")
            seen[alias] = f"an alias of {model.id}"


def _route(table: Table, models: dict[str, Model]) -> Route:
    names: list[str] = []
    weights: list[int] = []
    known = set(models) | {alias for model in models.values() for alias in model.aliases}
    for text in table.texts("models"):
        name, _, weight = text.rpartition("@") if "@" in text else (text, "", "1")
        if name not in known:
            table.fault("models", f"{name!r} is not a configured model")
        elif not weight.isdigit() or int(weight) < 1:
            table.fault("models", f"{text!r} has no whole weight of at least 1 behind the @")
        else:
            names.append(name)
            weights.append(int(weight))
    if not table.has("models"):
        table.fault("models", "is required: a list of model ids")
    policy = table.choice("policy", ("order", "weighted", "cheapest", "fastest"), "order")
    table.close()
    return Route(tuple(names), tuple(weights), cast("Any", policy))


def _notes(
    server: ServerSettings, limits_url: str, models: dict[str, Model], routes: dict[str, Route]
) -> tuple[str, ...]:
    notes: list[str] = []
    if any(model.price is not None for model in models.values()):
        notes.append("models.*.price, [store], [billing]: there is no bill yet; only the bootstrap key exists")
    if any(model.access == "subscribers" for model in models.values()):
        notes.append('models.*.access = "subscribers": there are no plans yet')
    if any(route.policy != "order" for route in routes.values()):
        notes.append("routes.*.policy: models are tried in order whatever the policy")
    if limits_url != "memory://":
        notes.append("limits.url: there are no limits yet")
    if server.admin_listen != ServerSettings().admin_listen:
        notes.append("server.admin_listen: the management API is not served yet")
    return tuple(notes)
