"""What Responses providers send, as far as it is understood. Texts stay raw; everything may be missing."""

import msgspec
from msgspec import Raw

from kenari.core.usage import Usage
from kenari.dialects.frames import lenient


class InputDetails(msgspec.Struct, gc=False):
    """Where the input came from."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """What the output was for."""

    reasoning_tokens: int | None = None


class UsageWire(msgspec.Struct, gc=False):
    """Usage as Responses providers report it: input tokens include cached ones (U2)."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None

    def usage(self) -> Usage | None:
        """The same in our words, None when it says nothing but zeros."""
        if not self.input_tokens and not self.output_tokens:
            return None
        details = self.input_tokens_details
        cached = details.cached_tokens if details else None
        written = details.cache_write_tokens if details else None
        return Usage(
            fresh=max(0, (self.input_tokens or 0) - (cached or 0) - (written or 0)),
            cache_read=cached,
            cache_write_5m=written,
            output=self.output_tokens,
            reasoning=self.output_tokens_details.reasoning_tokens if self.output_tokens_details else None,
        )


class Part(msgspec.Struct, gc=False):
    """A content or summary part."""

    type: str = ""
    text: Raw = Raw()
    refusal: Raw = Raw()


class Item(msgspec.Struct, gc=False):
    """An output item, opening or whole."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Raw = Raw()
    summary: list[Part] | None = None
    content: list[Part] | None = None
    encrypted_content: str | None = None


class Incomplete(msgspec.Struct, gc=False):
    """Why a response is incomplete."""

    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    """A response object."""

    status: str | None = None
    output: list[Item] | None = None
    usage: UsageWire | None = None
    incomplete_details: Incomplete | None = None
    error: Raw = Raw()


class StreamEvent(msgspec.Struct, gc=False):
    """An event of a stream."""

    type: str = ""
    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    item: Item | None = None
    delta: Raw = Raw()
    arguments: Raw = Raw()
    response: Response | None = None
    error: Raw = Raw()


EVENT = lenient(StreamEvent)
RESPONSE = lenient(Response)
