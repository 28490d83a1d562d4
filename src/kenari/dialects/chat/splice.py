"""Reading a text delta without parsing it, once its neighbours have shown how the provider writes them.

Chunks of one stream differ in their text only. When a parsed chunk turned out to be nothing but a piece of text, all that
stands before and behind that text is remembered; a later frame with the same bytes around what may stand in a string as it
is (mostly printable ASCII without quotes and backslashes, which is seen at once) can hold nothing else. Every other frame is
parsed.
"""

from itertools import islice

from kenari.core.events import Escaped
from kenari.dialects.base import around
from kenari.wire.jsonx import are_texts, is_text
from kenari.wire.sse import Frame

MANY = 4
"""So many frames at once are worth being cut together."""


class Splice:
    """The frame of the last plain delta: `prefix` up to its text, `suffix` behind it; empty until one was seen."""

    __slots__ = ("_learned", "_prefix", "_suffix")

    def __init__(self) -> None:
        self._prefix = b""
        self._suffix = b""
        self._learned: tuple[bytes, Escaped] | None = None  # the last plain delta, until somebody asks for its form

    def learn(self, data: bytes, text: Escaped) -> None:
        """A parsed frame `data` was nothing but this text. (A first one is to be told to the client before all else.)"""
        self._learned = data, text

    @property
    def around(self) -> tuple[bytes, bytes]:
        """What stands before and behind the text; empty before one was seen."""
        if self._learned is not None:
            self._prefix, self._suffix = around(*self._learned)
            self._learned = None
        return self._prefix, self._suffix

    def one(self, data: bytes) -> Escaped:
        """The text of a frame of the same form, b"" when it has to be parsed."""
        prefix, suffix = (self._prefix, self._suffix) if self._learned is None else self.around
        if not prefix or not data.startswith(prefix) or not data.endswith(suffix):
            return b""
        text = data[len(prefix) : -len(suffix)]
        return text if is_text(text) else b""

    def cut(self, frames: list[Frame], start: int, at_once: bool) -> list[Escaped]:
        """The texts of the frames from `start` on, up to the first one that has to be parsed. `at_once`: it is worth trying
        whether there is none."""
        prefix = self._prefix if self._learned is None else self.around[0]
        if not prefix:
            return []
        if at_once and len(frames) - start >= MANY:
            stop = len(frames)
            while stop > start and not frames[stop - 1].data.startswith(prefix):  # the last words of a stream
                stop -= 1
            together = self._cut_all([frame.data for frame in frames[start:stop]])
            if together:
                return together
        texts: list[Escaped] = []
        for frame in islice(frames, start, None):
            text = self.one(frame.data)
            if not text:
                break
            texts.append(text)
        return texts

    def _cut_all(self, datas: list[bytes]) -> list[Escaped] | None:
        """The texts of all these frames, None when one of them has to be parsed.

        They are cut at these places and put together again: if that gives the same bytes, they were all of that form.
        (Neither prefix nor suffix nor what may stand in a string holds a line end, so the frames' borders are the same.)
        """
        prefix, suffix = self._prefix, self._suffix
        head, tail = len(prefix), -len(suffix)
        texts = [data[head:tail] for data in datas]
        if b"" in texts or not are_texts(texts):
            return None
        again = prefix + (suffix + b"\n" + prefix).join(texts) + suffix
        return texts if again == b"\n".join(datas) else None
