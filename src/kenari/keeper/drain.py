"""The way from the spool into the store, when that is there again."""

import asyncio
import logging

from kenari.keeper.spool import Spool, SpooledHold, SpooledLine, SpooledNotes, SpooledRelease
from kenari.store.records import StoreDown
from kenari.store.store import Store

_AT_ONCE = 400
_log = logging.getLogger("kenari.books")


async def drain(spool: Spool, store: Store) -> None:
    """Write what waits in its order, and empty the spool; twice changes nothing. Raises StoreDown when the store goes away
    again."""
    offset = 0
    while spool.waiting:
        records, end = spool.read(offset, _AT_ONCE)
        if end == offset:
            spool.clear()
            return
        offset = end
        asked: list[tuple[bytes, asyncio.Future[bool]]] = []
        for record, text in records:
            if isinstance(record, SpooledHold):
                asked.append((text, store.adopt(record.hold)))
            elif isinstance(record, SpooledLine):
                asked.append((text, store.settle(record.settlement)))
            elif isinstance(record, SpooledRelease):
                asked.append((text, store.release(record.id, record.account, record.unlimited)))
            elif isinstance(record, SpooledNotes):
                await store.note(record.estimates)
            else:
                _log.error("a line of the spool cannot be read; it is kept beside it")
                spool.set_aside(text)
        outcomes = await asyncio.gather(*(future for _, future in asked), return_exceptions=True)
        for (text, _), outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, StoreDown):
                raise outcome
            if isinstance(outcome, BaseException):
                _log.error("the ledger refused a spooled line: %s; it is kept beside the spool", outcome)
                spool.set_aside(text)
