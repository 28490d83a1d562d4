"""TOML and environment -> Config. Unknown keys are faults; all faults are told at once, each with its path."""

import ipaddress
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec

from kenari.catalog.models import Kind, Modality, Model, TargetRef
from kenari.config.builtin import SCRIPTED, builtin_config
from kenari.config.money import amount, keep_answers, node, read_price, retention, time_zone
from kenari.config.notes import notes_on
from kenari.config.routes import read_routes
from kenari.config.settings import ByokSettings, Config, ServerSettings
from kenari.config.table import LARGEST, Faults, Secret, Table, dotted, nearest
from kenari.config.tools import read_outside
from kenari.core.profile import Profile
from kenari.core.request import EFFORTS, Effort
from kenari.providers.base import Provider
from kenari.providers.rows import ROWS, Row

DIALECTS = ("chat", "messages", "responses")
DEFAULT_FILE = "kenari.toml"
MOST_WORKERS = 256
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_OWN_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection", "expect", "upgrade")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]+")
_PORT = re.compile(r"[0-9]{1,5}")
_CURRENCY = re.compile(r"[A-Z]{3}")
_NO_WORD = re.compile(r"Invalid enum value '(.*)'", re.DOTALL)
_ENDPOINTS = ("/chat/completions", "/messages", "/responses")


class ConfigError(Exception):
    """The configuration cannot be used. `faults` are (path, message) pairs."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{path}: {message}" for path, message in faults))
        self.faults = faults


def load_config(path: str | None, env: Mapping[str, str], folder: Path, calls: bool = True) -> Config:
    """The configuration of a file, of `kenari.toml` in `folder` when it is there, else the built-in one.

    Without `calls` what opens other services is not looked up: who manages a server need not have its providers' keys.
    Raises ConfigError with every fault.
    """
    if path is None:
        if not (folder / DEFAULT_FILE).is_file():
            return _with_env(builtin_config(), env, Faults())
        path = str(folder / DEFAULT_FILE)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError([(path, f"cannot be read: {reason}")]) from None
    try:
        values = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and numbers too long to be read
        raise ConfigError([(path, f"is not valid TOML: {error}")]) from None
    except RecursionError:
        raise ConfigError([(path, "is not valid TOML: it is nested too deeply")]) from None
    if not calls:
        values |= {name: _unopened(values[name]) for name in ("providers", "search", "byok") if name in values}
    return parse_config(values, env, path)


def _unopened(value: Any) -> Any:
    """A value of the file with a word in place of each secret that would have to be looked up."""
    if isinstance(value, dict):
        return {name: _unopened(inner) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_unopened(inner) for inner in cast("list[Any]", value)]
    return "unused" if isinstance(value, str) and value.startswith(("env:", "file:")) else value


def parse_config(values: Mapping[str, Any], env: Mapping[str, str], source: str) -> Config:
    """The configuration of parsed TOML. Raises ConfigError with every fault."""
    faults = Faults()
    top = Table(values, "", faults, env)
    server = _server(top.child("server"))
    store = top.child("store")
    limits = top.child("limits")
    billing = top.child("billing")
    idempotency = top.child("idempotency")
    outside = read_outside(top)
    store_url = store.text("url", "sqlite:///kenari.db")
    if not store_url.startswith(("sqlite:///", "postgresql://")) and store_url != "none:":
        store.fault("url", 'must begin with "sqlite:///" or "postgresql://", or be "none:"')
    limits_url = limits.text("url", "memory://")
    if not limits_url.startswith(("memory://", "valkey://")):
        limits.fault("url", 'must begin with "memory://" or "valkey://"')
    currency = billing.text("currency", "USD")
    if not _CURRENCY.fullmatch(currency):
        billing.fault("currency", 'must be a code of three capital letters, like "USD" or "IDR"')
    enforce = billing.flag("enforce", True)
    sync = store.choice("sync", ("normal", "full"), "normal")
    providers = {name: _provider(name, table, server) for name, table in top.child("providers").children()}
    models = {name: _model(name, table, providers) for name, table in top.child("models").children()}
    _check_names(models, faults)
    routes = read_routes(top.child("routes"), models)
    byok = _byok(top.child("byok"), providers)
    if not models and providers.get("demo", SCRIPTED).base_url == SCRIPTED.base_url:
        builtin = builtin_config()
        providers, models = builtin.providers | providers, builtin.models
    config = Config(
        server=server,
        store_url=Secret(store_url),
        limits_url=Secret(limits_url),
        currency=currency,
        enforce=bool(enforce),
        byok=byok,
        store_node=node(store),
        store_sync="full" if sync == "full" else "normal",
        retention=retention(store),
        offline_allowance=amount(billing, "offline_allowance"),
        time_zone=time_zone(billing),
        keep_answers=keep_answers(idempotency, store_url),
        providers=providers,
        models=models,
        routes=routes,
        outside=outside,
        source=source,
    )
    for table in (store, limits, billing, idempotency, top):
        table.close()
    return _with_env(config, env, faults)


def _with_env(config: Config, env: Mapping[str, str], faults: Faults) -> Config:
    key = env.get("KENARI_BOOTSTRAP_KEY", "").strip()
    if key and not key.startswith("kn-"):
        faults.add("KENARI_BOOTSTRAP_KEY", "must start with kn-")
    given = {name: env.get(name, "").strip() for name in ("KENARI_SECRET", "KENARI_ADMIN_TOKEN")}
    table = Table(given, "", faults, env)
    secret, token = table.secret("KENARI_SECRET"), table.secret("KENARI_ADMIN_TOKEN")
    if token and token == key:
        faults.add("KENARI_ADMIN_TOKEN", "must not be the bootstrap key: an api key never opens the management api")
    if faults.found:
        raise ConfigError(faults.found)
    config = msgspec.structs.replace(config, bootstrap_key=Secret(key), admin_token=token, secret=secret)
    return msgspec.structs.replace(config, notes=notes_on(config))


def _server(table: Table) -> ServerSettings:
    tls = table.child("tls")
    cert, key = tls.file("cert"), tls.file("key")
    if bool(cert) != bool(key):
        table.fault("tls", "needs both cert and key, or neither")
    tls.close()
    workers = table.whole("workers", 1, least=1) or 1
    if workers > MOST_WORKERS:
        table.fault("workers", f"must be at most {MOST_WORKERS}; about one for each core is right")
    listen = _address(table, "listen", "127.0.0.1:8080")
    admin_listen = _address(table, "admin_listen", "127.0.0.1:8081", off=True)
    if table.has("admin_listen") and listen == admin_listen and not listen.endswith(":0"):
        table.fault("admin_listen", f'must be another address than listen, {listen}; "" turns it off')
    settings = ServerSettings(
        listen=listen,
        admin_listen=admin_listen,
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
        cors_origins=_origins(table),
        deadline=table.seconds("deadline", 900.0),
        show_target=cast("Any", table.choice("show_target", ("operator", "everyone", "nobody"), "nobody")),
        responses_formats=bool(table.flag("responses_formats", False)),
        log="text" if table.choice("log", ("json", "text"), "json") == "text" else "json",
    )
    table.close()
    return settings


def _address(table: Table, key: str, default: str, off: bool = False) -> str:
    value = table.text(key, default)
    if off and not value:
        return value
    host, colon, port = value.rpartition(":")
    unix = value.startswith("unix:/")
    ported = bool(colon) and bool(_PORT.fullmatch(port)) and int(port) < 65536
    if not unix and not (ported and _is_host(host)):
        table.fault(key, 'must be like "127.0.0.1:8080", "[::1]:8080" or "unix:/run/kenari.sock"')
        return default
    return value


def _is_host(host: str) -> bool:
    """A name, an IPv4 address, an IPv6 address in brackets, or nothing (all addresses)."""
    if not (host.startswith("[") and host.endswith("]")):
        return not re.search(r"[\s:/\[\]]", host)
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True


def _origins(table: Table) -> tuple[str, ...]:
    origins = table.texts("cors_origins")
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            table.fault("cors_origins", f'{origin!r} is no origin like "https://app.example" (without a path), or "*"')
    return origins


def _byok(table: Table, providers: dict[str, Provider]) -> ByokSettings:
    named = table.texts("providers")
    for name in named:
        if name not in providers:
            table.fault("providers", f"{name!r} is not a configured provider{nearest(name, tuple(providers))}")
    settings = ByokSettings(
        providers=named,
        fee=amount(table, "fee"),
        secret=table.secret("secret"),
        old_secrets=table.secrets("old_secrets"),
    )
    table.close()
    return settings


def _provider(name: str, table: Table, server: ServerSettings) -> Provider:
    if not name or "/" in name:
        table.fault("", "a provider's name must have a letter and no slash: targets are split at the first slash")
    preset = table.text("preset", name)
    row = ROWS.get(preset)
    if table.has("preset") and row is None:
        table.fault("preset", f"is not a known provider: {', '.join(ROWS)}{nearest(preset, tuple(ROWS))}")
    row = row or Row("", "")
    dialect = row.dialect
    if table.has("dialect"):
        dialect = table.choice("dialect", DIALECTS, row.dialect or "chat")
    elif not row.dialect:
        table.take("dialect")
        hint = nearest(name, tuple(ROWS))
        table.fault("dialect", f"is required: one of {', '.join(DIALECTS)} (or name a known provider as preset){hint}")
    else:
        table.take("dialect")
    one, several = table.secret("api_key"), table.secrets("api_keys")
    provider = Provider(
        name=name,
        dialect=dialect or "chat",
        base_url=_base_url(table, row.base_url),
        keys=((one,) if one else ()) + several,
        profile=_profile(table.child("profile"), row.profile),
        connect_timeout=table.seconds("connect_timeout", 10.0),
        header_timeout=table.seconds("header_timeout", server.header_timeout),
        first_event_timeout=table.seconds("first_event_timeout", server.first_event_timeout),
        idle_timeout=table.seconds("idle_timeout", server.idle_timeout),
        proxy=_proxy(table),
        ca=table.file("ca"),
    )
    table.close()
    return provider


def _base_url(table: Table, default: str) -> str:
    """The address that paths are appended to. `scripted:` is the built-in provider."""
    base_url = table.text("base_url", default).rstrip("/")
    parts = _split(base_url)
    if not base_url:
        table.fault("base_url", "is required: the address that the provider's paths are appended to")
    elif base_url != SCRIPTED.base_url and (parts is None or parts.scheme not in ("http", "https")):
        table.fault("base_url", 'must be an http or https address, like "http://127.0.0.1:11434/v1"')
    elif parts is not None and (parts.query or parts.fragment or "@" in parts.netloc):
        table.fault("base_url", "must have no user, query or fragment; keys belong into api_key")
    elif base_url.endswith(_ENDPOINTS):
        table.fault("base_url", "must end before the endpoint's path, which kenari appends itself")
    return base_url


def _proxy(table: Table) -> str:
    proxy = table.text("proxy")
    parts = _split(proxy)
    if proxy and (parts is None or parts.scheme != "http"):
        table.fault("proxy", 'must be an address like "http://user:password@proxy.example:3128"')
    return Secret(proxy)


def _split(url: str) -> SplitResult | None:
    """The parts of an absolute address, None when it has no host, a bad port, or what no address may hold."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    return parts if usable and url.isascii() and url.isprintable() and " " not in url else None


def _profile(table: Table, base: Profile) -> Profile:
    values: dict[str, Any] = msgspec.to_builtins(base)
    for field in msgspec.structs.fields(Profile):
        if not table.has(field.name):
            table.take(field.name)
            continue
        value = _headers(table) if field.name == "headers" else table.take(field.name)
        try:
            msgspec.convert(values | {field.name: value}, Profile)
        except msgspec.ValidationError as error:
            table.fault(field.name, _reason(error, field.type))
        else:
            values[field.name] = value
    if not 0 <= values["min_budget"] <= LARGEST:
        table.fault("min_budget", "must be a whole number of at least 0")
    ceiling = values["temperature_max"]
    if ceiling is not None and not 0 < ceiling < math.inf:
        table.fault("temperature_max", "must be a number above 0")
    table.close()
    return msgspec.convert(values, Profile)


def _reason(error: msgspec.ValidationError, wanted: Any) -> str:
    """A type error in our words; it names types and flag words, never a header's value."""
    text = str(error).partition(" - at")[0]
    if found := _NO_WORD.fullmatch(text):
        words = _words_of(wanted)
        return f"{found.group(1)!r} must be one of {', '.join(words)}{nearest(found.group(1), words)}"
    return text[:1].lower() + text[1:]


def _words_of(wanted: Any) -> tuple[str, ...]:
    """The words that a type names, however deep."""
    return tuple(word for part in get_args(wanted) for word in ((part,) if isinstance(part, str) else _words_of(part)))


def _headers(table: Table) -> Any:
    """Fixed headers: names of tokens, values like secrets. None that kenari's own HTTP end has to set."""
    given = table.take("headers")
    if not isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", given).items():
        if not _TOKEN.match(name):
            table.fault("headers", f"{name!r} is no header name")
        elif name.lower() in _OWN_HEADERS:
            table.fault("headers", f"{name} is set by kenari itself")
        found[name] = table.resolve("headers", value) if isinstance(value, str) else value
    return found


def _model(name: str, table: Table, providers: dict[str, Provider]) -> Model:
    targets: list[TargetRef] = []
    if not name:
        table.fault("", "a model needs a name")
    for text in table.texts("targets"):
        provider, slash, model = text.partition("/")
        if not slash or not model:
            table.fault("targets", f'{text!r} must be "provider/model"')
        elif provider not in providers:
            near = nearest(provider, tuple(providers))
            table.fault("targets", f"{text!r} names the provider {provider!r}, which is not configured{near}")
        else:
            if TargetRef(provider, model) in targets:
                table.fault("targets", f"{text!r} stands twice; a request tries each target once")
            targets.append(TargetRef(provider, model))
    if not table.has("targets") or table.take("targets") == []:
        table.fault("targets", 'is required: a list like ["groq/openai/gpt-oss-120b"]')
    kind = cast("Kind", table.choice("kind", get_args(Kind), "chat"))
    mute = [one.id for one in targets if kind != "chat" and providers[one.provider].dialect == "messages"]
    if mute:
        table.fault("targets", f"a messages provider has no endpoint for a model of kind {kind}: {', '.join(mute)}")
    model = Model(
        id=name,
        targets=tuple(targets),
        kind=kind,
        reasoning=table.flag("reasoning", None),
        efforts=cast("tuple[Effort, ...] | None", _words(table, "efforts", EFFORTS)),
        vision=table.flag("vision", None),
        modalities=cast("tuple[Modality, ...] | None", _words(table, "modalities", get_args(Modality))),
        context_window=table.whole("context_window", None, least=1),
        max_output_tokens=table.whole("max_output_tokens", 65536, least=1) or 65536,
        access="subscribers"
        if table.choice("access", ("public", "subscribers"), "public") == "subscribers"
        else "public",
        price=read_price(name, table),
        aliases=table.texts("aliases"),
        custom_tools=bool(table.flag("custom_tools", False)),
    )
    table.close()
    return model


def _words(table: Table, key: str, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """A list of some known words, in their usual order; None when it is not set."""
    if not table.has(key):
        table.take(key)
        return None
    words = table.texts(key)
    for word in words:
        if word not in known:
            table.fault(key, f"{word!r} must be one of {', '.join(known)}{nearest(word, known)}")
    return tuple(word for word in known if word in words)


def _check_names(models: dict[str, Model], faults: Faults) -> None:
    seen = dict.fromkeys(models, "a model")
    for model in models.values():
        for alias in model.aliases:
            if alias in seen or not alias:
                taken = f"{alias!r} is already {seen[alias]}" if alias else "an alias needs a name"
                faults.add(f"{dotted('models', model.id)}.aliases", taken)
            seen[alias] = f"an alias of {model.id}"
