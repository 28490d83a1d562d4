"""What is admitted while the store is down: what costs nothing, and what costs no more than the operator allows."""

from kenari.core.errors import KenariError
from kenari.core.ports import Hold, Reservation

RETRY_AFTER = 5.0


class Outage:
    """One outage. `allowance` is what each account may spend in it, in 1e-9 currency units."""

    def __init__(self, allowance: int, enforce: bool, began: float) -> None:
        self._allowance, self._enforce = allowance, enforce
        self.began = began
        self._spent: dict[str, int] = {}

    def admit(self, reservation: Reservation) -> Hold:
        """The hold of a request that may go on. Raises the 503 for what cannot be guaranteed: its balance is not known, nor
        whether its idempotency key was used."""
        caller = reservation.caller
        if caller.unlimited or reservation.amount == 0:
            return Hold(reservation.id, caller, reservation.amount)
        if reservation.repeat is not None:
            raise self.refusal()
        spent = self._spent.get(caller.account, 0)
        granted = reservation.amount if not self._enforce else min(reservation.amount, self._allowance - spent)
        if granted < max(reservation.least, 1):
            raise self.refusal()
        self._spent[caller.account] = spent + granted
        return Hold(reservation.id, caller, granted)

    def settle(self, hold: Hold, charge: int) -> None:
        """What a request did not use of its hold is there for the next one."""
        account = hold.caller.account
        if not hold.caller.unlimited and hold.amount:
            self._spent[account] = self._spent.get(account, 0) + charge - hold.amount

    def refusal(self) -> KenariError:
        """The 503."""
        return KenariError(
            "upstream_unavailable",
            "balances cannot be checked at the moment. send the request again in a few seconds",
            retry_after=RETRY_AFTER,
        )
