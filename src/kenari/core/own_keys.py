"""What the gateway asks of callers' own provider keys (BYOK)."""

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
