"""The one table of errors (contract 3.2): code -> status, types, what a client should do. Dialects only format it."""

from typing import NamedTuple


class Kind(NamedTuple):
    """What an error code means in every format."""

    status: int
    type: str
    anthropic_type: str
    retry: bool | None
    """`x-should-retry`: None leaves the header out (E1)."""


KINDS: dict[str, Kind] = {
    "bad_request": Kind(400, "invalid_request_error", "invalid_request_error", False),
    "previous_response_not_found": Kind(400, "invalid_request_error", "invalid_request_error", False),
    "context_length_exceeded": Kind(400, "invalid_request_error", "invalid_request_error", False),
    "invalid_api_key": Kind(401, "authentication_error", "authentication_error", False),
    "insufficient_balance": Kind(402, "insufficient_quota", "billing_error", False),
    "budget_exceeded": Kind(402, "insufficient_quota", "billing_error", False),
    "subscribers_only": Kind(403, "permission_error", "permission_error", False),
    "model_not_allowed": Kind(403, "permission_error", "permission_error", False),
    "not_allowed": Kind(403, "permission_error", "permission_error", False),
    "model_not_found": Kind(404, "invalid_request_error", "not_found_error", False),
    "not_found": Kind(404, "invalid_request_error", "not_found_error", False),
    "method_not_allowed": Kind(405, "invalid_request_error", "invalid_request_error", None),
    "request_timeout": Kind(408, "invalid_request_error", "invalid_request_error", None),
    "conflict": Kind(409, "invalid_request_error", "invalid_request_error", False),
    "idempotency_conflict": Kind(409, "invalid_request_error", "invalid_request_error", False),
    "request_too_large": Kind(413, "invalid_request_error", "request_too_large", False),
    "unsupported_media_type": Kind(415, "invalid_request_error", "invalid_request_error", None),
    "upgrade_required": Kind(426, "invalid_request_error", "invalid_request_error", None),
    "rate_limited": Kind(429, "rate_limit_error", "rate_limit_error", True),
    "upstream_rate_limited": Kind(429, "rate_limit_error", "rate_limit_error", True),
    "headers_too_large": Kind(431, "invalid_request_error", "invalid_request_error", None),
    "internal_error": Kind(500, "api_error", "api_error", None),
    "upstream_error": Kind(502, "upstream_error", "api_error", None),
    "stream_interrupted": Kind(502, "upstream_error", "api_error", None),
    "upstream_unavailable": Kind(503, "upstream_error", "overloaded_error", True),
    "upstream_timeout": Kind(504, "upstream_error", "api_error", True),
}

INTERRUPTED = (
    "the model's provider interrupted the response before it finished. send the request again as a new request"
)
"""The exact words of S54 and S176, the same in all three formats."""


class KenariError(Exception):
    """An error as a client will see it.

    `message` is English, begins in lower case and says what to do next; it never holds a provider's key, address or
    raw body. `param` is the dotted path of the field at fault. `retry_after` is in seconds. `should_retry` overrides
    the table (E1: false where our own provider key was refused). `elsewhere` is true when another target may still
    serve the request.
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after: float | None = None,
        should_retry: bool | None = None,
        elsewhere: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.elsewhere = elsewhere
        self.kind = KINDS[code]
        self.should_retry = self.kind.retry if should_retry is None else should_retry

    @property
    def status(self) -> int:
        """The HTTP status of this error before a stream has begun."""
        return self.kind.status

    @property
    def in_stream_anthropic_type(self) -> str:
        """The only two types that S73 allows inside a Messages stream."""
        return "invalid_request_error" if self.kind.status == 400 else "api_error"


def bad_request(message: str, param: str | None = None) -> KenariError:
    """A 400 that names the field at fault."""
    return KenariError("bad_request", message, param)


def key_was_used(request_id: str, how: str = "before") -> KenariError:
    """The 409 of an Idempotency-Key that names the earlier request, the same wherever it is found out (F14)."""
    message = (
        f"this idempotency-key was used {how}, by request {request_id}. GET /v1/generation?id={request_id} tells what "
        "became of it; send a new key for a new request"
    )
    return KenariError("idempotency_conflict", message, "idempotency-key")


def interrupted() -> KenariError:
    """The provider broke off after content (S54) or during a plain call (E8)."""
    return KenariError("stream_interrupted", INTERRUPTED, elsewhere=True)
