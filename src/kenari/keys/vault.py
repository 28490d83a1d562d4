"""Callers' own provider keys at rest (BYOK): AES-GCM, bound to the account and the provider that they belong to. Pure."""

import hashlib
from collections.abc import Sequence

import msgspec

from kenari.keys.box import Box

_FORM = b"\x01"
_NAME = 4
HINT = 4


class Unreadable(Exception):
    """A sealed key that none of the master keys opens: it was changed, or the secret it was made under is gone."""


class SealedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A provider key as it is kept. `hint` is its last letters, so that its owner knows which one it is."""

    account: str
    provider: str
    sealed: bytes
    hint: str
    created_at: float

    def __repr__(self) -> str:
        return f"SealedKey({self.account!r}, {self.provider!r})"


class Vault:
    """Seals with the first master key (32 bytes each) and opens with any: the others are those of before a rotation."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Raises OSError when the library is not installed."""
        self._boxes = {_name(key): Box(key, "[byok] keeps keys") for key in reversed(keys)}
        self._now = _name(keys[0])

    def __repr__(self) -> str:
        return "Vault()"

    def seal(self, account: str, provider: str, secret: str, nonce: bytes) -> bytes:
        """The secret as it may be kept. `nonce` is 12 random bytes, never used before."""
        return _FORM + self._now + self._boxes[self._now].seal(_about(account, provider), secret.encode(), nonce)

    def open(self, account: str, provider: str, sealed: bytes) -> str:
        """The secret. Raises Unreadable."""
        box = self._boxes.get(sealed[1 : 1 + _NAME])
        if box is None or sealed[:1] != _FORM:
            raise Unreadable(f"the key of {account} for {provider} was sealed under another secret")
        secret = box.open(_about(account, provider), sealed[1 + _NAME :])
        if secret is None:
            raise Unreadable(f"the key of {account} for {provider} was changed")
        return secret.decode()


def hint_of(secret: str) -> str:
    """The last letters of a key that is long enough to lose them."""
    return secret[-HINT:] if len(secret) >= 4 * HINT else ""


def _name(key: bytes) -> bytes:
    return hashlib.sha256(b"byok master key\0" + key).digest()[:_NAME]


def _about(account: str, provider: str) -> str:
    return f"{account}\0{provider}"
