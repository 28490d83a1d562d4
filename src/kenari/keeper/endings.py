"""Requests between their admission and their line in the ledger, and how one becomes the other."""

from collections.abc import Callable

import msgspec

from kenari.core.caller import Caller
from kenari.core.ports import Hold, Line
from kenari.core.price import Price
from kenari.core.usage import Usage
from kenari.keeper.spool import SpooledRelease
from kenari.ledger.lines import Bill, encode_body
from kenari.store.moves import Release, Settle
from kenari.store.records import HoldRow, Settlement


class OpenRequest(msgspec.Struct, gc=False):
    """A request that is not settled yet: what its line needs should its owner die. `journalled`: its hold is in the journal,
    not in the store."""

    hold: Hold
    model: str
    price: Price | None
    owner: str
    offline: bool
    noted: int = 0
    journalled: bool = False


class Ending:
    """A request that has ended at `time`, until its line is in the ledger. Its move is made once, when it is wanted, by
    `make`; it stands where a future of the store would, and `heard` is called with what came of it."""

    __slots__ = ("_done", "_heard", "_make", "finish", "hold", "id", "move", "request", "since", "time")

    def __init__(
        self,
        hold: Hold,
        request: OpenRequest | None,
        finish: Callable[[], Line] | Line,
        calls: "tuple[Callable[[Ending], Settle | Release], Callable[[Ending, bool, BaseException | None], None]]",
        times: tuple[float, float],
    ) -> None:
        """`calls` are `make` and `heard`, `times` Unix seconds and the loop's."""
        self.id, self.hold, self.request, self.finish = hold.id, hold, request, finish
        self._make, self._heard = calls
        self.time, self.since = times
        self.move: Settle | Release | None = None
        self._done = False

    def __call__(self) -> Settle | Release:
        """Its move."""
        if self.move is None:
            self.move = self._make(self)
        return self.move

    def line(self) -> Line:
        """Its line, made now."""
        finish = self.finish
        return finish if isinstance(finish, Line) else finish()

    def cancelled(self) -> bool:
        """Never: money is not given up."""
        return False

    def done(self) -> bool:
        """The store has said what came of it."""
        return self._done

    def set_result(self, result: bool, /) -> None:
        """It is done; False: it had a line already, or no hold that could be given back."""
        self._done = True
        self._heard(self, result, None)

    def set_exception(self, exception: BaseException, /) -> None:
        """The store could not, or would not."""
        self._done = True
        self._heard(self, False, exception)


def settlement_of(bill: Bill) -> Settlement:
    """A bill on its way into the ledger. Reports add up the tokens of the bill, so that they cannot say anything else."""
    tokens = bill.tokens
    return Settlement(
        id=bill.id,
        account=bill.account,
        key=bill.key,
        model=bill.model,
        time=bill.time,
        status=bill.status,
        usage=Usage(
            tokens.input,
            tokens.cache_read,
            tokens.cache_write_5m,
            tokens.cache_write_1h,
            tokens.output,
            tokens.reasoning,
        ),
        charge=bill.charge,
        body=encode_body(bill),
        unlimited=bill.unlimited,
        price=bill.price,
    )


def hold_row(request: OpenRequest, now: float) -> HoldRow:
    """A hold as the store, the spool and the journal keep it."""
    caller = request.hold.caller
    return HoldRow(
        id=request.hold.id,
        account=caller.account,
        key=caller.key,
        model=request.model,
        amount=request.hold.amount,
        estimate=request.noted,
        owner=request.owner,
        created_at=now,
        price=request.price,
        unlimited=caller.unlimited,
    )


def given_back(hold: Hold) -> SpooledRelease:
    """A hold that is closed without a line, as spool and journal keep it."""
    return SpooledRelease(hold.id, hold.caller.account, hold.caller.unlimited)


def crashed(hold: HoldRow, charge: int) -> tuple[Hold, Line]:
    """The hold of a request whose process has died, and its line for the log."""
    caller = Caller(account=hold.account, key=hold.key, unlimited=hold.unlimited)
    line = Line(id=hold.id, account=hold.account, key=hold.key, model=hold.model, ending="crashed", price=hold.price)
    line.charge = charge
    return Hold(hold.id, caller, hold.amount), line
