"""Providers' errors, read by content rather than by status, as our own (contract E3, E4, E7).

One place for all dialects: real servers use each other's envelopes (llama-server answers on /messages with OpenAI's).
"""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec

from kenari.core.errors import KenariError
from kenari.wire import jsonx

_CONTEXT = re.compile(
    r"context[ _](size|length|window|limit)|maximum (context|prompt length|sequence length)|max_model_len"
    r"|too many tokens(?! per)|(prompt|input) (is )?too long|exceed_context|exceeds? the (model's )?(maximum|context)"
    r"|max_prompt_tokens|reduce the length|model token limit|token limit exceeded|tokens_limit|(token count|tokens?) .{0,40}exceeds the limit"
    r"|inputs?`? must have less than \d+ tokens|`inputs` tokens \+|range of input length",
    re.I,
)
_REFUSED = re.compile(r"not supported|unsupported|does not support|doesn't support|not (a )?multimodal", re.I)
_RATE = re.compile(r"rate.?limit|too many requests|quota", re.I)
_OVERLOADED = re.compile(r"overloaded|unavailable|capacity", re.I)
_OWED = re.compile(r"credit balance|insufficient.{0,8}(balance|credits?|funds)|arrearage|billing.hard.limit", re.I)
"""The account that this server has with the provider is empty, under whatever status."""
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|key|gsk|xai|kn|AIza|Bearer)[-_ ][A-Za-z0-9_\-.]{6,}\S*|\b[A-Za-z0-9_\-]{32,}\b|https?://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b",
)
_CALLERS = re.compile(
    r"(invalid_(prompt|image|base64)|image_|unsupported_image|empty_image|failed_to_download_image)\w*"
)
"""Codes of a failed response that blame what was asked, not who was asked."""
_UNKNOWN = re.compile(
    r"unknown_?( name| parameter| field| argument)|unrecognized|extra inputs|extra fields|not permitted|unknown variant",
    re.I,
)
"""A provider that refuses a member which others take: only this one refuses."""
MAX_WORDS = 300
LONGEST_WAIT = 86400.0 * 7
"""Seconds; a longer Retry-After is not believed."""


class _Problem(msgspec.Struct, frozen=True):
    message: str = ""
    type: str = ""
    code: str = ""
    number: int = 0


def failure_of_status(
    status: int,
    headers: Mapping[bytes, bytes],
    body: bytes,
    *,
    secrets: tuple[str, ...],
    names: tuple[str, str],
    now: float | None = None,
) -> KenariError:
    """The error of a provider's answer with a status other than 200.

    `secrets` are the provider's keys, to be masked; `names` the provider's model name and the caller's, since the
    caller sees only their own. `now` is the time in Unix seconds, for dates.
    """
    problem = _read(body)
    words = clean(problem.message, secrets, names)
    wait = retry_after(headers, now)
    if status == 429:
        return KenariError("upstream_rate_limited", _RATE_LIMITED, retry_after=wait or 1.0, elsewhere=True)
    if status == 402 or (status in (400, 403) and _OWED.search(f"{problem.type} {problem.code} {problem.message}")):
        return KenariError("upstream_error", UNPAID, should_retry=False, elsewhere=True)
    if status in (401, 403):
        return KenariError("upstream_error", _KEY_REFUSED, should_retry=False, elsewhere=True)
    if status in (503, 529):
        return KenariError("upstream_unavailable", _UNAVAILABLE, retry_after=wait or 2.0, elsewhere=True)
    if status in (408, 504):
        return KenariError("upstream_timeout", _TIMED_OUT, elsewhere=True)
    known = _by_content(problem, words)
    if known is not None:
        return known
    if status in (400, 413, 422):
        ours_alone = status == 413 or _UNKNOWN.search(f"{problem.code} {problem.message}") is not None
        return KenariError("bad_request", words or _REJECTED, elsewhere=ours_alone)
    if status == 404:
        return KenariError("upstream_error", _NO_SUCH_MODEL, should_retry=False, elsewhere=True)
    return KenariError("upstream_error", f"the model's provider failed (status {status}). try again", elsewhere=True)


def failure_in_body(data: bytes) -> KenariError:
    """The error of an answer with status 200, in a stream or whole: an upstream error, not a success (E4)."""
    problem = _read(data)
    if problem.number == 429 or (_RATE.search(problem.type + problem.code) is not None):
        return KenariError("upstream_rate_limited", _RATE_LIMITED, retry_after=1.0, elsewhere=True)
    if problem.number in (503, 529) or _OVERLOADED.search(problem.type + problem.code):
        return KenariError("upstream_unavailable", _UNAVAILABLE, retry_after=2.0, elsewhere=True)
    words = clean(problem.message, (), ("", ""))
    known = _by_content(problem, words)
    if known is not None and known.code == "context_length_exceeded":
        return known
    if _CALLERS.fullmatch(problem.code):
        return KenariError("bad_request", words or _REJECTED, elsewhere=True)
    return KenariError("upstream_error", _IN_BODY, elsewhere=True)


def late(what: str) -> KenariError:
    """A provider did not do in time what it should have done; `what` it did instead ("said nothing")."""
    return KenariError(
        "upstream_timeout", f"the model's provider {what} in time. send the request again", elsewhere=True
    )


def no_answer() -> KenariError:
    """A 200 that holds no answer: HTML, no choices, an empty stream (E4)."""
    return KenariError("upstream_error", _NO_ANSWER, elsewhere=True)


def clean(message: str, secrets: tuple[str, ...], names: tuple[str, str]) -> str:
    """A provider's words for a caller: keys and addresses masked, its model name replaced, at most 300 characters."""
    for secret in secrets:
        if secret:
            message = message.replace(secret, "***")
    message = _SECRET.sub("***", message)
    theirs, ours = names
    if theirs and ours:
        message = message.replace(theirs, ours)
    message = " ".join(message.split())
    if len(message) > MAX_WORDS:
        message = message[: MAX_WORDS - 1] + "…"
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def retry_after(headers: Mapping[bytes, bytes], now: float | None = None) -> float | None:
    """Seconds of a provider's `retry-after-ms` or `retry-after`, None when absent or nonsense.

    A date is counted from the answer's own `date`, which is right whatever our clock says; else from `now`.
    """
    for name, scale in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        if 0 <= seconds < LONGEST_WAIT:
            return seconds
    until = _date(headers.get(b"retry-after", b""))
    begin = _date(headers.get(b"date", b"")) or now
    if until is None or begin is None or until - begin >= LONGEST_WAIT:
        return None
    return max(0.0, until - begin)


def _date(value: bytes) -> float | None:
    """An HTTP date in Unix seconds."""
    try:
        moment = parsedate_to_datetime(value.decode("latin-1"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _by_content(problem: _Problem, words: str) -> KenariError | None:
    text = f"{problem.type} {problem.code} {problem.message}"
    if _CONTEXT.search(text):
        return KenariError(
            "context_length_exceeded",
            "prompt is too long: it exceeds the model's context window. shorten the conversation and send it again"
            + (f" ({words})" if words else ""),
            elsewhere=True,
        )
    if _REFUSED.search(text):
        return KenariError("bad_request", words, elsewhere=True)
    return None


def _read(body: bytes) -> _Problem:
    try:
        top = jsonx.value(body)
    except jsonx.Malformed:
        return _Problem()
    return _from_value(top)


def _from_value(top: Any) -> _Problem:
    """The problem that an error body of any known envelope tells of."""
    if isinstance(top, list):
        top = cast("list[Any]", top)[0] if top else None
    if not isinstance(top, dict):
        return _Problem()
    body = cast("dict[str, Any]", top)
    response = body.get("response")
    if isinstance(response, dict):
        body = cast("dict[str, Any]", response)
    for inner in (body.get("error"), body.get("detail")):
        if isinstance(inner, str):
            return _Problem(message=inner)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            return _Problem(message=str(cast("dict[str, Any]", inner[0]).get("msg", "")))
        if isinstance(inner, dict):
            return _from_object(cast("dict[str, Any]", inner))
    return _from_object(body)


def _from_object(error: dict[str, Any]) -> _Problem:
    code = error.get("code")
    message = error.get("message")
    kind = error.get("type")
    return _Problem(
        message=message if isinstance(message, str) else "",
        type=kind if isinstance(kind, str) else "",
        code=code if isinstance(code, str) else "",
        number=code if isinstance(code, int) else 0,
    )


_RATE_LIMITED = "the model's provider is rate limiting. wait and send the request again"
_KEY_REFUSED = "the model's provider refused this server's key. tell the operator; sending again will not help"
UNPAID = "the model's provider wants to be paid by this server. tell the operator; sending again will not help"
"""Of an empty account with the provider, in these words and no others."""
_UNAVAILABLE = "the model's provider is unavailable or overloaded. wait and send the request again"
_TIMED_OUT = "the model's provider took too long to answer. send the request again"
_REJECTED = "the model's provider rejected the request"
_NO_SUCH_MODEL = "the model's provider does not know this model. tell the operator to check the model's entry"
_IN_BODY = "the model's provider reported an error instead of an answer. send the request again"
_NO_ANSWER = "the model's provider sent no answer. send the request again"
