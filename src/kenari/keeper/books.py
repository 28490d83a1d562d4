"""The books of a node without a store: nothing is billed, and every request leaves one structured line in the log.

A node that bills has `ledger_books.py`, which writes its log through these books.

What a node must have once lives in the keeper; with one process its ports are plain calls (docs/decisions/0004).
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol, TextIO

import msgspec

from kenari.core.alike import Alike, Ended
from kenari.core.ports import Hold, Line, Reservation
from kenari.core.usage import Usage
from kenari.wire import jsonx

Clock = Callable[[], float]
Later = Callable[[float, Callable[[], None]], object]
FLUSH_SECONDS = 0.05
FLUSH_LINES = 32
"""More would only spread what requests leave behind over memory that is not in the caches any more."""
MAX_FORMS = 1024
"""Kinds of lines that are remembered."""
MAX_FORM = 2048
"""Characters of one. Clients name models, and a name may be as long as a body."""


class Tap(Protocol):
    """Hears every line that is logged, when it is written (metrics)."""

    def count(self, line: Line) -> None:
        """A line."""
        ...

    def count_ended(self, ended: Ended) -> None:
        """The same of one that is not made."""
        ...


class LogBooks:
    """Books that only log. Lines are written in batches so that a busy server makes few system calls.

    `style` is "json" or "text"; times are UTC. No prompt, answer or secret is ever in a line.
    """

    def __init__(self, style: str, now: Clock, later: Later, out: TextIO | None = None, tap: Tap | None = None) -> None:
        self._style, self._now, self._later, self._tap = style, now, later, tap
        self._out = out
        self._lines: list[tuple[float, Line | Callable[[], Line]]] = []
        self._scheduled = False
        self._second, self._prefix = -1, ""
        self._forms: dict[tuple[Alike | str | int, ...], str] = {}
        """Lines with places for id, times and tokens, by all else that they say."""
        self._owned: dict[str, tuple[str, Reservation]] = {}
        self.in_flight = 0

    async def reserve(self, reservation: Reservation, owner: str = "") -> Hold:
        """Admit the request: without a store there is no balance to check. `owner` names the worker it is for."""
        if owner:
            self._owned[reservation.id] = (owner, reservation)
        return self.admit(reservation)

    def admit(self, reservation: Reservation) -> Hold:
        """The same for this process, at once."""
        self.in_flight += 1
        return Hold(reservation.id, reservation.caller)

    async def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        """There is no balance to check."""
        return Hold(hold.id, hold.caller, hold.amount + amount)

    def note(self, hold: Hold, charge: int) -> None:
        """Nothing is kept."""

    def settle(self, hold: Hold | None, line: Line) -> None:
        """Write the request's line."""
        self.settle_later(hold, line)

    def settle_later(self, hold: Hold | None, finish: Callable[[], Line] | Line) -> None:
        """Write a line that is made when it is written. Lines are put into words, and counted, many at a time: that costs
        half."""
        if hold is not None:
            self.in_flight -= 1
            if self._owned:
                self._owned.pop(hold.id, None)
        self._lines.append((self._now(), finish))
        if len(self._lines) >= FLUSH_LINES:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._later(FLUSH_SECONDS, self._on_time)

    def abandon(self, owner: str) -> None:
        """A worker has died: what it had open leaves its lines as `crashed`."""
        for id, (name, asked) in tuple(self._owned.items()):
            if name == owner:
                caller = asked.caller
                line = Line(id=id, account=caller.account, key=caller.key, model=asked.model, ending="crashed")
                self.settle(Hold(id, caller), line)

    def _on_time(self) -> None:
        """It has waited for long enough. (Full batches were written meanwhile, and this one with it: one timer is enough.)"""
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write out what waits."""
        if self._lines:
            out = self._out or sys.stdout
            waiting, self._lines = self._lines, []
            out.write("".join([self._put(now, one) for now, one in waiting]))
            out.flush()

    def _put(self, now: float, one: Line | Callable[[], Line]) -> str:
        """Count a line, and put it into words."""
        json, tap = self._style == "json", self._tap
        if isinstance(one, Ended) and json:
            if tap is not None:
                tap.count_ended(one)
            return self._ended_as_json(now, one)
        line = one if isinstance(one, Line) else one()
        if tap is not None:
            tap.count(line)
        return self._as_json(now, line) if json else _as_text(self._record(now, line))

    def _ended_as_json(self, now: float, ended: Ended) -> str:
        kind = (ended.alike, ended.ending, ended.usage.estimated)
        form = self._forms.get(kind) or self._form(kind, ended())
        time = f"{ended.seconds * 1000:.2f}"
        return self._fill(form, now, ended.id, ended.usage, time, time)

    def _as_json(self, now: float, line: Line) -> str:
        """What lines have in common is put into words once (`_form`); a line with notices is like no other."""
        if line.notices or not line.id.isalnum():
            return _json(self._record(now, line)) + "\n"
        usage, first = line.usage, line.first_content_ms
        like = (  # named again, not by one list for both: an attrgetter takes four times as long
            line.account,
            line.key,
            line.model,
            line.target,
            line.client_format,
            line.provider_format,
            line.stream,
            line.status,
            line.ending,
            line.peer,
            line.code,
            line.counted,
            len(line.legs),
            usage.estimated,
        )
        form = self._forms.get(like) or self._form(like, line)
        time = "null" if first is None else f"{first:.2f}"
        return self._fill(form, now, line.id, usage, time, f"{line.duration_ms:.2f}")

    def _fill(self, form: str, now: float, id: str, usage: Usage, first: str, duration: str) -> str:
        second = int(now)
        return form % (
            self._prefix if second == self._second else self._to_the_second(second),
            (now - second) * 1000,
            id,
            usage.fresh or 0,
            usage.cache_read or 0,
            (usage.cache_write_5m or 0) + (usage.cache_write_1h or 0),
            usage.output or 0,
            first,
            duration,
        )

    def _form(self, kind: tuple[Alike | str | int, ...], line: Line) -> str:
        """The record of a line of this kind with places for what differs."""
        members: dict[str, Any] = msgspec.to_builtins(self._record(0.0, line))
        tokens = ",".join(f'"{name}":%d' for name in Tokens.__struct_fields__)
        places = {
            "time": '"%s.%03dZ"',
            "id": '"%s"',
            "tokens": "{" + tokens + "}",
            "first_content_ms": "%s",
            "duration_ms": "%s",
        }
        words = [
            f'"{name}":' + (places.get(name) or _json(value).replace("%", "%%")) for name, value in members.items()
        ]
        form = "{" + ",".join(words) + "}\n"
        if len(form) <= MAX_FORM:
            if len(self._forms) >= MAX_FORMS:
                self._forms.clear()
            self._forms[kind] = form
        return form

    def _record(self, now: float, line: Line) -> "Record":
        usage = line.usage
        return Record(  # by their places: twenty names would cost as much as all the rest
            self._stamp(now),
            line.id,
            line.account,
            line.key,
            line.model,
            line.target,
            line.client_format,
            line.provider_format,
            line.stream,
            line.status,
            line.ending,
            Tokens(usage.fresh or 0, usage.cache_read or 0, usage.cache_write, usage.output or 0),
            usage.estimated,
            None if line.first_content_ms is None else round(line.first_content_ms, 2),
            round(line.duration_ms, 2),
            len(line.legs),
            line.peer,
            line.code,
            line.counted,
            [notice.name for notice in line.notices] if line.notices else [],
        )

    def _stamp(self, now: float) -> str:
        """UTC with milliseconds."""
        second = int(now)
        return f"{self._to_the_second(second)}.{int((now - second) * 1000):03d}Z"

    def _to_the_second(self, second: int) -> str:
        """The part that is made once a second."""
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return self._prefix


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """Tokens by class; input without cached ones."""

    input: int
    cache_read: int
    cache_write: int
    output: int


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A line of the log, in the order in which it is written."""

    time: str
    id: str
    account: str
    key: str
    model: str
    target: str
    client: str = msgspec.field(name="in")
    provider: str = msgspec.field(name="out")
    stream: bool
    status: int
    reason: str
    tokens: Tokens
    estimated: bool
    first_content_ms: float | None
    duration_ms: float | None
    attempts: int
    peer: str
    code: str = ""
    counted: str = ""
    notices: list[str] = []


def _json(value: Any) -> str:
    return jsonx.encode(value).decode("utf-8", "replace")


def _as_text(record: Record) -> str:
    """The same record as a line of `key=value` words for people."""
    words = [record.time]
    members: dict[str, Any] = msgspec.to_builtins(record)
    for name, value in members.items():
        if name == "time" or value in (None, "", False):
            continue
        words.append(f"{name}={jsonx.encode(value).decode() if isinstance(value, (dict, list)) else value}")
    return " ".join(words).replace("\n", " ").encode("utf-8", "replace").decode() + "\n"
