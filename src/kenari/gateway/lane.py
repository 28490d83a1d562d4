"""The lanes of requests that pass: those that one client sends on one connection, with the same head, one after the other.

`Passing` finds out who sends a request and what its pattern is, and gives it to a lane. Connections ask the lane first for the requests
that follow: where only the conversation differs, nothing of that has to be found out again. Nothing is decided here: as soon as
anything is out of the ordinary (the client goes, the provider takes its time, the answer is a stream, or no plain text) the
request becomes one that is served by callback (`Direct`), as if it had always been one (tests/unit/test_passing.py).
"""

import time
from collections.abc import Coroutine
from typing import Any

import msgspec

from kenari.core.alike import Alike, Ended
from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.outbound import Call, Receiver, Way
from kenari.core.ports import Admission, Ending, Exchange, Hold, Leg, Line, Reservation, Watcher
from kenari.core.price import Price
from kenari.core.request import Request
from kenari.dialects.base import Cut, Named, Passed
from kenari.gateway.admission import Entry, line_of
from kenari.gateway.direct import Direct
from kenari.gateway.heads import JSON, id_lines
from kenari.gateway.plan import Candidate, Plan
from kenari.gateway.run import Run, Wanted
from kenari.gateway.services import Services

PATIENCE = 0.25
"""Seconds after which a request that waits for its provider is one like others, with their time-outs."""
MAX_BODY = 256 * 1024
"""Bytes of an answer that are kept until it is whole."""
_HEAD = id_lines("%s") + JSON
_JSON_TYPES = frozenset((b"application/json", b"application/json; charset=utf-8"))


class Pattern(msgspec.Struct, frozen=True, eq=False):
    """What all requests have in common that differ in their conversation only (`model` is the model's own name, `name` the one
    they give): the plan of its model and its only candidate with its mark, what stands before and behind the conversation in a
    provider's request, and where that goes. `request` and `fitted` are such a request, with a conversation that stands for
    any, as it came and as the candidate takes it. `named` is the JSON of the `name`, `told` the header lines that say which
    target answers."""

    request: Request
    fitted: Request
    name: str
    stream: bool
    model: str
    plan: Plan
    candidate: Candidate
    mark: str
    way: Way
    before: bytes
    after: bytes
    price: Price | None
    named: bytes
    told: bytes


class Waiting:
    """The passages that wait for their providers; who waits for long becomes like others."""

    __slots__ = ("_services", "_ticks", "passages")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ticks = False
        self.passages: set[Passage] = set()

    def add(self, passage: "Passage") -> None:
        """One more."""
        self.passages.add(passage)
        if not self._ticks:
            self._ticks = True
            self._services.ticker.add(self)

    def tick(self, now: float) -> bool:
        """Look at the clock; True when nobody waits."""
        for passage in tuple(self.passages):
            if now - passage.began >= PATIENCE:
                passage.become()
        self._ticks = bool(self.passages)
        return not self._ticks


class Lane:
    """Requests of one caller to one pattern. `head` is what their answers begin with, `alike` what the lines of those that pass
    whole have in common."""

    __slots__ = (
        "_catalog",
        "_closing",
        "_opening",
        "_secret",
        "alike",
        "caller",
        "head",
        "pattern",
        "services",
        "waiting",
    )

    def __init__(self, waiting: Waiting, services: Services, pattern: Pattern, caller: Caller) -> None:
        self.waiting, self.services, self.pattern, self.caller = waiting, services, pattern, caller
        self.head = _HEAD + pattern.told if services.tells_target(caller) else _HEAD
        self._opening = self._closing = self._secret = b""
        self._catalog = services.catalog
        self.alike: Alike | None = None

    def lead(self, cut: Cut, secret: bytes) -> None:
        """From now on `take` may be asked for requests of the connection. `cut` and `secret` are those of its last one."""
        self._opening, self._closing = cut.before + b"[", b"]" + cut.after  # white space around it is not passed on
        self._secret = secret

    def take(self, exchange: Exchange) -> Coroutine[Any, Any, bool] | bool:
        """Take up the next request with the same head, if it is like the last one: what `Passing.begin` would do."""
        services, pattern, body = self.services, self.pattern, exchange.body
        opening, closing = self._opening, self._closing
        if not (body.startswith(opening) and body.endswith(closing)) or services.catalog is not self._catalog:
            return False
        conversation = body[len(opening) - 1 : len(body) - len(closing) + 1]
        known = services.keys.verify(self._secret) is self.caller
        if not (known and services.routing.is_well(pattern.mark) and pattern.candidate.dialect.is_texts(conversation)):
            return False
        return self.pass_on(exchange, conversation)

    def pass_on(self, exchange: Exchange, conversation: bytes) -> Coroutine[Any, Any, bool] | bool:
        """Let a request in and send it to its provider; where the books have to be waited for, the coroutine that does so."""
        services, pattern = self.services, self.pattern
        passage = Passage(self, exchange, services.clock())
        reservation = Reservation(id=exchange.id, caller=self.caller, model=pattern.model, price=pattern.price)
        passage.hold = services.books.admit(reservation)
        if passage.hold is None:
            return self._booked(passage, reservation, conversation)
        self.send(passage, conversation)
        return True

    async def _booked(self, passage: "Passage", reservation: Reservation, conversation: bytes) -> bool:
        """The same once the books have let it in. True: it goes on by callback."""
        try:
            passage.hold = await self.services.books.reserve(reservation)
        except BaseException as fault:
            passage.fail(fault)
            if not isinstance(fault, Exception):  # the process ends
                raise
            return False  # the books' refusal, or a fault of ours: the client was told
        if passage.exchange.gone:
            passage.leave()
            return False
        self.send(passage, conversation)
        return True

    def send(self, passage: "Passage", conversation: bytes) -> None:
        """Send a request that was let in."""
        pattern = self.pattern
        body = pattern.before + conversation + pattern.after
        try:
            if pattern.stream:  # it is read as others are; what is needed for that is made while the provider thinks
                passage.call = pattern.way.send(body, passage)
                passage.become()
                return
            passage.exchange.watcher = passage
            self.waiting.add(passage)
            passage.call = pattern.way.send(body, passage, passage)
        except Exception as fault:  # noqa: BLE001 - ours: the client is told and the line is written
            passage.fail(fault)

    def begun(self, exchange: Exchange) -> Line:
        """The line of one that was let in, and nothing of how it went."""
        pattern, caller = self.pattern, self.caller
        line = line_of(exchange, pattern.candidate.dialect.name)
        line.account, line.key, line.model, line.stream = caller.account, caller.key, pattern.name, pattern.stream
        line.price = pattern.price
        return line

    def answered(self, line: Line) -> None:
        """One passed whole: who answered it."""
        candidate = self.pattern.candidate
        line.target, line.provider_format, line.status = candidate.id, candidate.dialect.name, 200

    def liken(self, exchange: Exchange) -> Alike:
        """What the lines of all requests have in common that pass whole, this one's and those that follow."""
        line = self.begun(exchange)
        self.answered(line)
        alike = self.alike = Alike(line, self.services.pricing.charge)
        return alike


class Passage(msgspec.Struct, eq=False):
    """One request of a lane: hears of its provider (core.outbound.Hearer) and of its client (core.ports.Watcher). `began` is the
    loop's time. `entry` and `wanted` are there where it was let in like others. `headers` and `body` are what came of an answer
    that may pass when it is whole."""

    lane: Lane
    exchange: Exchange
    began: float
    hold: Hold | None = None
    entry: Entry | None = None
    wanted: Wanted | None = None
    call: Call | None = None
    headers: dict[bytes, bytes] | None = None
    body: bytes = b""

    def on_whole(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """The provider's whole answer."""
        lane, passed = self.lane, None
        try:
            if headers.get(b"content-type") in _JSON_TYPES:
                candidate = lane.pattern.candidate
                named = Named(self.exchange.id, int(time.time()), lane.pattern.named)
                passed = candidate.dialect.pass_reply(body, named, candidate.provider.profile)
            if passed is not None:
                self.call = None
                lane.waiting.passages.discard(self)
                self._answer(lane, passed)
                return
        except Exception as fault:  # noqa: BLE001 - as above
            self.fail(fault)
            return
        self.headers, self.body = headers, body
        receiver = self.become()
        if receiver is not None:
            receiver.on_end()

    def _answer(self, lane: Lane, passed: Passed) -> None:
        """Answer; then how its candidate fared, and the request's line."""
        exchange, services, pattern = self.exchange, lane.services, lane.pattern
        id = exchange.id.encode()
        exchange.answer(200, lane.head % (id, id), passed.body)
        seconds = services.clock() - self.began
        services.routing.worked(pattern.candidate, pattern.mark, seconds)
        ending: Ending = "length" if passed.stop.reason == "length" else "done"
        if self.entry is not None:
            line = self.entry.line
            lane.answered(line)
            line.first_content_ms, line.usage, line.ending = seconds * 1000, passed.usage, ending
            line.legs = [Leg(line.target, passed.usage, "ok", seconds * 1000)]
            self.entry.close(None)
        elif self.hold is not None:  # as it always is then
            alike = lane.alike or lane.liken(exchange)
            services.books.settle_later(self.hold, Ended(alike, exchange.id, passed.usage, ending, seconds))

    def become(self) -> Receiver | None:
        """Go on as a request that is served by callback; who hears of the provider from now on, and has heard of what came.
        None: it is over."""
        call, self.call = self.call, None
        if call is None:
            return None
        lane = self.lane
        lane.waiting.passages.discard(self)
        entry = self.entry or self._entry()
        try:
            wanted = self.wanted
            if wanted is None:
                pattern = lane.pattern
                wanted = Wanted(pattern.request, pattern.plan, lane.caller, fitted=pattern.fitted)
            run = Run(lane.services, self.exchange, entry.dialect, wanted, entry.line, self.began)
            receiver = Direct(lane.services, entry, run, wanted).adopt(call, self.began)
        except Exception as fault:  # noqa: BLE001 - as above
            call.abort()
            entry.close(fault)
            return None
        call.hear(receiver)
        if self.headers is not None:
            receiver.on_head(200, self.headers)
            if self.body:
                receiver.on_body(self.body)
            self.headers, self.body = None, b""
        return receiver

    def fail(self, fault: BaseException) -> None:
        """A fault of ours, or the books' refusal, ends it."""
        self.call = None
        self.lane.waiting.passages.discard(self)
        (self.entry or self._entry()).close(fault)

    def leave(self) -> None:
        """The client went before anything was sent."""
        entry = self._entry()
        entry.line.ending, entry.line.status = "client_closed", 499
        entry.close(None)

    def _entry(self) -> Entry:
        """Its place in the books, as far as it has come."""
        lane, exchange = self.lane, self.exchange
        line = lane.begun(exchange)
        if self.hold is None:
            line.price = None
        entry = Entry(lane.services, exchange, lane.pattern.candidate.dialect, line, self.began)
        entry.hold, entry.admission = self.hold, Admission(exchange.id, lane.caller)
        return entry

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """An answer that is one JSON text may pass when it is whole; any other has to be read as it comes."""
        if status == 200 and headers.get(b"content-type") in _JSON_TYPES:
            self.headers = headers
            return
        receiver = self.become()
        if receiver is not None:
            receiver.on_head(status, headers)

    def on_body(self, data: bytes) -> None:
        """More of it."""
        self.body = self.body + data if self.body else data
        if len(self.body) > MAX_BODY:
            self.become()

    def on_end(self) -> None:
        """It is whole."""
        headers, body = self.headers, self.body
        if headers is not None:
            self.headers, self.body = None, b""
            self.on_whole(headers, body)

    # -- all of this makes it a request like others

    def on_lost(self, error: KenariError) -> None:
        """There is no answer."""
        receiver = self.become()
        if receiver is not None:
            receiver.on_lost(error)

    def on_gone(self) -> None:
        """The client has gone."""
        watcher = self._watcher()
        if watcher is not None:
            self.exchange.watcher = None
            watcher.on_gone()

    def on_pause(self) -> None:
        """The client reads too slowly."""
        watcher = self._watcher()
        if watcher is not None:
            watcher.on_pause()

    def on_resume(self) -> None:
        """Never: who heard that it stopped to read hears of this too."""

    def _watcher(self) -> Watcher | None:
        """Who hears of the client from now on."""
        return self.exchange.watcher if self.become() is not None else None
