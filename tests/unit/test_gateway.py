"""The way of a request through the gateway: failover, the gate, silence, cancelling, back-pressure, errors, the line."""

import asyncio
import json
from typing import Any

import pytest
from gateway_kit import (
    COMPLETION,
    DONE,
    FORMATS,
    GOOD,
    KEY,
    LOST,
    PATHS,
    ROLE,
    STOP,
    Exchange,
    FakeCall,
    Rig,
    Script,
    chunk,
    error,
    plain,
    read_late,
)

from kenari.core.errors import INTERRUPTED, KenariError
from kenari.core.profile import Profile

TEXT = chunk({"content": "Hello"})
REFUSED = KenariError("upstream_unavailable", "x")


def text_of(client: str, exchange: Exchange) -> str:
    """The text that a stream's client got."""
    out = ""
    for event in exchange.data:
        if event == "[DONE]":
            continue
        match client:
            case "chat":
                choices: list[Any] = event.get("choices") or []
                out += choices[0]["delta"].get("content", "") if choices else ""
            case "messages":
                out += event.get("delta", {}).get("text", "")
            case _:
                out += event["delta"] if event["type"] == "response.output_text.delta" else ""
    return out


def failure_of(client: str, exchange: Exchange) -> dict[str, Any]:
    """The in-stream failure of a client format (S31)."""
    last = exchange.data[-2] if client == "chat" else exchange.data[-1]
    return last["response"]["error"] if client == "responses" else last["error"]


@pytest.mark.parametrize("client", FORMATS)
def test_a_stream_of_each_format(client: str) -> None:
    """S4, D14: text comes through, the id is one, the line says it all."""
    rig = Rig(GOOD)
    got = rig.ask(client)
    assert got.status == 200
    assert got.header["content-type"] == "text/event-stream"
    assert got.header["cache-control"] == "no-cache, no-transform"  # F13
    assert got.header["x-accel-buffering"] == "no"
    assert got.header["x-request-id"] == got.header["request-id"] == got.id
    assert text_of(client, got) == "Hello"
    assert got.ended
    line = rig.books.lines[0]
    assert (line.status, line.ending, line.usage.fresh, line.usage.output) == (200, "done", 9, 3)
    assert (line.target, line.client_format, line.provider_format) == ("p1/vendor-model", client, "chat")
    assert rig.books.open == 0


@pytest.mark.parametrize("client", FORMATS)
def test_a_plain_answer_of_each_format(client: str) -> None:
    """S2, F7: no stream asked for, none sent; the provider is asked as the client asked."""
    rig = Rig(plain(COMPLETION))
    got = rig.ask(client, stream=False)
    assert got.status == 200
    assert got.header["content-type"] == "application/json"
    assert "Hello" in got.out.decode()
    assert "stream" not in rig.upstream.sent[0]


def test_stream_always_folds_for_a_plain_client() -> None:
    """F7: a provider that only streams serves plain clients too."""
    rig = Rig(GOOD, profile=Profile(stream_always=True))
    got = rig.ask("chat", stream=False)
    assert rig.upstream.sent[0]["stream"] is True
    assert got.json["choices"][0]["message"]["content"] == "Hello"


BEFORE_CONTENT: list[Any] = [
    REFUSED,
    error(500),
    error(503),
    error(429, retry_after="7"),
    error(401),
    error(404),
    error(408),
    Script([(0, None)]),
    Script([(0, ROLE), (0, None)]),
    Script([(0, ROLE), (0, LOST)]),
    Script([(0, ROLE + DONE), (0, None)]),
    Script([(0, b'data: {"error":{"message":"x"}}\n\n'), (0, None)]),
    Script([(0, b"<html>"), (0, None)], 200, {b"content-type": b"text/html"}),
    plain({"choices": []}),
]


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize("first", BEFORE_CONTENT, ids=range(len(BEFORE_CONTENT)))
def test_a_failure_before_content_moves_on(client: str, first: Any) -> None:
    """D6, D7, E4: whatever goes wrong before the first content, the next target answers and the client sees only it."""
    rig = Rig(first, GOOD)
    got = rig.ask(client)
    assert got.status == 200
    assert text_of(client, got) == "Hello"
    assert len(rig.upstream.requests) == 2
    assert rig.books.lines[0].target == "p2/vendor-model"


@pytest.mark.parametrize(
    ("first", "status", "code"),
    [
        (REFUSED, 503, "upstream_unavailable"),
        (error(500), 502, "upstream_error"),
        (error(503), 503, "upstream_unavailable"),
        (error(529), 503, "upstream_unavailable"),
        (error(429), 429, "upstream_rate_limited"),
        (error(401), 502, "upstream_error"),
        (error(403), 502, "upstream_error"),
        (error(404), 502, "upstream_error"),
        (error(400, "no such parameter"), 400, "bad_request"),
        (error(400, "maximum context length is 5"), 400, "context_length_exceeded"),
        (error(500, "image input is not supported"), 400, "bad_request"),
        (Script([(0, None)]), 502, "upstream_error"),
        (Script([(0, b'data: {"error":{"message":"x"}}\n\n'), (0, None)]), 502, "upstream_error"),
    ],
)
def test_a_failure_of_the_only_target_is_an_http_error(first: Any, status: int, code: str) -> None:
    """S17, E3, E4, E7: an HTTP error with the right status, also for a stream."""
    got = Rig(first).ask("chat")
    assert (got.status, got.json["error"]["code"]) == (status, code)
    assert set(got.json["error"]) == {"message", "type", "param", "code"}  # S164
    if status in (429, 503):  # E2
        assert int(got.header["retry-after"]) >= 1
        assert int(got.header["retry-after-ms"]) >= 1
    if status in (400, 429, 503):  # E1
        assert got.header["x-should-retry"] == ("false" if status == 400 else "true")


def test_the_providers_retry_after_reaches_the_client() -> None:
    """E2: the smallest honest hint is the provider's own."""
    got = Rig(error(429, retry_after="7")).ask("chat")
    assert got.header["retry-after"] == "7"
    assert got.header["retry-after-ms"] == "7000"


def test_a_refused_provider_key_is_not_to_be_retried() -> None:
    """E1, E3: our key failed, not the caller's."""
    got = Rig(error(401, "bad key sk-p1 at http://internal/x")).ask("chat")
    assert got.status == 502
    assert got.header["x-should-retry"] == "false"
    assert "sk-p1" not in got.out.decode()
    assert "http://" not in got.out.decode()


def test_a_client_error_does_not_move_on() -> None:
    """E7: a request that the provider calls wrong is wrong everywhere."""
    rig = Rig(error(400, "temperature must be below 2, model vendor-model"), GOOD)
    got = rig.ask("chat")
    assert got.status == 400
    assert len(rig.upstream.requests) == 1
    assert "vendor-model" not in got.json["error"]["message"]  # replaced by the caller's own name


def test_messages_says_a_context_overflow_in_its_own_words() -> None:
    """E5, E6."""
    got = Rig(error(400, "maximum context length is 5")).ask("messages")
    assert got.json["error"]["message"].startswith("prompt is too long")
    assert got.json["type"] == "error"
    assert got.json["request_id"] == got.id


@pytest.mark.parametrize("client", FORMATS)
def test_a_failure_after_content_is_in_the_stream(client: str) -> None:
    """S18, S31, S54, S68, S98, S176, D7: never a second answer, the same words in all formats."""
    rig = Rig(Script([(0, ROLE), (0, TEXT), (0.02, LOST)]), GOOD)
    got = rig.ask(client)
    assert got.status == 200
    assert len(rig.upstream.requests) == 1
    assert text_of(client, got) == "Hello"
    failure = failure_of(client, got)
    assert failure["message"] == INTERRUPTED
    assert got.ended  # D16: the body ends at once
    if client != "messages":
        assert failure["code"] == "stream_interrupted"
    if client == "messages":
        assert failure["type"] == "api_error"  # S73
        assert "message_stop" not in got.out.decode()
    assert rig.books.lines[0].ending == "failed"


def test_content_and_failure_in_one_read_keep_the_opening() -> None:
    """D7: what came before the failure is told, opening frames included."""
    got = Rig(Script([(0, ROLE + TEXT + b'data: {"error":{"message":"x"}}\n\n'), (0, None)])).ask("responses")
    assert [event["type"] for event in got.data][:3] == [
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
    ]
    assert got.data[-1]["type"] == "response.failed"


def test_a_plain_answer_that_breaks_off_is_502() -> None:
    """E8."""
    got = Rig(Script([(0, b'{"id":'), (0, LOST)], 200, {b"content-type": b"application/json"})).ask(
        "chat", stream=False
    )
    assert (got.status, got.json["error"]["code"]) == (502, "stream_interrupted")


def test_eof_after_a_finish_is_success() -> None:
    """D6: `[DONE]` is not needed."""
    got = Rig(Script([(0, ROLE + TEXT + STOP), (0, None)])).ask("chat")
    assert got.data[-1] == "[DONE]"
    assert got.data[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_loss_after_a_finish_is_success() -> None:
    """D6."""
    got = Rig(Script([(0, ROLE + TEXT + STOP), (0, LOST)])).ask("chat")
    assert got.data[-2]["choices"][0]["finish_reason"] == "stop"


def test_done_without_a_finish_is_an_interruption() -> None:
    """D6."""
    got = Rig(Script([(0, ROLE + TEXT + DONE), (0, None)])).ask("chat")
    assert failure_of("chat", got)["code"] == "stream_interrupted"


def test_late_usage_is_waited_for() -> None:
    """F5, S47: usage that comes after the finish still stands on the finish chunk."""
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n'
    got = Rig(Script([(0, ROLE + TEXT), (0, chunk({}, "stop")), (0.05, usage + DONE), (0, None)])).ask("chat")
    assert got.data[-2]["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    assert sum("usage" in event for event in got.data if event != "[DONE]") == 1


def test_missing_usage_is_counted_by_us() -> None:
    """U3: shown to the client, marked in the line."""
    rig = Rig(Script([(0, ROLE + TEXT + chunk({}, "stop") + DONE), (0, None)]))
    got = rig.ask("chat")
    assert got.data[-2]["usage"]["prompt_tokens"] > 0
    assert rig.books.lines[0].usage.estimated


@pytest.mark.parametrize("client", FORMATS)
def test_silence_brings_keepalives_and_noops(client: str) -> None:
    """S15, S5, D15: the comment, then a real event that says nothing; the answer is whole all the same."""
    rig = Rig(Script([(0.35, ROLE), (0, TEXT), (0, STOP + DONE), (0, None)]))
    rig.silence = (0.06, 0.2)
    got = rig.ask(client)
    comments = got.out.split(b"\n\n")
    assert b": keepalive" in comments
    assert all(frame == b": keepalive" for frame in comments if frame.startswith(b":"))
    assert text_of(client, got) == "Hello"
    if client == "responses":
        kinds = [event["type"] for event in got.data]
        assert kinds[:2] == ["response.created", "keepalive"]
        assert [event["sequence_number"] for event in got.data] == list(range(len(got.data)))
    if client == "chat":
        assert got.data[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_failover_after_a_keepalive() -> None:
    """D7: a keepalive commits the status only; candidates are still tried."""
    slow = Script([(0.25, LOST)])
    rig = Rig(slow, GOOD)
    rig.silence = (0.05, 60)
    got = rig.ask("messages")
    assert got.out.startswith(b": keepalive\n\n")
    assert text_of("messages", got) == "Hello"


@pytest.mark.parametrize("client", FORMATS)
def test_failure_after_a_keepalive_and_before_content(client: str) -> None:
    """D7: it is in the stream with its own code."""
    rig = Rig(Script([(0, b'{"error":{"message":"busy"}}'), (0, None)], 503, {}, 0.2))
    rig.silence = (0.05, 60)
    got = rig.ask(client)
    assert got.status == 200
    if client == "messages":
        assert failure_of(client, got)["type"] == "api_error"
    else:
        assert failure_of(client, got)["code"] == "upstream_unavailable"


@pytest.mark.parametrize(
    ("script", "setting"),
    [
        (Script(head_after=3), "header_timeout"),
        (Script([(3, ROLE)]), "first_event_timeout"),
        (Script([(0, ROLE), (3, TEXT)]), "first_event_timeout"),
    ],
)
def test_each_timeout_before_content(script: Script, setting: str) -> None:
    """D7: header and first-event time-outs are separate, and both move on to 504 when nobody else can."""
    rig = Rig(script)
    rig.timing[setting] = 0.1
    got = rig.ask("chat")
    assert (got.status, got.json["error"]["code"]) == (504, "upstream_timeout")
    assert got.header["x-should-retry"] == "true"
    assert rig.upstream.calls[0].aborted


def test_idle_timeout_in_mid_stream_and_comments_as_life() -> None:
    """A provider's comments reset the idle time; silence after content is an interruption."""
    comments = [(0.08, b": ping\n\n")] * 4
    rig = Rig(Script([(0, ROLE + TEXT), *comments, (0, STOP + DONE), (0, None)]))
    rig.timing["idle_timeout"] = 0.2
    assert rig.ask("chat").data[-1] == "[DONE]"
    rig = Rig(Script([(0, ROLE + TEXT), (3, STOP)]))
    rig.timing["idle_timeout"] = 0.1
    assert failure_of("chat", rig.ask("chat"))["code"] == "stream_interrupted"
    assert rig.upstream.calls[0].aborted


@pytest.mark.parametrize("script", [Script([(0, ROLE + TEXT), (5, STOP)]), Script([(5, ROLE)]), Script(head_after=5)])
def test_a_client_that_goes_cancels_its_provider(script: Script) -> None:
    """U6: at once, silent or not, and no other target is tried."""
    rig = Rig(script, GOOD)
    rig.ask("chat", act=Exchange.leave)
    assert rig.upstream.calls[0].aborted
    assert len(rig.upstream.requests) == 1
    assert rig.books.lines[0].ending == "client_closed"
    assert rig.books.open == 0


def test_a_plain_client_that_goes_cancels_its_provider() -> None:
    """U6, F7."""
    rig = Rig(Script([(5, None)], 200, {b"content-type": b"application/json"}))
    rig.ask("chat", stream=False, act=Exchange.leave)
    assert rig.upstream.calls[0].aborted


def test_u5_a_plain_client_that_goes_before_there_was_a_connection_pays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F7: the provider cannot have begun; with one that has the request nobody knows."""
    for sent, tokens in ((False, 0), (True, 2)):
        monkeypatch.setattr(FakeCall, "sent", sent)
        rig = Rig(Script([(5, None)], 200, {b"content-type": b"application/json"}, head_after=5))
        rig.ask("chat", stream=False, act=Exchange.leave)
        line = rig.books.lines[0]
        assert [leg.billed for leg in line.legs] == [sent]
        assert (line.ending, line.usage.prompt > 0) == ("client_closed", tokens > 0)


def test_a_provider_that_waits_for_a_slow_reader_is_not_silent() -> None:
    """Its time-outs stand still: who stops to read must not make it look broken."""

    rig = Rig(Script([(0, ROLE + TEXT), (0.8, STOP + DONE), (0, None)]))
    rig.timing["idle_timeout"] = 0.4
    got = rig.ask("chat", act=read_late)
    assert got.data[-1] == "[DONE]"
    assert (rig.books.lines[0].ending, INTERRUPTED in got.out.decode()) == ("done", False)


@pytest.mark.parametrize(("origin", "allowed"), [(b"https://a.test", True), (b"https://b.test", False), (b"", False)])
def test_f13_an_allowed_page_reads_every_answer(origin: bytes, allowed: bool) -> None:
    """Also of a request that never became one (413, 408, malformed): a browser shows the page nothing without the line."""
    rig = Rig(GOOD)
    rig.cors = ("https://a.test",)
    headers = {b"authorization": b"Bearer " + KEY.encode(), b"origin": origin}
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    answers = [rig.post(PATHS["chat"], b"{}", headers), rig.post(PATHS["chat"], body, headers)]
    refused = Exchange(PATHS["chat"], b"", headers)

    async def refuse() -> None:
        rig.build().refuse(refused, KenariError("request_too_large", "send less"))

    asyncio.run(refuse())
    assert refused.status == 413
    for got in [*answers, refused]:
        assert got.header_lines.get("access-control-allow-origin") == (origin.decode() if allowed else None)
        assert ("vary" in got.header_lines) is allowed


def test_who_may_send_a_large_body() -> None:
    """A1, D24: whoever has a key, to what there is; what is not there needs none, and takes none."""

    async def look() -> None:
        door = Rig(GOOD).build()
        good, bad = {b"x-api-key": KEY.encode()}, {b"x-api-key": b"kn-no"}
        known = [
            *PATHS.values(),
            "/v1/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/embeddings",
            "/v1/responses/compact",
        ]
        for path in [*known, "/v1/byok/p", "/v1/models/a", "/healthz"]:
            assert door.screen(path, good) is None
            for headers in (bad, {}):
                refused = door.screen(path, headers)
                assert refused is not None
                assert refused.code == "invalid_api_key"
        missing = door.screen("/v1/nothing", bad)
        assert missing is not None
        assert missing.code == "not_found"

    asyncio.run(look())


def test_a_slow_reader_pauses_its_provider() -> None:
    """Back-pressure reaches the provider and is taken back."""

    def slow(exchange: Exchange) -> None:
        assert exchange.watcher is not None
        exchange.watcher.on_pause()
        exchange.watcher.on_resume()

    rig = Rig(Script([(0, ROLE + TEXT), (0.1, STOP + DONE), (0, None)]))
    rig.ask("chat", act=slow)
    assert rig.upstream.calls[0].pauses == [True, False]


def test_one_write_for_each_provider_read() -> None:
    """Frames that came together go out together."""
    got = Rig(Script([(0, ROLE + TEXT + TEXT), (0, TEXT), (0, STOP + DONE), (0, None)])).ask("chat")
    assert len(got.writes) == 3


@pytest.mark.parametrize("client", FORMATS)
def test_wrong_keys_are_401_in_the_clients_envelope(client: str) -> None:
    """S17, S103, A1."""
    for headers in ({}, {b"authorization": b"Bearer kn-no"}, {b"x-api-key": b"no"}):
        got = Rig(GOOD).post(PATHS[client], b"{}", headers)
        assert got.status == 401
        body = got.json
        assert body["error"]["type"] == "authentication_error"
        assert got.header["x-should-retry"] == "false"
        assert ("request_id" in body) is (client == "messages")


def test_either_key_header_is_enough() -> None:
    """S59, A1: clients send dummies beside the real key."""
    for headers in (
        {b"x-api-key": b"kn-test"},
        {b"authorization": b"Bearer kn-test", b"x-api-key": b"dummy"},
        {b"authorization": b"Bearer dummy", b"x-api-key": b"kn-test"},
    ):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
        assert Rig(GOOD).post(PATHS["messages"], body, headers).status == 200


def test_unknown_models_and_wrong_kinds() -> None:
    """S165, S173, S175: refused before any provider is called, without a hold."""
    rig = Rig(GOOD)
    got = rig.ask("chat", model="nope")
    assert (got.status, got.json["error"]["code"], got.json["error"]["param"]) == (404, "model_not_found", "model")
    got = rig.ask("responses", model="pic")
    assert (got.status, got.json["error"]["code"]) == (400, "bad_request")
    assert "/v1/images/generations" in got.json["error"]["message"]
    assert rig.upstream.requests == []
    assert [line.ending for line in rig.books.lines] == ["refused", "refused"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/responses/resp_1", 404),
        ("DELETE", "/v1/responses/resp_1", 404),
        ("GET", "/v1/responses/resp_1/input_items", 404),
        ("POST", "/v1/responses/resp_1/cancel", 404),
        ("HEAD", "/api/hello", 404),
        ("GET", "/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("HEAD", "/", 200),
    ],
)
def test_other_paths(method: str, path: str, status: int) -> None:
    """S107, D24: fast answers in the OpenAI envelope, and no failed authentication."""
    got = Rig(GOOD).post(path, b"", {}, method)
    assert got.status == status
    if status == 404:
        assert got.json["error"]["code"] == "not_found"


def test_a_websocket_upgrade_is_426() -> None:
    """D24."""
    got = Rig(GOOD).post("/v1/responses", b"", {b"upgrade": b"websocket"}, "GET")
    assert got.status == 426


def test_a_doubled_base_path_works() -> None:
    """D24: SDKs append /v1/messages to a pasted /v1 base."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
    assert Rig(GOOD).post("/v1/v1/messages", body).status == 200


def test_count_tokens_is_always_a_positive_number() -> None:
    """M4: estimated where the provider does not count, the provider's own number where it does, never an error of its."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    assert Rig(GOOD).post("/v1/messages/count_tokens", body).json["input_tokens"] >= 1
    rig = Rig(plain({"input_tokens": 4321}), dialect="messages")
    assert rig.post("/v1/messages/count_tokens", body).json == {"input_tokens": 4321}
    assert rig.upstream.requests[0].url.endswith("/messages/count_tokens")
    assert "max_tokens" not in rig.upstream.sent[0]
    assert Rig(error(500), dialect="messages").post("/v1/messages/count_tokens", body).json["input_tokens"] >= 1


def test_dropped_things_are_named() -> None:
    """D9, S117, F13: in the header and in the line, sanitised."""
    rig = Rig(GOOD)
    got = rig.ask("responses", tools=[{"type": "web_search"}, {"type": "mcp\r\nx: y"}])
    assert got.header["x-kenari-ignored"].startswith("web_search, mcp")
    assert "\n" not in got.header["x-kenari-ignored"]
    assert rig.books.lines[0].notices[0].name == "web_search"
    assert "tools" not in rig.upstream.sent[0]


def test_the_callers_key_and_headers_do_not_travel() -> None:
    """F4."""
    rig = Rig(GOOD)
    rig.ask("chat")
    assert b"kn-test" not in rig.upstream.requests[0].headers
    assert b"authorization: Bearer sk-p1" in rig.upstream.requests[0].headers


def test_a_fault_of_ours_is_a_500_without_words_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault leaves an error of the client's format and a line; the process lives on."""

    def break_down(*_: object) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr("kenari.gateway.run.fit", break_down)
    rig = Rig(GOOD)
    got = rig.ask("chat")
    assert (got.status, got.json["error"]["code"]) == (500, "internal_error")
    assert b"secret words" not in got.out
    assert rig.books.lines[0].code == "internal_error"
