"""Verifying callers, as far as there is only the bootstrap key: a key without limits (A1)."""

import hashlib

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Keys

OPERATOR = Caller(account="operator", key="bootstrap", unlimited=True)


class BootstrapKeys:
    """Keys in memory, by the SHA-256 of their secret: a look-up tells nothing of how much of a guess was right."""

    def __init__(self, secrets: dict[str, Caller]) -> None:
        self._callers = {
            _digest(secret.encode("utf-8", "surrogateescape")): caller for secret, caller in secrets.items()
        }
        self._valid: dict[bytes, Caller] = {}  # those that came, as they came: there are no more than keys

    def verify(self, secret: bytes) -> Caller | None:
        """The caller behind a secret."""
        caller = self._valid.get(secret)
        if caller is None:
            caller = self._callers.get(_digest(secret))
            if caller is not None:
                self._valid[secret] = caller
        return caller


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def identify(keys: Keys, headers: dict[bytes, bytes]) -> Caller:
    """The caller of a request, by `authorization: Bearer` or `x-api-key`. Raises the 401.

    Clients send dummies: of two keys one valid is enough; two valid ones of different accounts are refused.
    """
    found: Caller | None = None
    offered = False
    authorization = headers.get(b"authorization", b"")
    scheme, _, bearer = authorization.partition(b" ")
    for secret in (bearer.strip() if scheme.lower() == b"bearer" else b"", headers.get(b"x-api-key", b"").strip()):
        if not secret:
            continue
        offered = True
        caller = keys.verify(secret)
        if caller is None:
            continue
        if found is not None and found.account != caller.account:
            raise KenariError("invalid_api_key", "two valid keys of different accounts were sent. send one")
        found = caller
    if not found:
        raise KenariError("invalid_api_key", _INVALID if offered else _MISSING)
    return found


_MISSING = "no api key was sent. send authorization: Bearer kn-... or x-api-key: kn-..."
_INVALID = "the api key is not valid. check it, or ask the operator for a new one"
