"""What agents do when their provider has a bad day: each ends as it best can, and none goes on for ever.

All bad days of an agent are lived at once, four at a time, each with a home, a project and a kenari of its own: an agent
that waits for its next try costs nothing but time.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gateway import KEY, Gateway, config_text, running_gateway
from upstream import Play

from agents.model import AgentModel, Exchange, Script, calls
from agents.programs import (
    CLAUDE,
    CLINE,
    CODEX,
    MODEL,
    OPENCODE_CHAT,
    OPENCODE_MESSAGES,
    OPENCODE_RESPONSES,
    PI_CHAT,
    PI_MESSAGES,
    PI_RESPONSES,
    QWEN,
    Outcome,
    Place,
    Program,
    run,
)

pytestmark = pytest.mark.agents_slow
OPENCODES = [OPENCODE_CHAT, OPENCODE_RESPONSES, OPENCODE_MESSAGES]
ALL = [CODEX, CLAUDE, *OPENCODES, QWEN, PI_CHAT, PI_RESPONSES, PI_MESSAGES, CLINE]
OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
GOOD_TEXT = ("It is ", "all well.")
TOKEN = "ka-the-token-of-these-tests"
AT_ONCE = 4
DAY_SECONDS = 240.0
SIDE_REQUESTS = 3
"""Beside the task's own requests: a title, notes on a conversation that is too long."""
GIVES_UP = frozenset(("opencode", "pi", "cline"))
"""Agents that take an error in mid-stream for the end of their run: they say so, and ask no more."""
MOST = {
    "codex": {"busy": 6, "error": 30, "unavailable": 30, "fails": 6, "cut": 6, "refused": 1, "overflow": 1},
    "claude": {"busy": 5, "error": 5, "unavailable": 5, "fails": 6, "cut": 6, "refused": 6, "overflow": 1},
    "opencode": {"busy": 6, "error": 6, "unavailable": 6, "fails": 1, "cut": 1, "refused": 1, "overflow": 1},
    "qwen": {"busy": 56, "error": 28, "unavailable": 56, "fails": 4, "cut": 4, "refused": 1, "overflow": 1},
    "cline": {"busy": 12, "error": 12, "unavailable": 12, "fails": 1, "cut": 1, "refused": 1, "overflow": 3},
    "pi": {"busy": 12, "error": 12, "unavailable": 12, "fails": 1, "cut": 1, "refused": 1, "overflow": 2},
}
"""How often each asks in all when a trouble lasts, with its own settings (Claude Code with 4 retries instead of 10)."""
ROUNDS = frozenset(("always-busy", "always-busy-and-says-when", "always-unavailable"))
"""Where Qwen Code asks in rounds of 28, with a pause between them that begins with 60 s, doubles, and comes ten times: it is
watched for its first rounds only."""
ROUNDS_SECONDS = 100.0
WORDS = {
    ("", "refused"): "the temperature is out of range",
    ("", "wrong-key"): "the api key is not valid",
    ("", "no-balance"): "the balance of this account does not cover the request",
    ("codex", "overflow"): "Codex ran out of room in the model's context window",
    ("claude", "overflow"): "Prompt is too long",
    ("qwen", "overflow"): "it exceeds the model's context window",
}
"""What the person before the agent reads."""


class Day(NamedTuple):
    """What happens to the first requests of a task, or to all of them when it `lasts`."""

    bad: tuple[Play, ...] = ()
    lasts: bool = False


NOW = (("retry-after", "1"),)
DAYS: dict[str, Day] = {
    "busy": Day((Play(status=429), Play(status=429))),
    "busy-and-says-when": Day((Play(status=429, headers=NOW),)),
    "error": Day((Play(status=500),)),
    "unavailable": Day((Play(status=503, headers=NOW),)),
    "fails": Day((Play(text=GOOD_TEXT, fails=True),)),
    "cut": Day((Play(text=GOOD_TEXT, broken=True),)),
    "reset-at-once": Day((Play(broken=True),)),
    "always-busy": Day((Play(status=429),), lasts=True),
    "always-busy-and-says-when": Day((Play(status=429, headers=NOW),), lasts=True),
    "always-error": Day((Play(status=500),), lasts=True),
    "always-unavailable": Day((Play(status=503, headers=NOW),), lasts=True),
    "always-fails": Day((Play(text=GOOD_TEXT, fails=True),), lasts=True),
    "always-cut": Day((Play(text=GOOD_TEXT, broken=True),), lasts=True),
    "refused": Day((Play(status=400, message="the temperature is out of range"),), lasts=True),
    "overflow": Day((Play(status=400, message=OVERFLOW),), lasts=True),
    "wrong-key": Day(),
    "no-balance": Day(),
}
"""The bad days by the name of their task."""


class Lived(NamedTuple):
    """What an agent made of a day: its run, what reached the provider, and kenari's log."""

    outcome: Outcome
    exchanges: list[Exchange]
    lines: list[dict[str, Any]]

    @property
    def done(self) -> bool:
        """The task was done."""
        return "ALL DONE" in self.outcome.out


def named(program: Program) -> str:
    """A test's name for an agent."""
    return program.name


def kind(program: Program) -> str:
    """The agent, whichever of its provider kinds it uses."""
    return program.name.partition("-")[0]


@contextmanager
def _kenari(model: AgentModel, name: str) -> Generator[tuple[Gateway, str]]:
    """A kenari and the key that the agent has."""
    provider: dict[str, Any] = {"dialect": "chat", "base_url": model.base_url("chat"), "api_key": "sk-up"}
    entry: dict[str, Any] = {"targets": [f"scripted/{MODEL}"], "reasoning": True}
    if name != "no-balance":
        with running_gateway(config_text({"scripted": provider}, {MODEL: entry})) as gateway:
            yield gateway, "kn-wrong" if name == "wrong-key" else KEY
        return
    entry["price"] = {"input": "1", "output": "1"}
    text = config_text({"scripted": provider}, {MODEL: entry}) + '[store]\nurl = "sqlite:///kenari.db"\n'
    with running_gateway(text, env={"KENARI_ADMIN_TOKEN": TOKEN, "KENARI_SECRET": "the secret of a test"}) as gateway:
        yield gateway, _spent_key(gateway)


def _spent_key(gateway: Gateway) -> str:
    """A key whose account had credit for one small answer, and has none left."""
    found = re.search(r"management api: (\S+)", "".join(gateway.said))
    assert found is not None
    admin = Gateway.__new__(Gateway)
    admin.url = "http://" + found.group(1)
    credit = {"name": "spent", "credit": "0.00001"}
    account = admin.call("/admin/v1/accounts", credit, key=TOKEN).json()["id"]
    key = str(admin.call("/admin/v1/keys", {"account": account, "name": "k"}, key=TOKEN).json()["secret"])
    small = {"model": MODEL, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    assert gateway.call("/v1/chat/completions", small, key=key).status == 200
    return key


def _live(model: AgentModel, program: Program, name: str, folder: Path) -> Lived:
    """One day of an agent, in a folder of its own."""
    with _kenari(model, name) as (gateway, key):
        before = len(gateway.lines)
        place = Place(folder / name / "home", folder / name / "project", gateway, key)
        patience = {"CLAUDE_CODE_MAX_RETRIES": "4"} if program is CLAUDE else {}
        seconds = ROUNDS_SECONDS if program is QWEN and name in ROUNDS else DAY_SECONDS
        outcome = run(program, place, f"Do the task:{name} and stop.", seconds=seconds, **patience)
        return Lived(outcome, model.of(name), gateway.lines[before:])


Days = Mapping[str, "Future[Lived]"]


@pytest.fixture(scope="module", params=ALL, ids=named)
def days(
    request: pytest.FixtureRequest, agents_model: AgentModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Program, Days]]:
    """An agent and its days, which are being lived."""
    program: Program = request.param
    agents_model.begin(**{name: Script([calls(program.hands.shell("echo worked"))]) for name in DAYS})
    for name, day in DAYS.items():
        if day.lasts:
            agents_model.always[name] = day.bad[0]
        else:
            agents_model.bad[name] = list(day.bad)
    folder = tmp_path_factory.mktemp(program.name)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lived = {name: pool.submit(_live, agents_model, program, name, folder) for name in DAYS}
        yield program, lived


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name, day in DAYS.items() if day.bad and not day.lasts])
def test_a_trouble_that_passes(days: tuple[Program, Days], name: str) -> None:
    """D16, E2, E4: what may be sent again is, and the task is done; a cut answer is never taken for a whole one."""
    program, lived = days
    outcome, exchanges, _ = one = lived[name].result()
    assert not outcome.timed_out, outcome
    if name in ("fails", "cut") and kind(program) in GIVES_UP:
        assert len(exchanges) == 1
        assert not one.done
        assert outcome.status != 0, outcome
        assert "interrupted the response before it finished" in outcome.out + outcome.err
        return
    assert outcome.status == 0, outcome
    assert one.done, outcome
    assert len(exchanges) == len(DAYS[name].bad) + 2
    assert any("worked" in result.text for result in exchanges[-1].said.results)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name, day in DAYS.items() if day.lasts])
def test_a_trouble_that_lasts(days: tuple[Program, Days], name: str) -> None:
    """D16, E1, E2, E5: the agent gives up by itself, within its own number of requests, and says that it did not work."""
    program, lived = days
    outcome, exchanges, lines = one = lived[name].result()
    assert not outcome.timed_out or (program is QWEN and name in ROUNDS), outcome
    assert not one.done
    assert 0 < len(exchanges) <= MOST[kind(program)][name.removeprefix("always-").removesuffix("-and-says-when")]
    assert len(lines) <= len(exchanges) + SIDE_REQUESTS
    words = WORDS.get((kind(program), name)) or WORDS.get(("", name), "")
    assert words in outcome.out + outcome.err, outcome
    assert outcome.status != 0 or name == "overflow", outcome


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "status"), [("wrong-key", 401), ("no-balance", 402)])
def test_a_key_that_opens_nothing(days: tuple[Program, Days], name: str, status: int) -> None:
    """E1: neither a wrong key nor a spent balance reaches the provider; the agent says why, and asks no more."""
    program, lived = days
    outcome, exchanges, lines = one = lived[name].result()
    assert not outcome.timed_out, outcome
    assert outcome.status != 0, outcome
    assert not one.done
    assert exchanges == []
    refused = [line for line in lines if line["status"] == status]
    assert 0 < len(refused) <= (6 if program is CODEX else 3)
    assert WORDS["", name] in outcome.out + outcome.err, outcome


def _wait_out(place: Place, model: AgentModel, program: Program, *words: str, **env: str) -> Lived:
    """A run of an agent before a provider that is silent twice: before its first words and amid them."""
    task = f"silence-{place.project.parent.name}"
    outcome = run(program, place, f"Do the task:{task} and stop.", *words, seconds=850.0, **env)
    answered = "".join(GOOD_TEXT)  # Qwen Code asks once more when all is done: what it should remember of the answer
    asked = [one for one in model.of(task) if not any(answered in message for message in one.said.messages)]
    return Lived(outcome, asked, [])


@contextmanager
def _silent(
    model: AgentModel, names: Sequence[str], pause: float, folder: Path, **timers: str
) -> Generator[list[Place]]:
    """kenari before such a provider, and a place for each name."""
    for name in names:
        task = f"silence-{name}"
        model.scripts[task] = Script([])
        model.bad[task] = [Play(text=(*GOOD_TEXT, "ALL", " DONE"), pause=pause)]
    provider: dict[str, Any] = {"dialect": "chat", "base_url": model.base_url("chat"), "api_key": "sk-up"}
    with running_gateway(config_text({"up": provider}, {MODEL: {"targets": [f"up/{MODEL}"]}}, **timers)) as gateway:
        yield [Place(folder / name / "home", folder / name / "project", gateway) for name in names]


SHORT = 12000
"""The agents' own timers, in milliseconds, where they can be set."""
TIMERS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "codex": (("-c", f"model_providers.kenari.stream_idle_timeout_ms={SHORT}"), {}),
    "qwen": ((), {"QWEN_STREAM_IDLE_TIMEOUT_MS": str(SHORT)}),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", [CODEX, QWEN], ids=named)
def test_a_silence_longer_than_the_agents_timer(agents_model: AgentModel, program: Program, tmp_path: Path) -> None:
    """D15: an agent that counts events is kept waiting by kenari's own; without them it breaks off and asks again."""
    agents_model.begin()
    words, env = TIMERS[program.name]
    with _silent(agents_model, ["kept"], 30.0, tmp_path, keepalive="1s", noop_after="2s") as (place,):
        kept = _wait_out(place, agents_model, program, *words, **env)
    with _silent(agents_model, ["bare"], 30.0, tmp_path, keepalive="1s") as (place,):
        bare = _wait_out(place, agents_model, program, *words, **env)
    assert kept.outcome.status == 0, kept.outcome
    assert kept.done, kept.outcome
    assert len(kept.exchanges) == 1
    assert len(bare.exchanges) > 1 or bare.outcome.status != 0, bare.outcome


@pytest.mark.timeout(1200)
def test_a_silence_of_250_seconds(agents_model: AgentModel, tmp_path: Path) -> None:
    """D15, S15: with every timer as it is, kenari's and the agents', all of them wait for a provider that says nothing
    for 250 s before its first words and for as long amid them."""
    agents_model.begin()
    names = [program.name for program in ALL]
    with (
        _silent(agents_model, names, 250.0, tmp_path) as places,
        ThreadPoolExecutor(len(ALL)) as pool,
    ):
        waits = [pool.submit(_wait_out, place, agents_model, one) for place, one in zip(places, ALL, strict=True)]
        lived = [wait.result() for wait in waits]
    seen = {name: (one.outcome.status, one.done, len(one.exchanges)) for name, one in zip(names, lived, strict=True)}
    assert seen == dict.fromkeys(names, (0, True, 1))
