"""Callers' own provider keys at rest (BYOK): AES-GCM, bound to the account and the provider that they belong to. Pure."""

import hashlib
import importlib
from collections.abc import Sequence
from typing import Any

import msgspec

_FORM = b"\x01"
_NAME, NONCE = 4, 12
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
        try:
            # an extra, which costs memory and start-up time: who keeps callers' keys pays for it
            ciphers = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
            self._changed: type[Exception] = importlib.import_module("cryptography.exceptions").InvalidTag
        except ImportError:
            message = "[byok] keeps keys encrypted, but the library for it is missing. pip install 'kenari[byok]'"
            raise OSError(message) from None
        self._keys: dict[bytes, Any] = {_name(key): ciphers.AESGCM(key) for key in reversed(keys)}
        self._now = _name(keys[0])

    def __repr__(self) -> str:
        return "Vault()"

    def seal(self, account: str, provider: str, secret: str, nonce: bytes) -> bytes:
        """The secret as it may be kept. `nonce` is 12 random bytes, never used before."""
        locked = self._keys[self._now].encrypt(nonce, secret.encode(), _about(account, provider))
        return _FORM + self._now + nonce + locked

    def open(self, account: str, provider: str, sealed: bytes) -> str:
        """The secret. Raises Unreadable."""
        key = self._keys.get(sealed[1 : 1 + _NAME])
        if key is None or sealed[:1] != _FORM:
            raise Unreadable(f"the key of {account} for {provider} was sealed under another secret")
        nonce, locked = sealed[1 + _NAME : 1 + _NAME + NONCE], sealed[1 + _NAME + NONCE :]
        try:
            return key.decrypt(nonce, locked, _about(account, provider)).decode()
        except (self._changed, ValueError):
            raise Unreadable(f"the key of {account} for {provider} was changed") from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether it was sealed under the present master key."""
        return sealed[1 : 1 + _NAME] == self._now


def hint_of(secret: str) -> str:
    """The last letters of a key that is long enough to lose them."""
    return secret[-HINT:] if len(secret) >= 4 * HINT else ""


def _name(key: bytes) -> bytes:
    return hashlib.sha256(b"byok master key\0" + key).digest()[:_NAME]


def _about(account: str, provider: str) -> bytes:
    return f"{account}\0{provider}".encode("utf-8", "surrogatepass")
