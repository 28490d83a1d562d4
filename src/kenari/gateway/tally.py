"""Our own count of a request's tokens: its prompt, and what a model has said so far.

It is asked where nobody else counts (U3), and while an answer runs: what would it cost if it ended now, and is that
still covered by what is held (F8)? With a vocabulary at hand texts are counted in it, else by the calibrated guess.
"""

import math
from collections.abc import Callable
from functools import partial

from kenari.core.events import Args, Close, Escaped, Event, Open, Reason, Stop, Text
from kenari.core.ports import Counter
from kenari.core.request import Request
from kenari.core.usage import estimate_tokens
from kenari.gateway.estimate import estimate_prompt
from kenari.wire import jsonx

PIECE_BYTES = 1024
"""What was said is counted in pieces of this size, cut between words: a vocabulary then counts as in one go."""


MEASURED = 64 * 1024
"""Characters of a prompt that are counted in the vocabulary; the rest is reckoned up from them, so that no stream waits
for a long prompt."""


class Count:
    """How one request's tokens are counted. `encoding` is the vocabulary's name, `estimate` for the calibrated guess."""

    def __init__(self, request: Request, counter: Counter | None = None, model: str = "") -> None:
        self._request: Request | None = request
        self._counter = counter
        self._vocabulary = counter.encoding(model) if counter is not None else ""
        self._prompt = 0
        self._left = MEASURED
        self._measured = self._guessed = 0

    @property
    def encoding(self) -> str:
        """What is written into the bill where a number is ours."""
        return self._vocabulary or "estimate"

    @property
    def by_vocabulary(self) -> bool:
        """A vocabulary counts; else it is a guess."""
        return bool(self._vocabulary)

    def prompt(self) -> int:
        """The tokens of the prompt; counted once."""
        if not self._prompt and self._request is not None:
            self._prompt = estimate_prompt(self._request, self._of, self._of_json)
        return self._prompt

    def settle(self) -> bool:
        """Count the prompt and let go of it. False, and nothing is done, where that would take long."""
        if self._vocabulary and not self._prompt:
            return False
        self.prompt()
        self._request = None
        return True

    def whole(self, text: Escaped) -> int:
        """The tokens of a text, to its end. Only where a vocabulary counts."""
        assert self._counter is not None
        return self._counter.count(self._vocabulary, jsonx.unescape(text))

    def _of(self, text: Escaped) -> int:
        """The tokens of an escaped text in the prompt."""
        return self._counted(text, jsonx.unescape)

    def _of_json(self, raw: bytes) -> int:
        """The tokens of a JSON value in the prompt: its escapes are inside of its strings, and stay."""
        return self._counted(raw, partial(str, encoding="utf-8", errors="replace"))

    def _counted(self, text: bytes, plainly: Callable[[bytes], str]) -> int:
        """The tokens of a part of the prompt: in the vocabulary as long as there is room for it, then by the same
        measure. `plainly` is how a model sees it."""
        guess = estimate_tokens(text)
        if self._counter is None or not self._vocabulary or not text:
            return guess
        if self._left > 0:
            plain = plainly(text)
            tokens = self._counter.count(self._vocabulary, plain[: self._left])
            if len(plain) > self._left:
                tokens = tokens * len(plain) // self._left
            self._left -= len(plain)
            self._measured += tokens
            self._guessed += guess
            return tokens
        return max(1, guess * self._measured // max(1, self._guessed))


class Tally:
    """What a model has said in one call, and which blocks it has open. `most` is how many tokens of it are covered, infinity where nothing bounds it."""

    def __init__(self, count: Count, most: float = math.inf) -> None:
        self.most = most
        self._count, self._vocabulary = count, count.by_vocabulary
        self._counted = 0
        self._pieces: list[bytes] = []
        self._size = 0
        self._open: set[int] = set()

    def add(self, events: list[Event]) -> None:
        """Count what these events say."""
        for event in events:
            if isinstance(event, (Text, Reason, Args)):
                delta = event.delta
                self._size += _size_of(delta)
                if self._vocabulary:
                    self._pieces.append(delta)
            elif isinstance(event, Open):
                self._open.add(event.index)
            elif isinstance(event, Close):
                self._open.discard(event.index)
        if self._vocabulary and self._size >= PIECE_BYTES:
            self._fold(whole=False)

    def add_text(self, text: Escaped) -> bool:
        """Count one piece of text. False, and nothing is counted, when that has to be done by `add`: its tokens are counted
        in a vocabulary, or it is the one that is too much."""
        size = self._size + _size_of(text)
        if self._vocabulary or self._counted + size // 4 > self.most:
            return False
        self._size = size
        return True

    def add_texts(self, texts: list[Escaped]) -> bool:
        """The same of several pieces, all or none."""
        together = b"".join(texts)
        if b"\\u" not in together:
            return self.add_text(together)
        before = self._size
        if all(map(self.add_text, texts)):
            return True
        self._size = before
        return False

    @property
    def tokens(self) -> int:
        """How many tokens were said so far."""
        if self._pieces:
            self._fold(whole=True)
        return self._counted + (self._size + 3) // 4

    @property
    def over(self) -> bool:
        """More was said than is covered. Cheap: what was not yet counted in the vocabulary is guessed."""
        return self._counted + self._size // 4 > self.most

    def ending(self) -> list[Event]:
        """What ends the answer here as one that met its limit (F8): blocks that are open are closed first."""
        return [*(Close(index) for index in sorted(self._open)), Stop("length")]

    def _fold(self, whole: bool) -> None:
        """Count the pieces that wait; without `whole` what follows the last space waits on. (No escape holds a space.)"""
        text = b"".join(self._pieces)
        cut = len(text) if whole else text.rfind(b" ")
        if cut <= 0:
            cut = len(text)
        self._counted += self._count.whole(text[:cut])
        rest = text[cut:]
        self._pieces = [rest] if rest else []
        self._size = len(rest)


def _size_of(text: Escaped) -> int:
    """The bytes of a piece; characters that are told by their numbers count as they are."""
    return len(text) if b"\\u" not in text else len(jsonx.unescape(text).encode())
