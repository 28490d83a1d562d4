"""Reasoning that a model writes into its text as a leading `<think>...</think>` pair (profile flag `think_tags`)."""

from typing import Literal

OPEN, CLOSE = "<think>", "</think>"


class ThinkTags:
    """Splits text into reasoning and answer, tags cut anywhere. Only a leading pair counts; a later tag is text."""

    def __init__(self) -> None:
        self._state: Literal["start", "think", "text"] = "start"
        self._buffer = ""

    @property
    def settled(self) -> bool:
        """All that comes now is the answer's text."""
        return self._state == "text"

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Pieces that are decided: (is reasoning, text)."""
        if self._state == "text":
            return [(False, text)] if text else []
        self._buffer += text
        if self._state == "start":
            begun = self._buffer.lstrip()
            if begun.startswith(OPEN):
                self._state, self._buffer = "think", begun[len(OPEN) :]
            elif OPEN.startswith(begun):
                return []
            else:
                return self._leave(self._buffer)
        end = self._buffer.find(CLOSE)
        if end >= 0:
            thought: list[tuple[bool, str]] = [(True, self._buffer[:end])] if end else []
            return thought + self._leave(self._buffer[end + len(CLOSE) :])
        keep = _partial(self._buffer)
        sure = self._buffer[: len(self._buffer) - keep]
        self._buffer = self._buffer[len(sure) :]
        return [(True, sure)] if sure else []

    def flush(self) -> list[tuple[bool, str]]:
        """What waited for a tag that never came; the tags are over with it."""
        thinking, rest = self._state == "think", self._buffer
        self._state, self._buffer = "text", ""
        return [(thinking, rest)] if rest else []

    def _leave(self, text: str) -> list[tuple[bool, str]]:
        self._state, self._buffer = "text", ""
        return [(False, text)] if text else []


def _partial(text: str) -> int:
    """How many characters at the end may be the beginning of the closing tag."""
    for length in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-length:]):
            return length
    return 0
