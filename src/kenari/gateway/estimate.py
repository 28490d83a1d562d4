"""Counting tokens where nobody else does (U3, M4): a calibrated guess from the request's own text."""

from collections.abc import Iterable

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

IMAGE_TOKENS = 1000
"""An image of ordinary size costs about this much with the vendors that say so."""

TURN_TOKENS = 4
"""What a message costs besides its text: role and separators."""


def estimate_prompt(request: Request) -> int:
    """The tokens of a whole prompt: texts, calls, results, tools; at least 1."""
    count = sum(TURN_TOKENS + _parts(turn.parts) for turn in request.turns)
    for tool in request.tools:
        count += estimate_tokens(tool.name.encode("utf-8", "replace") + (tool.description or b""))
        if tool.schema is not None:
            count += estimate_tokens(bytes(tool.schema))
    return max(1, count)


def _parts(parts: Iterable[Part]) -> int:
    count = 0
    for part in parts:
        match part:
            case TextPart() | ReasoningPart():
                count += estimate_tokens(part.text)
            case CallPart():
                count += estimate_tokens(part.arguments) + TURN_TOKENS
            case ResultPart():
                count += _parts(part.parts) + TURN_TOKENS
            case ImagePart():
                count += IMAGE_TOKENS
            case FilePart():
                count += estimate_tokens(part.text) if part.text else len(part.data) // 12
            case AudioPart():
                count += len(part.data) // 200
            case OpaquePart():
                count += estimate_tokens(bytes(part.raw))
    return count


def completed_usage(reported: Usage | None, request: Request, output_bytes: int) -> Usage:
    """What the provider reported, with the counts that it left out filled in and marked as estimated."""
    usage = reported or Usage()
    fresh, output = usage.fresh, usage.output
    missing_input = usage.prompt == 0
    missing_output = not output and output_bytes > 0
    if not missing_input and not missing_output:
        return usage
    return Usage(
        fresh=estimate_prompt(request) if missing_input else fresh,
        cache_read=usage.cache_read,
        cache_write_5m=usage.cache_write_5m,
        cache_write_1h=usage.cache_write_1h,
        output=max(1, (output_bytes + 3) // 4) if missing_output else output,
        reasoning=usage.reasoning,
        estimated=True,
    )
