"""The chain of a writer's entries, and the MACs of its checkpoints: whoever changes an entry must change all that
follow, and cannot make the checkpoints again without the secret."""

import hashlib
import hmac


class Seals:
    """The rule by which entries are chained. `key` is derived from the one secret (F10)."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "Seals(***)"

    def genesis(self, writer: str) -> str:
        """What stands before a writer's first entry."""
        return hashlib.sha256(b"kenari ledger of " + writer.encode()).hexdigest()

    def link(self, previous: str, body: bytes) -> str:
        """The hash of an entry: SHA-256 of the hash before it and of its canonical JSON."""
        return hashlib.sha256(previous.encode() + b"\n" + body).hexdigest()

    def stamp(self, writer: str, seq: int, hash: str, time: float) -> str:
        """The MAC of a checkpoint."""
        return self._mac("checkpoint", writer, str(seq), hash, repr(time))

    def stamp_carried(self, subject: str, amount: int, charge: int) -> str:
        """The MAC of what pruned entries added up to."""
        return self._mac("carried", subject, str(amount), str(charge))

    def _mac(self, *words: str) -> str:
        return hmac.digest(self._key, "\n".join(words).encode(), "sha256").hex()
