"""What may be done with money: the moves that a batch is made of."""

from datetime import tzinfo
from typing import TypeAlias

import msgspec

from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Reservation
from kenari.store.records import HoldRow, Settlement


class Reserve(msgspec.Struct, frozen=True):
    """Open a hold for a request that asks."""

    reservation: Reservation
    owner: str


class Extend(msgspec.Struct, frozen=True):
    """Set more aside for an open hold: `amount` more, or anything down to `least`."""

    hold: Hold
    amount: int
    least: int


class Adopt(msgspec.Struct, frozen=True):
    """Open a hold that was granted while the store was down, whatever the balance says now."""

    hold: HoldRow


class Settle(msgspec.Struct, frozen=True, gc=False):
    """Close a hold with its line. Not `held`: the table has neither the hold nor the line, and need not be asked."""

    settlement: Settlement
    held: bool = True


class Release(msgspec.Struct, frozen=True):
    """Close a hold without a line: its request was refused after all, or never told that it was admitted."""

    id: str
    account: str
    unlimited: bool = False


Move: TypeAlias = Reserve | Extend | Adopt | Settle | Release
Outcome: TypeAlias = Hold | bool | KenariError


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What moving money rests on beside the rows: whether anything is refused for money, and the time zone of windows."""

    enforce: bool
    zone: tzinfo


def who_of(move: Move) -> tuple[str, str, bool]:
    """Account, key, and whether nothing is taken from a balance."""
    if isinstance(move, Reserve):
        caller = move.reservation.caller
        return caller.account, caller.key, caller.unlimited
    if isinstance(move, Extend):
        caller = move.hold.caller
        return caller.account, caller.key, caller.unlimited
    if isinstance(move, Adopt):
        return move.hold.account, move.hold.key, move.hold.unlimited
    if isinstance(move, Settle):
        return move.settlement.account, move.settlement.key, move.settlement.unlimited
    return move.account, "", move.unlimited


def closed_by(move: Settle | Release) -> str:
    """The request whose hold a move closes."""
    return move.settlement.id if isinstance(move, Settle) else move.id
