"""How much a model should reason, in the words that its provider knows (R1, R2)."""

import msgspec

from kenari.core.request import EFFORTS, Effort, Request, Thinking, ToolChoice, Turn, forces_call, lacks_thought
from kenari.dialects.fit.target import Target

SHARES: dict[Effort, float] = {"max": 0.95, "xhigh": 0.95, "high": 0.8, "medium": 0.5, "low": 0.2, "minimal": 0.1}
"""R2: the share of the output cap that each effort gives to thinking."""


def fit_thinking(request: Request, target: Target, cap: int) -> Thinking | None:
    """The wish as this target takes it, None when it cannot be asked for. `cap` is the output cap in tokens."""
    wish = request.thinking
    if wish is None:
        return None
    silent = Thinking(exclude=wish.exclude) if wish.exclude else None
    style = target.effort_style()
    if target.reasoning is False or style == "none":
        return silent
    if request.origin == target.dialect == "messages" and target.profile.effort is None:
        return wish
    if style == "budget":
        return _with_budget(wish, target, cap) or silent
    effort = wish.effort
    if effort is None and wish.budget is not None:
        effort = _effort_of(wish.budget, cap)
    if effort is None:
        return silent
    return Thinking(effort=nearest_lower(effort, target.profile.efforts), exclude=wish.exclude)


def beside(
    thinking: Thinking | None, request: Request, target: Target, turns: list[Turn], choice: ToolChoice | None
) -> Thinking | None:
    """The wish beside the rest of the fitted request: Messages vendors refuse a budget where a call is forced, and within
    a round of calls whose thought is not there."""
    if target.dialect != "messages" or thinking is None or thinking.budget is None:
        return thinking
    same = request.origin == "messages"
    if (forces_call(choice) and not same) or lacks_thought(turns, same):
        return Thinking(exclude=thinking.exclude) if thinking.exclude else None
    return thinking


def is_on(thinking: Thinking | None, choice: ToolChoice | None) -> bool:
    """Whether a Messages provider is asked to think; beside a forced call there is a level at most."""
    if thinking is None:
        return False
    return thinking.budget is not None or (thinking.effort not in (None, "none") and not forces_call(choice))


def _with_budget(wish: Thinking, target: Target, cap: int) -> Thinking | None:
    if wish.effort == "none":
        return Thinking(effort="none", exclude=wish.exclude)
    budget = wish.budget
    if budget is None:
        if wish.effort is None:
            return None
        budget = int(cap * SHARES[wish.effort])
    least = target.profile.min_budget
    if cap <= least:  # no room for a budget below the cap
        return None
    return msgspec.structs.replace(wish, effort=None, adaptive=False, budget=min(max(budget, least), cap - 1))


def _effort_of(budget: int, cap: int) -> Effort:
    """The strongest effort whose share a budget reaches."""
    levels: tuple[Effort, ...] = ("xhigh", "high", "medium", "low")
    for effort in levels:
        if budget >= cap * SHARES[effort]:
            return effort
    return "minimal" if budget > 0 else "none"


def nearest_lower(effort: Effort, known: tuple[Effort, ...]) -> Effort | None:
    """The nearest level at or below this one that a provider knows, its lowest when there is none below."""
    if not known:
        return None
    order: list[Effort] = [level for level in EFFORTS if level in known]
    below: list[Effort] = [level for level in order if EFFORTS.index(level) <= EFFORTS.index(effort)]
    return below[-1] if below else order[0]
