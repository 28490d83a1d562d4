"""The store: what the rest of kenari asks of what it keeps."""

from collections.abc import Sequence

from kenari.core.caller import Caller
from kenari.core.ports import Hold, Reservation
from kenari.store.records import (
    Account,
    AccountChange,
    Audited,
    BillLine,
    Grouping,
    HoldRow,
    KeyChange,
    KeyRow,
    KnownKey,
    NewAccount,
    NewKey,
    SecretRow,
    Settlement,
    Spent,
    UsageSum,
)


class Store:
    """All that kenari keeps. Every method raises StoreDown when the store cannot say now; those that name an account or
    a key raise Unknown when there is none. A method with `actor` leaves a line in the audit log, in the same
    transaction as the change. Times, ids and entropy come from what the store was opened with."""

    async def create_account(self, new: NewAccount, *, actor: str) -> Account:
        """A new account `acc_...`."""
        raise NotImplementedError

    async def account(self, account: str) -> Account:
        """One account."""
        raise NotImplementedError

    async def accounts(self, limit: int = 100, after: str = "") -> list[Account]:
        """Accounts in the order of their ids, from the one after `after`."""
        raise NotImplementedError

    async def change_account(self, account: str, change: AccountChange, *, actor: str) -> Account:
        """Change what is given. Closing refuses every key of the account; it can be opened again."""
        raise NotImplementedError

    async def add_credit(self, account: str, amount: int, note: str, *, actor: str) -> Account:
        """Add to the balance (or take from it, below 0): an entry of the ledger. Raises Conflict when it is closed."""
        raise NotImplementedError

    async def create_key(self, new: NewKey, *, actor: str) -> KeyRow:
        """A new key `key_...` whose secret has this HMAC. Raises Conflict when the account is closed."""
        raise NotImplementedError

    async def key(self, key: str) -> KeyRow:
        """One key."""
        raise NotImplementedError

    async def keys(self, account: str = "", limit: int = 100, after: str = "") -> list[KeyRow]:
        """Keys in the order of their ids, of one account or of all, revoked ones too."""
        raise NotImplementedError

    async def secrets(self, key: str) -> list[SecretRow]:
        """The secrets of a key that are not past their grace period, the newest first."""
        raise NotImplementedError

    async def change_key(self, key: str, change: KeyChange, *, actor: str) -> KeyRow:
        """Change what is given."""
        raise NotImplementedError

    async def revoke_key(self, key: str, *, actor: str) -> KeyRow:
        """Refuse the key from now on; a second time changes nothing."""
        raise NotImplementedError

    async def rotate_key(self, key: str, digest: bytes, grace: float, *, actor: str) -> KeyRow:
        """A second secret; the older ones end after `grace` seconds. Raises Conflict when the key is revoked."""
        raise NotImplementedError

    async def snapshot_keys(self) -> tuple[int, list[KnownKey]]:
        """Every key that may still be used, with its account and secrets, and the sequence number of this state."""
        raise NotImplementedError

    async def sequence(self) -> int:
        """A number that every change of an account, a key or a secret raises (not money that moves)."""
        raise NotImplementedError

    async def request(self, request: str) -> BillLine | None:
        """The bill line of a request, None when there is none (yet)."""
        raise NotImplementedError

    async def requests(self, account: str = "", key: str = "", limit: int = 100, before: str = "") -> list[BillLine]:
        """Bill lines, the newest first, from the one before the request `before`."""
        raise NotImplementedError

    async def usage(
        self, by: Sequence[Grouping], since: float, until: float, account: str = "", key: str = ""
    ) -> list[UsageSum]:
        """Sums over the requests that ended in [since, until), in groups."""
        raise NotImplementedError

    async def spent(self, caller: Caller) -> tuple[Spent | None, Spent | None]:
        """How the budgets of a caller's key and account stand now; None where there is no budget."""
        raise NotImplementedError

    async def audit(self, actor: str, action: str, subject: str, detail: bytes = b"{}") -> None:
        """Note something that changed nothing in the store."""
        raise NotImplementedError

    async def audit_log(self, limit: int = 100, before: int | None = None, subject: str = "") -> list[Audited]:
        """The audit log, the newest first, from the one before the number `before`."""
        raise NotImplementedError

    async def ping(self) -> None:
        """Return when the store can write."""
        raise NotImplementedError

    async def reserve(self, reservation: Reservation, owner: str) -> Hold:
        """Open a hold (U5, F8). Raises KenariError: 402, or 409 for a repeat."""
        raise NotImplementedError

    async def settle(self, settlement: Settlement) -> bool:
        """Close a hold with its line, in one transaction. False when the line is there already."""
        raise NotImplementedError

    async def note(self, estimates: dict[str, int]) -> None:
        """What open holds would cost if they ended now."""
        raise NotImplementedError

    async def open_holds(self, owner: str = "") -> list[HoldRow]:
        """Open holds, of an owner and of those below it (`node` and `node/...`), or all."""
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """How many writes wait for the writer thread (a gauge for metrics)."""
        raise NotImplementedError
