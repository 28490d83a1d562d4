"""What a key may be used for (A2): pure checks of a caller against endpoint, address and model."""

import ipaddress
from collections.abc import Iterable

from kenari.core.caller import Caller
from kenari.core.errors import KenariError

_PART_OF = {"responses/compact": "responses"}
"""Endpoints that clients of another one call by themselves in the middle of their work: allowed with it."""


def check_use(caller: Caller, path: str, peer: str) -> None:
    """Raise 403 `not_allowed` where the key's scope leaves out this endpoint or this source address.

    `path` is the endpoint's own (`/v1/messages`), `peer` the client's address after trusted proxies; a client of a Unix
    socket has none and is in no network.
    """
    scope = caller.scope
    name = path.removeprefix("/v1/")
    if scope.endpoints and _PART_OF.get(name, name) not in scope.endpoints:
        allowed = ", ".join(f"/v1/{name}" for name in scope.endpoints)
        raise KenariError("not_allowed", f"this key may not be used for {path}. it is for {allowed}")
    check_source(caller, peer)


def check_source(caller: Caller, peer: str) -> None:
    """Raise 403 `not_allowed` where the key may not be used from this source address, for whatever it is used."""
    if caller.scope.networks and not _within(peer, caller):
        raise KenariError("not_allowed", "this key may not be used from this network address. ask the operator")


def check_model(caller: Caller, name: str, model_id: str, subscribers: bool) -> None:
    """Raise 403 where the caller may not use a model. `name` is what was asked for, `model_id` what it stands for (an
    alias has two), `subscribers` whether the model is for accounts with a plan."""
    if caller.unlimited:
        return
    if not may_use(caller, (name, model_id)):
        raise KenariError(
            "model_not_allowed", f"this key may not use the model {_shown(name)}. see GET /v1/models", "model"
        )
    if subscribers and not caller.plan:
        message = (
            f"the model {_shown(name)} is for accounts with a plan. choose another, or ask the operator for a plan"
        )
        raise KenariError("subscribers_only", message, "model")


def no_price(name: str) -> KenariError:
    """The 403 of a model without a price, which serves keys without limits only (F9)."""
    message = f"the model {_shown(name)} has no price yet, so only the operator's key may use it. choose another model"
    return KenariError("model_not_allowed", message, "model")


def may_use(caller: Caller, names: Iterable[str]) -> bool:
    """Whether the key's scope holds one of these names: itself, or a pattern with a trailing `*`."""
    allowed = caller.scope.models
    return caller.unlimited or not allowed or any(_matches(pattern, name) for name in names for pattern in allowed)


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _within(peer: str, caller: Caller) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in caller.scope.networks)


def _shown(name: str) -> str:
    return repr("".join(char if char.isprintable() else "?" for char in name[:100]))
