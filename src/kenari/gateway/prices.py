"""The prices of the catalogue's models as whole numbers, each made once."""

from kenari.catalog.models import Model
from kenari.catalog.models import Price as Listed
from kenari.core.price import Price
from kenari.gateway.services import Pricing
from kenari.ledger.price import charge, make_price


class Prices:
    """Makes the price of a model from its decimal strings; equal strings make one price. `currency` is a code like USD."""

    def __init__(self, currency: str) -> None:
        self._currency = currency
        self._made: dict[Listed, Price] = {}

    def of(self, model: Model) -> Price | None:
        """The price of a model, None when it has none."""
        listed = model.price
        if listed is None:
            return None
        price = self._made.get(listed)
        if price is None:
            price = self._made[listed] = make_price(
                listed.input,
                listed.output,
                listed.cache_read,
                listed.cache_write,
                listed.cache_write_1h,
                currency=self._currency,
            )
        return price


def pricing(currency: str, enforce: bool) -> Pricing:
    """What money means to the gateway."""
    return Pricing(Prices(currency).of, charge, enforce)
