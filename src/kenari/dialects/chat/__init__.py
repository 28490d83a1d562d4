"""The Chat completions dialect."""

from kenari.dialects.chat.dialect import CHAT

__all__ = ["CHAT"]
