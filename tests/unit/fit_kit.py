"""What the tests of `fit` share: targets, requests, envelopes."""

from typing import Any

from msgspec import Raw

from kenari.core.ids import Envelopes, Sealed, SealedPiece
from kenari.core.profile import Profile
from kenari.core.request import CallPart, Part, Request, ResultPart, TextPart, Turn
from kenari.dialects.fit import Target, fit

ENVELOPES = Envelopes(b"k" * 32)
MAKER = "messages/anthropic/claude"


def target(dialect: str = "chat", **members: Any) -> Target:
    """A target; members that name flags go into its profile."""
    flags = {name: members.pop(name) for name in list(members) if name in Profile.__struct_fields__}
    known: dict[str, Any] = {
        "dialect": dialect,
        "model": "claude-x",
        "profile": Profile(**flags),
        "maker": MAKER,
        "envelopes": ENVELOPES,
    }
    return Target(**(known | members))


def user(*parts: Part) -> Turn:
    """A user's turn, "hi" by default."""
    return Turn("user", list(parts) or [TextPart(b"hi")])


def said(*parts: Part) -> Turn:
    """An assistant's turn."""
    return Turn("assistant", list(parts))


def call(name: str, identity: str = "c1", **members: Any) -> CallPart:
    """A call without arguments."""
    return CallPart(identity, name, b"{}", **members)


def result(identity: str = "c1", *parts: Part) -> ResultPart:
    """A call's result."""
    return ResultPart(identity, list(parts) or [TextPart(b"done")])


def request(*turns: Turn, origin: str = "chat", **members: Any) -> Request:
    """A request of one format."""
    return Request(origin=origin, model="m", turns=list(turns) or [user()], fields={}, **members)


def fitted(what: Request, to: Target | None = None) -> Request:
    """The request as a target gets it."""
    return fit(what, to or target())


def envelope(*pieces: tuple[Any, str, int], maker: str = MAKER) -> str:
    """An envelope of proofs."""
    return ENVELOPES.seal(Sealed(maker, [SealedPiece(*piece) for piece in pieces]))


def number(text: bytes) -> Raw:
    """A raw JSON number."""
    return Raw(text)
