"""What callers may read of themselves, out of the store: their key, their credit, their own bill lines."""

from datetime import UTC, datetime
from typing import Any

from kenari.core.caller import Budget, Caller, Rates
from kenari.core.errors import KenariError
from kenari.core.price import format_amount
from kenari.ledger.lines import public_bill, read_bill
from kenari.store.records import Spent, StoreDown, Unknown
from kenari.store.store import Store
from kenari.wire import jsonx

_PRIVATE = ("target", "provider_format", "legs", "arithmetic")
"""What of a bill line is the operator's business: who served it."""


class CallerRecords:
    """core.ports.Records over a store. `digits` are the decimals that the currency shows."""

    def __init__(self, store: Store, currency: str, digits: int) -> None:
        self._store, self._currency, self._digits = store, currency, digits

    async def key(self, caller: Caller) -> bytes:
        """`GET /v1/key`."""
        body: dict[str, Any] = {"id": caller.key, "account": caller.account, "unlimited": caller.unlimited}
        if not caller.unlimited:
            try:
                row = await self._store.key(caller.key)
                spent = await self._store.spent(caller)
            except (StoreDown, Unknown):
                raise _unknown_now() from None
            body |= {
                "name": row.name,
                "created_at": _time(row.created_at),
                "expires_at": _time(caller.expires_at),
                "models": list(caller.scope.models),
                "endpoints": list(caller.scope.endpoints),
                "networks": [str(network) for network in caller.scope.networks],
                "limits": _rates(caller.rates),
                "budget": self._budget(caller.budget, spent[0]),
                "account_limits": _rates(caller.account_rates),
                "account_budget": self._budget(caller.account_budget, spent[1]),
            }
        return jsonx.encode({"object": "key"} | body)

    async def credits(self, caller: Caller) -> bytes:
        """`GET /v1/credits`."""
        body: dict[str, Any] = {"object": "credits", "account": caller.account, "currency": self._currency}
        if caller.unlimited:
            return jsonx.encode(body | {"unlimited": True, "balance": None, "reserved": None, "available": None})
        try:
            account = await self._store.account(caller.account)
        except (StoreDown, Unknown):
            raise _unknown_now() from None
        return jsonx.encode(
            body
            | {
                "unlimited": False,
                "balance": self._amount(account.balance),
                "reserved": self._amount(account.reserved),
                "available": self._amount(max(0, account.balance - account.reserved)),
            }
        )

    async def generation(self, caller: Caller, request_id: str) -> bytes | None:
        """`GET /v1/generation?id=`: the bill line of a request of the caller's account, None when there is none."""
        try:
            line = await self._store.request(request_id)
        except StoreDown:
            raise _unknown_now() from None
        if line is None or line.account != caller.account:
            return None
        bill = public_bill(read_bill(line.body), self._digits)
        shown = {name: value for name, value in bill.items() if name not in _PRIVATE}
        return jsonx.encode({"object": "generation", "currency": self._currency} | shown)

    def _budget(self, budget: Budget | None, spent: Spent | None) -> dict[str, Any] | None:
        if budget is None:
            return None
        used = spent.amount + spent.reserved if spent is not None else 0
        return {
            "amount": self._amount(budget.amount),
            "window": budget.window,
            "spent": self._amount(spent.amount if spent is not None else 0),
            "remaining": self._amount(max(0, budget.amount - used)),
        }

    def _amount(self, units: int) -> str:
        return format_amount(units, self._digits)


def _rates(rates: Rates) -> dict[str, int | None]:
    return {"rpm": rates.rpm, "tpm": rates.tpm, "concurrent": rates.concurrent}


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _unknown_now() -> KenariError:
    return KenariError("upstream_unavailable", "the store does not answer. ask again in a moment", retry_after=2)
