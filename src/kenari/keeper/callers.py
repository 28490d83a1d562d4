"""Callers on their way between processes. Both ends keep what they have seen: a caller is the same for many requests."""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

import msgspec

from kenari.core.caller import Caller, Scope
from kenari.keeper.words import KeySet, KnownSecret, OwnKeySet, SealedKey
from kenari.keys.stored import Secret

MOST = 10_000
"""So many callers are remembered; beyond that all are forgotten and learned again."""

_encoder = msgspec.msgpack.Encoder(enc_hook=str)  # networks as their text
_TYPES: dict[str, Any] = get_type_hints(Caller)


def pack(caller: Caller) -> bytes:
    """A caller as bytes."""
    return _encoder.encode(caller)


def unpack(data: bytes) -> Caller:
    """The caller of `pack`. (msgspec has no union of the two kinds of networks, so they are read here.)"""
    members: dict[str, Any] = msgspec.msgpack.decode(data)
    scope: dict[str, Any] = members.pop("scope")
    networks = tuple(ipaddress.ip_network(text) for text in scope["networks"])
    plain = {name: msgspec.convert(value, _TYPES[name]) for name, value in members.items()}
    return Caller(
        scope=Scope(models=tuple(scope["models"]), endpoints=tuple(scope["endpoints"]), networks=networks), **plain
    )


def key_set(sequence: int, secrets: Iterable[Secret]) -> KeySet:
    """Secrets on their way to the workers."""
    return KeySet(sequence, [KnownSecret(one.digest, pack(one.caller), one.expires_at) for one in secrets])


def secrets_of(word: KeySet) -> list[Secret]:
    """The secrets of `key_set`; those of one caller share it."""
    callers = UnpackedCallers()
    return [Secret(one.digest, callers.unpack(one.caller), one.expires_at) for one in word.secrets]


def own_key_set(sealed: Mapping[tuple[str, str], bytes]) -> OwnKeySet:
    """Callers' own provider keys on their way to the workers."""
    return OwnKeySet([SealedKey(account, provider, one) for (account, provider), one in sealed.items()])


def sealed_of(word: OwnKeySet) -> dict[tuple[str, str], bytes]:
    """The keys of `own_key_set`."""
    return {(one.account, one.provider): one.sealed for one in word.keys}


class PackedCallers:
    """The worker's end: the bytes of each caller."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Caller, bytes]] = {}

    def pack(self, caller: Caller) -> bytes:
        """The bytes of a caller, made when it is new or has changed."""
        known = self._known.get(caller.key)
        if known is not None and known[0] is caller:
            return known[1]
        if len(self._known) >= MOST:
            self._known.clear()
        packed = pack(caller)
        self._known[caller.key] = (caller, packed)
        return packed


class UnpackedCallers:
    """The keeper's end: the caller of each packed one."""

    def __init__(self) -> None:
        self._known: dict[bytes, Caller] = {}

    def unpack(self, data: bytes) -> Caller:
        """The caller of these bytes."""
        caller = self._known.get(data)
        if caller is None:
            if len(self._known) >= MOST:
                self._known.clear()
            caller = self._known[data] = unpack(data)
        return caller
