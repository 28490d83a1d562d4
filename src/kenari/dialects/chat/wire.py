"""What chat providers send, as far as it is understood. Texts stay raw; everything may be missing."""

import msgspec
from msgspec import Raw

from kenari.core.usage import Usage
from kenari.dialects.frames import lenient


class FunctionDelta(msgspec.Struct, gc=False):
    """A piece of a call."""

    name: str | None = None
    arguments: Raw = Raw()


class ToolDelta(msgspec.Struct, gc=False):
    """A piece of a call, or a whole one in a plain answer."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None


class Delta(msgspec.Struct, gc=False):
    """A piece of the message, or a whole one in a plain answer."""

    content: Raw = Raw()
    reasoning: Raw = Raw()
    reasoning_content: Raw = Raw()
    refusal: Raw = Raw()
    tool_calls: list[ToolDelta] | None = None


class Choice(msgspec.Struct, gc=False):
    """One choice; only index 0 is read (D8)."""

    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    stop_reason: Raw = Raw()
    logprobs: Raw = Raw()


class PromptDetails(msgspec.Struct, gc=False):
    """Where the prompt's tokens came from."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    """What the generated tokens were for."""

    reasoning_tokens: int | None = None


class UsageWire(msgspec.Struct, gc=False):
    """Usage as chat providers report it: prompt tokens include cached ones (U2)."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None


class Nested(msgspec.Struct, gc=False):
    """Groq's own place for usage in streams."""

    usage: UsageWire | None = None


class Chunk(msgspec.Struct, gc=False):
    """A chunk of a stream or a whole plain answer."""

    choices: list[Choice] | None = None
    usage: UsageWire | None = None
    error: Raw = Raw()
    x_groq: Nested | None = None


class ContentPart(msgspec.Struct, gc=False):
    """A part of content that comes as an array (Mistral)."""

    type: str = ""
    text: Raw = Raw()
    thinking: Raw = Raw()


CHUNK = lenient(Chunk)
PART = lenient(ContentPart)


class UsageSeen:
    """The last non-zero report of each count (U1): later chunks may correct or complete earlier ones."""

    def __init__(self) -> None:
        self._prompt = self._completion = 0
        self._cached: int | None = None
        self._written: int | None = None
        self._reasoning: int | None = None

    def add(self, wire: UsageWire) -> None:
        """Take one report."""
        self._prompt = wire.prompt_tokens or self._prompt
        self._completion = wire.completion_tokens or self._completion
        details = wire.prompt_tokens_details
        if details is not None:
            self._cached = details.cached_tokens or self._cached
            self._written = details.cache_write_tokens or self._written
        self._cached = wire.prompt_cache_hit_tokens or self._cached
        if wire.completion_tokens_details is not None:
            self._reasoning = wire.completion_tokens_details.reasoning_tokens or self._reasoning

    def snapshot(self) -> Usage | None:
        """The usage so far, None while nothing but zeros came."""
        if not self._prompt and not self._completion:
            return None
        fresh = max(0, self._prompt - (self._cached or 0) - (self._written or 0))
        return Usage(
            fresh=fresh,
            cache_read=self._cached,
            cache_write_5m=self._written,
            output=self._completion,
            reasoning=self._reasoning,
        )
