"""Known providers as rows of data. `[providers.NAME]` takes the row of its name, or of `preset`, as its default.

A new provider is one row here and one recorded fixture. Each flag that is not obvious says where it comes from.
"""

import msgspec

from kenari.core.profile import Profile


class Row(msgspec.Struct, frozen=True):
    """A provider's defaults: the dialect spoken towards it, its public address, its profile, the usual key variable."""

    dialect: str
    base_url: str
    profile: Profile = Profile()
    key_env: str = ""


ROWS: dict[str, Row] = {
    # OpenAI: newer chat models refuse max_tokens; roles: developer; cache key on chat too (API reference).
    "openai": Row(
        "responses",
        "https://api.openai.com/v1",
        Profile(
            max_tokens_field="max_completion_tokens",
            developer_role=True,
            prompt_cache_key=True,
            audio=True,
            files=True,
            extra_fields=False,
            efforts=("none", "minimal", "low", "medium", "high", "xhigh"),
        ),
        "OPENAI_API_KEY",
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
        ),
        "OPENAI_API_KEY",
    ),
    # Anthropic: 2023-06-01 accepts what clients of both SDK generations send.
    "anthropic": Row(
        "messages",
        "https://api.anthropic.com/v1",
        Profile(
            betas=(
                "interleaved-thinking-2025-05-14",
                "fine-grained-tool-streaming-2025-05-14",
                "context-1m-2025-08-07",
                "token-efficient-tools-2025-02-19",
            ),
        ),
        "ANTHROPIC_API_KEY",
    ),
    # OpenRouter: one `reasoning` object for all models, cache marks passed to the vendors that take them.
    "openrouter": Row(
        "chat",
        "https://openrouter.ai/api/v1",
        Profile(
            effort="reasoning",
            efforts=("none", "minimal", "low", "medium", "high", "xhigh"),
            cache_control=True,
            reasoning_content_roundtrip=True,
            reasoning_field="reasoning",
            files=True,
        ),
        "OPENROUTER_API_KEY",
    ),
    # Groq: max_completion_tokens (max_tokens is deprecated); no logprobs.
    "groq": Row(
        "chat",
        "https://api.groq.com/openai/v1",
        Profile(
            max_tokens_field="max_completion_tokens",
            efforts=("none", "low", "medium", "high"),
            logprobs=False,
            extra_fields=False,
        ),
        "GROQ_API_KEY",
    ),
    # DeepSeek: thinking models want their reasoning_content back between tool rounds; only JSON mode.
    "deepseek": Row(
        "chat",
        "https://api.deepseek.com/v1",
        Profile(
            reasoning_content_roundtrip=True,
            response_format="json_object",
            effort="none",
            parallel_tool_calls=False,
        ),
        "DEEPSEEK_API_KEY",
    ),
    # Mistral: usage comes in every stream, stream_options is refused by strict validation.
    "mistral": Row(
        "chat",
        "https://api.mistral.ai/v1",
        Profile(stream_usage=False, strict_tools=False, extra_fields=False, efforts=("none", "high"), logprobs=False),
        "MISTRAL_API_KEY",
    ),
    "together": Row(
        "chat", "https://api.together.xyz/v1", Profile(efforts=("low", "medium", "high")), "TOGETHER_API_KEY"
    ),
    "fireworks": Row(
        "chat",
        "https://api.fireworks.ai/inference/v1",
        Profile(efforts=("none", "low", "medium", "high"), reasoning_content_roundtrip=True),
        "FIREWORKS_API_KEY",
    ),
    "xai": Row("chat", "https://api.x.ai/v1", Profile(efforts=("low", "high")), "XAI_API_KEY"),
    # Gemini's OpenAI endpoint: efforts none to high; unknown fields are refused.
    "gemini": Row(
        "chat",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        Profile(efforts=("none", "minimal", "low", "medium", "high"), extra_fields=False, logprobs=False),
        "GEMINI_API_KEY",
    ),
    # Servers of one's own: chat is their most complete and honest stream, whatever else they speak.
    "ollama": Row(
        "chat", "http://127.0.0.1:11434/v1", Profile(image_urls=False, efforts=("none", "low", "medium", "high"))
    ),
    "llama-server": Row("chat", "http://127.0.0.1:8080/v1", Profile(reasoning_content_roundtrip=True)),
    "vllm": Row("chat", "http://127.0.0.1:8000/v1", Profile(efforts=("none", "low", "medium", "high"))),
    "sglang": Row("chat", "http://127.0.0.1:30000/v1", Profile(efforts=("low", "medium", "high"))),
}
