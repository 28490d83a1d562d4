"""What serving a request needs: the ports of the house, put together by the composition root."""

import asyncio
from collections.abc import Callable

from kenari.catalog.models import Catalog
from kenari.core.ids import Envelopes
from kenari.core.ports import Books, Keys, Upstream
from kenari.gateway.plan import Candidate
from kenari.gateway.ticker import Ticker
from kenari.providers.base import Provider


class Services:
    """Everything that serving a request needs. `upstreams` maps an address scheme to the outbound end that serves it.

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

    def upstream(self, candidate: Candidate) -> Upstream:
        """The outbound end for a candidate's address."""
        return self.upstreams[candidate.scheme]
