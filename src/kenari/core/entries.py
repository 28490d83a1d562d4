"""What the ledger is made of: entries in chains, checkpoints, and the standing figures that they must add up to."""

from typing import Literal, Protocol

import msgspec

from kenari.core.price import Price


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger. `amount` is what it does to the account's balance, in 1e-9 currency units: above 0 for a
    credit, minus the charge for a request, 0 for one of an unlimited caller. `body` is canonical JSON; what reports add up
    stands in columns of its own: `tokens` are input, cache read, cache write and output."""

    writer: str
    seq: int
    id: str
    kind: Literal["credit", "request"]
    account: str
    key: str
    time: float
    amount: int
    charge: int
    body: bytes
    hash: str
    model: str = ""
    status: int = 0
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A chain's head at a time, with a MAC that only the holder of the secret can make."""

    writer: str
    seq: int
    hash: str
    time: float
    mac: str


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What pruned entries of a subject (`account:...` or `key:...`) added up to."""

    subject: str
    amount: int
    charge: int
    mac: str


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An account's figures."""

    account: str
    balance: int
    reserved: int


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What a subject spent since `started`, and what its open holds set aside."""

    subject: str
    window: str
    started: float
    amount: int
    reserved: int


class OpenHold(msgspec.Struct, frozen=True, kw_only=True):
    """What a request has set aside."""

    id: str
    account: str
    key: str
    amount: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything beside the entries, as it was at one moment."""

    standings: list[Standing]
    spending: list[Spending]
    holds: list[OpenHold]
    prices: list[Price]
    checkpoints: list[Checkpoint]
    carried: list[Carried]


class Sealing(Protocol):
    """How entries are chained and checkpoints made: the ledger's rule, used where the entries are written."""

    def genesis(self, writer: str) -> str:
        """What stands before a writer's first entry."""
        ...

    def link(self, previous: str, body: bytes) -> str:
        """The hash of an entry that follows `previous`."""
        ...

    def stamp(self, writer: str, seq: int, hash: str, time: float) -> str:
        """The MAC of a checkpoint."""
        ...

    def stamp_carried(self, subject: str, amount: int, charge: int) -> str:
        """The MAC of what pruned entries added up to."""
        ...
