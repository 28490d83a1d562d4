"""Idempotency-Key (F14): a request that comes twice while it is in flight is answered once, to both; later it is a 409.

Nothing of an answer is kept beyond its end (S104). While it is under way what was sent so far is kept, up to `MAX_SENT`,
so that a client who attaches late still gets all of it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from kenari.core.errors import KenariError, key_was_used
from kenari.core.ports import Answers, Exchange, Line, Outlet, Repeat, Take, Watcher, Whole
from kenari.core.request import Notice

MAX_SENT = 4 * 1024 * 1024
"""Bytes of one answer that are kept while it runs. Beyond that nobody can attach any more."""
REMEMBERED = 10_000
REMEMBERED_SECONDS = 24 * 3600.0


class _Past(msgspec.Struct, frozen=True):
    """A request that has ended: digest of its body, its id, and until when it is remembered."""

    body: bytes
    id: str
    until: float


class Repeats:
    """The requests with an Idempotency-Key of this process: those in flight, and which ones have ended.

    `now` is a clock in seconds. Over processes and restarts the store's own row of each key is what makes it exact;
    `answers` are those of other processes, and those that are kept.
    """

    def __init__(self, now: Callable[[], float], answers: Answers | None = None) -> None:
        self._now, self._answers = now, answers
        if answers is not None:
            answers.local = self.share
        self._flying: dict[bytes, Shared] = {}
        self._past: OrderedDict[bytes, _Past] = OrderedDict()

    def claim(self, name: bytes, body: bytes, exchange: Exchange) -> "Claim":
        """What this request is under its key: the first, whose answer others may share, or one that attaches to it.

        Raises 409 `idempotency_conflict`.
        """
        shared = self._find(name, body)
        if shared is not None:
            return Claim(self, name, shared, late=True)
        shared = self._flying[name] = Shared(exchange, body, self.keeps)
        return Claim(self, name, shared, late=False)

    @property
    def keeps(self) -> bool:
        """Answers are kept for a time; then the store alone knows which requests have ended."""
        return self._answers is not None and self._answers.keeps

    async def share(self, account: str, repeat: Repeat, outlet: Outlet) -> bool:
        """Let a client of another process have the answer of a request that is in flight here."""
        shared = self._flying.get(repeat.key)
        if shared is None or shared.body_digest != repeat.body or not shared.open:
            return False
        shared.join(outlet)
        return True

    async def elsewhere(self, claim: "Claim", account: str, line: Line, error: KenariError) -> bool:
        """Whether a request that was refused gets the answer of an earlier one with its key: of another process, or kept.
        Returns at that answer's end; the line says so, and bills nothing."""
        if self._answers is None or error.code not in ("idempotency_conflict", "rate_limited"):
            return False
        shared = claim.shared
        if not await self._answers.attach(account, claim.repeat, shared):
            return False
        await shared.ended()
        line.ending, line.status = "client_closed" if shared.gone else "done", shared.status
        line.notices = [*line.notices, Notice("idempotency-key", "answered by an earlier request")]
        self._flying.pop(claim.name, None)  # it was not made here: what becomes of its key is not known here
        return True

    def keep(self, claim: "Claim", account: str) -> None:
        """Keep an answer that is complete, where the operator wants that."""
        whole = claim.shared.whole
        if self._answers is not None and self.keeps and whole is not None:
            self._answers.keep(account, claim.shared.id, whole)

    def _find(self, name: bytes, body: bytes) -> "Shared | None":
        shared = self._flying.get(name)
        if shared is not None:
            if shared.body_digest != body:
                raise key_was_used(shared.id, "with another body")
            if not shared.open:
                raise key_was_used(shared.id, "for a request whose answer is too long to be sent twice")
            return shared
        past = self._past.get(name)
        if past is None or past.until <= self._now():
            return None
        raise key_was_used(past.id, "with another body" if past.body != body else "before")

    def end(self, name: bytes, again: bool) -> None:
        """It has ended. `again`: nothing was made or charged, so the key may be used once more."""
        shared = self._flying.pop(name, None)
        if shared is None:
            return
        shared.finish()
        if not again and not self.keeps:
            self._past[name] = _Past(shared.body_digest, shared.id, self._now() + REMEMBERED_SECONDS)
            if len(self._past) > REMEMBERED:
                self._past.popitem(last=False)


class Claim(msgspec.Struct, frozen=True):
    """One request under an Idempotency-Key. `late`: it attaches to the `shared` answer of another one."""

    repeats: Repeats
    name: bytes
    shared: "Shared"
    late: bool

    @property
    def repeat(self) -> Repeat:
        """For the books, which keep it over processes and restarts."""
        return Repeat(self.name, self.shared.body_digest)

    async def attach(self, client: Exchange, line: Line) -> None:
        """Share the other one's answer to its end; the line says so, and bills nothing."""
        await self.shared.attach(client)
        line.ending, line.status = "client_closed" if client.gone else "done", self.shared.status
        line.notices = [*line.notices, Notice("idempotency-key", f"attached to request {self.shared.id}")]

    def end(self, line: Line) -> None:
        """The first request has ended. One that failed with nothing to pay may be sent again, as in the store."""
        if not self.late:
            self.repeats.end(self.name, again=line.status >= 400 and not line.charge)


class _Listener:
    """Watches one client of a shared answer."""

    def __init__(self, shared: "Shared") -> None:
        self._shared = shared
        self._slow = False

    def on_gone(self) -> None:
        self.on_resume()
        self._shared.lost()

    def on_pause(self) -> None:
        if not self._slow:
            self._slow = True
            self._shared.paused(1)

    def on_resume(self) -> None:
        if self._slow:
            self._slow = False
            self._shared.paused(-1)


class Shared:
    """An exchange whose answer goes to several clients (core.ports.Exchange): to the first, and to all that attach.

    The answer is under way as long as one of them is there; it goes as fast as the slowest of them reads.
    """

    def __init__(self, first: Exchange, body_digest: bytes, keep: bool = False) -> None:
        self.whole: Whole | None = None
        """The answer when it is complete, for one that is to be kept."""
        self._keep = keep
        self.body_digest = body_digest
        self.id, self.method, self.path, self.query = first.id, first.method, first.path, first.query
        self.headers, self.body, self.peer = first.headers, first.body, first.peer
        self.incoming = first.incoming
        self.watcher: Watcher | None = None
        self.status = 0
        self._first = first
        self._clients: list[Outlet] = [first]
        self._head = b""
        self._sent: list[bytes] | None = []
        self._size = 0
        self._pauses = 0
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first.watcher = _Listener(self)

    @property
    def gone(self) -> bool:
        """Every client has gone."""
        return all(client.gone for client in self._clients)

    @property
    def extra_headers(self) -> bytes:
        """Lines for the first client's head only: others have their own."""
        return self._first.extra_headers

    @extra_headers.setter
    def extra_headers(self, lines: bytes) -> None:
        self._first.extra_headers = lines

    @property
    def open(self) -> bool:
        """Another client can still get the whole answer."""
        return self._sent is not None and not self._ended.done()

    async def attach(self, client: Exchange) -> None:
        """Answer this client too. Returns at the answer's end."""
        self.join(client)
        await self.ended()

    async def ended(self) -> None:
        """Returns at the answer's end."""
        await asyncio.shield(self._ended)

    def join(self, client: Outlet) -> None:
        """Answer this client too: what was sent so far at once, then what comes."""
        self._clients.append(client)
        client.watcher = _Listener(self)
        if self.status:
            client.begin(self.status, self._head)
            client.write(b"".join(self._sent or ()))

    def answer(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer, to everyone."""
        self.status = status
        if self._keep and len(body) <= MAX_SENT:
            self.whole = Whole(status, headers, body, stream=False)
        for client in self._clients:
            client.answer(status, headers, body)
        self.finish()

    def begin(self, status: int, headers: bytes, data: bytes = b"") -> None:
        """The head of a stream, to everyone."""
        self.status, self._head = status, headers
        for client in self._clients:
            client.begin(status, headers)
        if data:
            self.write(data)

    def write(self, data: bytes) -> None:
        """The next bytes of a stream, to everyone."""
        if self._sent is not None:
            self._size += len(data)
            if self._size > MAX_SENT:
                self._sent = None
            else:
                self._sent.append(data)
        for client in self._clients:
            client.write(data)

    def cork(self) -> None:
        """Each client's own exchange writes as it comes."""

    def uncork(self) -> None:
        """Nothing was kept."""

    def lead(self, take: Take) -> None:
        """Never: who asks for the same again is looked at."""

    def raw(self) -> None:
        """What is written is kept for those who come later."""

    def drop_body(self) -> None:
        """It is known by its digest."""
        self.body = b""
        self._first.drop_body()

    def end(self, data: bytes = b"") -> None:
        """The end of a stream, to everyone."""
        if data:
            self.write(data)
        if self._keep and self._sent is not None:
            self.whole = Whole(self.status, self._head, b"".join(self._sent), stream=True)
        for client in self._clients:
            client.end()
        self.finish()

    def abort(self) -> None:
        """Break every connection (D16)."""
        for client in self._clients:
            client.abort()
        self.finish()

    def finish(self) -> None:
        """Nothing more is sent: those who attached may go."""
        self._sent = None
        self.watcher = None
        if not self._ended.done():
            self._ended.set_result(None)

    def lost(self) -> None:
        """A client has gone; with the last one the request is over."""
        if self.gone and self.watcher is not None:
            self.watcher.on_gone()

    def paused(self, change: int) -> None:
        """One more client reads too slowly, or one fewer."""
        before, self._pauses = self._pauses, self._pauses + change
        if self.watcher is None or bool(before) == bool(self._pauses):
            return
        if self._pauses:
            self.watcher.on_pause()
        else:
            self.watcher.on_resume()
