"""The OpenAI error envelope, which two dialects and all other paths speak."""

from typing import Any

from kenari.core.errors import KenariError


def envelope(error: KenariError) -> dict[str, Any]:
    """The body of an error, always with four keys (S164)."""
    kind = error.kind
    return {"error": {"message": error.message, "type": kind.type, "param": error.param, "code": error.code}}
