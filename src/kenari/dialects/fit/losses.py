"""What of a request its target has no words for: it is left out, and told by name (D9)."""

from kenari.core.events import Escaped
from kenari.core.request import Notice, Request
from kenari.dialects.fields import BETAS
from kenari.dialects.fit.target import Target
from kenari.wire import jsonx

_SAMPLING = {
    "messages": frozenset(("temperature", "top_p", "top_k")),
    "responses": frozenset(("temperature", "top_p")),
}
"""The sampling numbers that a format knows; chat takes all of ours."""

_OWN = {"chat": ("logit_bias", "logprobs", "top_logprobs", "user"), "messages": ("metadata",)}
"""Members that kenari understands and that reach providers of the client's own format only."""

_STOPS = {"chat": "stop", "messages": "stop_sequences"}
_THINKING = ("reasoning", "reasoning_effort", "thinking", "output_config")
_WHY = "the model's provider has no word for it"


def note_losses(request: Request, fitted: Request, target: Target, notices: list[Notice]) -> None:
    """Add a notice for each member of a client's request that does not reach this target; `fitted` is what does."""
    known = _SAMPLING.get(target.dialect)
    lost = [name for name in request.sampling if known is not None and name not in known]
    if target.dialect == "responses" and request.stop:
        lost.append(_STOPS[request.origin])
    if target.dialect == "messages" and request.origin == "chat" and any(map(is_blank, request.stop)):
        lost.append(_STOPS["chat"])
    if request.origin != target.dialect:
        lost += _OWN.get(request.origin, ())
    elif request.origin == "chat" and not target.profile.logprobs:
        lost += ("logprobs", "top_logprobs")
    lost += [name for name in request.extra if not _passes(name, request, target)]
    wish, left = request.thinking, fitted.thinking
    if wish is not None and (wish.effort or wish.budget) and (left is None or not (left.effort or left.budget)):
        lost += [name for name in _THINKING if name != "output_config" or request.format is None]
    fields = request.fields
    notices += [Notice(name, _WHY) for name in lost if not jsonx.is_null(fields.get(name))]


def is_blank(text: Escaped) -> bool:
    """No visible character: Messages vendors refuse such texts and stop sequences."""
    start = text.strip()[:1]
    return not start or (start == b"\\" and not jsonx.unescape(text).strip())


def _passes(name: str, request: Request, target: Target) -> bool:
    """Whether a member that no rule of ours understands goes on as it is."""
    if request.origin != target.dialect:
        return False
    match request.origin:
        case "chat":
            return target.profile.extra_fields
        case "messages":
            beta = BETAS.get(name)
            if beta is None:
                return name == "cache_control" and target.profile.cache_control is not False
            return any(sent.startswith(beta) for sent in target.profile.betas)
        case _:
            return False
