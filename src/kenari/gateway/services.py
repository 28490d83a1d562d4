"""What serving a request needs: the ports of the house, put together by the composition root."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kenari.catalog.models import Catalog, Model
from kenari.core.caller import Caller
from kenari.core.ids import Envelopes
from kenari.core.outbound import Upstream
from kenari.core.own_keys import NoOwnKeys, OwnKeys
from kenari.core.ports import Books, Counter, Keys, Leg, Limits
from kenari.core.price import Price
from kenari.dialects.base import Dialect
from kenari.gateway.media import Media
from kenari.gateway.pins import MemoryPins
from kenari.gateway.plan import Candidate
from kenari.gateway.repeats import Repeats
from kenari.gateway.routing import Routing
from kenari.gateway.ticker import Ticker
from kenari.keys.memory import MemoryLimits
from kenari.providers.base import Provider
from kenari.tools.base import ServerTool, ToolSettings


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


class Own(msgspec.Struct, frozen=True):
    """Callers' own provider keys (BYOK): where they are, for which providers they may be used, and what a request with one
    costs (1e-9 currency units)."""

    keys: OwnKeys = NoOwnKeys()
    providers: frozenset[str] = frozenset()
    fee: int = 0


class Services:
    """Everything that serving a request needs. `upstreams` maps an address scheme to the outbound end that serves it.

    Without `limits` they are counted in this process's memory; without a `counter` tokens are guessed. `repeats` outlives a
    configuration: whoever makes services anew hands the old ones on, as with `limits`.

    `keepalive` and `noop_after` are seconds of silence (S15, D15). `envelopes` and `cache_key` are derived from the
    one secret (F10). `deadline` is how many seconds may pass until the first content of an answer, however many
    candidates are tried; `show_target` says who is told which target served: operator, everyone or nobody.

    `tools` are those that are run here, by their kind. `dialects` are variants of the clients' dialects that the operator
    chose, by name. `media` prepares images and documents; without it they are passed on as they are.
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
        routing: Routing | None = None,
        deadline: float = 900.0,
        show_target: str = "operator",
        own: Own | None = None,
        tools: Mapping[str, ServerTool] | None = None,
        tool_settings: ToolSettings | None = None,
        dialects: Mapping[str, Dialect] | None = None,
        media: Media | None = None,
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
        self.tools: Mapping[str, ServerTool] = tools or {}
        self.media = media
        self.dialects: Mapping[str, Dialect] = dialects or {}
        self.tool_settings = tool_settings or ToolSettings()
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.limits: Limits = limits or MemoryLimits(self.clock)
        self.pricing = pricing
        self.counter = counter
        self.repeats = repeats or Repeats(self.clock)
        self.routing = routing or Routing(self.clock, MemoryPins(self.clock), cache_key, random.Random())
        self.deadline = deadline
        self._show_target = show_target
        self.own = own or Own()

    def tells_target(self, caller: Caller) -> bool:
        """Whether a caller's answers say which target served them."""
        return self._show_target == "everyone" or (self._show_target == "operator" and caller.unlimited)

    def upstream(self, candidate: Candidate) -> Upstream:
        """The outbound end for a candidate's address."""
        return self.upstreams[candidate.scheme]
