"""Known providers as rows of data. `[providers.NAME]` takes the row of its name, or of `preset`, as its default.

A new provider is one row here and one recorded fixture. Each flag that is not obvious says where it comes from.
"""

import msgspec

from kenari.core.profile import Profile
from kenari.core.request import EFFORTS, Effort


class Row(msgspec.Struct, frozen=True):
    """A provider's defaults: the dialect spoken towards it, its public address, its profile, the usual key variable, and
    its name in the data package of `kenari models import` (models.dev), "" where it is not in it."""

    dialect: str
    base_url: str
    profile: Profile = Profile()
    key_env: str = ""
    catalog: str = ""


_OPENAI: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
_THREE: tuple[Effort, ...] = ("low", "medium", "high")
"""gpt-oss knows these three only and refuses others with a 400 (Harmony format)."""
_FOUR: tuple[Effort, ...] = ("none", "low", "medium", "high")

ROWS: dict[str, Row] = {
    # OpenAI: newer chat models refuse max_tokens and know the role developer; cache key in both formats; unknown
    # members are refused (API reference); prompts are counted at /responses/input_tokens. `max` is left out: most models that know xhigh refuse it.
    "openai": Row(
        "responses",
        "https://api.openai.com/v1",
        Profile(prompt_cache_key=True, files=True, efforts=_OPENAI, count_tokens=True, response_format="json_schema"),
        "OPENAI_API_KEY",
        "openai",
    ),
    "openai-chat": Row(
        "chat",
        "https://api.openai.com/v1",
        Profile(
            max_tokens_field="max_completion_tokens",
            developer_role=True,
            prompt_cache_key=True,
            audio=True,
            files=True,
            extra_fields=False,
            efforts=_OPENAI,
            response_format="json_schema",
        ),
        "OPENAI_API_KEY",
        "openai",
    ),
    # Anthropic: 2023-06-01 is the only current version. Efforts travel as token budgets, which models before Opus 4.7
    # take; for newer ones set effort = "output_config" and efforts = ["low", "medium", "high", "xhigh", "max"].
    "anthropic": Row(
        "messages",
        "https://api.anthropic.com/v1",
        Profile(
            response_format="json_schema",
            betas=(
                "interleaved-thinking-2025-05-14",
                "fine-grained-tool-streaming-2025-05-14",
                "context-1m-2025-08-07",
                "token-efficient-tools-2025-02-19",
            ),
        ),
        "ANTHROPIC_API_KEY",
        "anthropic",
    ),
    # OpenRouter: one `reasoning` object for all models, whose seven efforts it maps itself; it wants `reasoning` back;
    # cache marks, files and audio go to the vendors that take them (reasoning tokens guide, chat request schema). Which
    # of its models hold to a schema differs, so nobody vouches for that.
    "openrouter": Row(
        "chat",
        "https://openrouter.ai/api/v1",
        Profile(
            effort="reasoning",
            efforts=EFFORTS,
            cache_control=True,
            reasoning_content_roundtrip=True,
            reasoning_field="reasoning",
            audio=True,
            files=True,
        ),
        "OPENROUTER_API_KEY",
        "openrouter",
    ),
    # Groq: max_tokens is deprecated, logprobs are not served, unknown members are refused, `reasoning_content` on
    # earlier messages too (API reference). gpt-oss knows three efforts; for Qwen 3 set efforts = ["none"].
    "groq": Row(
        "chat",
        "https://api.groq.com/openai/v1",
        Profile(
            max_tokens_field="max_completion_tokens",
            efforts=_THREE,
            logprobs=False,
            extra_fields=False,
            response_format="json_schema",
        ),
        "GROQ_API_KEY",
        "groq",
    ),
    # DeepSeek: thinking is on by default, wants its reasoning_content back between tool rounds, maps all efforts but
    # `none` itself, and answers a forced tool_choice with 400 (thinking mode guide; deepseek-ai/DeepSeek-V3#1376).
    # `strict` is served at its beta address only; answers are held to JSON, not to a schema (JSON output guide).
    "deepseek": Row(
        "chat",
        "https://api.deepseek.com/v1",
        Profile(
            reasoning_content_roundtrip=True,
            response_format="json_object",
            efforts=("minimal", "low", "medium", "high", "xhigh", "max"),
            parallel_tool_calls=False,
            strict_tools=False,
            tool_choice_required=False,
        ),
        "DEEPSEEK_API_KEY",
        "deepseek",
    ),
    # Mistral: usage comes in every stream and unknown members, stream_options among them, are refused; efforts are
    # none and high; the cache key is taken (API reference).
    "mistral": Row(
        "chat",
        "https://api.mistral.ai/v1",
        Profile(
            stream_usage=False,
            strict_tools=False,
            extra_fields=False,
            prompt_cache_key=True,
            efforts=("none", "high"),
            logprobs=False,
            response_format="json_schema",
        ),
        "MISTRAL_API_KEY",
        "mistral",
    ),
    # Together: reasoning_effort is low, medium or high; reasoning stands in `reasoning` (reasoning guide). Some of its
    # models hold to a schema, others do not.
    "together": Row(
        "chat",
        "https://api.together.xyz/v1",
        Profile(efforts=_THREE, reasoning_field="reasoning"),
        "TOGETHER_API_KEY",
        "togetherai",
    ),
    # Fireworks: `reasoning_content` both ways; these efforts are common to its models (reasoning guide).
    "fireworks": Row(
        "chat",
        "https://api.fireworks.ai/inference/v1",
        Profile(efforts=_FOUR, reasoning_content_roundtrip=True, response_format="json_schema"),
        "FIREWORKS_API_KEY",
        "fireworks-ai",
    ),
    # xAI: what all models with an effort take; grok-4.5 and later have no `none` (reasoning guide). Models without
    # the parameter refuse it whatever its value: set effort = "none" for them.
    "xai": Row(
        "chat", "https://api.x.ai/v1", Profile(efforts=_THREE, response_format="json_schema"), "XAI_API_KEY", "xai"
    ),
    # Gemini's OpenAI endpoint: unknown members are refused ("Unknown name"); `none` is refused by Gemini 3 and later,
    # `minimal` by some of its models (OpenAI compatibility page and its forum). Gemini 3 refuses earlier calls without a
    # signature; this word stands for one where another model made the call, or a client lost it (thought signatures page).
    "gemini": Row(
        "chat",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        Profile(
            efforts=_THREE,
            extra_fields=False,
            logprobs=False,
            response_format="json_schema",
            unsigned_calls="skip_thought_signature_validator",
        ),
        "GEMINI_API_KEY",
        "google",
    ),
    # Servers of one's own: chat is their most complete and honest stream, whatever else they speak.
    # Ollama: images as data only, tool_choice is ignored (OpenAI compatibility page).
    "ollama": Row(
        "chat",
        "http://127.0.0.1:11434/v1",
        Profile(image_urls=False, tool_choice_required=False, efforts=_FOUR, response_format="json_schema"),
    ),
    # llama-server: templates of thinking models read reasoning_content back; its responses never say that they were cut
    # (measured, b10434).
    "llama-server": Row(
        "chat",
        "http://127.0.0.1:8080/v1",
        Profile(reasoning_content_roundtrip=True, cuts_silently=True, response_format="json_schema"),
    ),
    # vLLM: reasoning_content was renamed to reasoning (reasoning outputs page; measured, 0.32).
    "vllm": Row(
        "chat",
        "http://127.0.0.1:8000/v1",
        Profile(efforts=_FOUR, reasoning_field="reasoning", response_format="json_schema"),
    ),
    "sglang": Row("chat", "http://127.0.0.1:30000/v1", Profile(efforts=_THREE, response_format="json_schema")),
}
