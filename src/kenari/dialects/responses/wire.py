"""What Responses providers send, as far as it is understood. Texts stay raw; everything may be missing."""

from typing import TypeVar

import msgspec
from msgspec import Raw

from kenari.core.events import Escaped
from kenari.core.usage import Usage, believed
from kenari.dialects.frames import lenient, read_frame
from kenari.wire import jsonx

T = TypeVar("T")


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
        prompt, output = believed(self.input_tokens), believed(self.output_tokens)
        if not prompt and not output:
            return None
        details, spent = self.input_tokens_details, self.output_tokens_details
        cached = believed(details.cached_tokens) if details else None
        written = believed(details.cache_write_tokens) if details else None
        return Usage(
            fresh=max(0, (prompt or 0) - (cached or 0) - (written or 0)),
            cache_read=cached,
            cache_write_5m=written,
            output=output,
            reasoning=believed(spent.reasoning_tokens) if spent else None,
        )


class Part(msgspec.Struct, gc=False):
    """A content or summary part."""

    text: Raw = Raw()
    refusal: Raw = Raw()


class Item(msgspec.Struct, gc=False):
    """An output item, opening or whole. Its parts are read apart."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Raw = Raw()
    summary: Raw = Raw()
    content: Raw = Raw()
    encrypted_content: Raw = Raw()


class Incomplete(msgspec.Struct, gc=False):
    """Why a response is incomplete."""

    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    """A response object. Its members are read apart, so that an odd one costs no other."""

    status: str | None = None
    output: Raw = Raw()
    usage: Raw = Raw()
    incomplete_details: Raw = Raw()
    error: Raw = Raw()

    def read_usage(self) -> Usage | None:
        """What was used, None when that is not said or cannot be read."""
        wire = read_member(USAGE, self.usage)
        return None if wire is None else wire.usage()

    def items(self) -> list[Item]:
        """The output items that can be read."""
        return [item for raw in _elements(self.output) if (item := read_member(ITEM, raw)) is not None]

    def why(self) -> str | None:
        """The reason of an incomplete response."""
        details = read_member(_INCOMPLETE, self.incomplete_details)
        return details.reason if details else None


class StreamEvent(msgspec.Struct, gc=False):
    """An event of a stream."""

    type: str = ""
    delta: Raw = Raw()
    item_id: str | None = None
    output_index: int | None = None
    summary_index: int | None = None
    arguments: Raw = Raw()
    item: Raw = Raw()
    response: Raw = Raw()
    error: Raw = Raw()


NULL = 4
"""The length of `null`: a raw member that is no longer is absent, null or says nothing."""


def read_member(use: jsonx.Decoder[T], raw: Raw) -> T | None:
    """The struct of a raw member, None when it is absent, null or of another form."""
    return read_frame(use, bytes(raw))[0] if len(raw) > NULL or bytes(raw) == b"{}" else None


def inside(raw: Raw) -> Escaped:
    """The text of a raw string, b"" for anything else."""
    data = bytes(raw)
    return data[1:-1] if data[:1] == b'"' else b""


def arguments_of(raw: Raw) -> Escaped:
    """The escaped arguments of a call: a string, or an object as some servers send it."""
    data = bytes(raw)
    return jsonx.embed(data) if data[:1] == b"{" else inside(raw)


def texts_of(raw: Raw, between: Escaped) -> Escaped:
    """The joined texts of an array of parts."""
    parts = [part for one in _elements(raw) if (part := read_member(_PART, one)) is not None]
    return between.join(text for part in parts if (text := inside(part.text) or inside(part.refusal)))


def _elements(raw: Raw) -> list[Raw]:
    return read_member(_ELEMENTS, raw) or []


EVENT = lenient(StreamEvent)
RESPONSE = lenient(Response)
ITEM = lenient(Item)
USAGE = lenient(UsageWire)
_PART = lenient(Part)
_INCOMPLETE = lenient(Incomplete)
_ELEMENTS = lenient(list[Raw])
