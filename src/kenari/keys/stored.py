"""Keys that are kept in a store, verified in memory: a snapshot that is swapped whole when the store has changed.

A key that comes for the first time costs an HMAC and a look-up, after that a look-up. Nothing here knows where the snapshot comes from: the keeper loads it, and
replaces it within two seconds of any change.
"""

from collections.abc import Callable, Iterable

import msgspec

from kenari.core.caller import Caller
from kenari.core.ports import Keys
from kenari.keys.secrets import fingerprint, well_formed


class Secret(msgspec.Struct, frozen=True):
    """One live secret of a key: its HMAC, who is behind it, and when this secret (not the key) ends, in Unix seconds.

    A key has two of them while it is rotated.
    """

    digest: bytes
    caller: Caller
    expires_at: float | None = None


class StoredKeys:
    """Verifies secrets against the newest snapshot. `hmac_key` is derived from the root secret for "keys" (F10), `now`
    is the time in Unix seconds, `beside` knows further keys, always the same (the bootstrap key)."""

    def __init__(self, hmac_key: bytes, now: Callable[[], float], beside: Keys) -> None:
        self._hmac_key, self._now, self._beside = hmac_key, now, beside
        self._secrets: dict[bytes, Secret] = {}
        self._seen: dict[bytes, Secret] = {}  # valid ones that came, as they came: there are no more than secrets
        self.sequence = -1
        """The store's sequence number of the snapshot that is in force; -1 before the first."""

    def __len__(self) -> int:
        """How many secrets are known."""
        return len(self._secrets)

    @property
    def secrets(self) -> list[Secret]:
        """The snapshot that is in force."""
        return list(self._secrets.values())

    def replace(self, sequence: int, secrets: Iterable[Secret]) -> None:
        """From now on exactly these secrets are valid. An older snapshot than the one in force changes nothing."""
        if sequence < self.sequence:
            return
        self._secrets = {secret.digest: secret for secret in secrets}
        self._seen = {}
        self.sequence = sequence

    def verify(self, secret: bytes) -> Caller | None:
        """The caller behind a secret; None when it is unknown, revoked or has expired."""
        found = self._seen.get(secret)
        if found is None:
            beside = self._beside.verify(secret)
            found = self._known(secret) if beside is None else Secret(b"", beside)
            if found is None:
                return None
            self._seen[secret] = found
        caller = found.caller
        for end in (found.expires_at, caller.expires_at):
            if end is not None and self._now() >= end:
                return None
        return caller

    def _known(self, secret: bytes) -> Secret | None:
        """The secret by its HMAC; what has not the form and checksum of a key is not even looked for."""
        if not (secret.isascii() and well_formed(secret.decode())):
            return None
        return self._secrets.get(fingerprint(self._hmac_key, secret))
