"""What `fit` has to know of the model that a request is made ready for."""

import msgspec

from kenari.core.ids import Envelopes
from kenari.core.profile import Profile


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's model, as far as a request has to be changed for it.

    `maker` names whose proofs it accepts. `raw_signatures` says that a Messages client sees signatures of this model
    as they are, so that a raw one that comes back is taken to be its own. None for `reasoning` and `vision` means
    unknown: passed through.
    """

    dialect: str
    model: str
    profile: Profile
    maker: str
    envelopes: Envelopes
    raw_signatures: bool = False
    reasoning: bool | None = None
    vision: bool | None = None
    max_output: int = 65536
    custom_tools: bool = False

    def takes_prompt_cache_key(self) -> bool:
        """Whether the provider takes `prompt_cache_key`; responses providers do by default."""
        flag = self.profile.prompt_cache_key
        return self.dialect == "responses" if flag is None else flag

    def takes_breakpoints(self) -> bool:
        """Whether marks are set for clients whose format has none; towards messages providers by default."""
        flag = self.profile.cache_breakpoints
        marks = self.profile.cache_control
        return (self.dialect == "messages" if flag is None else flag) and marks is not False

    def takes_result_images(self) -> bool:
        """Whether images may stand inside tool results; not on chat by default."""
        flag = self.profile.tool_result_images
        return self.dialect != "chat" if flag is None else flag

    def takes_files(self) -> bool:
        """Whether documents may be sent as they are; to messages providers by default."""
        flag = self.profile.files
        return self.dialect == "messages" if flag is None else flag

    def effort_style(self) -> str:
        """How the effort is asked for."""
        if self.profile.effort is not None:
            return self.profile.effort
        return {"chat": "reasoning_effort", "responses": "reasoning", "messages": "budget"}[self.dialect]
