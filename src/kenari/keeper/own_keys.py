"""Callers' own provider keys: kept sealed in the store, held sealed in memory, opened for the call that needs one (BYOK)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol

import msgspec

from kenari.core.errors import KenariError, bad_request
from kenari.core.ids import derive_key
from kenari.core.own_keys import OwnKeyShown
from kenari.keys.box import NONCE
from kenari.keys.vault import Unreadable, Vault, hint_of
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


def master_keys(root: bytes, secret: str, old_secrets: Sequence[str]) -> tuple[bytes, ...]:
    """The master keys of a node: the first, of the configured secret or else of the root of all (F10), seals; what was
    sealed under the others opens too."""
    given = [one.encode("utf-8", "surrogateescape") for one in (secret, *old_secrets) if one]
    order = [*given, root] if secret else [root, *given]
    return tuple(derive_key(one, "byok") for one in order)


def vault_of(root: bytes, secret: str, old_secrets: Sequence[str]) -> Vault:
    """The vault of a node. Raises OSError when the library is not installed."""
    return Vault(master_keys(root, secret, old_secrets))


class SealedOwnKeys:
    """The keys of all accounts in memory, as `core.own_keys.OwnKeys`: sealed, and opened for the call that needs one."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self.sealed: Mapping[tuple[str, str], bytes] = {}
        """By account and provider. What changes is put in its place whole."""

    def __repr__(self) -> str:
        return f"SealedOwnKeys({len(self.sealed)} keys)"

    def find(self, account: str, provider: str) -> str | None:
        """The account's key for a provider, opened; None when it has none that can be opened."""
        sealed = self.sealed.get((account, provider))
        if sealed is None:
            return None
        try:
            return self._vault.open(account, provider, sealed)
        except Unreadable as error:
            _log.error("%s", error)
            return None


class StoredOwnKeys:
    """The keys of all accounts, as `core.own_keys.OwnKeys` and `OwnKeyBook`. `providers` are those that callers may bring
    keys for; `now` is Unix time; `entropy` gives random bytes. `start` reads them and follows the changes of other
    processes, until `close`."""

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
        self._known = SealedOwnKeys(vault)
        self._changed: Callable[[], None] = lambda: None
        self._sequence = -1
        self._following: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"StoredOwnKeys({len(self._known.sealed)} keys)"

    @property
    def sealed(self) -> Mapping[tuple[str, str], bytes]:
        """All that are known, sealed, by account and provider."""
        return self._known.sealed

    async def start(self, changed: Callable[[], None] = lambda: None) -> None:
        """Read the keys, and from now on whatever changes of them anywhere. `changed` hears when `sealed` is another."""
        self._changed = changed
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
        self._replace({(row.account, row.provider): row.sealed for row in rows})

    def find(self, account: str, provider: str) -> str | None:
        """The account's key for a provider, opened; None when it has none that can be opened."""
        return self._known.find(account, provider)

    async def shown(self, account: str) -> list[OwnKeyShown]:
        """What an account has brought. Raises the 503 when the store cannot be reached."""
        with _reached():
            rows = await self._store.provider_keys(account)
        return [OwnKeyShown(row.provider, row.hint, row.created_at) for row in rows]

    async def put(self, account: str, provider: str, secret: str, *, actor: str) -> OwnKeyShown:
        """Keep a key. Raises the 400 that names what is wrong, 404 for a provider that takes none, the 503."""
        self._check(provider)
        if not secret or len(secret) > MAX_KEY or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise bad_request("key must be the provider's key: printable ASCII without spaces", "key")
        sealed = self._vault.seal(account, provider, secret, self._entropy(NONCE))
        row = ProviderKeyRow(account, provider, sealed, hint_of(secret), self._now())
        with _reached():
            await self._store.put_provider_key(row, actor=actor)
        self._replace({**self._known.sealed, (account, provider): sealed})
        return OwnKeyShown(row.provider, row.hint, row.created_at)

    async def drop(self, account: str, provider: str, *, actor: str) -> bool:
        """Forget a key; False when there was none. Raises the 503."""
        with _reached():
            dropped = await self._store.drop_provider_key(account, provider, actor=actor)
        self._replace({name: sealed for name, sealed in self._known.sealed.items() if name != (account, provider)})
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

    def _replace(self, sealed: Mapping[tuple[str, str], bytes]) -> None:
        if sealed != self._known.sealed:
            self._known.sealed = sealed
            self._changed()

    def _check(self, provider: str) -> None:
        if provider not in self._providers:
            known = ", ".join(sorted(self._providers)) or "none"
            raise KenariError("not_found", f"no own key can be used for {provider[:80]!r}. possible are: {known}")


@contextlib.contextmanager
def _reached() -> Generator[None]:
    """A store that cannot be reached is the caller's 503."""
    try:
        yield
    except StoreDown:
        words = "the store cannot be reached now. wait and send the request again"
        raise KenariError("upstream_unavailable", words, retry_after=2.0) from None
