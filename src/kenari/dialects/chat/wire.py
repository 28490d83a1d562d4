"""What chat providers send, as far as it is understood. Texts stay raw; everything may be missing."""

import msgspec
from msgspec import Raw

from kenari.core.usage import MOST, Usage, believed
from kenari.dialects.frames import lenient, read_frame


class FunctionDelta(msgspec.Struct, gc=False):
    """A piece of a call."""

    name: str | None = None
    arguments: Raw = Raw()


class ToolDelta(msgspec.Struct, gc=False):
    """A piece of a call, or a whole one in a plain answer."""

    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None
    extra_content: Raw = Raw()


class Delta(msgspec.Struct, gc=False):
    """A piece of the message, or a whole one in a plain answer."""

    content: Raw = Raw()
    reasoning: Raw = Raw()
    reasoning_content: Raw = Raw()
    reasoning_details: Raw = Raw()
    refusal: Raw = Raw()
    tool_calls: list[ToolDelta] | None = None
    function_call: FunctionDelta | None = None


class Choice(msgspec.Struct, gc=False):
    """One choice; only index 0 is read (D8)."""

    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    stop_reason: Raw = Raw()
    logprobs: Raw = Raw()
    usage: Raw = Raw()


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
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class Nested(msgspec.Struct, gc=False):
    """Groq's own place for usage in streams."""

    usage: Raw = Raw()


class Chunk(msgspec.Struct, gc=False):
    """A chunk of a stream or a whole plain answer. Usage is read apart, so that an odd one costs no content."""

    choices: list[Choice] | None = None
    usage: Raw = Raw()
    error: Raw = Raw()
    x_groq: Nested | None = None


class ContentPart(msgspec.Struct, gc=False):
    """A part of content that comes as an array (Mistral), or of `reasoning_details` (OpenRouter)."""

    type: str = ""
    text: Raw = Raw()
    thinking: Raw = Raw()
    summary: Raw = Raw()


NULL = 4
"""The length of `null`: a raw member that is no longer is absent, null or says nothing. Asked for on every frame."""

CHUNK = lenient(Chunk)
PART = lenient(ContentPart)
_USAGE = lenient(UsageWire)


class UsageSeen:
    """The last non-zero report of each count (U1): later chunks may correct or complete earlier ones."""

    __slots__ = ("_cached", "_completion", "_prompt", "_reasoning", "_written")

    def __init__(self) -> None:
        self._prompt = self._completion = 0
        self._cached: int | None = None
        self._written: int | None = None
        self._reasoning: int | None = None

    def read(self, chunk: Chunk) -> Usage | None:
        """The usage so far when this chunk reports any, None when it does not or all is zero."""
        raw = chunk.usage
        if len(raw) <= NULL:
            if chunk.x_groq is not None:
                raw = chunk.x_groq.usage
            elif chunk.choices:
                raw = chunk.choices[0].usage
            if len(raw) <= NULL:
                return None
        wire, _ = read_frame(_USAGE, bytes(raw))
        return self.take(wire) if wire is not None else None

    def take(self, wire: UsageWire) -> Usage | None:
        """The usage so far with this report, None when all is zero."""
        prompt, completion = wire.prompt_tokens or 0, wire.completion_tokens or 0
        prompt = prompt if 0 <= prompt <= MOST else 0
        completion = completion if 0 <= completion <= MOST else 0
        completion = self._add_details(wire, prompt, completion)
        self._prompt = prompt or self._prompt
        self._completion = completion or self._completion
        if not self._prompt and not self._completion:
            return None
        return Usage(
            fresh=max(0, self._prompt - (self._cached or 0) - (self._written or 0)),
            cache_read=self._cached,
            cache_write_5m=self._written,
            output=self._completion,
            reasoning=self._reasoning,
        )

    def _add_details(self, wire: UsageWire, prompt: int, completion: int) -> int:
        """Note where tokens came from and what they were for; those of the completion, reasoning included."""
        details, spent = wire.prompt_tokens_details, wire.completion_tokens_details
        thought = believed(spent.reasoning_tokens) if spent is not None else None
        if thought and wire.total_tokens == prompt + completion + thought:
            completion += thought  # one vendor leaves reasoning out of the completion's tokens
        if details is not None:
            self._cached = _later(self._cached, details.cached_tokens)
            self._written = _later(self._written, details.cache_write_tokens)
        if wire.prompt_cache_hit_tokens is not None:
            self._cached = _later(self._cached, wire.prompt_cache_hit_tokens)
        if wire.cached_tokens is not None:
            self._cached = _later(self._cached, wire.cached_tokens)
        if thought is not None:
            self._reasoning = _later(self._reasoning, thought)
        return completion


def usage_of(wire: UsageWire) -> Usage | None:
    """The usage of an answer that reports it once: what `UsageSeen` makes of it, at once where nothing about it is odd."""
    prompt, output = wire.prompt_tokens, wire.completion_tokens
    details, spent = wire.prompt_tokens_details, wire.completion_tokens_details
    cached, written = (None, None) if details is None else (details.cached_tokens, details.cache_write_tokens)
    thought = None if spent is None else spent.reasoning_tokens
    odd = cached or written or thought or wire.prompt_cache_hit_tokens is not None or wire.cached_tokens is not None
    if odd or not (prompt and output and 0 < prompt <= MOST and 0 < output <= MOST):
        return UsageSeen().take(wire)
    return Usage(fresh=prompt, cache_read=cached, cache_write_5m=written, output=output, reasoning=thought)


def _later(old: int | None, new: int | None) -> int | None:
    """A count after a later report: zero is a report, but never takes back a larger one."""
    new = None if new is not None and new > MOST else new
    return old if new is None or (new <= 0 and old is not None) else max(new, 0)
