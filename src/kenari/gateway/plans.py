"""Plans by name, made once for each name of a configuration."""

from kenari.catalog.models import Kind
from kenari.gateway.plan import Plan, make_plan
from kenari.gateway.services import Services


class Plans:
    """The plans of the catalogue that the services hold now; another catalogue (a reload) makes them anew."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._catalog = services.catalog
        self._plans: dict[str, Plan] = {}

    def find(self, name: str, kind: Kind) -> Plan:
        """The plan of what a name stands for. Raises as `Catalog.entry_of`."""
        services = self._services
        if services.catalog is not self._catalog:
            self._catalog, self._plans = services.catalog, {}
        entry = services.catalog.entry_of(name, kind)
        plan = self._plans.get(entry.id)
        if plan is None:
            plan = self._plans[entry.id] = make_plan(entry, services.providers, services.envelopes)
        return plan
