"""The Messages format, both ways."""

from kenari.dialects.messages.dialect import MESSAGES
from kenari.dialects.messages.encode import encode_count

__all__ = ["MESSAGES", "encode_count"]
