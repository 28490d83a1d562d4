"""The bootstrap key: a key without limits, known from the configuration or made at the first start (A1)."""

import hashlib

from kenari.core.caller import Caller

OPERATOR = Caller(account="operator", key="bootstrap", unlimited=True)


class BootstrapKeys:
    """Keys in memory, by the SHA-256 of their secret: a look-up tells nothing of how much of a guess was right."""

    def __init__(self, secrets: dict[str, Caller]) -> None:
        self._callers = {
            _digest(secret.encode("utf-8", "surrogateescape")): caller for secret, caller in secrets.items()
        }

    def verify(self, secret: bytes) -> Caller | None:
        """The caller behind a secret."""
        return self._callers.get(_digest(secret))


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
