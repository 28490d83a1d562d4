"""Limits for a node that has none."""

from kenari.core.caller import Caller
from kenari.core.ports import Admission


class NoLimits:
    """`core.ports.Limits` that let everything in."""

    async def admit(self, caller: Caller, request_id: str, tokens: int, body: bytes) -> Admission:
        """Let it in."""
        return Admission(request_id, caller)

    def release(self, admission: Admission, tokens: int) -> None:
        """Nothing was counted."""
