"""The Messages dialect."""

from kenari.dialects.messages.dialect import MESSAGES

__all__ = ["MESSAGES"]
