"""The answer of a model that is held to JSON by a forced function or by words, made into plain text (pure).

A function's arguments are the answer: each piece becomes a piece of text as it comes. An answer in words may stand in a
code fence or between other words: those are taken away. A stream flows from the moment on at which its text has begun as
JSON; until then, and for a plain answer, all is kept, so that a wrong answer can still be asked for again.
"""

import re

from kenari.core.events import Args, Close, Event, Open, Stop, Text
from kenari.gateway.schema import Check
from kenari.wire import jsonx

_BEGINS = frozenset("{[")
_FENCED = re.compile(r"```[A-Za-z0-9_-]*[ \t]*\r?\n(.*?)```", re.S)
_TAIL = "`" + "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What may be the end of a fence."""
MAX_KEPT = 8 * 1024 * 1024
"""Characters of an answer that are kept for its check."""


class Shape:
    """One call's answer. `function` is the name of the forced function, "" where JSON was asked for in words; `flow`
    lets text out as it comes. `shown` is true once some was let out."""

    def __init__(self, function: str, flow: bool, check: Check | None) -> None:
        self.shown = False
        self.text = ""
        self._function, self._flow, self._check = function, flow, check
        self._call: int | None = None  # the block of the forced call
        self._block: int | None = None  # the block in which the answer goes out
        self._texts: set[int] = set()
        self._called = False  # a function of the client was called: its turn, not an answer
        self._sent = 0  # characters of `text` that were let out
        self._state = "" if not function else "kept"  # "": not begun; "json"; "fence"; "kept"

    def take(self, events: list[Event]) -> list[Event]:
        """What of these events goes on."""
        out: list[Event] = []
        for event in events:
            match event:
                case Open() if event.kind == "call" and self._function and event.name == self._function:
                    if self._call is None:
                        self._call, self.text, self._state = event.index, "", "call"
                    else:
                        self._texts.add(event.index)  # a second answer: one is enough
                case Open() if event.kind == "text":
                    self._texts.add(event.index)
                case Text() if event.index in self._texts:
                    self._add(event.index, jsonx.unescape(event.delta), out)
                case Args() if event.index == self._call:
                    self._add(event.index, jsonx.unescape(event.delta), out)
                case Args() | Close() if event.index in self._texts or event.index == self._call:
                    pass
                case _:
                    self._called = self._called or (isinstance(event, Open) and event.kind == "call")
                    out.append(event)
        return out

    def finish(self, stop: Stop | None) -> tuple[list[Event], str | None]:
        """The rest of the answer, and what is wrong with it. A cut, a filtered or a calling answer is not checked."""
        text = self._whole()
        judged = not self._called and (stop is None or stop.reason not in ("length", "filter"))
        fault = None
        if judged:
            fault = self._fault_of(text)
        if fault is not None and not self.shown:
            return [], fault
        out: list[Event] = []
        index = self._block if self._block is not None else self._first()
        if index is not None and len(text) > self._sent:
            self._say(index, text[self._sent :], out)
        if self._block is not None:
            out.append(Close(self._block))
        return out, fault

    def release(self) -> list[Event]:
        """The answer as the model wrote it, wrong as it is."""
        out: list[Event] = []
        index = self._first()
        if index is not None:
            self._say(index, self.text, out)
            out.append(Close(index))
        return out

    def _fault_of(self, text: str) -> str | None:
        if not text:
            return "it is empty"
        if self._check is not None:
            return self._check(text)
        return "the function was not called" if self._function and self._call is None else None

    def _add(self, index: int, piece: str, out: list[Event]) -> None:
        if self._call is not None and index != self._call:
            return
        before = len(self.text)
        if before < MAX_KEPT:
            self.text += piece
        if not self._flow or self._state == "kept":
            return
        if self._state == "":
            self._begin()
            before, piece = 0, self.text  # of which much may have been taken away
        if self._state == "call":
            self._let(index, len(self.text), out)
        elif self._state in ("json", "fence"):  # what may be the end of a fence waits
            solid = len(piece.rstrip(_TAIL))  # only the new piece is looked at: a model may go on with spaces for ever
            if solid:
                self._let(index, min(before + solid, len(self.text)), out)

    def _begin(self) -> None:
        """Whether the text begins as JSON, in a fence, or as anything else."""
        start = self.text.lstrip()
        if not start:
            return
        if start[0] in _BEGINS:
            self.text, self._state = start, "json"
        elif start.startswith("```") and "\n" in start:
            self.text, self._state = start.partition("\n")[2].lstrip(), "fence"
        elif not ("```".startswith(start[:3]) or start.startswith("```")):
            self._state = "kept"

    def _let(self, index: int, end: int, out: list[Event]) -> None:
        if end > self._sent:
            self._say(index, self.text[self._sent : end], out)
            self._sent = end

    def _say(self, index: int, text: str, out: list[Event]) -> None:
        if self._block is None:
            self._block = index
            out.append(Open(index, "text"))
        self.shown = True
        out.append(Text(index, jsonx.escape(text)))

    def _first(self) -> int | None:
        return self._call if self._call is not None else min(self._texts, default=None)

    def _whole(self) -> str:
        """The answer's JSON out of all the text."""
        if self._call is not None:
            return self.text or "{}"
        if self._state in ("json", "fence"):
            return self.text.rstrip(_TAIL)
        return best_json(self.text)


def best_json(text: str) -> str:
    """The JSON in a model's words: all of it, what stands in a code fence, or from the first brace to its last."""
    plain = text.strip()
    if not plain or (plain[0] in _BEGINS and plain[-1] in "}]"):
        return plain
    fenced = _FENCED.search(plain)
    if fenced is not None:
        return fenced.group(1).strip()
    starts = [at for at in (plain.find("{"), plain.find("[")) if at >= 0]
    if not starts:
        return plain
    start = min(starts)
    end = plain.rfind("}" if plain[start] == "{" else "]")
    return plain[start : end + 1] if end > start else plain
