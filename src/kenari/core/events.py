"""The one event stream that every answer passes through.

A provider's bytes become these events and a client's bytes are made of them; nothing else crosses the middle of the
house. Text travels *escaped*: the bytes that stand between the quotes of a JSON string. A piece of text is then copied
from one JSON document to another without being parsed and written again, byte for byte, whatever escapes its author
chose (docs/decisions/0002-text-travels-escaped.md).

The legal order of events is `grammar.py`.
"""

from typing import Literal, TypeAlias

import msgspec

from kenari.core.errors import KenariError
from kenari.core.usage import Usage

Escaped: TypeAlias = bytes
"""The inside of a JSON string literal: escapes kept, quotes not included, valid UTF-8."""

BlockKind: TypeAlias = Literal["text", "reasoning", "call", "refusal", "opaque"]
ProofKind: TypeAlias = Literal["signature", "encrypted", "redacted", "mark"]
StopReason: TypeAlias = Literal["stop", "sequence", "length", "call", "filter"]


class Start(msgspec.Struct, frozen=True, gc=False):
    """The provider has begun to answer. `usage` is what it says about the prompt so far, None when it says nothing."""

    usage: Usage | None = None


class Open(msgspec.Struct, frozen=True, gc=False):
    """A block begins. `index` is unique in the answer and dense from 0 in order of opening.

    `call_id`, `name`, `namespace` and `custom` matter for kind `call` only; `raw` is the opening JSON object of an
    opaque block (a kind that only its own dialect knows).
    """

    index: int
    kind: BlockKind
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    custom: bool = False
    raw: bytes = b""


class Text(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer's text (or of a refusal). `logprobs` is the raw JSON of the dialect, chat to chat only."""

    index: int
    delta: Escaped
    logprobs: bytes = b""


class Reason(msgspec.Struct, frozen=True, gc=False):
    """A piece of reasoning text."""

    index: int
    delta: Escaped


class Args(msgspec.Struct, frozen=True, gc=False):
    """A piece of a call's arguments: a fragment of JSON text, itself escaped as the inside of a JSON string."""

    index: int
    delta: Escaped


class Seal(msgspec.Struct, frozen=True, gc=False):
    """The maker's proof of a reasoning block: a signature, an encrypted blob, or a whole redacted thought."""

    index: int
    kind: ProofKind
    value: str


class Close(msgspec.Struct, frozen=True, gc=False):
    """A block ends."""

    index: int


class Meter(msgspec.Struct, frozen=True, gc=False):
    """What the provider says it used so far: a snapshot, the latest one holds (U1)."""

    usage: Usage


class Stop(msgspec.Struct, frozen=True, gc=False):
    """The model has finished. `raw` is the provider's own word, `sequence` the stop sequence that was met."""

    reason: StopReason
    raw: str = ""
    sequence: str | None = None


class Source(msgspec.Struct, frozen=True, gc=False):
    """A page that a server tool found and the model was shown."""

    url: str
    title: str = ""


class Sources(msgspec.Struct, frozen=True):
    """What kenari's own search has found so far and how often it searched: a snapshot, the latest one holds (D13)."""

    items: tuple[Source, ...]
    searches: int


class Failure(msgspec.Struct, frozen=True, gc=False):
    """The answer failed. Nothing comes after it."""

    error: KenariError


class Ping(msgspec.Struct, frozen=True, gc=False):
    """The provider shows that it lives."""


class Foreign(msgspec.Struct, frozen=True, gc=False):
    """A frame that only its own dialect has words for; `index` is the block it belongs to, -1 for none.

    `relay.py` says whether it reaches a client of the same dialect; all others never see it.
    """

    dialect: str
    name: str
    data: bytes
    index: int = -1


Event: TypeAlias = (
    Start | Open | Text | Reason | Args | Seal | Close | Sources | Meter | Stop | Failure | Ping | Foreign
)
