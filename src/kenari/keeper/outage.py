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
        return Hold(reservation.id, caller, self._granted(caller.account, reservation.amount, reservation.least))

    def extend(self, hold: Hold, amount: int, least: int) -> Hold:
        """The hold of a request that goes on, with more in it. Raises the 503."""
        if not hold.caller.unlimited and amount:
            amount = self._granted(hold.caller.account, amount, least)
        return Hold(hold.id, hold.caller, hold.amount + amount)

    def _granted(self, account: str, amount: int, least: int) -> int:
        spent = self._spent.get(account, 0)
        granted = amount if not self._enforce else min(amount, self._allowance - spent)
        if granted < max(least, 1):
            raise self.refusal()
        self._spent[account] = spent + granted
        return granted

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
