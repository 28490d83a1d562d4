"""How a Messages provider is asked to think, by the profile's `effort`, within what vendors demand of such requests."""

from typing import Any

import msgspec

from kenari.core.profile import Profile
from kenari.core.request import Effort, Request, forces_call, lacks_thought
from kenari.dialects.fields import Fields
from kenari.dialects.messages.blocks import NAME
from kenari.dialects.messages.options import read_thinking

EFFORTS: dict[Effort, Effort | None] = {"none": None, "minimal": "low"}
"""Levels that `output_config.effort` has no word for."""

DISABLED = {"type": "disabled"}


class Thoughts(msgspec.Struct, frozen=True):
    """What goes into `thinking` and `output_config.effort`.

    `untouched` is true when both are the client's own. `rules_sampling` is true when thinking was switched on by us:
    temperature, top_p and top_k may not stand beside it.
    """

    thinking: Any = None
    effort: str | None = None
    untouched: bool = False
    rules_sampling: bool = False


def ask_thinking(request: Request, profile: Profile, fields: Fields, limit: int) -> Thoughts:
    """What to ask for; `limit` is the output cap in tokens, which a budget has to stay below."""
    wish = request.thinking
    same = request.origin == NAME
    if same and read_thinking(fields) == wish:
        raw = fields.get("thinking")
        if wish is None or wish.budget is None or raw is None:
            return Thoughts(raw, untouched=True)
        if wish.budget < limit and not lacks_thought(request.turns, same):
            return Thoughts(raw, untouched=True)
    if wish is None:
        return Thoughts()
    if wish.effort == "none":
        return Thoughts(DISABLED)
    if wish.budget is not None and profile.effort in (None, "budget"):
        return _ask_budget(request, profile, wish.budget, limit)
    if wish.effort is not None and profile.effort in ("output_config", None):
        effort = EFFORTS.get(wish.effort, wish.effort)
        if forces_call(request.tool_choice):
            return Thoughts(effort=effort)
        return Thoughts(_adaptive(fields), effort, rules_sampling=True)
    return Thoughts()


def _adaptive(fields: Fields) -> Any:
    """Adaptive thinking, in the client's own words where it asked for it."""
    own = fields.child("thinking")
    return fields.get("thinking") if own is not None and own.string("type") == "adaptive" else {"type": "adaptive"}


def write_output_config(request: Request, thoughts: Thoughts, fields: Fields) -> Any:
    """`output_config`: the client's own when nothing of it changed, else its other members with ours."""
    own = fields.child("output_config")
    if own is not None and thoughts.untouched and fields.get("output_format") is None:
        return fields.get("output_config")
    out: dict[str, Any] = {} if own is None else {name: raw for name, raw in own.members.items() if name != "effort"}
    if own is not None and thoughts.untouched and own.get("effort") is not None:
        out["effort"] = own.get("effort")
    if thoughts.effort is not None:
        out["effort"] = thoughts.effort
    wanted = request.format
    if wanted is not None and wanted.kind == "json_schema" and wanted.schema is not None:
        out["format"] = {"type": "json_schema", "schema": wanted.schema}
    return out or None


def _ask_budget(request: Request, profile: Profile, budget: int, limit: int) -> Thoughts:
    budget = min(budget, limit - 1)
    same = request.origin == NAME
    if budget < profile.min_budget or lacks_thought(request.turns, same) or forces_call(request.tool_choice):
        return Thoughts()
    return Thoughts({"type": "enabled", "budget_tokens": budget}, rules_sampling=True)
