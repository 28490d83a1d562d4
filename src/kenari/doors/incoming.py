"""A request's body that is passed on while it comes (core.ports.Incoming): what stands between a connection and its taker."""

from typing import Protocol

from kenari.core.errors import KenariError, bad_request
from kenari.core.ports import Taker
from kenari.wire.http1 import has_body, split_target

HELD = 64 * 1024
"""Bytes that may wait for a taker while reading goes on."""


class Valve(Protocol):
    """What a body needs of its connection."""

    def wanted(self) -> None:
        """Somebody takes the body: a client that waits for leave may send it."""
        ...

    def set_reading(self, reading: bool) -> None:
        """Read from the client, or do not."""
        ...


class IncomingBody:
    """The body of one request. `closed`: nothing more comes of it."""

    __slots__ = ("_broken", "_held", "_paused", "_size_held", "_taker", "_valve", "closed", "size")

    def __init__(self, size: int | None, valve: Valve) -> None:
        self.size = size
        self.closed = False
        self._valve = valve
        self._taker: Taker | None = None
        self._held: list[bytes] = []
        self._size_held = 0
        self._broken: KenariError | None = None
        self._paused = False

    # -- the gateway's side

    def take(self, taker: Taker) -> None:
        """Let it come; what is here already is heard now."""
        self._taker = taker
        held, self._held = self._held, []
        for data in held:
            taker.on_data(data)
        if self._broken is not None:
            taker.on_broken(self._broken)
        elif self.closed:
            taker.on_whole()
        else:
            self._valve.wanted()
            self._valve.set_reading(not self._paused)

    def pause(self) -> None:
        """Read no more of it."""
        self._flow(False)

    def resume(self) -> None:
        """Read on."""
        self._flow(True)

    # -- the connection's side

    @property
    def whole(self) -> bool:
        """All of it has come."""
        return self.closed and self._broken is None

    @property
    def waits(self) -> bool:
        """Nobody reads it now, so that it cannot be the client who is slow."""
        return self._paused or self._taker is None

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        if self.closed:
            return
        if self._taker is not None:
            self._taker.on_data(data)
            return
        self._held.append(data)
        self._size_held += len(data)
        if self._size_held > HELD:
            self._valve.set_reading(False)

    def finish(self) -> None:
        """These were all."""
        if not self.closed:
            self.closed = True
            if self._taker is not None:
                self._taker.on_whole()

    def fail(self, error: KenariError) -> None:
        """The rest will not come."""
        if not self.closed:
            self.closed, self._broken = True, error
            self._held.clear()
            if self._taker is not None:
                self._taker.on_broken(error)

    def _flow(self, reading: bool) -> None:
        if not self.closed and self._paused is reading:
            self._paused = not reading
            self._valve.set_reading(reading)


def incoming_of(url: bytes, headers: dict[bytes, bytes], paths: frozenset[str], valve: Valve) -> IncomingBody | None:
    """The body of a request to one of these paths, where it is a form that is plainly sent; None elsewhere."""
    if not headers.get(b"content-type", b"").startswith(b"multipart/"):
        return None
    if b"content-encoding" in headers or b"upgrade" in headers or not has_body(headers):
        return None
    if split_target(url)[0] not in paths:
        return None
    length = headers.get(b"content-length")
    return IncomingBody(None if length is None else int(length), valve)


def cut_off() -> KenariError:
    """What is said, to nobody, of a client that left in the middle of its request."""
    return bad_request("the request was not whole when its connection ended. send it again")
