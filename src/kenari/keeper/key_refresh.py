"""Keys from the store into memory: the newest snapshot, asked for by its sequence number once a second (A2).

So a key that is made, changed, rotated or revoked, by whichever process or node, holds here within two seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from kenari.core.caller import Caller
from kenari.keys.stored import Secret, StoredKeys
from kenari.store.records import KnownKey, StoreDown
from kenari.store.store import Store

_log = logging.getLogger("kenari.keys")
POLL_SECONDS = 1.0
PATIENCE_SECONDS = 2.0
"""A store that takes longer to say its number is asked again; keys stay as they were meanwhile."""


class KeyRefresh:
    """Keeps `keys` as the store has them. While the store is down the keys that were known stay valid, until they
    expire. `changed` hears of each new snapshot."""

    def __init__(self, store: Store, keys: StoredKeys, changed: Callable[[], None] = lambda: None) -> None:
        self._store, self._keys, self._changed = store, keys, changed
        self._polling: asyncio.Task[None] | None = None
        self.stale = False
        """The store could not be asked the last time."""

    async def start(self, patient: bool = False) -> None:
        """Load the keys and begin to ask. Raises StoreDown when they cannot be loaded now, unless `patient`: then they
        come when the store does."""
        try:
            await self.refresh()
        except StoreDown:
            if not patient:
                raise
            self.stale = True
        self._polling = asyncio.get_running_loop().create_task(self._poll())

    async def close(self) -> None:
        """Ask no more."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def refresh(self) -> None:
        """Load the keys when the store has others than those in memory. Raises StoreDown."""
        if await self._store.sequence() == self._keys.sequence:
            return
        sequence, known = await self._store.snapshot_keys()
        self._keys.replace(sequence, secrets_of(known))
        self._changed()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.refresh()
            except (StoreDown, TimeoutError):
                if not self.stale:
                    self.stale = True
                    _log.warning("the store does not answer: keys stay as they were until it does")
            else:
                self.stale = False


def secrets_of(known: Iterable[KnownKey]) -> list[Secret]:
    """The store's keys as what verifying needs. A revoked key and those of a closed account are left out."""
    found: list[Secret] = []
    for one in known:
        key, account = one.key, one.account
        if key.revoked_at is not None or account.closed_at is not None:
            continue
        caller = Caller(
            account=account.id,
            key=key.id,
            plan=account.plan,
            scope=key.scope,
            rates=key.rates,
            budget=key.budget,
            account_rates=account.rates,
            account_budget=account.budget,
            expires_at=key.expires_at,
        )
        found += [Secret(secret.digest, caller, secret.expires_at) for secret in one.secrets]
    return found
