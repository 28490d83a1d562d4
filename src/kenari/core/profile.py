"""A provider's quirks as documented data. A provider is a dialect plus one of these; its name is never compared."""

from typing import Literal

import msgspec

from kenari.core.request import Effort


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The flags of `[providers.NAME.profile]`. None means "what the provider's dialect does by default"."""

    max_tokens_field: Literal["max_tokens", "max_completion_tokens", "none"] = "max_tokens"
    """Chat: the field that carries the output cap; `none` sends no cap."""
    default_max_tokens: bool = False
    """Chat: send the model's output cap even when the client named none."""
    system_first_only: bool = False
    """The provider takes a system message only at the start; later ones are sent as user messages."""
    developer_role: bool = False
    """Chat: the provider knows the role `developer`; else it is sent as `system`."""
    prompt_cache_key: bool | None = None
    """Send `prompt_cache_key` (an HMAC of account and key). Default: only to responses providers."""
    cache_control: bool | None = None
    """The provider takes `cache_control` marks on content. Default: only messages providers."""
    cache_breakpoints: bool | None = None
    """Set `cache_control` marks for clients of other formats, in conversations that go on: tools, system prompt, the last
    two messages. Default: messages providers, unless `cache_control` is off."""
    reasoning_content_roundtrip: bool = False
    """Chat: earlier reasoning is sent back on assistant messages."""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    """Chat: the name of that field."""
    unsigned_calls: str = ""
    """Chat: the signature to put beside earlier calls that this provider did not sign itself; Gemini refuses calls without
    one."""
    think_tags: bool = False
    """The model writes its reasoning as a leading `<think>...</think>` in the text."""
    effort: Literal["reasoning_effort", "reasoning", "budget", "output_config", "none"] | None = None
    """How the effort is asked for: a chat string, an object `reasoning`, Anthropic token budgets, Anthropic
    `output_config.effort` with adaptive thinking, or not at all. Default: `reasoning_effort` on chat, `reasoning` on
    responses, `budget` on messages."""
    efforts: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
    """The levels that the provider knows; others become the nearest lower one."""
    min_budget: int = 1024
    """Messages: the smallest thinking budget, in tokens."""
    stream_usage: bool = True
    """Chat: ask for usage in streams with `stream_options.include_usage`."""
    stream_always: bool = False
    """The provider is asked for a stream even when the client wants one JSON object."""
    cuts_silently: bool = False
    """Responses: the provider calls an answer complete that its output cap has cut; one as long as the cap is taken to be
    cut."""
    parallel_tool_calls: bool = True
    """The provider takes the switch that forbids parallel calls."""
    strict_tools: bool = True
    """The provider takes `strict` on function tools."""
    tool_choice_required: bool = True
    """The provider can be made to call a tool, any or a named one; else `auto` is sent."""
    response_format: Literal["json_schema", "json_object", "none"] | None = None
    """The richest answer format the provider enforces itself. Default: it is asked for `json_schema`, and its
    answers are looked at, since a server that does not know the wish ignores it without a word."""
    image_urls: bool = True
    """The provider fetches http(s) image addresses itself."""
    tool_result_images: bool | None = None
    """Images may stand inside tool results. Default: all but chat."""
    files: bool | None = None
    """Documents may be sent as they are. Default: messages (PDF and text) only."""
    audio: bool = False
    """Chat: `input_audio` parts may be sent."""
    logprobs: bool = True
    """Chat: `logprobs` and `top_logprobs` may be sent."""
    extra_fields: bool = True
    """Chat: top-level fields that kenari does not know are passed on (they are how many self-hosted servers are
    tuned)."""
    temperature_max: float | None = None
    """Larger temperatures are lowered to this. Default: 1 on messages, none elsewhere."""
    auth: Literal["bearer", "x-api-key", "none"] | None = None
    """How the key is sent. Default: `x-api-key` to messages providers, else `bearer`."""
    anthropic_version: str = "2023-06-01"
    """Messages: the `anthropic-version` that kenari sends (D12)."""
    betas: tuple[str, ...] = ()
    """Messages: the `anthropic-beta` names that may travel from a client to this provider (F4)."""
    count_tokens: bool | None = None
    """The provider counts prompts: messages providers at `/messages/count_tokens`, by default; responses providers at
    `/responses/input_tokens`, where this is set."""
    headers: dict[str, str] = {}
    """Fixed headers for every call."""
