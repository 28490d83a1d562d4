"""One end of the socket pair between a keeper and a worker: frames of words, one write for each turn of the loop.

A frame is its length (4 bytes, big-endian) and a MessagePack list of words. The words of one turn travel together, so
that a busy worker makes few system calls and its keeper commits them in few batches.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from types import GenericAlias
from typing import Any, Generic, TypeVar, cast

import msgspec

from kenari.keeper.words import Word

_log = logging.getLogger("kenari.keeper")
_HEAD = 4
MAX_FRAME = 256 * 1024 * 1024
"""Bytes. A frame holds what arises in one turn of a loop; a larger one is garbage."""
FULL = 32 * 1024 * 1024
"""Bytes that wait to be written. Beyond it the other end is not listening any more, and nothing new should be begun."""


def _plain(value: Any) -> Any:
    """A kind of text (a `Secret`) as text."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not travel")


Heard = TypeVar("Heard", bound=Word)
"""The union of the words that an end hears."""


class Channel(asyncio.Protocol, Generic[Heard]):
    """Says words to the other end and hears its words. `closed` is resolved when the other end has gone: all that it
    said before was heard by then."""

    def __init__(self, kind: Any, hear: Callable[[Heard], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = msgspec.msgpack.Decoder[list[Heard]](type=GenericAlias(list, (kind,)))
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
        self._hear = hear
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()
        self._saying: list[Word] = []
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def full(self) -> bool:
        """The other end does not read."""
        return self._transport is not None and self._transport.get_write_buffer_size() > FULL

    def say(self, word: Word) -> None:
        """Say a word at the end of this turn of the loop; nothing when the other end has gone."""
        if self.closed.done():
            return
        if not self._saying:
            self._loop.call_soon(self.flush)
        self._saying.append(word)

    def flush(self) -> None:
        """Write what is to be said now."""
        words, self._saying = self._saying, []
        if words and self._transport is not None:
            try:
                self._transport.write(self._frame(words))
            except (TypeError, ValueError, OverflowError):
                for word in words:
                    self._write_alone(word)
        elif words:  # not connected yet
            self._saying = words

    def _frame(self, words: list[Word]) -> bytearray:
        frame = bytearray(_HEAD)
        self._encoder.encode_into(words, frame, _HEAD)
        frame[:_HEAD] = (len(frame) - _HEAD).to_bytes(_HEAD)
        return frame

    def _write_alone(self, word: Word) -> None:
        """One of several words cannot be written: the others must not be lost with it."""
        try:
            frame = self._frame([word])
        except (TypeError, ValueError, OverflowError) as fault:
            _log.error("a %s cannot be said: %s", type(word).__name__, type(fault).__name__)
            return
        if self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        """Say the last words and end; `closed` comes after they were written."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The other end is there."""
        self._transport = cast("asyncio.Transport", transport)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end has gone."""
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Pieces of frames."""
        came = self._came
        came += data
        at = 0
        while len(came) - at >= _HEAD:
            end = at + _HEAD + int.from_bytes(came[at : at + _HEAD])
            if end - at > MAX_FRAME:
                self._give_up("a frame without end")
                return
            if len(came) < end:
                break
            frame, at = bytes(came[at + _HEAD : end]), end
            try:
                words = self._decoder.decode(frame)
            except msgspec.MsgspecError:
                self._give_up("a frame that is no list of words")
                return
            for word in words:
                self._hear_one(word)
        del came[:at]

    def _hear_one(self, word: Heard) -> None:
        try:
            self._hear(word)
        except Exception as fault:  # noqa: BLE001 - one word's fault must not cost the others; its text may hold content
            frame = traceback.extract_tb(fault.__traceback__)[-1]
            name = type(word).__name__
            _log.error("%s failed with %s at %s:%s", name, type(fault).__name__, frame.name, frame.lineno)

    def _give_up(self, why: str) -> None:
        _log.error("another process of kenari sent %s; it is cut off", why)
        self._came.clear()
        if self._transport is not None:
            self._transport.abort()
