"""Where the answer of a request that came again can be had: from a worker, from another node, or kept (F14)."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import msgspec

from kenari.core.errors import key_was_used
from kenari.core.ports import Outlet, Repeat, Share, Whole
from kenari.keeper.mail import Mail
from kenari.keeper.relay import Relay
from kenari.keys.box import NONCE, Box
from kenari.store.records import Repeated, StoreDown

_log = logging.getLogger("kenari.keeper")
REMEMBERED = 10_000


class AnswerStore(Protocol):
    """The store, as far as answers are concerned."""

    def keep_answer(self, request: str, sealed: bytes, seconds: float) -> "asyncio.Future[None]":
        """Keep one."""
        ...

    async def repeated(self, account: str, digest: bytes) -> Repeated | None:
        """The first request under a key."""
        ...


class Keeping(msgspec.Struct, frozen=True):
    """How answers are kept: for so many `seconds`, sealed in `box` with nonces from `entropy`."""

    seconds: float
    box: Box
    entropy: Callable[[int], bytes]


class _Flight(msgspec.Struct, frozen=True):
    """A request with an Idempotency-Key that a worker makes."""

    id: str
    body: bytes
    relay: Relay


class NodeAnswers:
    """A node's `core.ports.Answers`. `mail` reaches the nodes that share its store, where there are some.

    Without a store what has ended is remembered here, so that the workers of a node agree about it.
    """

    def __init__(self, node: str, store: AnswerStore | None, keeping: Keeping | None = None) -> None:
        self._node, self._store, self._keeping = node, store, keeping
        self.local: Share | None = None
        self.mail: Mail | None = None
        self._flights: dict[bytes, _Flight] = {}
        self._keys: dict[str, bytes] = {}
        self._past: OrderedDict[bytes, _Flight] = OrderedDict()

    @property
    def keeps(self) -> bool:
        """Answers are kept for a time."""
        return self._keeping is not None

    # -- what workers make

    def claim(self, repeat: Repeat, request_id: str, relay: Relay) -> None:
        """A worker is about to make a request. Raises 409 `idempotency_conflict` when one is made already under its key."""
        known = self._flights.get(repeat.key)
        if known is None and self._store is None:
            known = self._past.get(repeat.key)
        if known is not None:
            how = "with another body" if known.body != repeat.body else "before"
            raise key_was_used(known.id, how)
        self._flights[repeat.key] = _Flight(request_id, repeat.body, relay)
        self._keys[request_id] = repeat.key

    def over(self, request_id: str, again: bool) -> None:
        """It has ended, or was refused. `again`: nothing was made or charged, so that its key may be used once more."""
        key = self._keys.pop(request_id, None)
        flight = self._flights.pop(key, None) if key is not None else None
        if key is not None and flight is not None and not again and self._store is None:
            self._past[key] = flight
            if len(self._past) > REMEMBERED:
                self._past.popitem(last=False)

    # -- the port

    async def attach(self, account: str, repeat: Repeat, outlet: Outlet, asker: Relay | None = None) -> bool:
        """Answer a request that was made before. `asker` is the worker that asks, None in a node of one process."""
        if await self._from_worker(account, repeat, outlet, asker):
            return True
        if self._store is None:
            return False
        try:
            found = await self._store.repeated(account, repeat.key)
            if found is not None and found.node not in ("", self._node) and found.body == repeat.body and self.mail:
                if await self.mail.ask(found.node, account, repeat, outlet):
                    return True
                found = await self._store.repeated(account, repeat.key)  # it may have ended meanwhile
        except StoreDown:
            return False
        whole = None if found is None or found.body != repeat.body else self._opened(account, found)
        if whole is None:
            return False
        asyncio.get_running_loop().call_soon(_play, whole, outlet)
        return True

    async def lend(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        """Let a client of another node have an answer that this one makes."""
        if self.local is not None and await self.local(account, repeat, outlet):
            return True
        return await self._from_worker(account, repeat, outlet, None)

    def keep(self, account: str, request_id: str, whole: Whole) -> None:
        """Keep an answer, sealed."""
        keeping = self._keeping
        if keeping is None or self._store is None:
            return
        data = msgspec.msgpack.encode(whole)
        sealed = keeping.box.seal(_about(account, request_id), data, keeping.entropy(NONCE))
        self._store.keep_answer(request_id, sealed, keeping.seconds).add_done_callback(_kept)

    async def _from_worker(self, account: str, repeat: Repeat, outlet: Outlet, asker: Relay | None) -> bool:
        flight = self._flights.get(repeat.key)
        if flight is None or flight.body != repeat.body or flight.relay is asker:
            return False
        return await flight.relay.ask(account, repeat, outlet)

    def _opened(self, account: str, found: Repeated) -> Whole | None:
        if self._keeping is None or found.sealed is None:
            return None
        data = self._keeping.box.open(_about(account, found.request), found.sealed)
        return None if data is None else msgspec.msgpack.decode(data, type=Whole)


def _about(account: str, request_id: str) -> str:
    return f"{account}\0{request_id}"


def _play(whole: Whole, outlet: Outlet) -> None:
    """An answer that was kept, as it was sent."""
    if not whole.stream:
        outlet.answer(whole.status, whole.headers, whole.body)
        return
    outlet.begin(whole.status, whole.headers)
    outlet.write(whole.body)
    outlet.end()


def _kept(future: "asyncio.Future[None]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        _log.warning("an answer could not be kept: %s", type(error).__name__)
