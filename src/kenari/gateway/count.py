"""Asking a provider to count a prompt (M4). A refusal or a silence is no failure: then we estimate."""

import asyncio
from typing import NamedTuple

from msgspec import Raw

from kenari.catalog.health import Standing
from kenari.core.errors import KenariError
from kenari.core.ports import Call, Outgoing, Upstream
from kenari.core.request import Request
from kenari.dialects.fit import fit
from kenari.gateway.plan import Candidate, Plan
from kenari.gateway.services import Services
from kenari.gateway.ticker import Ticker
from kenari.providers.base import endpoint
from kenari.wire import jsonx


class Place(NamedTuple):
    """Where providers of a dialect count, and the members of a request that they know there."""

    path: str
    members: tuple[str, ...]


_PLACES = {
    "messages": Place("/messages/count_tokens", ("model", "messages", "system", "tools", "tool_choice", "thinking")),
    "responses": Place(
        "/responses/input_tokens",
        ("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text"),
    ),
}

MAX_SECONDS = 20.0
MAX_BODY = 1024 * 1024


async def count_at_candidates(request: Request, plan: Plan, services: Services) -> int | None:
    """The count of the first candidate in order that counts; None when none does.

    It costs nothing, and how it goes says nothing about a candidate's health (M4).
    """
    until = services.clock() + MAX_SECONDS
    for step in await services.routing.steps(plan, None, None):
        candidate = step.candidate
        if not _counts(candidate) or step.standing > Standing.PROBE or services.clock() >= until:
            continue
        try:
            fitted = fit(request, candidate.target)
        except KenariError:  # this model cannot take the request; another one may
            continue
        number = await count_at_provider(fitted, candidate, services.upstream(candidate), services.ticker)
        if number is not None:
            return number
    return None


def _counts(candidate: Candidate) -> bool:
    dialect, flag = candidate.provider.dialect, candidate.provider.profile.count_tokens
    return dialect in _PLACES and (dialect == "messages" if flag is None else flag)


async def count_at_provider(request: Request, candidate: Candidate, upstream: Upstream, ticker: Ticker) -> int | None:
    """The provider's count of a fitted request's prompt, None when it does not say."""
    provider = candidate.provider
    place = _PLACES[provider.dialect]
    members = jsonx.members(candidate.dialect.encode_request(request, provider.profile))
    body = jsonx.encode({name: raw for name, raw in members.items() if name in place.members})
    whole = _Whole(asyncio.get_running_loop())
    whole.call = upstream.start(
        Outgoing(
            url=endpoint(provider, place.path),
            headers=candidate.signed,
            body=body,
            connect_timeout=provider.connect_timeout,
            proxy=provider.proxy,
            ca=provider.ca,
        ),
        whole,
    )
    ticker.add(whole)
    try:
        await whole.done
    finally:
        ticker.remove(whole)
    return _number(whole.body) if whole.status == 200 else None


def _number(body: bytes) -> int | None:
    try:
        count: Raw = jsonx.members(body)["input_tokens"]
        number = jsonx.value(count)
    except (jsonx.Malformed, KeyError):
        return None
    return number if isinstance(number, int) and number > 0 else None


class _Whole:
    """Collects one small answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.status = 0
        self.body = b""
        self.call: Call | None = None
        self._until = loop.time() + MAX_SECONDS

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        if len(self.body) < MAX_BODY:
            self.body += data

    def on_end(self) -> None:
        self._finish()

    def on_lost(self, error: KenariError) -> None:
        self.status = 0
        self._finish()

    def tick(self, now: float) -> None:
        if now >= self._until and not self.done.done():
            self.status = 0
            if self.call is not None:
                self.call.abort()
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
