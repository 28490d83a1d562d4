"""Requests at the edge of their formats: what a provider gets of them, and what is named as left out."""

import json
from typing import Any

import pytest
from fit_kit import ENVELOPES, MAKER, envelope, fitted, request, said, target, user
from gateway_kit import GOOD, PATHS, Rig, error
from responses_kit import request as responses_request
from responses_kit import sent

from kenari.core.ids import Sealed, SealedPiece
from kenari.core.profile import Profile
from kenari.core.request import ReasoningPart, ResultPart, TextPart, Turn
from kenari.dialects.registry import DIALECTS
from kenari.wire import jsonx

# -- conversations on their way back


def test_d5_each_item_of_a_responses_maker_gets_its_own_proof_back() -> None:
    """D5, S94: a client carries several reasoning items of one answer as one, whose envelope holds all their proofs."""
    proof = envelope(("encrypted", "E1", 2), ("mark", "", 1), ("encrypted", "E2", 3))
    turns = fitted(request(user(), said(ReasoningPart(b"abcdefg", proof), TextPart(b"x"))), target("responses")).turns
    assert turns[1].parts[:3] == [
        ReasoningPart(b"ab", "E1", "encrypted"),
        ReasoningPart(b"cdef", "E2", "encrypted"),
        ReasoningPart(b"g"),
    ]


def test_d5_what_was_said_without_a_proof_stays_words() -> None:
    sealed = ENVELOPES.seal(Sealed(MAKER, [SealedPiece("mark", "", 3)]))
    turns = fitted(request(user(), said(ReasoningPart(b"abc", sealed), TextPart(b"x"))), target("responses")).turns
    assert turns[1].parts[0] == ReasoningPart(b"abc")


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_d27_results_stand_right_behind_their_calls(dialect: str) -> None:
    """A Messages client may write text in front of its results."""
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "BEFORE"},
                    {"type": "tool_result", "tool_use_id": "t", "content": "RESULT"},
                ],
            },
        ],
    }
    made = DIALECTS["messages"].decode_request(json.dumps(body).encode())
    to = target(dialect)
    out = DIALECTS[dialect].encode_request(fitted(made, to), to.profile)
    assert 0 < out.index(b"RESULT") < out.index(b"BEFORE")


def test_s146_a_part_of_an_unknown_kind_reaches_nobody() -> None:
    """S146, D9: dropped from the assistant's own history, towards a provider of the same format too, and named."""
    content = [{"type": "output_text", "text": "a"}, {"type": "weird", "x": 1}]
    made = responses_request(input=[{"role": "user", "content": "q"}, {"role": "assistant", "content": content}])
    assert [notice.name for notice in made.notices] == ["weird"]
    assert [part["type"] for part in sent(made)["input"][1]["content"]] == ["output_text"]


# -- what does not reach a provider is named


def ignored(client: str, dialect: str, profile: Profile | None = None, **members: Any) -> list[str]:
    """What the header names of a request with these members."""
    rig = Rig(error(400), dialect=dialect, profile=profile, reasoning=members.pop("thinks", None))
    rig.ask(client, stream=False, **members)
    return [notice.name for notice in rig.books.lines[0].notices]


def test_d9_what_another_format_cannot_say_is_named() -> None:
    """D8, D9, D27: by the names that the client used."""
    wish: dict[str, Any] = {
        "top_k": 1,
        "seed": 2,
        "stop": ["x"],
        "logprobs": True,
        "user": "u",
        "own": 1,
        "min_p": None,
    }
    assert ignored("chat", "chat", **wish) == []
    assert ignored("chat", "messages", **wish) == ["seed", "logprobs", "user", "own"]
    assert ignored("chat", "responses", **wish) == ["top_k", "seed", "stop", "logprobs", "user", "own"]
    strict = Profile(extra_fields=False, logprobs=False)
    assert ignored("chat", "chat", strict, **wish) == ["logprobs", "own"]


def test_d9_fields_that_are_accepted_and_ignored_are_named() -> None:
    """S106, S130-S133, F4, D12: each by its own name; what is null was not sent (F2)."""
    wish: dict[str, Any] = {
        "store": True,
        "include": ["x"],
        "metadata": {"a": 1},
        "truncation": "auto",
        "service_tier": None,
    }
    assert ignored("responses", "responses", **wish) == ["store", "include", "metadata", "truncation"]
    wish = {"metadata": {"user_id": "u"}, "service_tier": "auto", "container": "c", "future": 1, "max_tokens": 9}
    assert ignored("messages", "messages", **wish) == ["service_tier", "container", "future"]
    assert ignored("messages", "chat", **wish) == ["metadata", "service_tier", "container", "future"]
    sent_on = Profile(betas=("code-execution-2025-05-22",))
    assert ignored("messages", "messages", sent_on, **wish) == ["service_tier", "future"]
    assert ignored("chat", "chat", store=True, metadata={}, service_tier="flex") == [
        "store",
        "metadata",
        "service_tier",
    ]


def test_d9_an_effort_that_a_model_cannot_make_is_named() -> None:
    """R2: models that do not reason ignore it."""
    assert ignored("chat", "chat", reasoning_effort="high", thinks=False) == ["reasoning_effort"]
    assert ignored("chat", "chat", reasoning_effort="high") == []
    assert ignored("responses", "chat", reasoning={"effort": "low"}, thinks=False) == ["reasoning"]


# -- numbers


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400])
def test_f2_a_number_that_no_double_holds_is_refused(client: str, number: str) -> None:
    """It is legal JSON, and infinite to nearly everyone who reads it."""
    start = (
        '{"model":"m","input":"hi"'
        if client == "responses"
        else '{"model":"m","messages":[{"role":"user","content":"hi"}]'
    )
    rig = Rig()
    got = rig.post(
        f"/v1/{'chat/completions' if client == 'chat' else client}", f'{start},"temperature":{number}}}'.encode()
    )
    assert got.status == 400
    assert "temperature is not a usable number" in got.json["error"]["message"]


def test_one_line_keeps_texts_and_numbers() -> None:
    data = b'{\r\n "a" : 1e2,\n "n": 123456789012345678901234567890.10, "t": "x  \\n y" }'
    assert jsonx.one_line(data) == b'{"a":1e2,"n":123456789012345678901234567890.10,"t":"x  \\n y"}'
    assert jsonx.one_line(b'{ "a" : 1 }') == b'{ "a" : 1 }'
    assert jsonx.one_line(b'{"a":\n"\\ud800"}') == b'{"a":"\\ud800"}'


def test_whole_objects_are_told_from_beginnings() -> None:
    whole = [b"{}", b' {\\"a\\": [1]} ', b'{\\"a\\":\\"}\\"}']
    assert [jsonx.is_object(text) for text in whole] == [True] * 3
    others = [b"", b"1", b"[]", b'{\\"a\\":', b'{\\"a\\":\\"}', b"{}x"]
    assert [jsonx.is_object(text) for text in others] == [False] * 6


def test_results_only_turns_stay_as_they_are() -> None:
    """D27: nothing moves where all is in order."""
    turn = Turn("user", [ResultPart("t", [TextPart(b"r")])])
    made = request(user(), turn, origin="messages")
    assert fitted(made, target("responses")).turns[0] == user()


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_d12_a_block_of_an_unknown_kind_inside_a_result_crosses_to_nobody(dialect: str) -> None:
    """D9, D12: left out and named; the rest of the result goes on."""
    content = [{"type": "hologram", "title": "UNSAYABLE"}, {"type": "text", "text": "RESULT"}]
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]},
        ],
    }
    to = target(dialect)
    made = fitted(DIALECTS["messages"].decode_request(json.dumps(body).encode()), to)
    out = DIALECTS[dialect].encode_request(made, to.profile)
    assert [notice.name for notice in made.notices] == ["hologram"]
    assert b"RESULT" in out
    assert b"UNSAYABLE" not in out


# -- doors


@pytest.mark.parametrize("path", PATHS.values())
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("multipart/form-data; boundary=x", 415),
        ("application/octet-stream", 415),
        ("application/json; charset=utf-8", 400),
        ("application/x-www-form-urlencoded", 400),  # what curl says of -d
        ("text/plain", 400),
    ],
)
def test_a_body_that_is_no_json_by_its_type_is_415(path: str, kind: str, status: int) -> None:
    """3.2: forms and files are refused by their type; JSON under a type that clients send by mistake is read."""
    headers = {b"authorization": b"Bearer kn-test", b"content-type": kind.encode()}
    got = Rig(GOOD).post(path, b"{}", headers)
    assert got.status == status


def test_m1_a_model_that_is_not_there_in_the_clients_own_envelope() -> None:
    """M1, E6: Anthropic's SDKs read their own errors."""
    auth = {b"authorization": b"Bearer kn-test"}
    theirs = Rig(GOOD).post("/v1/models/none", b"", auth | {b"anthropic-version": b"2023-06-01"}, "GET")
    assert (theirs.status, theirs.json["type"], theirs.json["error"]["type"]) == (404, "error", "not_found_error")
    ours = Rig(GOOD).post("/v1/models/none", b"", auth, "GET")
    assert (ours.status, ours.json["error"]["code"]) == (404, "model_not_found")
