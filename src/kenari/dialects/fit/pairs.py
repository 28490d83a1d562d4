"""Calls and their results, side by side: providers refuse results away from their calls (D27, F12)."""

from collections import Counter, deque

import msgspec

from kenari.core.request import CallPart, Part, ResultPart, Turn


def pair_results(turns: list[Turn]) -> list[Turn]:
    """The conversation with each call's result right behind its turn, calls and results without a mate left out.

    Returns the list itself when all is in order, which it nearly always is.
    """
    if _is_paired(turns):
        return turns
    waiting: dict[str, deque[ResultPart]] = {}
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, ResultPart):
                waiting.setdefault(part.call_id, deque()).append(part)
    out: list[Turn] = []
    for turn in turns:
        if turn.role == "assistant":
            _put_calls(turn, waiting, out)
        elif any(isinstance(part, ResultPart) for part in turn.parts):
            rest = [part for part in turn.parts if not isinstance(part, ResultPart)]
            if rest:
                out.append(msgspec.structs.replace(turn, parts=rest, touched=turn.touched | {"content"}))
        else:
            out.append(turn)
    return out


def _put_calls(turn: Turn, waiting: dict[str, deque[ResultPart]], out: list[Turn]) -> None:
    """Append an assistant turn and, behind it, the results of its calls."""
    parts: list[Part] = []
    results: list[Part] = []
    for part in turn.parts:
        if isinstance(part, CallPart):
            mates = waiting.get(part.call_id)
            if not mates:
                continue
            results.append(mates.popleft())
        parts.append(part)
    if len(parts) != len(turn.parts):
        turn = msgspec.structs.replace(turn, parts=parts, touched=turn.touched | {"calls", "content"})
    if parts:
        out.append(turn)
    if results:
        out.append(Turn("user", results))


def _is_paired(turns: list[Turn]) -> bool:
    open_calls: Counter[str] = Counter()
    for turn in turns:
        if turn.role == "assistant":
            if open_calls:
                return False
            open_calls = Counter(part.call_id for part in turn.parts if isinstance(part, CallPart))
            continue
        found = False
        for part in turn.parts:
            if isinstance(part, ResultPart):
                if part.call_id not in open_calls:
                    return False
                open_calls[part.call_id] -= 1
                if not open_calls[part.call_id]:
                    del open_calls[part.call_id]
                found = True
        if open_calls and not found:
            return False
    return not open_calls
