"""Provider keys that accounts brought (BYOK), managed for them: stored, listed, forgotten, never shown again."""

import msgspec

from kenari.core.errors import KenariError
from kenari.core.own_keys import OwnKeyBook, OwnKeyShown
from kenari.doors.admin.services import Management
from kenari.doors.admin.table import Asked, Route
from kenari.doors.admin.values import stamp


class ProviderKeyBody(msgspec.Struct, frozen=True):
    """A provider key as it is shown: by its last letters."""

    provider: str
    hint: str
    created_at: str


class ProviderKeyList(msgspec.Struct, frozen=True):
    """The provider keys of an account."""

    data: list[ProviderKeyBody]


class ProviderKeyNew(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The provider's key. It takes the place of an earlier one."""

    key: str

    def __repr__(self) -> str:
        return "ProviderKeyNew('***')"


class ProviderKeyGone(msgspec.Struct, frozen=True):
    """A provider key that is forgotten."""

    provider: str
    deleted: bool


async def list_provider_keys(house: Management, asked: Asked) -> ProviderKeyList:
    """What an account has brought."""
    book, account = await _book(house, asked)
    return ProviderKeyList([_body(one) for one in await book.shown(account)])


async def put_provider_key(house: Management, asked: Asked) -> ProviderKeyBody:
    """Keep a key for `byok/PROVIDER/MODEL`, sealed."""
    body: ProviderKeyNew = asked.body
    book, account = await _book(house, asked)
    return _body(await book.put(account, asked.path["provider"], body.key, actor=asked.actor))


async def drop_provider_key(house: Management, asked: Asked) -> ProviderKeyGone:
    """Forget a key."""
    book, account = await _book(house, asked)
    provider = asked.path["provider"]
    if not await book.drop(account, provider, actor=asked.actor):
        raise KenariError("not_found", f"the account has no key for {provider}")
    return ProviderKeyGone(provider, True)


async def _book(house: Management, asked: Asked) -> tuple[OwnKeyBook, str]:
    """Where they are kept, and the account, which is there. Raises the 404."""
    account = (await house.kept().account(asked.path["id"])).id
    if house.own is None:
        raise KenariError("not_found", "callers bring no keys here: name providers in [byok] providers")
    return house.own, account


def _body(shown: OwnKeyShown) -> ProviderKeyBody:
    return ProviderKeyBody(shown.provider, shown.hint, stamp(shown.created_at))


_ALL = "/accounts/{id}/provider-keys"
_ONE = _ALL + "/{provider}"
ROUTES = (
    Route(
        method="GET",
        path=_ALL,
        act=list_provider_keys,
        summary="List the provider keys that an account brought, by their last letters",
        answer=ProviderKeyList,
        errors=("not_found",),
    ),
    Route(
        method="PUT",
        path=_ONE,
        act=put_provider_key,
        summary="Keep a provider key for an account, in the place of an earlier one",
        answer=ProviderKeyBody,
        body=ProviderKeyNew,
        errors=("not_found",),
    ),
    Route(
        method="DELETE",
        path=_ONE,
        act=drop_provider_key,
        summary="Forget a provider key of an account",
        answer=ProviderKeyGone,
        errors=("not_found",),
    ),
)
