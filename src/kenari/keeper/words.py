"""What a keeper and its workers say to each other: one record for each word, in frames of MessagePack.

A caller travels as bytes of its own (`callers.py`): it is the same for thousands of requests, so that each end reads it
once. A configuration travels as bytes too; the socket pair is private to parent and child.
"""

from typing import Literal, TypeAlias

import msgspec

from kenari.catalog.health import News
from kenari.core.own_keys import OwnKeyShown
from kenari.core.ports import Line, Rate, Repeat, Whole
from kenari.core.price import Price


class Word(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Something that is said. `number` ties an answer to its question."""


class Secretive(Word, frozen=True):
    """A word that holds something secret: its repr shows none of it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


# -- what a worker says


class Ready(Word, frozen=True):
    """The worker listens, with this version of the configuration."""

    version: int


class Applied(Word, frozen=True):
    """A configuration is in force for new requests; with `fault` it is not, and the one before stays."""

    version: int
    fault: str = ""


class Leaving(Word, frozen=True):
    """The worker takes no new connections and leaves when its requests have ended."""


class Reserve(Word, frozen=True):
    """`Books.reserve`: answered by Held or Refused."""

    number: int
    id: str
    caller: bytes
    model: str
    amount: int
    least: int
    price: Price | None
    repeat: Repeat | None


class Extend(Word, frozen=True):
    """`Books.extend` for the hold of a request: answered by Held or Refused."""

    number: int
    id: str
    amount: int
    least: int


class Note(Word, frozen=True):
    """`Books.note` for the hold of a request."""

    id: str
    charge: int


class Settle(Word, frozen=True):
    """`Books.settle`. Whether there is a hold the keeper knows better: it may have been granted too late."""

    line: Line


class Admit(Word, frozen=True):
    """`Limits.admit`: answered by Admitted or Refused."""

    number: int
    id: str
    caller: bytes
    tokens: int
    body: bytes


class Release(Word, frozen=True):
    """`Limits.release` for the admission of a request."""

    id: str
    tokens: int


class Look(Word, frozen=True):
    """`Records`: `what` is the method; answered by Found or Refused."""

    number: int
    what: Literal["key", "credits", "generation"]
    caller: bytes
    request: str


class ShowOwnKeys(Word, frozen=True):
    """`OwnKeyBook.shown`: answered by OwnKeysShown or Refused."""

    number: int
    account: str


class PutOwnKey(Secretive, frozen=True):
    """`OwnKeyBook.put`: answered by OwnKeysShown with this one, or Refused. `secret` crosses as its owner sent it: the keeper
    seals it."""

    number: int
    account: str
    provider: str
    secret: str
    actor: str


class DropOwnKey(Word, frozen=True):
    """`OwnKeyBook.drop`: answered by OwnKeyDropped or Refused."""

    number: int
    account: str
    provider: str
    actor: str


class KeepAnswer(Secretive, frozen=True):
    """`Answers.keep`."""

    account: str
    request: str
    whole: Whole


# -- what both say: an answer of one process on its way to another (`relay.py`)


class Attach(Word, frozen=True):
    """Somebody asks for the answer of a request in flight: answered by Pieces of the same number."""

    number: int
    account: str
    repeat: Repeat


class Piece(Secretive, frozen=True):
    """A piece of the answer. `here` comes first, or `none`; `alive` says nothing but that."""

    number: int
    kind: Literal["here", "none", "answer", "begin", "write", "end", "abort", "alive"]
    status: int = 0
    head: bytes = b""
    data: bytes = b""


class Sign(Word, frozen=True):
    """How it goes with the client that the answer is for."""

    number: int
    kind: Literal["gone", "pause", "resume", "alive"]


Relayed: TypeAlias = Attach | Piece | Sign


class Fared(Word, frozen=True):
    """How a candidate fares, by its mark (`keeper/health.py`)."""

    mark: str
    news: News


# -- what the keeper says


class KnownSecret(msgspec.Struct, frozen=True, array_like=True):
    """A live secret of a key: its digest, never itself."""

    digest: bytes
    caller: bytes
    expires_at: float | None


class KeySet(Word, frozen=True):
    """From now on exactly these secrets are valid."""

    sequence: int
    secrets: list[KnownSecret]


class SealedKey(msgspec.Struct, frozen=True, array_like=True):
    """A caller's own provider key, sealed as in the store."""

    account: str
    provider: str
    sealed: bytes


class OwnKeySet(Secretive, frozen=True):
    """From now on callers have brought exactly these keys."""

    keys: list[SealedKey]


class Setup(Secretive, frozen=True):
    """The first word: all that a worker needs to serve. `envelopes`, `cache` and `hmac` (of keys' secrets) are derived from
    the root secret, which stays with the keeper. `bootstrap` is the bootstrap key; `stored` says whether
    there is anything that callers may read of themselves. `own` is None where callers may bring no provider keys; `byok`
    are the master keys that open them. `keeps` says that answers are kept for a time."""

    version: int
    config: bytes
    envelopes: bytes
    cache: bytes
    hmac: bytes
    bootstrap: str
    keys: KeySet
    stored: bool
    byok: tuple[bytes, ...] = ()
    own: OwnKeySet | None = None
    keeps: bool = False


class Configure(Secretive, frozen=True):
    """A new configuration: answered by Applied."""

    version: int
    config: bytes


class Drain(Word, frozen=True):
    """Take no new connections, end what is in flight within `[server] drain`, leave."""


class End(Word, frozen=True):
    """Break what is in flight and leave."""


class Held(Word, frozen=True):
    """Set aside."""

    number: int
    amount: int


class Admitted(Word, frozen=True):
    """Let in; the limits as headers tell them."""

    number: int
    requests: Rate | None
    tokens: Rate | None


class Refused(Word, frozen=True):
    """The port raised this KenariError; with `limit` it was a LimitReached."""

    number: int
    code: str
    message: str
    param: str | None
    retry_after: float | None
    should_retry: bool | None
    elsewhere: bool
    limit: bool = False
    requests: Rate | None = None
    tokens: Rate | None = None


class Found(Word, frozen=True):
    """A body, None when there is nothing."""

    number: int
    body: bytes | None


class OwnKeysShown(Word, frozen=True):
    """What an account has brought."""

    number: int
    keys: list[OwnKeyShown]


class OwnKeyDropped(Word, frozen=True):
    """Whether there was one."""

    number: int
    there: bool


OwnKeyQuestion: TypeAlias = ShowOwnKeys | PutOwnKey | DropOwnKey
FromWorker: TypeAlias = (
    Ready
    | Applied
    | Leaving
    | Reserve
    | Extend
    | Note
    | Settle
    | Admit
    | Release
    | Look
    | OwnKeyQuestion
    | KeepAnswer
    | Relayed
    | Fared
)
Push: TypeAlias = Setup | Configure | KeySet | OwnKeySet | Drain | End | Fared
"""What the keeper says unasked."""
Answer: TypeAlias = Held | Admitted | Found | OwnKeysShown | OwnKeyDropped
ToWorker: TypeAlias = Push | Answer | Refused | Relayed
