"""What serving a request needs: the ports of the house, put together by the composition root."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kenari.catalog.models import Catalog, Model
from kenari.core.ids import Envelopes
from kenari.core.ports import Books, Counter, Keys, Leg, Limits, Upstream
from kenari.core.price import Price
from kenari.gateway.plan import Candidate
from kenari.gateway.repeats import Repeats
from kenari.gateway.ticker import Ticker
from kenari.keys.memory import MemoryLimits
from kenari.providers.base import Provider


class Pricing(NamedTuple):
    """What money means here: the price of a model (None: it has none) and what legs cost at a price, rounded up once.

    `enforce` is False where bill lines are written but nobody is refused for money.
    """

    price: Callable[[Model], Price | None]
    charge: Callable[[Sequence[Leg], Price], int]
    enforce: bool = True


def _no_price(model: Model) -> Price | None:
    return None


def _no_charge(legs: Sequence[Leg], price: Price) -> int:
    return 0


NO_PRICES = Pricing(_no_price, _no_charge)
"""Without prices only unlimited keys are served (F9)."""


class Services:
    """Everything that serving a request needs. `upstreams` maps an address scheme to the outbound end that serves it.

    Without `limits` they are counted in this process's memory; without a `counter` tokens are guessed. `repeats` outlives a
    configuration: whoever makes services anew hands the old ones on, as with `limits`.

    `keepalive` and `noop_after` are seconds of silence (S15, D15). `envelopes` and `cache_key` are derived from the
    one secret (F10).
    """

    def __init__(  # noqa: PLR0913 - the ports of the house, each by name
        self,
        *,
        catalog: Catalog,
        providers: dict[str, Provider],
        keys: Keys,
        books: Books,
        upstreams: dict[str, Upstream],
        ticker: Ticker,
        envelopes: Envelopes,
        cache_key: bytes,
        keepalive: float,
        noop_after: float,
        limits: Limits | None = None,
        pricing: Pricing = NO_PRICES,
        counter: Counter | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        self.catalog = catalog
        self.providers = providers
        self.keys = keys
        self.books = books
        self.upstreams = upstreams
        self.ticker = ticker
        self.envelopes = envelopes
        self.cache_key = cache_key
        self.silence = (keepalive, noop_after)
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.limits: Limits = limits or MemoryLimits(self.clock)
        self.pricing = pricing
        self.counter = counter
        self.repeats = repeats or Repeats(self.clock)

    def upstream(self, candidate: Candidate) -> Upstream:
        """The outbound end for a candidate's address."""
        scheme = candidate.provider.base_url.partition(":")[0]
        return self.upstreams[scheme]
