"""Letting a request in: the limits and the books are asked with one wait before the provider, and told of its end."""

import asyncio
import hashlib
from collections.abc import Callable

from kenari.catalog.models import Model
from kenari.core.caller import Caller
from kenari.core.ports import Admission, Books, Exchange, Hold, LimitReached, Limits, Line, Reservation
from kenari.core.price import Price
from kenari.gateway.rates import rate_lines
from kenari.gateway.services import Services
from kenari.keys.identify import identify
from kenari.keys.scopes import check_model, check_use, no_price

THREAD_BYTES = 1024 * 1024
"""Bodies larger than this are hashed in a thread, so that no stream waits."""


def known_caller(services: Services, exchange: Exchange, path: str) -> Caller:
    """Who asks, by the key in the headers; the key may be used for the endpoint `path` from where it comes. Raises 401,
    403."""
    caller = identify(services.keys, exchange.headers)
    if not caller.unlimited:
        check_use(caller, path, exchange.peer)
    return caller


def allowed_price(services: Services, caller: Caller, name: str, model: Model) -> Price | None:
    """The price at which a caller may use a model that was asked for as `name`; None where it has none and need not have
    one. Raises 403 where the key or the account may not, or a price is missing (F9)."""
    check_model(caller, name, model.id, model.access == "subscribers")
    price = services.pricing.price(model)
    if price is None and services.pricing.enforce and not caller.unlimited:
        raise no_price(name)
    return price


class Entry:
    """One request's way in and out. `admission` and `hold` are what it was given; None where it got none (yet)."""

    def __init__(self, limits: Limits, books: Books) -> None:
        self._limits, self._books = limits, books
        self.admission: Admission | None = None
        self.hold: Hold | None = None

    async def enter(self, reservation: Reservation, tokens: int, body: bytes) -> Hold:
        """Count the request of about `tokens` tokens in and set its money aside; `body` is a digest of its body.

        Raises LimitReached (429), or the books' 402, 409 or 503. Limits that have to be asked over a network are asked
        while the books work: then a refused request may have a hold, which is to be given back.
        """
        caller = reservation.caller
        if caller.unlimited:  # there is nothing to count, wherever the limits are
            self.admission = Admission(reservation.id, caller)
            self.hold = await self._books.reserve(reservation)
            return self.hold
        if self._limits.local:
            self.admission = await self._limits.admit(caller, reservation.id, tokens, body)
            self.hold = await self._books.reserve(reservation)
            return self.hold
        admitting = asyncio.ensure_future(self._limits.admit(caller, reservation.id, tokens, body))
        holding = asyncio.ensure_future(self._books.reserve(reservation))
        try:
            await asyncio.wait({admitting, holding})
        finally:
            for task in (admitting, holding):
                task.cancel()
            if _succeeded(admitting):
                self.admission = admitting.result()
            if _succeeded(holding):
                self.hold = holding.result()
        admitting.result()
        return holding.result()

    @property
    def admitted(self) -> bool:
        """Both have let it in: it will have a bill line."""
        return self.admission is not None and self.hold is not None

    def leave(self, line: Line) -> None:
        """The request has ended with this line. Its tokens are counted as they were, its hold is settled."""
        if self.admission is not None and not self.admission.caller.unlimited:
            self._limits.release(self.admission, line.usage.total)
        self._books.settle(self.hold, line)


def _succeeded(task: "asyncio.Future[Admission] | asyncio.Future[Hold]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def tell_rates(exchange: Exchange, found: Admission | LimitReached, messages: bool, now: Callable[[], float]) -> None:
    """Let whatever answer goes out say how the limits stand (A4)."""
    if found.requests is not None or found.tokens is not None:
        exchange.extra_headers += rate_lines(found.requests, found.tokens, messages, now)


async def digest_of(path: str, body: bytes) -> bytes:
    """A digest of what is asked: the endpoint and the body (D25, F14)."""
    if len(body) > THREAD_BYTES:
        return await asyncio.to_thread(_digest, path, body)
    return _digest(path, body)


def _digest(path: str, body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16, person=hashlib.sha256(path.encode()).digest()[:16]).digest()


def repeat_name(caller: Caller, value: bytes) -> bytes:
    """What an Idempotency-Key is known by: a digest of account, key and value."""
    text = b"\0".join((caller.account.encode(), caller.key.encode(), value))
    return hashlib.sha256(text).digest()
