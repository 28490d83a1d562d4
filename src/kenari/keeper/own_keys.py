"""Callers' own provider keys: kept sealed in the store, held sealed in memory, opened for the call that needs one (BYOK)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from kenari.core.errors import KenariError, bad_request
from kenari.core.ids import derive_key
from kenari.core.own_keys import OwnKeyShown
from kenari.keys.vault import NONCE, Unreadable, Vault, hint_of
from kenari.store.records import ProviderKeyRow, StoreDown

_log = logging.getLogger("kenari.byok")

LOOK_SECONDS = 1.0
"""How often changes of other processes are looked for."""
MAX_KEY = 4096
"""Letters; no provider's key is longer."""


class ProviderKeyStore(Protocol):
    """What is asked of the store."""

    async def put_provider_key(self, row: ProviderKeyRow, *, actor: str) -> None:
        """Keep it in the place of an earlier one."""
        ...

    async def drop_provider_key(self, account: str, provider: str, *, actor: str) -> bool:
        """Forget it; False when there was none."""
        ...

    async def provider_keys(self, account: str = "") -> list[ProviderKeyRow]:
        """Those of an account, or all."""
        ...

    async def sequence(self) -> int:
        """A number that every change raises."""
        ...

    async def rewrap_provider_keys(self, rewrap: Callable[[ProviderKeyRow], ProviderKeyRow], *, actor: str) -> int:
        """Change how every one is sealed."""
        ...


def vault_of(root: bytes, secret: str, old_secrets: Sequence[str]) -> Vault:
    """The vault of a node: it seals under the configured secret, else under the root of all (F10), and opens what was
    sealed under either or under the secrets of before. Raises OSError when the library is not installed."""
    given = [one.encode("utf-8", "surrogateescape") for one in (secret, *old_secrets) if one]
    order = [*given, root] if secret else [root, *given]
    return Vault([derive_key(one, "byok") for one in order])


class StoredOwnKeys:
    """The keys of all accounts. `providers` are those that callers may bring keys for; `now` is Unix time; `entropy` gives
    random bytes. `start` reads them and follows the changes of other processes, until `close`."""

    def __init__(
        self,
        store: ProviderKeyStore,
        vault: Vault,
        providers: frozenset[str],
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
    ) -> None:
        self._store, self._vault, self._providers = store, vault, providers
        self._now, self._entropy = now, entropy
        self._sealed: dict[tuple[str, str], bytes] = {}
        self._sequence = -1
        self._following: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"StoredOwnKeys({len(self._sealed)} keys)"

    async def start(self) -> None:
        """Read the keys, and from now on whatever changes of them anywhere."""
        await self._look()
        self._following = asyncio.get_running_loop().create_task(self._follow())

    def close(self) -> None:
        """Follow no more."""
        if self._following is not None:
            self._following.cancel()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look()

    async def _look(self) -> None:
        with contextlib.suppress(StoreDown):  # what is known goes on
            sequence = await self._store.sequence()
            if sequence != self._sequence:
                await self.refresh()
                self._sequence = sequence

    async def refresh(self) -> None:
        """Read them anew. Raises StoreDown."""
        rows = await self._store.provider_keys()
        self._sealed = {(row.account, row.provider): row.sealed for row in rows}

    def find(self, account: str, provider: str) -> str | None:
        """The account's key for a provider, opened; None when it has none that can be opened."""
        sealed = self._sealed.get((account, provider))
        if sealed is None:
            return None
        try:
            return self._vault.open(account, provider, sealed)
        except Unreadable as error:
            _log.error("%s", error)
            return None

    async def shown(self, account: str) -> list[OwnKeyShown]:
        """What an account has brought."""
        rows = await self._store.provider_keys(account)
        return [OwnKeyShown(row.provider, row.hint, row.created_at) for row in rows]

    async def put(self, account: str, provider: str, secret: str, *, actor: str) -> OwnKeyShown:
        """Keep a key. Raises the 400 that names what is wrong, 404 for a provider that takes none."""
        self._check(provider)
        if not secret or len(secret) > MAX_KEY or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise bad_request("key must be the provider's key: printable ASCII without spaces", "key")
        sealed = self._vault.seal(account, provider, secret, self._entropy(NONCE))
        row = ProviderKeyRow(account, provider, sealed, hint_of(secret), self._now())
        await self._store.put_provider_key(row, actor=actor)
        self._sealed[account, provider] = sealed
        return OwnKeyShown(row.provider, row.hint, row.created_at)

    async def drop(self, account: str, provider: str, *, actor: str) -> bool:
        """Forget a key; False when there was none."""
        dropped = await self._store.drop_provider_key(account, provider, actor=actor)
        self._sealed.pop((account, provider), None)
        return dropped

    async def rotate(self, *, actor: str) -> int:
        """Seal every key under the present secret; how many. Raises Unreadable when one cannot be opened: then none is
        changed."""

        def rewrap(row: ProviderKeyRow) -> ProviderKeyRow:
            secret = self._vault.open(row.account, row.provider, row.sealed)
            sealed = self._vault.seal(row.account, row.provider, secret, self._entropy(NONCE))
            return msgspec.structs.replace(row, sealed=sealed)

        count = await self._store.rewrap_provider_keys(rewrap, actor=actor)
        await self.refresh()
        return count

    def _check(self, provider: str) -> None:
        if provider not in self._providers:
            known = ", ".join(sorted(self._providers)) or "none"
            raise KenariError("not_found", f"no own key can be used for {provider[:80]!r}. possible are: {known}")
