"""Limits shared by many processes and nodes, counted in a Valkey server: one script and one round trip a request.

The server's clock counts, so that nodes agree. Requests in flight hold a lease that their process renews: those of a
process that died are free again after half a minute. While the server cannot be reached, each process counts in its own
memory against its share of every limit, says so once in the log and in `fallbacks`, and comes back by itself.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import msgspec

from kenari.core.caller import Caller
from kenari.core.ports import Admission, LimitReached, Rate
from kenari.keys.client import make_client
from kenari.keys.limits import BUSY_SECONDS, Check, checks_of, refusal, surplus, tightest
from kenari.keys.memory import MemoryLimits
from kenari.keys.scripts import ADMIT, RELEASE, RENEW

_log = logging.getLogger("kenari.limits")

ANSWER_SECONDS = 0.5
"""A server that takes longer for one script counts as down."""
LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
PROBE_SECONDS = 1.0
PREFIX = "kenari:"
_NEVER = 1e9


class _Script(Protocol):
    """A script that the server knows."""

    def __call__(self, keys: list[str], args: "list[str | int | float]") -> Awaitable[list[bytes]]:
        """Run it there."""
        ...


class _Entry(msgspec.Struct, frozen=True):
    """A request in flight: the limits it was counted into, and when, by the server's clock."""

    checks: list[Check]
    at: float


class ValkeyLimits:
    """Limits in a Valkey server. `process` names this process among those that share them; `now` is a clock in seconds
    for the time without the server. Call `start` in the running loop, and `close` at the end."""

    local = False
    """Admitting is a round trip."""

    def __init__(self, url: str, process: str, now: Callable[[], float]) -> None:
        """Raises OSError when the client library is not installed or the address is none."""
        self._server, self._failed = make_client(url, ANSWER_SECONDS, max_connections=256)
        self._admit = cast("_Script", self._server.register_script(ADMIT))
        self._release = cast("_Script", self._server.register_script(RELEASE))
        self._renewal = cast("_Script", self._server.register_script(RENEW))
        self._process = process
        self._processes = 1
        self._memory = MemoryLimits(now, lambda: self._processes)
        self._open: dict[str, _Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self.down = False
        """The server cannot be reached at the moment."""
        self.fallbacks = 0
        """How many requests were counted in memory because of that."""

    @property
    def in_flight(self) -> int:
        """Requests that were admitted and have not ended."""
        return len(self._open) + self._memory.in_flight

    async def start(self) -> None:
        """Find the server and the other processes, and begin to renew leases."""
        await self.renew()
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Part from the server."""
        if self._keeping is not None:
            self._keeping.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=ANSWER_SECONDS)
        if not self.down:
            await self._try(self._server.zrem(PREFIX + "processes", self._process))
        await self._server.aclose()

    async def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Admission:
        """Count a request in, or raise the 429 of the limit that makes it wait longest."""
        checks = checks_of(caller, tokens, body)
        if not checks:
            return Admission(request_id, caller)
        answer: list[bytes] | None = None
        if not self.down:
            args = [request_id, LEASE_SECONDS, BUSY_SECONDS, *_arguments(checks)]
            answer = await self._try(self._admit(_names(checks), args))
        if answer is None:
            self.fallbacks += 1
            return await self._memory.admit(caller, request_id, tokens, body)
        refused, wait = int(answer[0]), float(answer[1])
        if refused:
            told = _told(caller, request_id, checks, answer)
            error = refusal(checks[refused - 1], math.inf if wait >= _NEVER else wait)
            raise LimitReached(error, told.requests, told.tokens)
        self._open[request_id] = _Entry(checks, float(answer[-1]))
        return _told(caller, request_id, checks, answer)

    def release(self, admission: Admission, tokens: int) -> None:
        """The request has ended. The server hears of it in the background."""
        entry = self._open.pop(admission.id, None)
        if entry is None:
            self._memory.release(admission, tokens)
            return
        changed = [one for one in entry.checks if one.kind == "concurrent" or surplus(one, tokens)]
        if changed and not self.down:
            names = _names(changed)
            call = self._release(names, [admission.id, tokens, entry.at, *_arguments(changed)])
            task = asyncio.get_running_loop().create_task(self._quietly(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _quietly(self, call: Awaitable[Any]) -> None:
        await self._try(call)

    async def _try(self, call: Awaitable[Any]) -> Any:
        """The server's answer; None when it cannot be reached, which is said once."""
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                return await call
        except (self._failed, OSError, TimeoutError) as error:
            if not self.down:
                self.down = True
                share = "" if self._processes == 1 else f", a share of 1/{self._processes} of each"
                kind = type(error).__name__
                _log.warning("the server of the limits does not answer (%s): limits are kept in memory%s", kind, share)
            return None

    async def _keep(self) -> None:
        """Renew the leases; while the server is down, look for it each second."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            await asyncio.sleep(min(PROBE_SECONDS, RENEW_SECONDS))
            if self.down or loop.time() - renewed >= RENEW_SECONDS:
                renewed = loop.time()
                await self.renew()

    async def renew(self) -> None:
        """This process and its requests live for another lease; how many processes there are."""
        keys, args = [PREFIX + "processes"], [self._process, LEASE_SECONDS]
        for request_id, entry in self._open.items():
            for check in entry.checks:
                if check.kind == "concurrent":
                    keys.append(_name(check))
                    args.append(request_id)
        answer: list[Any] | None = await self._try(self._renewal(keys, args))
        if answer is None:
            return
        self._processes = max(1, int(answer[0]))
        if self.down:
            self.down = False
            _log.warning("the server of the limits answers again: limits are shared again")


def _name(check: Check) -> str:
    return f"{PREFIX}{check.kind}:{check.subject}"


def _names(checks: list[Check]) -> list[str]:
    return [_name(check) for check in checks]


def _arguments(checks: list[Check]) -> "list[str | int | float]":
    out: list[str | int | float] = []
    for check in checks:
        out += [check.kind, check.limit, check.amount]
    return out


def _told(caller: Caller, request_id: str, checks: list[Check], answer: list[bytes]) -> Admission:
    """The admission, with what its headers say."""
    rates: dict[str, list[Rate]] = {"requests": [], "tokens": []}
    for number, check in enumerate(checks):
        if check.kind in rates:
            used, reset = int(answer[2 + 2 * number]), float(answer[3 + 2 * number])
            rates[check.kind].append(Rate(check.limit, max(0, check.limit - used), reset))
    return Admission(request_id, caller, requests=tightest(rates["requests"]), tokens=tightest(rates["tokens"]))
