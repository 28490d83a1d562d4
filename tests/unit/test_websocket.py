"""Responses over a WebSocket and the compact endpoint, on real sockets with the library's own client."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from gateway import KEY, Gateway, config_text, running_gateway
from upstream import Call, Play, ScriptedProvider, scripted_provider
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

Json = dict[str, Any]
PLAYS = {
    "says": Play(reasoning=("Hm. ",), text=("one ", "two")),
    "calls": Play(calls=(Call("look", ['{"at":', '"x"}']),), finish="tool_calls"),
    "fails": Play(text=("one",), fails=True),
    "refuses": Play(status=429, headers=(("retry-after", "7"),)),
    "quiet": Play(text=("one", "two"), pause=0.4),
    "slow": Play(text=("one", "two"), pause=90.0),
    "mute": Play(),
}


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with scripted_provider(PLAYS) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(provider: ScriptedProvider) -> Iterator[Gateway]:
    providers: dict[str, Json] = {
        "p": {"dialect": "responses", "base_url": provider.base_url("responses"), "api_key": "sk-up"}
    }
    models: dict[str, Json] = {name: {"targets": [f"p/{name}"]} for name in PLAYS}
    text = config_text(providers, models, keepalive="100ms", max_body="64KiB")
    with running_gateway(text) as running:
        yield running


def _open(gateway: Gateway, key: str = KEY) -> ClientConnection:
    address = gateway.url.replace("http:", "ws:") + "/v1/responses"
    return connect(address, additional_headers={"authorization": f"Bearer {key}"}, proxy=None)


def _turn(socket: ClientConnection, model: str = "says", said: Any = "hello", **more: Any) -> list[Json]:
    """The events of one turn, to its last one."""
    socket.send(json.dumps({"type": "response.create", "model": model, "input": said, **more}))
    return _events(socket)


def _events(socket: ClientConnection) -> list[Json]:
    events: list[Json] = []
    while not events or events[-1]["type"] not in ("response.completed", "response.failed", "error"):
        events.append(json.loads(socket.recv(timeout=20)))
    return events


def _input(provider: ScriptedProvider) -> list[Json]:
    return provider.last().body["input"]


def test_a_turn_has_the_events_of_the_stream(gateway: Gateway) -> None:
    """S80, S82, D2: one message for each event, numbered from 0, and no frames around them."""
    with _open(gateway) as socket:
        events = _turn(socket)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "message"]
    assert gateway.line_of(events[-1]["response"]["id"].removeprefix("resp_"))["status"] == 200


def test_a_continuation_brings_only_what_is_new(gateway: Gateway, provider: ScriptedProvider) -> None:
    """S104: the provider gets the whole conversation; what the model said goes back as it came."""
    with _open(gateway) as socket:
        first = _turn(socket, "calls", [{"role": "user", "content": "look"}], instructions="be brief")[-1]["response"]
        call = first["output"][0]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "seen"}
        second = _turn(socket, "says", [result], previous_response_id=first["id"])[-1]["response"]
        assert "instructions" not in provider.last().body
        third = _turn(socket, "says", "go on", previous_response_id=second["id"])[-1]
    assert third["type"] == "response.completed"
    kinds = [item.get("type", "message") for item in _input(provider)]
    assert kinds == ["message", "function_call", "function_call_output", "reasoning", "message", "message"]
    assert provider.last().body["store"] is False
    assert "previous_response_id" not in provider.last().body


@pytest.mark.parametrize("previous", ["resp_unknown", 7])
def test_what_the_connection_does_not_hold_is_not_found(gateway: Gateway, previous: Any) -> None:
    """S105: nothing is kept but the last turn of this very connection."""
    with _open(gateway) as socket:
        error = _turn(socket, previous_response_id=previous)[-1]
        assert error["status"] == 400
        assert error["error"]["code"] == "previous_response_not_found"
        assert error["error"]["param"] == "previous_response_id"
        kept = _turn(socket)[-1]["response"]["id"]
    with _open(gateway) as other:
        assert _turn(other, previous_response_id=kept)[-1]["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("model", "said"),
    [("fails", "x"), ("refuses", "x"), ("says", [{"type": "function_call_output", "call_id": "c9", "output": "x"}])],
)
def test_a_turn_that_fails_cannot_be_continued(gateway: Gateway, model: str, said: Any) -> None:
    with _open(gateway) as socket:
        kept = _turn(socket)[-1]["response"]["id"]
        assert _turn(socket, model, said, previous_response_id=kept)[-1]["type"] in ("error", "response.failed")
        again = _turn(socket, previous_response_id=kept)[-1]
        assert again["error"]["code"] == "previous_response_not_found"
        assert _turn(socket)[-1]["type"] == "response.completed"


def test_an_error_event_tells_status_and_patience(gateway: Gateway) -> None:
    """E2, M1: the error of a POST, with what its headers say."""
    with _open(gateway) as socket:
        error = _turn(socket, "refuses")[-1]
        assert (error["type"], error["status"], error["error"]["code"]) == ("error", 429, "upstream_rate_limited")
        assert error["headers"]["retry-after"] == "7"
        assert _turn(socket, "no-such-model")[-1]["status"] == 404
        socket.send("{")
        assert _events(socket)[-1]["status"] == 400
        socket.send('{"type":"response.cancel"}')
        assert _events(socket)[-1]["error"]["param"] == "type"
        socket.send(json.dumps({"type": "response.create", "model": "says", "input": [[]]}))
        assert _events(socket)[-1]["status"] == 400
        assert _turn(socket, "says", "x" * 60_000)[-1]["type"] == "response.completed"
        kept = _turn(socket, "says", "x" * 60_000)[-1]["response"]["id"]
        assert _turn(socket, "says", "x" * 9_000, previous_response_id=kept)[-1]["status"] == 413


def test_a_turn_without_an_answer_only_announces(gateway: Gateway, provider: ScriptedProvider) -> None:
    """`generate: false` costs nothing and is continued by the next turn."""
    with _open(gateway) as socket:
        before = len(provider.seen)
        warm = _turn(socket, said="the long beginning", generate=False)
        assert [event["type"] for event in warm] == ["response.created", "response.completed"]
        assert warm[-1]["response"]["output"] == []
        assert len(provider.seen) == before
        _turn(socket, said="and now", previous_response_id=warm[-1]["response"]["id"])
    assert [item["content"] for item in _input(provider)] == ["the long beginning", "and now"]


def test_messages_are_answered_in_order_and_silence_has_pings(gateway: Gateway) -> None:
    """S15: a comment of the stream is a ping here, so no message comes that is no event."""
    with _open(gateway) as socket:
        for said in ("a", "b"):
            socket.send(json.dumps({"type": "response.create", "model": "quiet", "input": said}))
        first, second = _events(socket), _events(socket)
    assert first[-1]["response"]["id"] != second[-1]["response"]["id"]
    assert {event["type"].split(".")[0] for event in first + second} <= {"response", "keepalive"}


def test_too_many_messages_at_once_end_the_connection(gateway: Gateway) -> None:
    with _open(gateway) as socket:
        with suppress(ConnectionClosed):  # it may end before all are sent
            for _ in range(12):
                socket.send(json.dumps({"type": "response.create", "model": "slow", "input": "a"}))
        with pytest.raises(ConnectionClosed) as closed:
            _events(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


def test_who_sends_too_much_learns_why_though_more_is_under_way(provider: ScriptedProvider) -> None:
    """RFC 6455, 7.1.1: the connection closes when both have said so; one that broke at once would reset the reason away."""
    providers: dict[str, Json] = {"p": {"dialect": "chat", "base_url": provider.base_url("chat"), "api_key": "sk-up"}}
    config = config_text(providers, {"says": {"targets": ["p/says"]}}, max_body="64KiB")
    with running_gateway(config) as running, _open(running) as socket:
        with suppress(ConnectionClosed):
            for _ in range(40):
                socket.send("x" * 300_000)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_a_client_that_goes_takes_its_provider_along(gateway: Gateway, provider: ScriptedProvider) -> None:
    """F6, U6: its turn ends at once, long before the provider's 90 s are over, and the line says who went."""
    asked = len(provider.seen)
    with _open(gateway) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "slow", "input": "a"}))
        _wait(lambda: len(provider.seen) > asked)
    _wait(lambda: any(line["model"] == "slow" and line["reason"] == "client_closed" for line in gateway.lines))


def _wait(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_pongs_are_not_piled_up_for_a_client_that_does_not_read(gateway: Gateway) -> None:
    """Its own bytes wait in its own system then; when it reads, all goes on."""
    address = urlsplit(gateway.url)
    head = (
        f"GET /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\nupgrade: websocket\r\n"
        f"connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: {'A' * 22}==\r\n\r\n"
    )
    ping = b"\x89\xfd\0\0\0\0" + b"p" * 125
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.hostname, address.port))
        client.sendall(head.encode())
        got = client.recv(4096)
        assert got.startswith(b"HTTP/1.1 101 ")
        client.settimeout(1.0)
        pings, sent = ping * 500, 0
        with suppress(TimeoutError):
            while sent < 60_000_000:
                sent += client.send(pings[sent % len(ping) :])
        assert sent < 60_000_000
        client.settimeout(10.0)
        left = sent // len(ping) * 125
        while left > 0:
            got = client.recv(1 << 20)
            assert got
            left -= got.count(b"p")


def test_who_may_open_one(gateway: Gateway) -> None:
    """D24: a wrong key is 401, a wrong handshake is told what is right."""
    with pytest.raises(InvalidStatus) as refused:
        _open(gateway, "kn-wrong")
    assert refused.value.response.status_code == 401
    wish = {"connection": "upgrade", "upgrade": "h2c"}
    assert gateway.call("/v1/responses", method="GET", headers=wish).status == 426
    half = {"connection": "upgrade", "upgrade": "websocket"}
    assert gateway.call("/v1/responses", method="GET", headers=half).status == 400


def test_a_stopping_gateway_ends_its_connections(provider: ScriptedProvider) -> None:
    """The turn under way is finished, then the client is told to go."""
    providers: dict[str, Json] = {"p": {"dialect": "chat", "base_url": provider.base_url("chat"), "api_key": "sk-up"}}
    with running_gateway(config_text(providers, {"quiet": {"targets": ["p/quiet"]}})) as running:
        with _open(running) as busy, _open(running) as idle:
            busy.send(json.dumps({"type": "response.create", "model": "quiet", "input": "a"}))
            busy.recv(timeout=20)
            assert running.stop() == 0
            assert _events(busy)[-1]["type"] == "response.completed"
            for socket in (busy, idle):
                with pytest.raises(ConnectionClosed) as closed:
                    socket.recv(timeout=20)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1001


# -- compact


def test_compact_makes_one_item_that_continues(gateway: Gateway, provider: ScriptedProvider) -> None:
    """The conversation is asked about, not kept: the item carries the notes."""
    talk = [{"role": "user", "content": "launch on Tuesday"}, {"role": "assistant", "content": "noted"}]
    answer = gateway.call("/v1/responses/compact", {"model": "says", "input": talk, "tools": [{"type": "web_search"}]})
    assert answer.status == 200
    compacted = answer.json()
    assert compacted["object"] == "response.compaction"
    assert compacted["usage"]["total_tokens"] == 20
    assert [item["type"] for item in compacted["output"]] == ["compaction"]
    assert _input(provider)[:2] == talk
    assert "tools" not in provider.last().body
    more = [*compacted["output"], {"role": "user", "content": "when?"}]
    assert gateway.call("/v1/responses", {"model": "says", "input": more}).status == 200
    notes, question = _input(provider)
    assert notes["role"] == "user"
    assert notes["content"][0]["text"].endswith("\n\none two")
    assert question == more[1]


def test_compact_loses_nothing_when_the_model_says_nothing(gateway: Gateway) -> None:
    for said in ([{"role": "user", "content": "a"}], "a"):
        answer = gateway.call("/v1/responses/compact", {"model": "mute", "input": said}).json()
        assert [item["content"] for item in answer["output"]] == ["a"]


TALK: list[Json] = [{"role": "user", "content": "launch on Tuesday"}, {"role": "assistant", "content": "noted"}]
OFFER: Json = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
TRIGGER: Json = {"type": "compaction_trigger"}


@pytest.mark.parametrize("stream", [True, False])
def test_a_trigger_in_the_input_asks_for_notes(gateway: Gateway, provider: ScriptedProvider, stream: bool) -> None:
    """D24: Codex's own provider compacts this way, amid a task: the answer is one item, and the prefix stays as it was."""
    body = {"model": "says", "input": [*TALK, TRIGGER], "tools": [OFFER], "stream": stream}
    answer = gateway.call("/v1/responses", body)
    assert answer.status == 200
    asked = provider.last().body
    assert (asked["tools"], asked["tool_choice"]) == ([OFFER], "none")
    assert asked["input"][:2] == TALK
    assert asked["input"][2]["content"][0]["text"].startswith("Stop here and write down this conversation")
    if stream:
        frames = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: ")]
        kinds = ["created", "output_item.added", "output_item.done", "completed"]
        assert [frame["type"] for frame in frames] == [f"response.{kind}" for kind in kinds]
        assert frames[1]["item"] == frames[2]["item"]
        response = frames[3]["response"]
        assert response["output"] == [frames[2]["item"]]
    else:
        response = answer.json()
    assert [item["type"] for item in response["output"]] == ["compaction"]
    assert response["status"] == "completed"
    assert response["usage"]["total_tokens"] == 20
    more = [*response["output"], {"role": "user", "content": "when?"}]
    assert gateway.call("/v1/responses", {"model": "says", "input": more}).status == 200
    assert _input(provider)[0]["content"][0]["text"].endswith("\n\none two")


def test_a_trigger_that_brings_no_notes_fails(gateway: Gateway) -> None:
    """D24, D16: with an empty item the agent would go on without its past."""
    answer = gateway.call("/v1/responses", {"model": "mute", "input": [*TALK, TRIGGER], "stream": True})
    assert b"event: response.failed" in answer.body
    assert b"wrote no notes" in answer.body
    assert b"response.completed" not in answer.body


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "x"}, "model"),
        ({"model": "says"}, "input"),
        ({"model": "says", "input": []}, "input"),
        ({"model": "says", "input": 3}, "input"),
        ({"model": "says", "input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_compact_refuses_what_it_cannot_use(gateway: Gateway, body: Json, param: str) -> None:
    """S105, E1."""
    answer = gateway.call("/v1/responses/compact", body)
    assert answer.status == 400
    assert answer.json()["error"]["param"] == param
    assert gateway.call("/v1/responses/compact", method="GET").status == 405


@pytest.mark.parametrize("content", ["gAAAA-of-somebody-else", "kncompact1.***", "kncompact1.Ig=="])
def test_notes_of_others_reach_their_maker(gateway: Gateway, provider: ScriptedProvider, content: str) -> None:
    """S140: an item that only its maker can read goes to a provider of this format as it is."""
    item = {"type": "compaction", "encrypted_content": content}
    assert (
        gateway.call("/v1/responses", {"model": "says", "input": [item, {"role": "user", "content": "x"}]}).status
        == 200
    )
    assert _input(provider)[0] == item


def test_an_answered_trigger_is_not_asked_again(gateway: Gateway, provider: ScriptedProvider) -> None:
    """The turn after the notes is an ordinary one, on the connection that made them."""
    with _open(gateway) as socket:
        notes = _turn(socket, said=[{"role": "user", "content": "hello"}, TRIGGER])[-1]["response"]
        last = _turn(socket, said="go on", previous_response_id=notes["id"])[-1]["response"]
    assert [item["type"] for item in notes["output"]] == ["compaction"]
    assert [item["type"] for item in last["output"]] == ["reasoning", "message"]
    assert [item["role"] for item in _input(provider)] == ["user", "user", "user"]
    assert "Stop here" not in json.dumps(_input(provider))


@pytest.mark.parametrize("said", ["", 5, {}, False])
def test_an_input_of_a_turn_is_refused_as_the_endpoint_does(gateway: Gateway, said: Any) -> None:
    """S110: the field at fault is `input`, whatever the way."""
    with _open(gateway) as socket:
        (refused,) = _turn(socket, said=said)
    assert (refused["status"], refused["error"]["param"]) == (400, "input")
