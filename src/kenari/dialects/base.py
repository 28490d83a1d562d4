"""What a dialect is: one of the three formats, understood from both sides.

A dialect decodes clients' requests and encodes answers for them; towards providers it encodes requests and decodes
answers. All its functions are pure: time, ids and randomness come in `Answer`. A dialect never imports another.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from kenari.core.errors import KenariError
from kenari.core.events import Escaped, Event, ProofKind, Reason, Stop, Text
from kenari.core.fold import Reply
from kenari.core.profile import Profile
from kenari.core.request import Request
from kenari.core.usage import Usage
from kenari.wire.sse import Frame

RelayRule: TypeAlias = Literal["pass", "patch", "drop"]
"""What becomes of a foreign frame towards a client of its own dialect: as it is, with our index and ids, or not at all."""


class Proof(msgspec.Struct, frozen=True):
    """A maker's proof of one reasoning block and the number of characters of text that it covers."""

    kind: ProofKind
    value: str
    length: int


class Answer(msgspec.Struct, kw_only=True):
    """What an encoder has to know of the request that it answers.

    `id` is the 16-hex request id, `created` Unix seconds, `now` the clock in Unix seconds, `model` the name the client used. `seal` makes the envelope
    that carries proofs to this client. `raw_signatures` is true when a Messages client may see a maker's signature
    as it is (D5: every target of the model has one maker).
    """

    id: str
    created: int
    model: str
    request: Request
    seal: Callable[[list[Proof]], str]
    now: Callable[[], float]
    raw_signatures: bool = False


class Passed(msgspec.Struct, frozen=True, gc=False):
    """A provider's plain answer as a client of the same format gets it, and what the gateway has to know of it:
    the escaped bytes of its text, its usage, how it ended."""

    body: bytes
    size: int
    usage: Usage
    stop: Stop


class Named(msgspec.Struct, frozen=True, gc=False):
    """What a plain answer begins with: the request's id, Unix seconds, and the JSON string of the model's name."""

    id: str
    created: int
    model: bytes


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A request's body in three pieces: its conversation, and what stands around it, which is the same in many requests of a
    program. Put together they are the body."""

    before: bytes
    conversation: bytes
    after: bytes


class Speaker(msgspec.Struct, frozen=True, gc=False):
    """Writes more of the block that is under way. `frame` is the format of a piece's frame, with a place for its text (%b) and,
    where there are `numbers`, for the next of them (%d); `keep` has to be told the text then. `many` does all that for several
    pieces that follow each other."""

    frame: bytes
    many: Callable[[list[Escaped]], bytes]
    numbers: Iterator[int] | None = None
    keep: Callable[[Escaped], None] | None = None


def around(data: bytes, text: Escaped) -> tuple[bytes, bytes]:
    """What stands before and behind a text in one line of JSON; empty where it does not stand there once and for all."""
    quoted = b'"' + text + b'"'
    at = data.find(quoted)
    if at < 0 or data.find(quoted, at + 1) >= 0 or not text or b"\n" in data:
        return b"", b""
    return data[: at + 1], data[at + len(quoted) - 1 :]


def literal(text: bytes) -> bytes:
    """Bytes that stand for themselves in a format."""
    return text.replace(b"%", b"%%")


class Steady(msgspec.Struct, frozen=True, gc=False):
    """How a provider writes one more piece of the open block: what stands before and behind its text in the bytes of a
    whole frame, blank line included, and the event that such a frame is. Holds until any other frame comes."""

    before: bytes
    after: bytes
    kind: type[Text] | type[Reason]
    index: int


class Decoder(Protocol):
    """Turns the frames of one provider answer into events. Obeys the grammar on any input, truncated or hostile."""

    done: bool
    """The provider has said its last word (`[DONE]`, `message_stop`, `response.completed`): nothing is awaited."""

    def feed(self, frame: Frame) -> list[Event]:
        """The events of one frame. Never raises for what a provider sends: what cannot be read is skipped or is a
        Failure."""
        ...

    def feed_all(self, frames: list[Frame]) -> list[Event]:
        """The events of frames that came together: the same as of each alone, in fewer steps where there are many."""
        ...

    def steady(self) -> Steady | None:
        """What the next frame most likely looks like; None where the frames so far do not show it."""
        ...

    def finish(self) -> list[Event]:
        """The provider's bytes have ended: closes what is open and adds a Stop that was held back, or Failure (D6)."""
        ...


class Encoder(Protocol):
    """Turns events into the bytes of one client stream, framing included."""

    started: bool
    """Something other than a comment has been written."""

    def encode(self, events: list[Event]) -> bytes:
        """The bytes for these events. Stop is kept until `finish`, so that late usage still finds its place."""
        ...

    def speaker(self, kind: type[Text] | type[Reason], index: int) -> Speaker | None:
        """What gives for the texts of events of this kind in this block the bytes that `encode` gives for them, until
        `encode` is called again; None where `encode` has to be asked each time."""
        ...

    def noop(self) -> bytes:
        """A real event that says nothing, for clients whose idle timers do not count comments (D15)."""
        ...

    def finish(self) -> bytes:
        """The end of a successful stream: finish, usage, terminator."""
        ...

    def fail(self, error: KenariError) -> bytes:
        """The end of a failed stream: the format's own error event and its terminator, if it has one."""
        ...


class Dialect(Protocol):
    """One format. `name` is its word in configuration, `path` the clients' endpoint, `upstream_path` what is appended
    to a provider's base address."""

    name: str
    path: str
    upstream_path: str
    LOSES: frozenset[str]
    """What this format cannot say, by the names of events and fields; laws allow exactly this much loss."""
    RELAY: Mapping[str, RelayRule]
    """Foreign frames by name; names that are not listed are dropped."""

    def decode_request(self, body: bytes) -> Request:
        """A client's request. Raises KenariError (400) that names the field at fault."""
        ...

    def encode_request(self, request: Request, profile: Profile) -> bytes:
        """The request for a provider, after `fit`. Values that `fit` left alone are byte-equal to the client's when
        the client speaks this dialect too (law L10)."""
        ...

    def decode_reply(self, body: bytes, profile: Profile, answer_id: str) -> list[Event]:
        """The events of a provider's plain answer. `answer_id` makes ids for calls that come without. A body that is no answer is one Failure (E4)."""
        ...

    def encode_reply(self, reply: Reply, answer: Answer) -> bytes:
        """The client's plain answer."""
        ...

    SAMPLE: bytes
    """A conversation of one text that `is_texts` takes; empty where it takes none."""

    def cut(self, body: bytes) -> Cut | None:
        """Where the conversation of a client's request seems to stand: nothing was read. None where nothing seems to."""
        ...

    def is_texts(self, conversation: bytes) -> bool:
        """Whether this is a conversation of texts and nothing else, without a fault."""
        ...

    def pass_reply(self, body: bytes, named: Named, profile: Profile) -> Passed | None:
        """A provider's plain answer for a client of this format in one step: what `decode_reply`, fold and
        `encode_reply` make of it, for the commonest answers; None for all others."""
        ...

    def decoder(self, profile: Profile, answer_id: str) -> Decoder:
        """A new decoder for one provider stream; `answer_id` makes ids for calls that come without."""
        ...

    def encoder(self, answer: Answer) -> Encoder:
        """A new encoder for one client stream."""
        ...

    def encode_error(self, error: KenariError, request_id: str) -> bytes:
        """The body of an HTTP error."""
        ...
