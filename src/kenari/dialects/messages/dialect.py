"""Messages as a `Dialect`."""

from collections.abc import Mapping

from kenari.core.errors import KenariError
from kenari.core.events import Event
from kenari.core.fold import Reply
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.dialects.base import Answer, Cut, Decoder, Encoder, Named, Passed, RelayRule
from kenari.dialects.messages import blocks, decode, encode, outgoing, request


class MessagesDialect:
    """`POST /v1/messages` on the clients' side, `/messages` on the providers'."""

    name = blocks.NAME
    path = "/v1/messages"
    upstream_path = "/messages"
    LOSES: frozenset[str] = frozenset(
        {
            "logprobs",
            "namespace",
            "custom",
            "refusal kind",
            "empty blocks",
            "proof kinds",
            "reasoning tokens",
            "usage that is not reported",
            "foreign frames",
        }
    )
    RELAY: Mapping[str, RelayRule] = encode.RELAY

    def decode_request(self, body: bytes) -> Request:
        """A client's request, `count_tokens` included."""
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
        return decode.MessagesDecoder(answer_id)

    def encoder(self, answer: Answer) -> Encoder:
        """A client's stream."""
        return encode.MessagesEncoder(answer)

    def encode_error(self, error: KenariError, request_id: str) -> bytes:
        """The Anthropic envelope."""
        return encode.encode_error(error, request_id)


MESSAGES = MessagesDialect()
"""The Messages dialect."""
