"""What an answer beside chat used and costs: tokens where its provider counts them, else images, characters, seconds. Pure."""

from decimal import ROUND_UP, Decimal
from typing import Any, cast

import msgspec

from kenari.catalog.models import Price
from kenari.core.price import UNIT
from kenari.core.usage import Usage, believed
from kenari.gateway.kinds.asks import Ask
from kenari.wire import jsonx

BYTES_PER_SECOND = 16_000
"""Audio of ordinary quality (128 kbit/s), to guess how long it plays when neither file nor provider says."""


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What was used. `estimated` is true where we counted or guessed (U3)."""

    usage: Usage = Usage()
    images: int = 0
    characters: int = 0
    seconds: float = 0.0
    estimated: bool = False


def used_of(ask: Ask, answer: Any) -> Used:
    """What an answer used: `answer` is its JSON, None when it is none."""
    top = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    usage = _usage(top.get("usage"))
    estimated = usage is None and ask.kind == "embedding"
    if usage is None:
        usage = Usage(fresh=ask.tokens, output=0, estimated=True) if estimated else Usage()
    seconds, guessed = _seconds(ask, top)
    return Used(
        usage=usage,
        images=_images(ask, top),
        characters=ask.characters if ask.kind == "speech" else 0,
        seconds=seconds,
        estimated=estimated or guessed,
    )


def fee_of(price: Price | None, used: Used) -> int:
    """What is to be paid beside tokens, in 1e-9 currency units, rounded up once (F9)."""
    if price is None:
        return 0
    amount = Decimal(price.image or 0) * used.images
    amount += Decimal(price.character or 0) * used.characters / 10**6
    amount += Decimal(price.second or 0) * Decimal(str(used.seconds))
    return int((amount * UNIT).to_integral_value(ROUND_UP))


def expected_seconds(ask: Ask) -> float:
    """How long the audio of a request plays, as far as can be told before its provider has heard it."""
    return _seconds(ask, {})[0]


def usage_in(data: bytes) -> Any:
    """The JSON of a body or of an event's data, None when it is none."""
    try:
        return jsonx.value(data)
    except jsonx.Malformed:
        return None


def _usage(value: Any) -> Usage | None:
    """Tokens in either of OpenAI's two spellings; None where the provider counted something else or nothing."""
    if not isinstance(value, dict):
        return None
    found = cast("dict[str, Any]", value)
    prompt = found.get("prompt_tokens", found.get("input_tokens"))
    output = found.get("completion_tokens", found.get("output_tokens", 0))
    prompt = believed(prompt) if isinstance(prompt, int) else None
    if not prompt:
        return None
    return Usage(fresh=prompt, output=(believed(output) if isinstance(output, int) else None) or 0)


def _images(ask: Ask, top: dict[str, Any]) -> int:
    if ask.kind != "image":
        return 0
    data = top.get("data")
    return len(cast("list[Any]", data)) if isinstance(data, list) else ask.images


def _seconds(ask: Ask, top: dict[str, Any]) -> tuple[float, bool]:
    """Seconds of audio, and whether they are a guess: the provider's word, the file's, its size."""
    if ask.kind != "transcription":
        return 0.0, False
    usage = top.get("usage")
    said = cast("dict[str, Any]", usage).get("seconds") if isinstance(usage, dict) else None
    for value in (said, top.get("duration"), ask.seconds):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return float(value), False
    return ask.size / BYTES_PER_SECOND, True
