"""Keys: made, shown, changed, rotated, revoked. A secret is shown once, when it is made."""

from typing import Any

import msgspec
from msgspec import UNSET

from kenari.core.caller import Caller, Scope
from kenari.doors.admin.accounts import budget_body, budget_of, limits_body, rates_of, spent_body
from kenari.doors.admin.bodies import (
    KeyBody,
    KeyDetail,
    KeyList,
    KeyMade,
    KeyNew,
    KeyPage,
    KeyPatch,
    Rotation,
    SecretBody,
)
from kenari.doors.admin.services import Management
from kenari.doors.admin.table import Asked, Route
from kenari.doors.admin.values import Money, endpoints, networks, seconds, stamp, stamp_or_none, unix
from kenari.store.records import KeyChange, KeyRow, NewKey


async def create_key(house: Management, asked: Asked) -> KeyMade:
    """A new key; the only time that its secret is shown."""
    body: KeyNew = asked.body
    secret, digest = house.mint()
    new = NewKey(
        account=body.account,
        name=body.name,
        digest=digest,
        scope=Scope(tuple(body.models or ()), endpoints(body.endpoints or []), _networks(body.networks)),
        rates=rates_of(body.limits),
        budget=budget_of(body.budget),
        expires_at=unix(body.expires_at, "expires_at") if body.expires_at is not None else None,
    )
    return KeyMade(secret=secret, **_fields(await house.kept().create_key(new, actor=asked.actor), house.money))


async def list_keys(house: Management, asked: Asked) -> KeyList:
    """A page of keys."""
    page: KeyPage = asked.query
    found = await house.kept().keys(page.account, page.limit + 1, page.after)
    more = found[page.limit - 1].id if len(found) > page.limit else None
    return KeyList([key_body(one, house.money) for one in found[: page.limit]], more)


async def show_key(house: Management, asked: Asked) -> KeyDetail:
    """One key, with when its secrets were made and when they end."""
    store = house.kept()
    key = await store.key(asked.path["id"])
    secrets = [
        SecretBody(created_at=stamp(one.created_at), expires_at=stamp_or_none(one.expires_at))
        for one in await store.secrets(key.id)
    ]
    spent, _ = await store.spent(Caller(account=key.account, key=key.id, budget=key.budget))
    return KeyDetail(secrets=secrets, spent=spent_body(spent, house.money), **_fields(key, house.money))


async def change_key(house: Management, asked: Asked) -> KeyBody:
    """Change what is given; a list that is not named stays."""
    body: KeyPatch = asked.body
    store, key = house.kept(), asked.path["id"]
    scope: Any = UNSET
    if (body.models, body.endpoints, body.networks) != (UNSET, UNSET, UNSET):
        old = (await store.key(key)).scope
        scope = Scope(
            old.models if body.models is UNSET else tuple(body.models or ()),
            old.endpoints if body.endpoints is UNSET else endpoints(body.endpoints or []),
            old.networks if body.networks is UNSET else _networks(body.networks),
        )
    moment: Any = body.expires_at
    change = KeyChange(
        name=body.name,
        scope=scope,
        rates=rates_of(body.limits) if body.limits is not UNSET else UNSET,
        budget=budget_of(body.budget) if body.budget is not UNSET else UNSET,
        expires_at=moment if moment is None or moment is UNSET else unix(moment, "expires_at"),
    )
    return key_body(await store.change_key(key, change, actor=asked.actor), house.money)


async def revoke_key(house: Management, asked: Asked) -> KeyBody:
    """Refuse the key from now on: within two seconds in every process."""
    return key_body(await house.kept().revoke_key(asked.path["id"], actor=asked.actor), house.money)


async def rotate_key(house: Management, asked: Asked) -> KeyMade:
    """A second secret; the first one ends after its grace period."""
    body: Rotation = asked.body
    secret, digest = house.mint()
    grace = seconds(body.grace, "grace")
    key = await house.kept().rotate_key(asked.path["id"], digest, grace, actor=asked.actor)
    return KeyMade(secret=secret, **_fields(key, house.money))


def key_body(key: KeyRow, money: Money) -> KeyBody:
    """A key as it is shown."""
    return KeyBody(**_fields(key, money))


def _fields(key: KeyRow, money: Money) -> dict[str, Any]:
    return {
        "id": key.id,
        "account": key.account,
        "name": key.name,
        "models": list(key.scope.models),
        "endpoints": list(key.scope.endpoints),
        "networks": [str(network) for network in key.scope.networks],
        "budget": budget_body(key.budget, money),
        "limits": limits_body(key.rates),
        "created_at": stamp(key.created_at),
        "expires_at": stamp_or_none(key.expires_at),
        "revoked_at": stamp_or_none(key.revoked_at),
    }


def _networks(texts: Any) -> Any:
    return networks(texts or [], "networks")


def _route(method: str, path: str, act: Any, summary: str, answer: type[msgspec.Struct], **more: Any) -> Route:
    return Route(method=method, path=path, act=act, summary=summary, answer=answer, **more)


ROUTES = (
    _route(
        "POST",
        "/keys",
        create_key,
        "Make a key; its secret is shown this once",
        KeyMade,
        body=KeyNew,
        status=201,
        errors=("not_found", "conflict"),
    ),
    _route("GET", "/keys", list_keys, "List keys in the order of their ids, revoked ones too", KeyList, query=KeyPage),
    _route("GET", "/keys/{id}", show_key, "Show a key, never its secrets", KeyDetail, errors=("not_found",)),
    _route(
        "PATCH",
        "/keys/{id}",
        change_key,
        "Change a key: name, models, endpoints, networks, expires_at, budget, limits",
        KeyBody,
        body=KeyPatch,
        errors=("not_found", "conflict"),
    ),
    _route("DELETE", "/keys/{id}", revoke_key, "Revoke a key", KeyBody, errors=("not_found",)),
    _route(
        "POST",
        "/keys/{id}/rotate",
        rotate_key,
        "Give a key a second secret; the first one ends after `grace`",
        KeyMade,
        body=Rotation,
        status=201,
        errors=("not_found", "conflict"),
    ),
)
