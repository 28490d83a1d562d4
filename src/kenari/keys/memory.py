"""Limits in the memory of one process: exact for it, and for a node whose keeper they live in."""

from collections.abc import Callable

import msgspec

from kenari.core.caller import Caller
from kenari.core.ports import Admission, LimitReached
from kenari.keys.limits import (
    BUSY_SECONDS,
    SECONDS,
    Check,
    Window,
    add,
    checks_of,
    correct,
    expire,
    rate_of,
    refusal,
    surplus,
    tightest,
    wait_for,
)


class _Entry(msgspec.Struct, frozen=True):
    """A request in flight: when it was counted, and what it was counted into."""

    at: float
    checks: list[Check]


class MemoryLimits:
    """Limits of one process. `now` is any clock in seconds that never goes back.

    `share` says among how many processes each limit is divided, when this one stands in for a shared count that cannot
    be reached; 1 where there is only this process.
    """

    local = True
    """Admitting never waits."""
    down, fallbacks = False, 0
    """There is no server that could be missed."""

    def __init__(self, now: Callable[[], float], share: Callable[[], int] = lambda: 1) -> None:
        self._now, self._share = now, share
        self._windows: dict[str, Window] = {}
        self._older: dict[str, Window] = {}
        self._turned = now()
        self._flying: dict[str, set[str]] = {}
        self._open: dict[str, _Entry] = {}

    async def start(self) -> None:
        """There is nothing to find."""

    async def close(self) -> None:
        """There is nothing to give back."""

    async def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Admission:
        """Count a request in, or raise the 429 of the first limit that it does not pass."""
        checks = checks_of(caller, tokens, body)
        if not checks:
            return Admission(request_id, caller)
        now, share = self._now(), self._share()
        self._turn(now)
        if share > 1:
            checks = [msgspec.structs.replace(one, limit=max(1, one.limit // share)) for one in checks]
        worst: tuple[float, Check] | None = None
        for check in checks:
            wait = self._wait(check, now)
            if wait > 0 and (worst is None or wait > worst[0]):
                worst = (wait, check)
        if worst is not None:
            told = self.told(caller, request_id, checks, now)
            raise LimitReached(refusal(worst[1], worst[0]), told.requests, told.tokens, worst[1].kind == "loop")
        for check in checks:
            if check.kind == "concurrent":
                self._flying.setdefault(check.subject, set()).add(request_id)
            else:
                add(self._window(check), now, check.amount)
        self._open[request_id] = _Entry(now, checks)
        return self.told(caller, request_id, checks, now)

    def release(self, admission: Admission, tokens: int) -> None:
        """The request has ended: its place is free, and its tokens are counted as they were."""
        entry = self._open.pop(admission.id, None)
        if entry is None:
            return
        now = self._now()
        self._turn(now)
        for check in entry.checks:
            if check.kind == "concurrent":
                flying = self._flying.get(check.subject)
                if flying is not None:
                    flying.discard(admission.id)
                    if not flying:
                        del self._flying[check.subject]
                continue
            difference = surplus(check, tokens)
            if difference:
                window = self._window(check)
                expire(window, now)
                correct(window, now, entry.at, difference)

    def told(self, caller: Caller, request_id: str, checks: list[Check], now: float) -> Admission:
        """The admission, with what its headers say."""
        rates = [
            (one.kind, rate_of(self._window(one), now, one.limit))
            for one in checks
            if one.kind in ("requests", "tokens")
        ]
        if not rates:
            return Admission(request_id, caller)
        return Admission(
            request_id,
            caller,
            requests=tightest([rate for kind, rate in rates if kind == "requests"]),
            tokens=tightest([rate for kind, rate in rates if kind == "tokens"]),
        )

    @property
    def in_flight(self) -> int:
        """Requests that were admitted and have not ended."""
        return len(self._open)

    def _wait(self, check: Check, now: float) -> float:
        if check.kind == "concurrent":
            return BUSY_SECONDS if len(self._flying.get(check.subject, ())) >= check.limit else 0.0
        window = self._window(check)
        expire(window, now)
        return wait_for(window, now, check)

    def _window(self, check: Check) -> Window:
        """A limit's window. Windows that nobody asked for in a whole minute are empty and have been forgotten."""
        name = f"{check.kind}:{check.subject}"
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = self._older.pop(name, None) or Window()
        return window

    def _turn(self, now: float) -> None:
        if now - self._turned > SECONDS:
            self._older = self._windows if now - self._turned < 2 * SECONDS else {}
            self._windows = {}
            self._turned = now
