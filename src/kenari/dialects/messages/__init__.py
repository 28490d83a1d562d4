"""The Messages format, both ways."""

from kenari.dialects.messages.dialect import MESSAGES

__all__ = ["MESSAGES"]
