"""Breakpoints for providers that cache a prompt only up to a mark, where the client's format has no marks of its own.

Clients of chat and responses expect caching to happen by itself. A mark changes nothing that the model reads, so the
prefix of a conversation stays the same prefix while marks move on with it. Conversations that are not going on (no tool,
no earlier answer, no cache key) get none: writing a cache costs more than reading a prompt once.
"""

import msgspec
from msgspec import Raw

from kenari.core.request import CallPart, FilePart, ImagePart, Part, Request, ResultPart, TextPart, Tool, Turn
from kenari.dialects.fit.target import Target

MARK = Raw(b'{"type":"ephemeral"}')
"""The provider's default life of a cache entry."""
_MARKED = (TextPart, ImagePart, FilePart, CallPart, ResultPart)


def add_breakpoints(tools: list[Tool], turns: list[Turn], request: Request, target: Target) -> None:
    """Mark, in place of the lists' elements: the last tool, the end of the system prompt, the last message and the
    one that the last answer was given to (four, the most that vendors take). What the client marked itself is left alone."""
    if request.origin == "messages" or not target.takes_breakpoints() or not _goes_on(request):
        return
    if _has_marks(tools, turns):
        return
    if tools:
        tools[-1] = msgspec.structs.replace(tools[-1], cache=MARK, raw=None)
    lead = next((at for at, turn in enumerate(turns) if turn.role != "system"), len(turns))
    if lead:
        _mark(turns, lead - 1)
    spoken = [at for at in range(lead, len(turns)) if turns[at].role == "user"]
    answers = [at for at in range(lead, len(turns)) if turns[at].role == "assistant"]
    before = [at for at in spoken if answers and at < answers[-1]]
    for at in spoken[-1:] + before[-1:]:
        _mark(turns, at)


def _goes_on(request: Request) -> bool:
    return bool(request.tools or request.cache_key) or any(turn.role == "assistant" for turn in request.turns)


def _has_marks(tools: list[Tool], turns: list[Turn]) -> bool:
    if any(tool.cache is not None for tool in tools):
        return True
    return any(isinstance(part, _MARKED) and part.cache is not None for turn in turns for part in turn.parts)


def _mark(turns: list[Turn], at: int) -> None:
    """Mark the last part of a turn that takes a mark; an empty text takes none."""
    turn = turns[at]
    for index in range(len(turn.parts) - 1, -1, -1):
        part = turn.parts[index]
        if not isinstance(part, _MARKED) or (isinstance(part, TextPart) and not part.text.strip()):
            continue
        marked: Part = msgspec.structs.replace(part, cache=MARK, raw=None)
        parts = [*turn.parts[:index], marked, *turn.parts[index + 1 :]]
        turns[at] = msgspec.structs.replace(turn, parts=parts, touched=turn.touched | {"content"})
        return
