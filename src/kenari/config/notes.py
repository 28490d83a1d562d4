"""What `kenari check` says beside the configuration: what is worth knowing."""

import importlib.util

from kenari.config.builtin import SCRIPTED, SCRIPTED_MODEL
from kenari.config.settings import Config
from kenari.keys.client import lacks_client
from kenari.providers.rows import ROWS
from kenari.wire.address import is_loopback

LEAST_SECRET = 20
_KEY_ENV = {row.base_url: row.key_env for row in ROWS.values() if row.key_env}


def notes_on(config: Config) -> tuple[str, ...]:
    """The notes, in the order of the configuration."""
    return (
        *_on_workers(config),
        *_on_providers(config),
        *_on_models(config),
        *_on_store(config),
        *_on_secrets(config),
    )


def _on_workers(config: Config) -> list[str]:
    """What more than one process means."""
    workers = config.server.workers
    if workers == 1:
        return []
    return [f"server.workers: {workers} processes serve; one more keeps the books, keys and limits of all of them"]


def _on_providers(config: Config) -> list[str]:
    """Public providers without a key, which would refuse every call."""
    return [
        f'providers.{provider.name}: no api_key is set; "env:{_KEY_ENV[provider.base_url]}" is the usual one'
        for provider in config.providers.values()
        if provider.base_url in _KEY_ENV and not provider.keys and not provider.profile.headers
    ]


def _on_models(config: Config) -> list[str]:
    notes: list[str] = []
    own = [model for model in config.models.values() if model != SCRIPTED_MODEL]
    if not own and any(provider.base_url != SCRIPTED.base_url for provider in config.providers.values()):
        notes.append("[models] is empty: only the built-in scripted model is served")
    unpriced = [model.id for model in own if model.price is None]
    if unpriced:
        notes.append(f"models without a price serve keys without limits only: {', '.join(unpriced)}")
    return notes


def _on_store(config: Config) -> list[str]:
    notes: list[str] = []
    if not config.store_url.startswith("sqlite:"):
        notes.append("store.url: secrets that kenari makes lie in the current folder, for there is no file of a store")
    if config.store_url.startswith("postgresql:") and _lacks("psycopg"):
        notes.append("store.url: the client of a PostgreSQL server is not installed: pip install 'kenari[postgres]'")
    if config.byok.providers and _lacks("cryptography"):
        notes.append("byok.providers: what encrypts the keys is not installed: pip install 'kenari[byok]'")
    if config.keep_answers is not None and _lacks("cryptography"):
        notes.append("idempotency.keep: what encrypts the answers is not installed: pip install 'kenari[byok]'")
    if lacks_client(config.limits_url):
        notes.append("limits.url: the client of a valkey server is not installed: pip install 'kenari[valkey]'")
    if config.server.admin_listen and not is_loopback(config.server.admin_listen):
        notes.append(
            "server.admin_listen: the management API speaks plain HTTP and is reached from other machines there"
        )
    return notes


def _on_secrets(config: Config) -> list[str]:
    """Secrets of one's own that can be guessed: they guard every key, bill and account."""
    given = {"KENARI_SECRET": config.secret, "KENARI_ADMIN_TOKEN": config.admin_token}
    return [
        f"{name}: has fewer than {LEAST_SECRET} characters and may be guessed; make one with `openssl rand -hex 32`"
        for name, value in given.items()
        if value and len(value) < LEAST_SECRET
    ]


def _lacks(module: str) -> bool:
    """Whether a package that an extra brings is not installed. (It is looked for, not loaded.)"""
    return importlib.util.find_spec(module) is None
