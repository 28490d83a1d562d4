"""Letting a request in: the limits and the books are asked with one wait before the provider, and told of its end."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

import msgspec

from kenari.catalog.models import Model
from kenari.core.caller import Caller, Rates
from kenari.core.errors import KenariError
from kenari.core.ports import Admission, Exchange, Hold, LimitReached, Line, Reservation
from kenari.core.price import Price
from kenari.dialects.base import Dialect
from kenari.gateway.faults import internal, log_fault
from kenari.gateway.heads import answer_error
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


def line_of(exchange: Exchange, client_format: str) -> Line:
    """The line of a request that has come: who sent what, and nothing of how it went."""
    return Line(
        id=exchange.id, client_format=client_format, method=exchange.method, path=exchange.path, peer=exchange.peer
    )


class Entry:
    """One request's way in and out, whatever its endpoint. `admission` and `hold` are what it was given; None where it got
    none (yet). Used as a context: whatever ends it is the client's answer, in the format of `dialect`, and the line's;
    then the limits and the books hear of it. Nothing but a cancellation leaves it.

    `exchange` is where answers go from now on.
    """

    __slots__ = (
        "_books",
        "_clock",
        "_detached",
        "_limits",
        "_pricing",
        "admission",
        "began",
        "dialect",
        "exchange",
        "hold",
        "line",
    )

    def __init__(
        self, services: Services, exchange: Exchange, dialect: Dialect, line: Line, began: float | None = None
    ) -> None:
        """`began` is when the request came, by the loop's time; now by default."""
        self._limits, self._books, self._pricing = services.limits, services.books, services.pricing
        self._clock, self.dialect, self.line = services.clock, dialect, line
        self.began = services.clock() if began is None else began
        self._detached = False
        self.exchange = exchange
        self.admission: Admission | None = None
        self.hold: Hold | None = None

    def __enter__(self) -> Self:
        return self

    def detach(self) -> None:
        """Somebody else will close it: leaving its context does not."""
        self._detached = True

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> bool:
        if not self._detached:
            self.close(fault)
        return isinstance(fault, Exception)

    def close(self, fault: BaseException | None) -> None:
        """The request has ended, with a fault or without."""
        try:
            if isinstance(fault, KenariError):
                self._refuse(fault)
            elif isinstance(fault, Exception):  # ours: the client gets an error of its format, the operator a trace
                self._break(fault)
        finally:
            self._leave()

    def admit(self, reservation: Reservation) -> bool:
        """Let a request of a caller without limits in, if that needs no wait."""
        self.hold = self._books.admit(reservation)
        if self.hold is None:
            return False
        self.admission = Admission(reservation.id, reservation.caller)
        return True

    async def enter(self, reservation: Reservation, tokens: int, body: bytes) -> Hold:
        """Count the request of about `tokens` tokens in and set its money aside; `body` is a digest of its body.

        Raises LimitReached (429), or the books' 402, 409 or 503. Whatever is answered then says how the limits stand.
        """
        try:
            return await self._enter(reservation, tokens, body)
        finally:
            if self.admission is not None:
                self._tell(self.admission)

    async def _enter(self, reservation: Reservation, tokens: int, body: bytes) -> Hold:
        """Limits that have to be asked over a network are asked while the books work: then a refused request may have a
        hold, which is to be given back."""
        caller = reservation.caller
        if caller.unlimited:  # there is nothing to count, wherever the limits are
            self.admission = Admission(reservation.id, caller)
            self.hold = await self._books.reserve(reservation)
            return self.hold
        if self._limits.local:
            try:
                self.admission = await self._limits.admit(caller, reservation.id, tokens, body)
            except LimitReached as error:
                if error.loop:  # who is out of money is told that, however often the same is sent (E1)
                    self.hold = await self._books.reserve(reservation)
                raise
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
        hold = holding.result()  # out of money is said first (E1)
        admitting.result()
        return hold

    @property
    def admitted(self) -> bool:
        """Both have let it in: it will have a bill line."""
        return self.admission is not None and self.hold is not None

    def _refuse(self, error: KenariError) -> None:
        line = self.line
        line.code, line.status = error.code, error.status
        line.ending = "failed" if self.admitted else "refused"
        if isinstance(error, LimitReached):
            self._tell(error)
        answer_error(self.exchange, self.dialect, error)

    def _break(self, fault: Exception) -> None:
        line = self.line
        log_fault(fault, line.id)
        line.code, line.ending, line.status = "internal_error", "failed", 500
        answer_error(self.exchange, self.dialect, internal())

    def _leave(self) -> None:
        """The request has ended. Its tokens are counted as they were, its hold is settled."""
        line = self.line
        line.duration_ms = (self._clock() - self.began) * 1000
        if line.price is not None:
            line.charge = self._pricing.charge(line.legs, line.price)
        if self.admission is not None and not self.admission.caller.unlimited:
            self._limits.release(self.admission, line.usage.total)
        self._books.settle(self.hold, line)

    def _tell(self, found: Admission | LimitReached) -> None:
        _tell(self.exchange, self.dialect, found)


@asynccontextmanager
async def counted(services: Services, exchange: Exchange, dialect: Dialect, caller: Caller) -> AsyncGenerator[None]:
    """A request that makes nothing: it counts for the limits of requests, not for those of tokens or of what is in
    flight, and it has no hold and no line. Raises LimitReached (429)."""
    rates, account_rates = Rates(rpm=caller.rates.rpm), Rates(rpm=caller.account_rates.rpm)
    if caller.unlimited or (rates.rpm is None and account_rates.rpm is None):
        yield
        return
    caller = msgspec.structs.replace(caller, rates=rates, account_rates=account_rates)
    try:
        admission = await services.limits.admit(caller, exchange.id, 0, b"")
    except LimitReached as error:
        _tell(exchange, dialect, error)
        raise
    _tell(exchange, dialect, admission)
    try:
        yield
    finally:
        services.limits.release(admission, 0)


def _tell(exchange: Exchange, dialect: Dialect, found: Admission | LimitReached) -> None:
    """Let whatever answer goes out say how the limits stand (A4)."""
    if found.requests is not None or found.tokens is not None:
        messages = dialect.name == "messages"
        exchange.extra_headers += rate_lines(found.requests, found.tokens, messages, time.time)


def _succeeded(task: "asyncio.Future[Admission] | asyncio.Future[Hold]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


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
