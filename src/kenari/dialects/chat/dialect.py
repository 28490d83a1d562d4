"""Chat completions as a `Dialect`."""

from collections.abc import Mapping

from kenari.core.errors import KenariError
from kenari.core.events import Event
from kenari.core.fold import Reply
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.dialects.base import Answer, Decoder, Dialect, Encoder, RelayRule
from kenari.dialects.chat import decode, encode, outgoing, plain, relay, request
from kenari.dialects.envelope import envelope
from kenari.wire import jsonx


class ChatDialect:
    """`POST /v1/chat/completions` on the clients' side, `/chat/completions` on the providers'."""

    name = "chat"
    path = "/v1/chat/completions"
    upstream_path = "/chat/completions"
    LOSES: frozenset[str] = frozenset(
        {"order of text and calls", "stop sequence", "proof kinds", "cache write lifetime"}
    )
    RELAY: Mapping[str, RelayRule] = {}

    def decode_request(self, body: bytes) -> Request:
        """A client's request."""
        return request.decode_request(body)

    def encode_request(self, request: Request, profile: Profile) -> bytes:
        """The body for a provider."""
        return outgoing.encode_request(request, profile)

    def decode_reply(self, body: bytes, profile: Profile, answer_id: str) -> list[Event]:
        """A provider's plain answer."""
        return decode.decode_reply(body, profile, answer_id)

    def encode_reply(self, reply: Reply, answer: Answer) -> bytes:
        """The client's plain answer."""
        return encode.encode_reply(reply, answer)

    SAMPLE: bytes = plain.SAMPLE
    cut = staticmethod(plain.cut)
    is_texts = staticmethod(plain.is_texts)
    """A client's request that is nothing but texts."""
    pass_reply = staticmethod(relay.pass_reply)
    """A provider's plain answer that is one text, for a client."""

    def decoder(self, profile: Profile, answer_id: str) -> Decoder:
        """A provider's stream."""
        return decode.ChatDecoder(profile, answer_id)

    def encoder(self, answer: Answer) -> Encoder:
        """A client's stream."""
        return encode.ChatEncoder(answer)

    def encode_error(self, error: KenariError, request_id: str) -> bytes:
        """The OpenAI envelope."""
        return jsonx.encode(envelope(error))


CHAT: Dialect = ChatDialect()
