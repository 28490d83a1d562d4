"""`fit`: a request made ready for one target. Pure: the client's request is left as it was."""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from kenari.core.errors import bad_request
from kenari.core.request import Notice, Request, TextPart, Turn
from kenari.dialects.fit.caching import add_breakpoints
from kenari.dialects.fit.content import fit_content
from kenari.dialects.fit.format import fit_format
from kenari.dialects.fit.losses import is_blank, note_losses
from kenari.dialects.fit.pairs import pair_results
from kenari.dialects.fit.reasoning import fit_reasoning, sign_calls
from kenari.dialects.fit.target import Target
from kenari.dialects.fit.thinking import beside, fit_thinking, is_on
from kenari.dialects.fit.tools import fit_tools, rename_calls
from kenari.wire import jsonx

NEVER_LOST = frozenset(["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens"])
"""Members that reach every target of a request's own format, in words of its own."""
DEFAULT_OUTPUT = 65536
"""S123: the cap of a Responses request that names none."""


def fit(request: Request, target: Target, seal_key: Callable[[str], str] | None = None) -> Request:
    """The request as this target can take it. `seal_key` makes the HMAC under which a caller's prompt cache key travels
    (M3); without it none travels. Raises KenariError (400) where a person's words would be lost."""
    notices: list[Notice] = []
    if request.format is not None:
        request = fit_format(request, target)
    max_output = _max_output(request, target)
    if request.plain and _passes(request, target):
        # texts of the target's own format: most of what is below would change nothing
        fitted = msgspec.structs.replace(
            request, model=target.model, max_output=max_output, tool_choice=None, parallel=None
        )
        if not NEVER_LOST.issuperset(request.fields):
            note_losses(request, fitted, target, notices)
            if notices:
                fitted.notices = request.notices + notices
            _fit_sampling(fitted, target)
        return fitted
    tools, choice, names = fit_tools(request, target, notices)
    texts = _are_texts(request.turns)  # then there is nothing to pair, to think, and to rename
    turns = request.turns if texts else fit_reasoning(pair_results(request.turns), target)
    turns = fit_content(turns, request.origin, target, notices)
    if not texts:
        turns = rename_calls(turns, names)
        if target.profile.unsigned_calls:
            turns = sign_calls(turns, target.profile.unsigned_calls)
    if request.origin != "messages" and target.takes_breakpoints():
        turns = list(turns)
        add_breakpoints(tools, turns, request, target)
    if not turns or (target.dialect == "messages" and not any(map(_speaks, turns))):
        where = "input" if request.origin == "responses" else "messages"
        raise bad_request("the conversation holds no message of a user or an assistant. add one", where)
    thinking = fit_thinking(request, target, max_output or target.max_output)
    fitted = msgspec.structs.replace(
        request,
        model=target.model,
        turns=turns,
        tools=tools,
        tool_choice=choice,
        parallel=request.parallel if tools and target.profile.parallel_tool_calls else None,
        max_output=max_output,
        thinking=beside(thinking, request, target, turns, choice),
        cache_key=_cache_key(request, target, seal_key),
        names=names,
        notices=request.notices + notices,
        plain=False,
    )
    note_losses(request, fitted, target, fitted.notices)
    if target.dialect == "messages" and (request.origin != "messages" or fitted.thinking != request.thinking):
        _leave_sampling(fitted)
    _fit_sampling(fitted, target)
    return fitted


def _speaks(turn: Turn) -> bool:
    """Whether a turn is a message for a Messages provider: the system prompt and blank texts are none."""
    return turn.role != "system" and any(
        not isinstance(part, TextPart) or not is_blank(part.text) for part in turn.parts
    )


def _are_texts(turns: list[Turn]) -> bool:
    for turn in turns:
        for part in turn.parts:
            if not isinstance(part, TextPart):
                return False
    return True


def _max_output(request: Request, target: Target) -> int | None:
    """The cap: clamped to the model's (D23), the default where the format or the provider wants one (S123, F12)."""
    if request.max_output is not None:
        return min(request.max_output, target.max_output)
    if request.origin == "responses":
        return min(DEFAULT_OUTPUT, target.max_output)
    if target.dialect == "messages" or target.profile.default_max_tokens:
        return target.max_output
    return None


def _cache_key(request: Request, target: Target, seal_key: Callable[[str], str] | None) -> str | None:
    if request.cache_key is None or seal_key is None or not target.takes_prompt_cache_key():
        return None
    return seal_key(request.cache_key)


def _fit_sampling(request: Request, target: Target) -> None:
    """Temperatures above what the provider takes are lowered; a Messages provider takes 0 to 1."""
    ceiling = target.profile.temperature_max
    if ceiling is None and target.dialect == "messages":
        ceiling = 1.0
    raw = request.sampling.get("temperature")
    if ceiling is None or raw is None:
        return
    if float(jsonx.value(raw)) > ceiling:
        request.sampling = request.sampling | {"temperature": Raw(jsonx.encode(ceiling))}
        request.notices = [*request.notices, Notice("temperature", f"lowered to {ceiling}")]


def _leave_sampling(request: Request) -> None:
    """Beside thinking that was switched on here a Messages provider takes no sampling numbers, else only one of temperature
    and top_p, which clients of other formats send together."""
    sampling, lost = request.sampling, list[str]()
    if is_on(request.thinking, request.tool_choice):
        lost = [name for name in ("temperature", "top_p", "top_k") if name in sampling]
    elif request.origin != "messages" and "temperature" in sampling and "top_p" in sampling:
        lost = ["top_p"]
    if lost:
        request.sampling = {name: raw for name, raw in sampling.items() if name not in lost}
        request.notices = [*request.notices, *(Notice(name, "not beside the others") for name in lost)]


def _passes(request: Request, target: Target) -> bool:
    """Whether texts only may go to this target as they are."""
    return (
        request.origin == target.dialect
        and request.format is None
        and request.cache_key is None
        and not target.profile.system_first_only
        and (request.origin == "messages" or not target.takes_breakpoints())
    )
