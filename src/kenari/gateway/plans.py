"""Plans by name, made once for each name of a configuration; those of callers' own keys for each request."""

from collections.abc import Iterator, Mapping

from kenari.catalog.models import BYOK, Catalog, Entry, Kind, Member, Model, Price, TargetRef, not_there
from kenari.core.caller import Caller
from kenari.core.errors import KenariError
from kenari.core.ids import Envelopes
from kenari.gateway.plan import Candidate, Plan, make_plan
from kenari.gateway.services import Services
from kenari.providers.base import Provider

MAX_NAMED = 4096
"""Names whose plans are remembered."""
_ZERO = Price("0", "0", "0", "0")


class Plans:
    """The plans of the catalogue that the services hold now; another catalogue (a reload) makes them anew."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._catalog = services.catalog
        self._plans: dict[str, Plan] = {}
        self._named: dict[tuple[str, Kind], Plan] = {}  # by what clients call it; only names that stand for something

    def find(self, name: str, kind: Kind, caller: Caller) -> Plan:
        """The plan of what a name stands for. Raises as `Catalog.entry_of`."""
        services = self._services
        if services.catalog is not self._catalog:
            self._catalog, self._plans, self._named = services.catalog, {}, {}
        if name.startswith(BYOK) and services.own.providers:
            return self._own(name, kind, caller)
        plan = self._named.get((name, kind))
        if plan is not None:
            return plan
        entry = services.catalog.entry_of(name, kind)
        plan = self._plans.get(entry.id)
        if plan is None:
            plan = self._plans[entry.id] = make_plan(entry, services.providers, services.envelopes)
        if len(self._named) < MAX_NAMED:
            self._named[name, kind] = plan
        return plan

    def _own(self, name: str, kind: Kind, caller: Caller) -> Plan:
        """`byok/PROVIDER/MODEL`: that model of that provider, with the caller's key for it."""
        services = self._services
        provider, slash, model = name.removeprefix(BYOK).partition("/")
        if not slash or not model or provider not in services.own.providers or provider not in services.providers:
            raise not_there(name)
        key = services.own.keys.find(caller.account, provider)
        if key is None:
            words = f"no key of yours is kept for {provider}. store one with PUT /v1/byok/{provider}"
            raise KenariError("bad_request", words, "model")
        described = Model(id=name, targets=(TargetRef(provider, model),), kind=kind, price=_ZERO)
        entry = Entry(described, (Member(described),))
        return make_plan(entry, services.providers, services.envelopes, key)


def candidates_of(catalog: Catalog, providers: Mapping[str, Provider], envelopes: Envelopes) -> Iterator[Candidate]:
    """Every candidate of a configuration."""
    for entry in catalog.entries:
        yield from make_plan(entry, providers, envelopes).candidates
