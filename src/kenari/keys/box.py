"""Bytes that are kept sealed under a key derived from the root secret (F10): AES-GCM, bound to what they belong to. Pure."""

import importlib
from typing import Any

NONCE = 12


class Box:
    """Seals and opens with one key of 32 bytes."""

    def __init__(self, key: bytes, purpose: str) -> None:
        """`purpose` says for an operator what is kept so (`[idempotency] keeps answers`). Raises OSError when the library
        is not installed."""
        try:
            # an extra, which costs memory and start-up time: who keeps something sealed pays for it
            ciphers: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
            self._changed: type[Exception] = importlib.import_module("cryptography.exceptions").InvalidTag
        except ImportError:
            message = f"{purpose} encrypted, but the library for it is missing. pip install 'kenari[byok]'"
            raise OSError(message) from None
        self._cipher = ciphers.AESGCM(key)

    def __repr__(self) -> str:
        return "Box()"

    def seal(self, about: str, data: bytes, nonce: bytes) -> bytes:
        """The data as it may be kept. `nonce` is 12 random bytes, never used before."""
        sealed: bytes = self._cipher.encrypt(nonce, data, about.encode("utf-8", "surrogatepass"))
        return nonce + sealed

    def open(self, about: str, sealed: bytes) -> bytes | None:
        """The data; None when it was changed, belongs to something else, or was sealed under another secret."""
        try:
            opened: bytes = self._cipher.decrypt(sealed[:NONCE], sealed[NONCE:], about.encode("utf-8", "surrogatepass"))
        except (self._changed, ValueError):
            return None
        return opened
