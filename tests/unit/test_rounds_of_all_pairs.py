"""Answers of several calls in all nine pairs of formats: the next call's request holds what the one before led to."""

import json
from typing import Any

import pytest
from agents.reading import Conversation, read
from gateway_kit import FORMATS, Exchange, Rig, Script
from test_server_tools import HITS, SEARCH, SOURCES, Backend, sources_of
from test_structured import GOOD, asking, deltas_of, text_of
from upstream import Call, Play, Seen, bodies

from kenari.core.profile import Profile
from kenari.dialects.responses.dialect import ResponsesDialect
from kenari.tools.base import ToolSettings
from kenari.tools.web_search import WebSearch

QUERY = Call("web_search", ['{"query"', ': "kenari"}'])
ASKS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"messages": [{"role": "user", "content": "hi there"}]}],
    "messages": [
        {"max_tokens": 99, "messages": [{"role": "user", "content": "hi there"}]},
        {"max_tokens": 99, "system": "Be brief.", "messages": [{"role": "user", "content": "hi there"}]},
    ],
    "responses": [
        {"input": "hi there"},
        {"input": "hi there", "instructions": "Be brief."},
        {"input": [{"type": "message", "role": "user", "content": "hi there"}], "instructions": "Be brief."},
    ],
}
CASES = [(client, at) for client in FORMATS for at in range(len(ASKS[client]))]


def played(dialect: str, stream: bool, *plays: Play) -> list[Script]:
    kind = b"text/event-stream" if stream else b"application/json"
    return [
        Script([*((0, piece) for piece in bodies(play, dialect, "m", stream)), (0, None)], 200, {b"content-type": kind})
        for play in plays
    ]


def rig(dialect: str, stream: bool, *plays: Play, profile: Profile | None = None) -> Rig:
    made = Rig(played(dialect, stream, *plays), dialect=dialect, profile=profile)
    tools = {"kenari:web_search": WebSearch(Backend(), 0)}
    own = {"responses": ResponsesDialect(formats=True)}
    made.services = {"tools": tools, "tool_settings": ToolSettings(), "dialects": own}
    return made


def sent(made: Rig, dialect: str) -> list[Conversation]:
    """The requests of all calls, in words that no format owns."""
    return [read(Seen(f"/{dialect}/x", {}, one.body, json.loads(one.body))) for one in made.upstream.requests]


def text(client: str, answer: Exchange, stream: bool) -> str:
    return "".join(deltas_of(client, answer.data)) if stream else text_of(client, answer.json)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("client", "at"), CASES)
@pytest.mark.parametrize("dialect", FORMATS)
def test_s116_a_search_is_in_the_next_calls_conversation(dialect: str, client: str, at: int, stream: bool) -> None:
    """S116, D13: whatever the pair, and however the client wrote its question."""
    made = rig(dialect, stream, Play(calls=(QUERY,), finish="tool_calls"), Play(text=("Two birds ", "[1].")))
    answer = made.ask(client, stream=stream, tools=SEARCH, **ASKS[client][at])
    assert answer.status == 200
    assert text(client, answer, stream) == "Two birds [1]."
    assert sources_of(client, answer, stream) == SOURCES
    first, second = sent(made, dialect)
    assert first.users == second.users == ["hi there"]
    assert first.system == second.system
    assert ("Be brief." in first.system) is (at > 0)
    assert [(name, json.loads(arguments)) for _, name, arguments in second.calls] == [
        ("web_search", {"query": "kenari"})
    ]
    assert [result.call_id for result in second.results] == [call_id for call_id, _, _ in second.calls]
    assert HITS[0].text in second.results[0].text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("client", "at"), CASES)
@pytest.mark.parametrize("dialect", FORMATS)
def test_json_asked_for_in_words_is_asked_for_in_every_pair(dialect: str, client: str, at: int, stream: bool) -> None:
    """The words reach the provider beside the client's own, and the second asking holds the first answer."""
    words = Profile(response_format="none", tool_choice_required=False)
    made = rig(dialect, stream, Play(text=("Well, ", "no.")), Play(text=(GOOD,)), profile=words)
    answer = made.ask(client, stream=stream, **(ASKS[client][at] | asking(client)))
    assert json.loads(text(client, answer, stream)) == json.loads(GOOD)
    first, second = sent(made, dialect)
    for one in (first, second):
        assert "JSON Schema" in one.system + "".join(one.messages)
        assert ("Be brief." in one.system) is (at > 0)
    assert second.users[: len(first.users)] == first.users
    assert "cannot be used" in second.users[-1]
    assert "Well, no." in "".join(second.messages)
