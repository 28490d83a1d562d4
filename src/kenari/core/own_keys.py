"""What the gateway asks of callers' own provider keys (BYOK)."""

from collections.abc import Awaitable
from typing import Protocol

import msgspec


class OwnKeyShown(msgspec.Struct, frozen=True):
    """What its owner is shown of a key: never the key. `hint` is its last letters, times are Unix seconds."""

    provider: str
    hint: str
    created_at: float


class OwnKeys(Protocol):
    """Finds the provider keys that accounts brought. A look-up in memory, never a wait."""

    def find(self, account: str, provider: str) -> str | None:
        """The account's key for a provider, None when it has brought none."""
        ...


class NoOwnKeys:
    """Nobody has brought any."""

    def find(self, account: str, provider: str) -> str | None:
        """None."""
        return None


class OwnKeyBook(Protocol):
    """Where they are kept (keeper.own_keys.StoredOwnKeys; in a worker keeper.remote.RemoteOwnKeys). All raise the 503 when it
    cannot be reached."""

    def shown(self, account: str) -> Awaitable[list[OwnKeyShown]]:
        """What an account has brought."""
        ...

    def put(self, account: str, provider: str, secret: str, *, actor: str) -> Awaitable[OwnKeyShown]:
        """Keep a key. Raises the 400 that names what is wrong, 404 for a provider that takes none."""
        ...

    def drop(self, account: str, provider: str, *, actor: str) -> Awaitable[bool]:
        """Forget a key; False when there was none."""
        ...
