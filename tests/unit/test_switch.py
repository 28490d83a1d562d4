"""Proofs over a switch (D5): reasoning and tools on both sides of a change of provider, in every client format."""

import itertools
import json
from typing import Any

import msgspec
import pytest
import virtual_time
from gateway_kit import FORMATS, PATHS, Exchange, Rig, Script, error, plain
from upstream import FORMATS as SPOKEN
from upstream import Call, Play

from kenari.catalog.models import Catalog, Model, Route, TargetRef
from kenari.core.profile import Profile

DIALECTS = ("messages", "responses", "chat")
MODELS = {"messages": "claude-x", "responses": "gpt-x", "chat": "qwen-x"}
SIGNATURE, ENCRYPTED = "c2lnbmF0dXJlLW9mLWNsYXVkZQ==", "ZW5jcnlwdGVk"
PROOFS = {"messages": SIGNATURE, "responses": ENCRYPTED}
PLAY = Play(
    text=("I look.",),
    reasoning=("secret thought",),
    signature=SIGNATURE,
    calls=(Call("look", ['{"at":', '"bird"}']),),
    finish="tool_calls",
)
TOOL = {"type": "object", "properties": {"at": {"type": "string"}}}


def reply_of(dialect: str) -> Script:
    """A plain answer of a provider of this dialect, with reasoning and a call."""
    return plain(SPOKEN[dialect].reply(PLAY, MODELS[dialect]))


class Talk:
    """A client of one format that gives everything back that it was given."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.history: list[Any] = [{"role": "user", "content": "what is there?"}]

    def body(self) -> bytes:
        tools: dict[str, list[Any]] = {
            "chat": [{"type": "function", "function": {"name": "look", "parameters": TOOL}}],
            "messages": [{"name": "look", "input_schema": TOOL}],
            "responses": [{"type": "function", "name": "look", "parameters": TOOL}],
        }
        member = "input" if self.client == "responses" else "messages"
        body: dict[str, Any] = {"model": "r", member: self.history, "tools": tools[self.client]}
        if self.client == "messages":
            body |= {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 2000}}
        return json.dumps(body).encode()

    def take(self, answer: Any) -> None:
        """The answer and the results of its calls become history."""
        match self.client:
            case "chat":
                message = answer["choices"][0]["message"]
                self.history.append(message)
                self.history += [
                    {"role": "tool", "tool_call_id": call["id"], "content": "a bird"} for call in message["tool_calls"]
                ]
            case "messages":
                self.history.append({"role": "assistant", "content": answer["content"]})
                calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
                results = [{"type": "tool_result", "tool_use_id": call, "content": "a bird"} for call in calls]
                self.history.append({"role": "user", "content": results})
            case _:
                self.history += answer["output"]
                calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
                self.history += [
                    {"type": "function_call_output", "call_id": call, "output": "a bird"} for call in calls
                ]


def talk(client: str, speakers: tuple[str, ...], only: bool = False) -> list[tuple[str, str]]:
    """A conversation whose turns are answered by providers of these dialects; (dialect, request) of each turn's call that
    was answered. `only`: the route has this one provider."""
    rig = Rig(*[error(409) for _ in DIALECTS])
    sent: list[tuple[str, str]] = []

    async def run() -> None:
        door = rig.build()
        services: Any = door._gateway._services  # pyright: ignore[reportPrivateUsage]
        for number, dialect in enumerate(DIALECTS, 1):
            profile = Profile(reasoning_content_roundtrip=dialect == "chat")
            old = services.providers[f"p{number}"]
            services.providers[f"p{number}"] = msgspec.structs.replace(old, dialect=dialect, profile=profile)
        targets = {dialect: TargetRef(f"p{number}", MODELS[dialect]) for number, dialect in enumerate(DIALECTS, 1)}
        models = {dialect: Model(id=dialect, targets=(target,), reasoning=True) for dialect, target in targets.items()}
        services.catalog = Catalog(models, {"r": Route(speakers[:1] if only else DIALECTS)})
        person = Talk(client)
        for speaker in speakers:
            for number, dialect in enumerate(DIALECTS, 1):
                rig.upstream.scripts[f"p{number}"] = [reply_of(dialect) if dialect == speaker else error(409)]
            services.routing.keep_only(())
            exchange = Exchange(PATHS[client], person.body())
            await door.serve(exchange)
            assert exchange.status == 200, exchange.out
            sent.append((speaker, rig.upstream.requests[-1].body.decode()))
            for request in rig.upstream.requests:
                check(request.url, request.body.decode())
            person.take(exchange.json)
        services.ticker.close()

    virtual_time.run(run())
    return sent


def check(url: str, body: str) -> None:
    """No proof reaches another maker, no envelope of ours reaches anybody."""
    dialect = DIALECTS[int(url.split("/")[2][1:]) - 1]
    assert "kn1." not in body
    for maker, proof in PROOFS.items():
        assert proof not in body or dialect == maker, f"the proof of {maker} reached {dialect}"


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("speakers", list(itertools.product(DIALECTS, repeat=3)), ids="-".join)
def test_a_proof_never_reaches_another_maker_d5(client: str, speakers: tuple[str, ...]) -> None:
    """Whoever answers which turn, failed attempts included; calls and their results travel whole over each switch."""
    sent = talk(client, speakers)
    for turn, (_, body) in enumerate(sent):
        assert body.count("a bird") == turn
        assert body.count("I look.") == turn


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("maker", PROOFS)
@pytest.mark.parametrize("between", DIALECTS)
def test_a_proof_comes_back_to_its_maker_after_a_switch_d5(client: str, maker: str, between: str) -> None:
    """Continuity is not lost by a turn that another provider answered."""
    sent = talk(client, (maker, between, maker))
    assert PROOFS[maker] in sent[2][1]
    assert sent[2][1].count(PROOFS[maker]) == (2 if between == maker else 1)


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("maker", PROOFS)
def test_a_route_of_one_maker_keeps_its_proofs_d5(client: str, maker: str) -> None:
    sent = talk(client, (maker, maker), only=True)
    assert sent[1][1].count(PROOFS[maker]) == 1
