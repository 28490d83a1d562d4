"""The Responses dialect."""

from kenari.dialects.responses.dialect import RESPONSES

__all__ = ["RESPONSES"]
