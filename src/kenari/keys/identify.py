"""Who sends a request: the key in its headers (A1)."""

from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ports import Keys


def identify(keys: Keys, headers: dict[bytes, bytes]) -> Caller:
    """The caller of a request, by `authorization: Bearer` or `x-api-key`. Raises the 401.

    Clients send dummies: of two keys one valid is enough; two valid ones of different accounts are refused.
    """
    authorization = headers.get(b"authorization", b"")
    if authorization.startswith(b"Bearer ") and b"x-api-key" not in headers:  # nearly always
        caller = keys.verify(authorization[7:].strip())
        if caller is not None:
            return caller
    found: Caller | None = None
    offered = False
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
_INVALID = "the api key is not valid, has expired or was revoked. check it, or ask the operator for a new one"
