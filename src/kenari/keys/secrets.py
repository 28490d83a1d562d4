"""The form of `kn-` keys: 43 letters of base62 and 6 of checksum (A1)."""

import hashlib
import hmac
import string

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
BODY, CHECK = 43, 6
PREFIX = "kn-"


def make_key(entropy: bytes) -> str:
    """A key from 32 random bytes (256 bits: 43 base62 letters hold them)."""
    body = _base62(int.from_bytes(entropy), BODY)
    return PREFIX + body + checksum(body)


def checksum(body: str) -> str:
    """The 6 letters that tell a typing error from an unknown key."""
    digest = hashlib.sha256(body.encode()).digest()
    return _base62(int.from_bytes(digest[:8]), CHECK)


def well_formed(key: str) -> bool:
    """Whether a key has the right form and checksum."""
    body, check = key[len(PREFIX) : len(PREFIX) + BODY], key[len(PREFIX) + BODY :]
    return key.startswith(PREFIX) and len(body) == BODY and check == checksum(body)


def fingerprint(key: bytes, secret: bytes) -> bytes:
    """The HMAC-SHA-256 of a secret, all that is ever stored of it. `key` is derived from the root secret (F10)."""
    return hmac.digest(key, secret, "sha256")


def _base62(number: int, length: int) -> str:
    letters: list[str] = []
    for _ in range(length):
        number, rest = divmod(number, 62)
        letters.append(ALPHABET[rest])
    return "".join(reversed(letters))
