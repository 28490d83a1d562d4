"""Ids that kenari mints, tool-id squeezing, and the envelope in which a maker's proof travels (D5)."""

import base64
import hashlib
import hmac
import re
from collections.abc import Container
from typing import Literal

import msgspec

_ALIKE, _OWN = 2, 6
"""Bytes of a request's id that it shares with those drawn with it, and that are its own."""
ENVELOPE_PREFIX = "kn1."
_TAG_BYTES = 16
_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_TRIES = 8


def request_id_bytes(count: int) -> int:
    """How many random bytes so many ids take."""
    return _ALIKE + _OWN * count


def request_ids(entropy: bytes) -> list[str]:
    """The 16-hex ids of requests (D14) from random bytes, the last one first. Those of one draw begin alike: so what a database
    keeps of requests that come one after the other lies together in its indexes, where ids without any order
    cost a page for each. Two ids are alike as seldom as two numbers of 64 bits."""
    alike, own, size = entropy[:_ALIKE].hex(), entropy[_ALIKE:].hex(), 2 * _OWN
    return sorted([alike + own[at : at + size] for at in range(0, len(own), size)], reverse=True)


def item_id(prefix: str, request: str, index: int) -> str:
    """An item's id: unique over the turns of a conversation because the request id is in it (F12)."""
    return f"{prefix}_{request}{index:02d}"


def squeeze_name(name: str, taken: Container[str], number: int = 0) -> str:
    """A tool name that every provider takes ([A-Za-z0-9_-]{1,64}), unlike all in `taken`; itself when it is fine.

    `number` is unlike those of earlier calls: where very many tools have one name, none has to try the names of all others.
    """
    if _SAFE_NAME.match(name) and name not in taken:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    base = _UNSAFE.sub("_", name)
    if base != name or len(base) > 64 or base in taken or not base:
        base = f"{base[:55]}_{digest}"
    tries = 0
    while base in taken:
        tries += 1
        salt = str(number) if tries > _TRIES else ""
        digest = hashlib.sha256(f"{digest}{salt}".encode()).hexdigest()[:8]
        base = f"{base[:55]}_{digest}"
    return base


class SealedPiece(msgspec.Struct, array_like=True, frozen=True):
    """One proof and the number of characters of reasoning text that it covers."""

    kind: Literal["signature", "encrypted", "redacted", "mark"]
    value: str
    length: int


class Sealed(msgspec.Struct, array_like=True, frozen=True):
    """What an envelope holds: who made the reasoning, the proofs of its blocks in order, the maker's own item id."""

    maker: str
    pieces: list[SealedPiece]
    item_id: str = ""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Sealed)


class Envelopes:
    """Makes and opens MACed envelopes `kn1.<base64url>`. The key is derived from the one secret (F10)."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, sealed: Sealed) -> str:
        """The envelope of these proofs."""
        body = _encoder.encode(sealed)
        tag = hmac.digest(self._key, body, "sha256")[:_TAG_BYTES]
        return ENVELOPE_PREFIX + base64.urlsafe_b64encode(tag + body).decode().rstrip("=")

    def open(self, envelope: str) -> Sealed | None:
        """What is inside, or None when it is not ours or was changed."""
        if not envelope.startswith(ENVELOPE_PREFIX):
            return None
        text = envelope[len(ENVELOPE_PREFIX) :]
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            tag, body = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
            if not hmac.compare_digest(tag, hmac.digest(self._key, body, "sha256")[:_TAG_BYTES]):
                return None
            return _decoder.decode(body)
        except (ValueError, msgspec.DecodeError):
            return None


def maker_of(dialect: str, provider: str, model: str) -> str:
    """The name of a proof's maker: dialect, provider and model family (the leading letters of the model's name)."""
    last = model.rsplit("/", 1)[-1]
    family = re.match(r"[A-Za-z]*", last)
    return f"{dialect}/{provider}/{(family.group() if family else '').lower()}"


def derive_key(secret: bytes, purpose: str) -> bytes:
    """A 32-byte key for one purpose from the one secret (HKDF-SHA-256, RFC 5869, empty salt)."""
    extracted = hmac.digest(b"\0" * 32, secret, "sha256")
    return hmac.digest(extracted, purpose.encode() + b"\x01", "sha256")


def cache_key(key: bytes, account: str, value: str) -> str:
    """What a provider sees of a caller's `prompt_cache_key`: an HMAC of account and key (M3)."""
    digest = hmac.digest(key, f"{account}\0{value}".encode("utf-8", "surrogatepass"), "sha256")
    return digest[:16].hex()
