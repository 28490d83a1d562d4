"""Counting a prompt (M4): by a provider where one does. A refusal or a silence is no failure: then we estimate."""

import asyncio
from typing import NamedTuple

from msgspec import Raw

from kenari.catalog.health import Standing
from kenari.core.errors import KenariError
from kenari.core.outbound import Call, Outgoing, Upstream
from kenari.core.ports import Exchange
from kenari.core.request import Request
from kenari.dialects.fit import fit
from kenari.gateway.media import Preparation, has_media
from kenari.gateway.plan import Candidate, Plan
from kenari.gateway.services import Services
from kenari.gateway.sinks import Sink
from kenari.gateway.tally import Count
from kenari.gateway.ticker import Ticker
from kenari.gateway.waiting import while_waiting
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


async def count_prompt(request: Request, plan: Plan, services: Services, exchange: Exchange) -> int:
    """The tokens of a request's prompt, documents turned into text as for a call: the number of the first candidate in
    order that counts, else our own. 0 when the client went away. Raises the 400 of a document that cannot be read.

    It costs nothing, and how it goes says nothing about a candidate's health (M4). Nothing is fetched for it.
    """
    until = services.clock() + MAX_SECONDS
    media = services.media
    prepared = Preparation(media, request, fetches=False) if media is not None and has_media(request) else None
    sink = Sink(exchange, b"")
    for step in await services.routing.steps(plan, None, None):
        candidate = step.candidate
        if not _counts(candidate) or step.standing > Standing.PROBE or services.clock() >= until:
            continue
        ready = await _ready(request, prepared, candidate, sink)
        if ready is None:
            return 0
        try:
            fitted = fit(ready, candidate.target)
            body = _body(fitted, candidate)
        except KenariError:  # this model cannot take the request; another one may
            continue
        number = await count_at_provider(body, candidate, services.upstream(candidate), services.ticker)
        if number is not None:
            return number
    first = plan.candidates[0]
    ready = await _ready(request, prepared, first, sink)
    return 0 if ready is None else Count(ready, services.counter, first.target.model).prompt()


async def _ready(request: Request, prepared: Preparation | None, candidate: Candidate, sink: Sink) -> Request | None:
    """The request with its media as the candidate takes them; None when the client went away."""
    return request if prepared is None else await while_waiting(sink, prepared.ready_for(candidate.target))


def _counts(candidate: Candidate) -> bool:
    dialect, flag = candidate.provider.dialect, candidate.provider.profile.count_tokens
    return dialect in _PLACES and (dialect == "messages" if flag is None else flag)


def _body(fitted: Request, candidate: Candidate) -> bytes:
    """What the counting endpoint is asked. Raises the 400 of what its format has no words for."""
    known = _PLACES[candidate.provider.dialect].members
    members = jsonx.members(candidate.dialect.encode_request(fitted, candidate.provider.profile))
    return jsonx.encode({name: raw for name, raw in members.items() if name in known})


async def count_at_provider(body: bytes, candidate: Candidate, upstream: Upstream, ticker: Ticker) -> int | None:
    """The provider's count of a prompt, None when it does not say."""
    provider = candidate.provider
    place = _PLACES[provider.dialect]
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
