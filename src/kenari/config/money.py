"""Reading what concerns money: prices, `[billing]`, and how the store keeps it."""

import re

from kenari.catalog.models import FREE, NOTHING, Price
from kenari.config.table import Table
from kenari.core.price import parse_amount
from kenari.core.windows import zone_of

DAY = 24 * 3600.0
MONTH = 32 * DAY
"""Seconds: no window of a budget but the total is longer."""
_NODE = re.compile(r"[A-Za-z0-9._:\[\]-]{1,64}")


def read_price(model: str, table: Table) -> Price | None:
    """A model's price; zero for a `:free` one that names none, None for another that has none."""
    given = table.has("price")
    prices = table.child("price")
    values = {name: prices.decimal(name, None) for name in Price.__struct_fields__}
    for name, value in values.items():
        try:
            parse_amount(value or "0")
        except ValueError as error:
            prices.fault(name, str(error))
    prices.close()
    if not given:
        return NOTHING if model.endswith(FREE) else None
    if model.endswith(FREE) and any(float(value or 0) for value in values.values()):
        table.fault("price", f"must be zero or left out: a name that ends with {FREE} promises that it costs nothing")
    units = ("image", "character", "second")
    if (values["input"] is None or values["output"] is None) and not any(values[unit] for unit in units):
        table.fault("price", "needs at least input and output, or one of image, character and second")
        return None
    return Price(**{name: value for name, value in values.items() if value is not None})


def node(store: Table) -> str:
    """The name of this process among those of its store."""
    name = store.text("node")
    if name and not _NODE.fullmatch(name):
        store.fault("node", "must be up to 64 letters, digits, dots, dashes, underscores and colons")
    return name


def retention(store: Table) -> float | None:
    """How long bill lines are kept; "" is for ever. The budget of a month is summed from them."""
    if store.take("retention") in (None, ""):
        return None
    seconds = store.seconds("retention", MONTH)
    if seconds < MONTH:
        store.fault("retention", 'must be at least "768h" (32 days): budgets of a month are summed from bill lines')
    return seconds


def keep_answers(idempotency: Table, store_url: str) -> float | None:
    """How long answers are kept to be sent again; "" is not at all (S104). An Idempotency-Key is remembered for a day."""
    if idempotency.take("keep") in (None, ""):
        return None
    seconds = idempotency.seconds("keep", DAY)
    if not 0 < seconds <= DAY:
        idempotency.fault("keep", 'must be at most "24h": keys are remembered no longer')
    if store_url == "none:":
        idempotency.fault("keep", "needs a store to keep answers in")
    return seconds


def amount(table: Table, key: str) -> int:
    """An amount of the currency in units of 1e-9."""
    text = table.decimal(key, "0") or "0"
    try:
        return parse_amount(text)
    except ValueError as error:
        table.fault(key, str(error))
        return 0


def time_zone(billing: Table) -> str:
    """The zone in which windows of budgets begin."""
    name = billing.text("time_zone", "UTC")
    try:
        zone_of(name)
    except ValueError as error:
        billing.fault("time_zone", str(error))
    return name
