"""Who sends a request: the key in its headers (A1)."""

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Keys


def identify(keys: Keys, headers: dict[bytes, bytes]) -> Caller:
    """The caller of a request, by `authorization: Bearer` or `x-api-key`. Raises the 401.

    Clients send dummies: of two keys one valid is enough; two valid ones of different accounts are refused.
    """
    bearer, other = _secrets(headers)
    if not (bearer or other):
        raise KenariError("invalid_api_key", _MISSING)
    found = keys.verify(bearer) if bearer else None
    if other:
        caller = keys.verify(other)
        if found is not None and caller is not None and found.account != caller.account:
            raise KenariError("invalid_api_key", "two valid keys of different accounts were sent. send one")
        found = caller or found
    if found is None:
        raise KenariError("invalid_api_key", _INVALID)
    return found


def only_secret(headers: dict[bytes, bytes]) -> bytes | None:
    """The secret that says by itself who sends a request with these headers; None where two were sent."""
    bearer, other = _secrets(headers)
    return None if bearer and other else bearer or other


def _secrets(headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """What stands in both headers, b"" for none."""
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    return bearer.strip() if scheme.lower() == b"bearer" else b"", headers.get(b"x-api-key", b"").strip()


_MISSING = "no api key was sent. send authorization: Bearer kn-... or x-api-key: kn-..."
_INVALID = "the api key is not valid, has expired or was revoked. check it, or ask the operator for a new one"
