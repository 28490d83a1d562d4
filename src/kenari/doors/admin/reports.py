"""What was used, what it cost, who changed what, and how the node does."""

from typing import cast

import msgspec

from kenari.core.errors import KenariError
from kenari.doors.admin.bodies import (
    AuditBody,
    AuditList,
    AuditPage,
    RequestBody,
    RequestList,
    RequestPage,
    StatusBody,
    TokenCounts,
    UsageBody,
    UsageList,
    UsageQuery,
)
from kenari.doors.admin.services import Management
from kenari.doors.admin.table import Asked, Route
from kenari.doors.admin.values import Money, shown, stamp, unix_of
from kenari.ledger.lines import public_bill, read_bill
from kenari.store.records import BillLine, Grouping, StoreDown, UsageSum
from kenari.wire import jsonx

DEFAULT_SPAN = 30 * 24 * 3600.0
"""Seconds before now from which usage is summed up when `from` is not given."""


async def list_requests(house: Management, asked: Asked) -> RequestList:
    """A page of bill lines."""
    page: RequestPage = asked.query
    found = await house.kept().requests(page.account, page.key, page.limit + 1, page.before)
    more = found[page.limit - 1].id if len(found) > page.limit else None
    return RequestList([request_body(line, house) for line in found[: page.limit]], more)


async def show_request(house: Management, asked: Asked) -> RequestBody:
    """One bill line."""
    request = asked.path["id"].removeprefix("resp_")
    line = await house.kept().request(request)
    if line is None:
        raise KenariError(
            "not_found", f"there is no bill line of {shown(request)}. it comes when the request has ended"
        )
    return request_body(line, house)


async def sum_usage(house: Management, asked: Asked) -> UsageList:
    """Sums of requests, tokens and money."""
    query: UsageQuery = asked.query
    by = cast("list[Grouping]", list(dict.fromkeys(query.by.strip().split(","))))
    until = unix_of(query.until, house.zone, "to") if query.until else house.now() + 1
    since = unix_of(query.since, house.zone, "from") if query.since else until - DEFAULT_SPAN
    sums = await house.kept().usage(by, max(0.0, since), until, query.account, query.key)
    return UsageList([usage_body(one, house.money) for one in sums], house.money.currency)


async def list_audit(house: Management, asked: Asked) -> AuditList:
    """A page of the audit log."""
    page: AuditPage = asked.query
    found = await house.kept().audit_log(page.limit + 1, page.before, page.subject)
    more = found[page.limit - 1].number if len(found) > page.limit else None
    lines = [
        AuditBody(
            number=one.number,
            time=stamp(one.time),
            actor=one.actor,
            action=one.action,
            subject=one.subject,
            detail=jsonx.value(one.detail),
        )
        for one in found[: page.limit]
    ]
    return AuditList(lines, more)


async def show_status(house: Management, asked: Asked) -> StatusBody:
    """How this node does."""
    state = "none"
    if house.store is not None:
        try:
            await house.store.ping()
            state = "up"
        except StoreDown:
            state = "down"
    return StatusBody(
        version=house.version,
        started_at=stamp(house.started),
        store=state,
        currency=house.money.currency,
        models=house.models(),
        gauges=dict(house.gauges()),
    )


async def reload(house: Management, asked: Asked) -> StatusBody:
    """Read the configuration again; with faults the old one stays."""
    if house.reload is None:
        raise KenariError("conflict", "the configuration is not read again here. restart kenari")
    faults = await house.reload()
    if house.store is not None:
        detail = jsonx.encode({"faults": faults})
        await house.store.audit(asked.actor, "config.reload", "config", detail)
    if faults:
        raise KenariError("conflict", f"the configuration has faults, and the old one stays: {'; '.join(faults)}")
    return await show_status(house, asked)


def request_body(line: BillLine, house: Management) -> RequestBody:
    """A bill line as it is shown."""
    shown_line = public_bill(read_bill(line.body), house.money.digits)
    return msgspec.convert(
        shown_line | {"time": stamp(line.time), "currency": house.money.currency}, RequestBody, from_attributes=True
    )


def usage_body(one: UsageSum, money: Money) -> UsageBody:
    """A sum as it is shown."""
    return UsageBody(
        day=one.day,
        account=one.account,
        key=one.key,
        model=one.model,
        requests=one.requests,
        tokens=TokenCounts(input=one.input, cache_read=one.cache_read, cache_write=one.cache_write, output=one.output),
        charge=money.show(one.charge),
    )


ROUTES = (
    Route(
        method="GET",
        path="/requests",
        act=list_requests,
        summary="List bill lines, the newest first",
        query=RequestPage,
        answer=RequestList,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path="/requests/{id}",
        act=show_request,
        summary="Show the bill line of a request, by its x-request-id",
        answer=RequestBody,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path="/usage",
        act=sum_usage,
        summary="Sum up requests, tokens and money by day, model, key or account",
        query=UsageQuery,
        answer=UsageList,
    ),
    Route(
        method="GET",
        path="/audit",
        act=list_audit,
        summary="List changes and wrong tokens, the newest first",
        query=AuditPage,
        answer=AuditList,
    ),
    Route(
        method="GET",
        path="/status",
        act=show_status,
        summary="Say how this node does",
        answer=StatusBody,
    ),
    Route(
        method="POST",
        path="/reload",
        act=reload,
        summary="Read the configuration again; with faults the old one stays",
        answer=StatusBody,
        errors=("conflict",),
    ),
)
