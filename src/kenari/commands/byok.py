"""`kenari byok rotate`: seal callers' own provider keys under the present secret."""

import argparse
import asyncio
import os
import secrets
import sys
import time
from typing import TYPE_CHECKING

from kenari.commands.base import add_command, add_group
from kenari.config import Config
from kenari.core.ids import derive_key
from kenari.keeper.own_keys import StoredOwnKeys, vault_of
from kenari.keeper.secrets import root_secret, store_folder
from kenari.keys.vault import Unreadable
from kenari.ledger.chain import Seals
from kenari.store.records import Conflict, StoreDown
from kenari.store.store import Store, StoreSettings

if TYPE_CHECKING:
    from kenari.commands.base import Commands


def add(commands: "Commands") -> None:
    """The command."""
    group = add_group(commands, "byok", "callers' own provider keys")
    add_command(group, "rotate", "seal every key under the secret that is configured now", rotate)


def rotate(options: argparse.Namespace, config: Config) -> int:
    """All keys or none; the server may run meanwhile."""
    try:
        count = asyncio.run(rotate_all(config))
    except (StoreDown, Conflict, Unreadable, OSError) as error:
        print(f"nothing was changed: {error}", file=sys.stderr)
        return 1
    print(f"{count} keys are sealed under the present secret; byok.old_secrets can go")
    return 0


async def rotate_all(config: Config) -> int:
    """Open the store, seal every key anew, close it; how many. Raises what they raise."""
    root = root_secret(config.secret, store_folder(config.store_url), secrets.token_bytes(32))
    vault = vault_of(root, config.byok.secret, config.byok.old_secrets)
    settings = StoreSettings(url=config.store_url, node=f"byok-{os.getpid()}", currency=config.currency)
    store = Store(settings, Seals(derive_key(root, "ledger")), time.time, secrets.token_bytes)
    await store.start()
    try:
        own = StoredOwnKeys(store, vault, frozenset(config.byok.providers), time.time, secrets.token_bytes)
        return await own.rotate(actor="command")
    finally:
        await store.close()
