"""Counting tokens where nobody else does (U3, M4): a calibrated guess from the request's own text."""

from collections.abc import Callable, Iterable

from kenari.core.events import Escaped
from kenari.core.request import (
    AudioPart,
    CallPart,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    ReasoningPart,
    Request,
    ResultPart,
    TextPart,
)
from kenari.core.usage import Usage, estimate_tokens
from kenari.wire import jsonx

IMAGE_TOKENS = 1000
"""An image of ordinary size costs about this much with the vendors that say so."""

TURN_TOKENS = 4
"""What a message costs besides its text: role and separators."""


def estimate_prompt(
    request: Request,
    count: Callable[[Escaped], int] = estimate_tokens,
    count_json: Callable[[bytes], int] = estimate_tokens,
) -> int:
    """The tokens of a whole prompt: texts, calls, results, tools; at least 1. `count` counts one escaped text,
    `count_json` a raw JSON value, which a model sees as it stands."""
    total = sum(TURN_TOKENS + _parts(turn.parts, count, count_json) for turn in request.turns)
    for tool in request.tools:
        total += count(jsonx.escape(tool.name) + (tool.description or b""))
        if tool.schema is not None:
            total += count_json(bytes(tool.schema))
    return max(1, total)


def _parts(parts: Iterable[Part], count: Callable[[Escaped], int], count_json: Callable[[bytes], int]) -> int:
    total = 0
    for part in parts:
        match part:
            case TextPart() | ReasoningPart():
                total += count(part.text)
            case CallPart():
                total += count(part.arguments) + TURN_TOKENS
            case ResultPart():
                total += _parts(part.parts, count, count_json) + TURN_TOKENS
            case ImagePart():
                total += IMAGE_TOKENS
            case FilePart():
                total += count(part.text) if part.text else len(part.data) // 12
            case AudioPart():
                total += len(part.data) // 200
            case OpaquePart():
                total += count_json(bytes(part.raw))
    return total


def completed_usage(reported: Usage | None, prompt: Callable[[], int], said: int, partial: bool = False) -> Usage:
    """What the provider reported, with the counts that it left out filled in and marked as estimated.

    `prompt` counts the request's own tokens, `said` are the tokens that the model said by our own count. An answer that
    is `partial` was broken off: what its provider reported by then lags behind what it said.
    """
    usage = reported or Usage()
    missing_input = usage.prompt == 0
    output = usage.output or 0
    missing_output = said > output if partial else said > 0 and not output
    if not missing_input and not missing_output:
        return usage
    return Usage(
        fresh=prompt() if missing_input else usage.fresh,
        cache_read=usage.cache_read,
        cache_write_5m=usage.cache_write_5m,
        cache_write_1h=usage.cache_write_1h,
        output=said if missing_output else usage.output,
        reasoning=usage.reasoning,
        estimated=True,
    )
