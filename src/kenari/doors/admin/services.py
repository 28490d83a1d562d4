"""What the management API is put together from."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, tzinfo

from kenari.core.errors import KenariError
from kenari.core.own_keys import OwnKeyBook
from kenari.doors.admin.values import Money
from kenari.store.records import StoreDown
from kenari.store.store import Store


class Management:
    """The services that routes act with. `store` is None where nothing is kept (`[store] url = "none:"`).

    `mint` makes a key's secret and the digest that is kept of it; `gauges` says how the node does; `zone` is the
    billing time zone; `models` how many names are served; `now` and `started` are in Unix seconds. `changed` makes a change of
    accounts and keys hold in this node. `reload` reads the configuration again and returns its faults;
    `own` keeps the provider keys that accounts bring, None where they cannot.
    """

    def __init__(  # noqa: PLR0913 - the services of the management API, each by name
        self,
        *,
        store: Store | None,
        money: Money,
        mint: Callable[[], tuple[str, bytes]],
        now: Callable[[], float],
        started: float,
        version: str,
        gauges: Callable[[], Mapping[str, float]] = dict,
        models: Callable[[], int] = lambda: 0,
        zone: tzinfo = UTC,
        changed: Callable[[], Awaitable[None]] | None = None,
        reload: Callable[[], Awaitable[list[tuple[str, str]]]] | None = None,
        own: OwnKeyBook | None = None,
    ) -> None:
        self.store, self.money, self.mint, self.now, self.started = store, money, mint, now, started
        self.version, self.gauges, self.models, self.zone = version, gauges, models, zone
        self._changed = changed
        self.reload, self.own = reload, own

    def kept(self) -> Store:
        """The store. Raises the 404 of a node that has none."""
        if self.store is None:
            raise KenariError("not_found", 'nothing is kept here: [store] url is "none:". set one to have accounts')
        return self.store

    async def spread(self) -> None:
        """Make what was changed hold here before its answer is out; elsewhere it does within two seconds."""
        if self._changed is not None:
            with contextlib.suppress(StoreDown):
                await self._changed()
