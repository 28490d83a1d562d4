"""A scripted model that drives real agents: what it does is chosen by a word in the user's task, and by the round."""

import json
import re
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from upstream import Call, Play, ScriptedProvider, Seen

from agents.reading import Conversation, read

TASK = re.compile(r"task:([a-z-]+)")
THOUGHT = ("I look at the task ", "before I act.")
SIGNATURE = "c2lnbmF0dXJlLW9mLXRoZS1tb2RlbA=="
"""The proof of a Messages model's thought."""
ENCRYPTED = "ZW5jcnlwdGVk"
"""The proof of a Responses model's thought (tests/upstream.py)."""

Step: TypeAlias = Callable[[Conversation], Play]
"""What the model does in one round."""


class Script(NamedTuple):
    """The rounds of one task. After the last one the model says `end`."""

    steps: Sequence[Step]
    end: str = "ALL DONE"


def call(name: str, **arguments: Any) -> Call:
    """A call whose arguments come in two pieces."""
    text = json.dumps(arguments)
    return Call(name, [text[: len(text) // 2], text[len(text) // 2 :]])


def calls(*made: Call, reasoning: tuple[str, ...] = (), text: tuple[str, ...] = ()) -> Step:
    """A round of calls, the same whatever was said before."""
    return lambda _: Play(reasoning=reasoning, signature=SIGNATURE, text=text, calls=made, finish="tool_calls")


class Exchange(NamedTuple):
    """One request of an agent, and what was played for it."""

    seen: Seen
    said: Conversation
    task: str
    play: Play


class AgentModel(ScriptedProvider):
    """The provider behind kenari. `scripts` are the tasks by name; of a task, `bad` plays are served first, one for a
    request, and the `always` play instead of everything; `side` is what side requests without tools are told (titles,
    notes on a long conversation), unless `aside` decides it; `exchanges` are the requests so far."""

    def __init__(self) -> None:
        super().__init__({})
        self.scripts: dict[str, Script] = {}
        self.bad: dict[str, list[Play]] = {}
        self.always: dict[str, Play] = {}
        self.side = ""
        self.aside: Step | None = None
        self.exchanges: list[Exchange] = []
        self._lock = threading.Lock()

    def begin(self, **scripts: Script) -> None:
        """Forget what was, and play these tasks from now on."""
        with self._lock:
            self.scripts = {name.replace("_", "-"): script for name, script in scripts.items()}
            self.bad, self.always, self.side, self.aside = {}, {}, "A short title", None
            self.exchanges.clear()
            self.seen.clear()

    def of(self, task: str) -> list[Exchange]:
        """The requests of a task, in order."""
        return [exchange for exchange in list(self.exchanges) if exchange.task == task]

    def play_of(self, seen: Seen) -> Play:
        """The next round of the task that the conversation is about."""
        if seen.path.endswith("/messages/count_tokens"):
            return Play(text=("counted",))
        said = read(seen)
        task = _task(said)
        with self._lock:
            play = self._choose(said, task)
            self.exchanges.append(Exchange(seen, said, task, play))
        return play

    def _choose(self, said: Conversation, task: str) -> Play:
        if task in self.always:
            return self.always[task]
        if self.bad.get(task):
            return self.bad[task].pop(0)
        script = self.scripts.get(task)
        if script is None:
            return Play(text=(self.side,)) if self.aside is None else self.aside(said)
        at = said.rounds
        play = script.steps[at](said) if at < len(script.steps) else Play(text=(script.end,))
        return play._replace(tag=f"r{at}x", prompt=play.prompt + 100 * at)


def _task(said: Conversation) -> str:
    """The task that the user named last; empty for side requests without tools, as for a title."""
    if not said.tools:
        return ""
    found = [word for text in said.users for word in TASK.findall(text)]
    return found[-1] if found else ""


@contextmanager
def agent_model() -> Generator[AgentModel]:
    """A model that lives as long as the block."""
    model = AgentModel()
    model.start()
    try:
        yield model
    finally:
        model.stop()
