"""One provider call of an endpoint beside chat. A JSON answer is heard whole; audio and events pass as they come."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

from kenari.core.errors import KenariError, interrupted
from kenari.core.outbound import Call, Outgoing, Upstream
from kenari.core.ports import Exchange
from kenari.dialects.failures import failure_in_body, failure_of_status, no_answer, retry_after
from kenari.gateway.kinds.asks import Ask
from kenari.gateway.kinds.form import Form
from kenari.gateway.kinds.meter import usage_in
from kenari.gateway.plan import Candidate
from kenari.wire import jsonx
from kenari.wire.sse import Frames

MAX_ANSWER = 64 * 1024 * 1024
MAX_ERROR_BODY = 256 * 1024
_TEXTS = (b"text/plain", b"text/vtt", b"application/x-subrip", b"text/srt")


class Relay:
    """Hears of one call. `done` is resolved when nothing more comes of it; then `error` says how it failed, `left` that the
    client went away, and `sent` that the provider had the request by then.

    `begin` is called with the provider's content-type when the first bytes of an answer that passes are there, and makes
    the answer's head; from then on no other candidate can serve. `whole` is a JSON answer's body, `answer` the last
    JSON in which a usage may stand.
    """

    def __init__(
        self,
        candidate: Candidate,
        ask: Ask,
        exchange: Exchange,
        begin: Callable[[bytes], None],
        form: Form | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        self.error: KenariError | None = None
        self.left = self.sent = self.cut = self.passing = self._broken = self._paused = False
        self.status = 0
        self.until = math.inf
        self.first: float | None = None
        self.whole = b""
        self.answer: Any = None
        self.kind = b""
        self._candidate, self._ask, self._exchange, self._begin = candidate, ask, exchange, begin
        self._form = form
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._frames: Frames | None = None
        self._call: Call | None = None
        self._clock = loop.time
        self._last = self._clock()

    def start(self, upstream: Upstream, outgoing: Outgoing) -> None:
        """Call the provider; the client's side is watched from now on."""
        self._call = upstream.start(outgoing, self)
        self._exchange.watcher = self

    @property
    def wait(self) -> float | None:
        """Seconds for which the provider wants to be left alone."""
        return retry_after(self._headers, time.time()) if self.status not in (0, 200) else None

    # -- the provider speaks (core.outbound.Receiver)

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        """Status and headers."""
        self._last = self._clock()
        self.status, self._headers = status, headers
        self.kind = headers.get(b"content-type", b"").lower()
        if self.kind.startswith(b"text/event-stream"):
            self._frames = Frames()

    def on_body(self, data: bytes) -> None:
        """The next bytes."""
        self._last = self._clock()
        if self.done.done():
            return
        if self.status != 200 or not self._passes():
            self._size += len(data)
            if self._size <= (MAX_ANSWER if self.status == 200 else MAX_ERROR_BODY):
                self._body.append(data)
            elif self.status == 200:
                self._fail(no_answer())
            return
        if self._frames is not None and not self._tap(data):
            return
        if not self.passing:
            self.passing = True
            self.first = self._clock()
            self._begin(self.kind)
        self._exchange.write(data)

    def on_end(self) -> None:
        """The body is complete."""
        if self.done.done():
            return
        body = b"".join(self._body)
        if self.status != 200:
            self._fail(self._told(body))
        elif self.passing:
            self.error = interrupted() if self._broken else None
            self._exchange.end()
            self._finish()
        elif self._passes():
            self._fail(no_answer())  # audio or events of no byte
        else:
            self._take(body)

    def on_lost(self, error: KenariError) -> None:
        """The transport broke."""
        if self.status not in (0, 200):
            error = self._told(b"".join(self._body))
        self._fail(error)

    # -- the client's side (core.ports.Watcher)

    def on_gone(self) -> None:
        """The client has gone: the call is broken off at once (U6)."""
        if not self.done.done():
            self.left, self.sent = True, self._call is not None and self._call.sent
            self._stop()
            self._finish()

    def on_pause(self) -> None:
        """The client reads too slowly."""
        self._paused = True
        if self._call is not None:
            self._call.pause()

    def on_resume(self) -> None:
        """The client reads again."""
        self._paused, self._last = False, self._clock()
        if self._call is not None:
            self._call.resume()

    def tick(self, now: float) -> None:
        """Time-outs: the head and a whole answer, silence while it passes, the deadline before its first byte."""
        if self.done.done() or self._paused:
            return
        provider, late = self._candidate.provider, 0.0
        if self._form is not None:  # what is still to come of the client's body is not the provider's delay
            late, self._last = self._form.late(now), max(self._last, self._form.moved(now))
        limit = provider.idle_timeout if self.status else provider.header_timeout
        if not self.passing and now - late >= self.until:
            self.cut = True
        if self.cut or now - self._last >= limit:
            words = "the model's provider did not answer in time. send the request again"
            self._fail(KenariError("upstream_timeout", words, elsewhere=True))

    # --

    def _passes(self) -> bool:
        """Whether the answer goes through as it comes: audio, and events. JSON and HTML in the place of audio do not."""
        audio = self._ask.kind == "speech" and b"json" not in self.kind and not self.kind.startswith(b"text/html")
        return audio or self._frames is not None

    def _tap(self, data: bytes) -> bool:
        """Look for usage and for an error in events. False when the first of them is an error: it is not passed."""
        assert self._frames is not None
        for frame in self._frames.feed(data):
            found = usage_in(frame.data)
            if not isinstance(found, dict):
                continue
            if "error" in found and not self.passing:
                self._fail(failure_in_body(frame.data))
                return False
            self._broken = self._broken or "error" in found
            if "usage" in found:
                self.answer = found
        return True

    def _take(self, body: bytes) -> None:
        """A whole answer: JSON with what was asked for, or a transcript as text."""
        if self.kind.startswith(_TEXTS) and self._ask.kind == "transcription":
            self.whole = body
        else:
            try:
                members = jsonx.members(body)
            except jsonx.Malformed:
                members = {}
            wanted = "text" if self._ask.kind == "transcription" else "data"
            if wanted not in members:
                self._fail(failure_in_body(body) if "error" in members else no_answer())
                return
            if "model" in members:
                members["model"] = jsonx.raw(self._ask.model)
            self.whole, self.answer = jsonx.encode(members), usage_in(body)
        self.first = self._clock()
        self._finish()

    def _told(self, body: bytes) -> KenariError:
        names = (self._candidate.target.model, self._ask.model)
        secrets = (self._candidate.key,)
        return failure_of_status(self.status, self._headers, body, secrets=secrets, names=names, now=time.time())

    def _fail(self, error: KenariError) -> None:
        if not self.done.done():
            self.error = interrupted() if self.passing else error
            self._stop()
            if self.passing:
                self._exchange.abort()  # audio has no words for a failure: it must not look whole (D16)
            self._finish()

    def _stop(self) -> None:
        if self._call is not None:
            self._call.abort()

    def _finish(self) -> None:
        self._exchange.watcher = None
        if not self.done.done():
            self.done.set_result(None)
