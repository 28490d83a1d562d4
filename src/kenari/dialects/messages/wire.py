"""What Messages providers send, as structs that decode only what a rule has to understand; the rest stays raw."""

import msgspec
from msgspec import Raw

from kenari.core.events import Escaped, StopReason
from kenari.core.usage import Usage, believed
from kenari.dialects.frames import lenient
from kenari.wire import jsonx

_ABSENT = Raw(b"")

STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "pause_turn": "stop",
    "stop_sequence": "sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "call",
    "refusal": "filter",
}
"""F1, from a provider's word; an unknown word is a stop."""


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What a block grows by; which member counts follows from `type`."""

    type: str = ""
    text: Raw = _ABSENT
    thinking: Raw = _ABSENT
    partial_json: Raw = _ABSENT
    signature: Raw = _ABSENT


class BlockDelta(msgspec.Struct, frozen=True, gc=False):
    """`content_block_delta`: nearly every frame of a stream."""

    index: int = 0
    delta: Delta = Delta()


class BlockStart(msgspec.Struct, frozen=True):
    """`content_block_start`."""

    index: int = 0
    content_block: Raw = _ABSENT


class BlockStop(msgspec.Struct, frozen=True):
    """`content_block_stop`."""

    index: int = 0


class Block(msgspec.Struct, frozen=True):
    """A content block, as it opens in a stream or whole in a plain answer."""

    type: str = ""
    text: Raw = _ABSENT
    citations: Raw = _ABSENT
    thinking: Raw = _ABSENT
    signature: Raw = _ABSENT
    data: Raw = _ABSENT
    id: Raw = _ABSENT
    name: Raw = _ABSENT
    input: Raw = _ABSENT


class Message(msgspec.Struct, frozen=True):
    """The message of a plain answer, or the one that `message_start` opens. `error` stands where there is none."""

    type: Raw = _ABSENT
    content: Raw = _ABSENT
    stop_reason: Raw = _ABSENT
    stop_sequence: Raw = _ABSENT
    usage: Raw = _ABSENT
    error: Raw = _ABSENT


class MessageStart(msgspec.Struct, frozen=True):
    """`message_start`."""

    message: Message | None = None


class MessageEnd(msgspec.Struct, frozen=True):
    """`message_delta`: how the message ends."""

    delta: Message | None = None
    usage: Raw = _ABSENT


class Named(msgspec.Struct, frozen=True):
    """A frame whose `event:` line is missing, or whose name says nothing."""

    type: str = ""
    error: Raw = _ABSENT


class CacheCreation(msgspec.Struct, frozen=True):
    """Tokens written to the cache by lifetime."""

    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """A usage object. Its input side is disjoint, as ours is."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None


BLOCK_DELTA = jsonx.decoder(BlockDelta)
BLOCK_START = jsonx.decoder(BlockStart)
BLOCK_STOP = jsonx.decoder(BlockStop)
BLOCK = jsonx.decoder(Block)
MESSAGE = jsonx.decoder(Message)
MESSAGE_START = jsonx.decoder(MessageStart)
MESSAGE_END = jsonx.decoder(MessageEnd)
NAMED = jsonx.decoder(Named)
COUNTS = lenient(Counts)


def piece(raw: Raw) -> Escaped:
    """The escaped text of a member, "" when it is not a string."""
    data = bytes(raw)
    return data[1:-1] if data[:1] == b'"' else b""


def word(raw: Raw) -> str:
    """The same, decoded."""
    return jsonx.unescape(piece(raw))


def read_usage(raw: Raw, before: Usage | None) -> Usage | None:
    """The usage so far with a later snapshot merged in (U1); what cannot be read counts as not reported."""
    if jsonx.is_null(raw):
        return before
    try:
        counts = jsonx.read(COUNTS, raw)
    except jsonx.Malformed:
        return before
    written, hour = _written(counts, before)
    later = Usage(
        fresh=believed(counts.input_tokens),
        cache_read=believed(counts.cache_read_input_tokens),
        cache_write_5m=written,
        cache_write_1h=hour,
        output=believed(counts.output_tokens),
    )
    return later if before is None else before.merged(later)


def _written(counts: Counts, before: Usage | None) -> tuple[int | None, int | None]:
    """Cache writes of 5 minutes and of 1 hour. A total without its parts is split as the part known before says."""
    total = believed(counts.cache_creation_input_tokens)
    if counts.cache_creation is not None:
        short = believed(counts.cache_creation.ephemeral_5m_input_tokens)
        hour = believed(counts.cache_creation.ephemeral_1h_input_tokens)
        if short or hour or not total:
            return short if short is not None or hour is not None else total, hour
    hour = before.cache_write_1h if before is not None else None
    return (max(0, total - hour) if total and hour else total), None
