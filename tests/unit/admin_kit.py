"""The admin door on a real socket, with a store, a guard and metrics of its own."""

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from kenari.core.caller import Caller
from kenari.core.ports import Leg, Line, Reservation
from kenari.core.usage import Usage
from kenari.doors.admin.door import MAX_BODY, AdminDoor
from kenari.doors.admin.guard import Guard
from kenari.doors.admin.services import Management
from kenari.doors.admin.values import Money
from kenari.doors.edge import Edge
from kenari.doors.limits import EdgeLimits
from kenari.doors.listeners import listen
from kenari.keeper.metrics import Metrics
from kenari.keeper.own_keys import StoredOwnKeys, vault_of
from kenari.keys.secrets import make_key
from kenari.ledger.chain import Seals
from kenari.ledger.lines import bill_of, encode_body
from kenari.ledger.price import make_price
from kenari.store.records import Settlement
from kenari.store.store import Store, StoreSettings

TOKEN = "ka-a-token-for-tests"
NOW = 1_780_000_000.0


PRICE = make_price("1", "2", "0.1", "1.25")


class Clock:
    """A time that tests set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def kept(folder: Path, clock: Clock | None = None, zone: str = "UTC") -> AsyncGenerator[Store]:
    """A real store on SQLite."""
    settings = StoreSettings(url=f"sqlite:///{folder}/kenari.db", time_zone=zone)
    store = Store(settings, Seals(bytes(32)), clock or Clock(), os.urandom)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def bill(store: Store, account: str, key: str, request: str, at: float = NOW) -> int:
    """A request that was admitted and is settled; its charge. One target failed before content, the next answered."""
    caller = Caller(account=account, key=key)
    hold = await store.reserve(Reservation(id=request, caller=caller, model="m", amount=10**6, price=PRICE), "node")
    usage = Usage(fresh=25, cache_read=75, cache_write_5m=4, output=5, reasoning=2)
    line = Line(
        id=request,
        account=account,
        key=key,
        model="m",
        target="p/x",
        client_format="messages",
        provider_format="chat",
        stream=True,
        status=200,
        ending="done",
        usage=usage,
        legs=[Leg("p/a", Usage(), "upstream_error", 3.0, billed=False), Leg("p/x", usage, "ok", 900.5)],
        first_content_ms=120.25,
        duration_ms=950.5,
        price=PRICE,
    )
    written = bill_of(line, hold, at)
    await store.settle(
        Settlement(
            id=request,
            account=account,
            key=key,
            model="m",
            time=at,
            status=200,
            usage=usage,
            charge=written.charge,
            body=encode_body(written),
        )
    )
    return written.charge


def mint() -> tuple[str, bytes]:
    """A key's secret and what is kept of it."""
    secret = make_key(os.urandom(32))
    return secret, hashlib.sha256(secret.encode()).digest()


class Admin:
    """A client of the admin port, and what is behind it."""

    def __init__(self, port: int, store: Store | None, metrics: Metrics) -> None:
        self.port, self.store, self.metrics = port, store, metrics
        self.sleeps: list[float] = []
        self.reports: list[tuple[str, int]] = []
        self.faults: list[tuple[str, str]] = []

    async def raw(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send bytes, read one answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(10):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
                }
                length = 0 if data.startswith(b"HEAD") else int(headers.get("content-length", "0"))
                return int(head[0].split(" ")[1]), headers, await reader.readexactly(length)
        finally:
            writer.close()

    async def call(
        self, method: str, path: str, body: Any = None, token: str | None = TOKEN, kind: str = "application/json"
    ) -> tuple[int, dict[str, str], Any]:
        """One call; a body that is no bytes goes as JSON, an answer that is JSON is read."""
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: kenari", f"content-length: {len(sent)}"]
        lines += [f"authorization: Bearer {token}"] if token is not None else []
        lines += [f"content-type: {kind}"] if sent else []
        status, headers, answer = await self.raw("\r\n".join([*lines, "", ""]).encode() + sent)
        return status, headers, json.loads(answer) if answer and "json" in headers["content-type"] else answer

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        """A call that must succeed; its answer."""
        status, _, answer = await self.call(method, path, body)
        assert status in (200, 201), answer
        return answer

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str, str | None, str]:
        """A call that must fail: status, code, param, message."""
        status, _, answer = await self.call(method, path, body)
        assert status >= 400, answer
        error = answer["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return status, error["code"], error["param"], error["message"]


OWN = frozenset({"groq"})
"""The providers that accounts may bring keys for."""


@contextlib.asynccontextmanager
async def admin_port(
    store: Store | None,
    *,
    currency: str = "USD",
    digits: int = 2,
    open_metrics: bool = False,
    pace: float = 0.0,
    zone: str = "UTC",
) -> AsyncGenerator[Admin]:
    """The admin door on a free port of the loopback. `pace` times the delays of wrong tokens really pass."""
    metrics = Metrics(currency, "0.0.0", lambda name: name, lambda: {"in_flight": 2.0})
    admin = Admin(0, store, metrics)

    async def sleep(seconds: float) -> None:
        admin.sleeps.append(seconds)
        await asyncio.sleep(seconds * pace)

    async def report(peer: str, count: int) -> None:
        admin.reports.append((peer, count))

    async def reload() -> list[tuple[str, str]]:
        return admin.faults

    house = Management(
        store=store,
        money=Money(currency, digits),
        mint=mint,
        now=lambda: NOW,
        started=NOW,
        version="0.0.0",
        gauges=lambda: {"in_flight": 2.0},
        zone=ZoneInfo(zone),
        reload=reload,
        own=None if store is None else StoredOwnKeys(store, vault_of(b"root", "", ()), OWN, lambda: NOW, os.urandom),
    )
    guard = Guard(TOKEN, asyncio.get_running_loop().time, sleep, report)
    door = AdminDoor(house, guard, metrics.render, open_metrics)
    edge = Edge(door.serve, door.refuse, EdgeLimits(max_body=MAX_BODY))
    try:
        address = await listen(edge, "127.0.0.1:0")
        admin.port = int(address.rpartition(":")[2])
        yield admin
    finally:
        edge.close()
        assert await edge.wait_closed(8)
