"""Responses as a `Dialect`."""

from collections.abc import Mapping

from kenari.core.errors import KenariError
from kenari.core.events import Event
from kenari.core.fold import Reply
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.dialects.base import Answer, Cut, Decoder, Named, Passed, RelayRule
from kenari.dialects.envelope import envelope
from kenari.dialects.responses import decode, encode, outgoing, request
from kenari.dialects.responses.notes import NotesEncoder
from kenari.dialects.responses.packed import ASKED
from kenari.wire import jsonx


class ResponsesDialect:
    """`POST /v1/responses` on the clients' side, `/responses` on the providers'."""

    name = "responses"
    path: str = "/v1/responses"
    upstream_path = "/responses"
    LOSES: frozenset[str] = frozenset({"logprobs", "stop sequence", "refusal", "blocks of reasoning in a row"})
    RELAY: Mapping[str, RelayRule] = {}

    def __init__(self, formats: bool = False) -> None:
        """`formats`: the operator lets `text.format` ask for JSON (S126 refuses it)."""
        self._formats = formats

    def decode_request(self, body: bytes) -> Request:
        """A client's request."""
        return request.decode_request(body, self._formats)

    def encode_request(self, request: Request, profile: Profile) -> bytes:
        """The body for a provider."""
        return outgoing.encode_request(request, profile)

    def decode_reply(self, body: bytes, profile: Profile, answer_id: str) -> list[Event]:
        """A provider's plain answer."""
        return decode.decode_reply(body, answer_id)

    def encode_reply(self, reply: Reply, answer: Answer) -> bytes:
        """The client's plain answer."""
        return _encoder(answer).whole(reply)

    SAMPLE: bytes = b""

    def cut(self, body: bytes) -> Cut | None:
        """Every request takes all steps."""
        return None

    def is_texts(self, conversation: bytes) -> bool:
        """As above."""
        return False

    def pass_reply(self, body: bytes, named: Named, profile: Profile) -> Passed | None:
        """Every answer takes all steps."""
        return None

    def decoder(self, profile: Profile, answer_id: str) -> Decoder:
        """A provider's stream."""
        return decode.ResponsesDecoder(answer_id)

    def encoder(self, answer: Answer) -> encode.ResponsesEncoder:
        """A client's stream."""
        return _encoder(answer).foresee()

    def encode_error(self, error: KenariError, request_id: str) -> bytes:
        """The OpenAI envelope."""
        return jsonx.encode(envelope(error))


def _encoder(answer: Answer) -> encode.ResponsesEncoder:
    return NotesEncoder(answer) if ASKED in answer.request.fields else encode.ResponsesEncoder(answer)


RESPONSES = ResponsesDialect()
