"""What the operator does to the running node."""

import msgspec

from kenari.core.errors import KenariError
from kenari.doors.admin.services import Management
from kenari.doors.admin.table import Asked, Route


class FaultBody(msgspec.Struct, frozen=True):
    """A path in the configuration, and what is wrong there."""

    path: str
    message: str


class ReloadBody(msgspec.Struct, frozen=True):
    """Whether the configuration that was read holds for new requests; if not, its faults, and the old one stays."""

    reloaded: bool
    faults: list[FaultBody]


async def reload(house: Management, asked: Asked) -> ReloadBody:
    """Read the configuration again, in every worker."""
    if house.reload is None:
        raise KenariError("not_found", "this node does not read its configuration again. restart it")
    faults = [FaultBody(path, message) for path, message in await house.reload()]
    if house.store is not None and not faults:
        await house.store.audit(asked.actor, "configuration.reload", "node")
    return ReloadBody(not faults, faults)


ROUTES = (
    Route(
        method="POST",
        path="/reload",
        act=reload,
        summary="Read the configuration again; requests in flight keep the old one",
        answer=ReloadBody,
        errors=("not_found",),
    ),
)
