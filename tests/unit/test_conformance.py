"""`kenari conformance`: kenari passes, and each gateway that is broken on purpose fails where it should."""

import json
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from gateway import KEY, config_text, running_gateway
from gateway import Gateway as Kenari

from kenari.cli import main
from kenari.conformance.card import page, score, terminal
from kenari.conformance.checks import CHECKS, LONGEST_SILENCE, lives
from kenari.conformance.observe import Answer, said
from kenari.conformance.play import Gateway, Result, play
from kenari.conformance.scenario import FORMATS, PATHS, Format, Scenario, body_of, scenarios

MODEL = "demo/scripted"
BY_ID = {scenario.id: scenario for scenario in scenarios()}


class Reply(NamedTuple):
    """An answer that a broken gateway may spoil."""

    form: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def stream(self) -> bool:
        return "event-stream" in self.headers.get("content-type", "")


Spoil = Callable[[Reply], Reply]


@pytest.fixture(scope="module")
def kenari() -> Iterator[Kenari]:
    providers: dict[str, dict[str, Any]] = {"demo": {"dialect": "chat", "base_url": "scripted:"}}
    models: dict[str, dict[str, Any]] = {MODEL: {"targets": ["demo/scripted"], "vision": True, "reasoning": True}}
    with running_gateway(config_text(providers, models)) as running:
        yield running


def _fetch(kenari: Kenari, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    connection = HTTPConnection(*kenari.address, timeout=30)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        got = {name.lower(): value for name, value in response.getheaders()}
        form = next(form for form, place in PATHS.items() if place == path)
        return Reply(form, response.status, got, response.read())
    finally:
        connection.close()


@contextmanager
def broken_gateway(kenari: Kenari, spoil: Spoil, pause: float = 0.0) -> Generator[Gateway]:
    """A gateway that takes kenari's answers and spoils them; being a simple proxy it holds each answer back as well."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            sent = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            reply = spoil(_fetch(kenari, self.path, body, sent))
            time.sleep(pause)
            self.send_response(reply.status)
            for name in ("content-type", "retry-after"):
                if name in reply.headers:
                    self.send_header(name, reply.headers[name])
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield Gateway(f"http://127.0.0.1:{server.server_address[1]}", KEY, MODEL, True)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _replaced(pattern: str, by: str, *forms: str) -> Spoil:
    """Spoil the body by a regular expression."""

    def spoil(reply: Reply) -> Reply:
        if forms and reply.form not in forms:
            return reply
        return reply._replace(body=re.sub(pattern.encode(), by.encode(), reply.body, flags=re.S))

    return spoil


def _without_last_frame(reply: Reply) -> Reply:
    if not reply.stream:
        return reply
    return reply._replace(body=b"\n\n".join(reply.body.rstrip().split(b"\n\n")[:-1]) + b"\n\n")


def _one_word_each(reply: Reply) -> Reply:
    """A failure that is swallowed: the frames that tell of it are left out, and the stream ends as if all were well."""
    blocks = [block for block in reply.body.split(b"\n\n") if b'"error":{' not in block and b"failed" not in block]
    return reply._replace(body=b"\n\n".join(blocks))


def _always_200(reply: Reply) -> Reply:
    return reply._replace(status=200)


def _as_html(reply: Reply) -> Reply:
    return reply if reply.status == 200 else reply._replace(headers={"content-type": "text/html"}, body=b"<h1>no</h1>")


def _without_patience(reply: Reply) -> Reply:
    return reply._replace(headers={name: value for name, value in reply.headers.items() if name != "retry-after"})


def _with_status(status: int) -> Spoil:
    """Errors get another status."""
    return lambda reply: reply if reply.status == 200 else reply._replace(status=status)


def _as_text(reply: Reply) -> Reply:
    return reply._replace(headers={"content-type": "text/plain"})


BROKEN: dict[str, tuple[str, str, Spoil]] = {
    "another content-type": ("text", "answered", _as_text),
    "no text": ("text", "says", _replaced(r'"(text|content|delta)":"[^"]+"', r'"\1":""')),
    "all in one piece": ("text", "in_pieces", _replaced(r'"(content|text|delta)":" [^"]*"', r'"\1":""')),
    "no last word": ("text", "ended", _without_last_frame),
    "two last words": (
        "text",
        "ended",
        _replaced(r"(data: \[DONE\]\n\n|event: (message_stop|response.completed)\n.*)", r"\1\1x: 1\n\n"),
    ),
    "names in chat frames": ("text", "framed", _replaced("data: {", "event: chunk\ndata: {", "chat")),
    "names that are not the type": ("text", "framed", _replaced("event: ", "event: my.", "messages", "responses")),
    "another model": ("text", "own_model", _replaced('"model":"demo/scripted"', '"model":"gpt"')),
    "ids that change": (
        "text",
        "one_id",
        _replaced(r'("object":"chat.completion.chunk")(.*)"id":"\w+"', r'\1\2"id":"other"', "chat"),
    ),
    "no usage": (
        "text",
        "counted",
        _replaced(r'"(in|out)put_tokens":\d+|"(prompt|completion)_tokens":\d+', '"none":0'),
    ),
    "no finish": ("text", "finished", _replaced('"(stop|end_turn|completed)"', "null")),
    "lost characters": ("same", "echoes", _replaced("漢", "?")),
    "no reasoning": ("reasoning", "thinks", _replaced("reasoning|thinking", "nothing")),
    "one id for two calls": ("two-tools", "calls", _replaced(r'"(id|call_id)":"(call_\w+?)[01]"', r'"\1":"\2"')),
    "one call of two": ("two-tools", "calls_two", _replaced("get_time", "get_weather")),
    "arguments cut": ("tool", "calls", _replaced(r'\\"city\\"|"city"', "city")),
    "a finish that hides calls": (
        "tool",
        "finished_by_call",
        _replaced('"(tool_calls|tool_use)"(?=[,}])', '"stop"', "chat", "messages"),
    ),
    "results lost": ("tool-result", "quotes_result", _replaced("K7731", "?")),
    "pictures lost": ("image", "sees", _replaced("as pictures: image/png, [0-9]+ bytes", "as pictures: none")),
    "a cut that is not told": ("cut", "cut", _replaced('"(length|max_tokens|max_output_tokens)"', '"stop"')),
    "errors with 200": ("no-model", "refused_400_404", _always_200),
    "a wrong key is a missing page": ("no-key", "refused_401_403", _with_status(404)),
    "nonsense is the server's fault": ("bad-request", "refused_400", _with_status(500)),
    "busy is broken": ("busy", "refused_429", lambda reply: _without_patience(reply)._replace(status=500)),
    "a failing provider is the client's fault": ("down", "refused_5xx", _with_status(400)),
    "errors as pages": ("bad-request", "in_own_envelope", _as_html),
    "one envelope for all": ("no-key", "in_own_envelope", _replaced('"type":"error",', "", "messages")),
    "errors without words": ("no-key", "in_own_envelope", _replaced('"message"', '"detail"')),
    "no patience told": ("busy", "says_when", _without_patience),
    "a failure that is swallowed": ("midway", "fails_in_stream", _one_word_each),
    "held back": ("early", "comes_early", lambda reply: reply),
}
"""Gateways that are broken on purpose: the scenario that finds it, and its check."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_gateway_fails(kenari: Kenari, name: str) -> None:
    scenario, check, spoil = BROKEN[name]
    with broken_gateway(kenari, spoil) as broken:
        faults = [fault for form in FORMATS for fault in play(broken, BY_ID[scenario], form).faults]
    if BY_ID[scenario].rests:
        time.sleep(2.1)  # what it asked for was spoilt: kenari leaves the busy provider alone until then
    assert any(f": {check}: " in fault for fault in faults), faults


def test_each_check_finds_a_broken_gateway() -> None:
    """The two that are not in the list have tests of their own below."""
    assert {check for _, check, _ in BROKEN.values()} | {"lives", "prompt_after_leavers"} == set(CHECKS)


def test_a_gateway_that_is_slow_after_clients_left_fails(kenari: Kenari) -> None:
    with broken_gateway(kenari, lambda reply: reply, pause=3.2) as broken:
        faults = play(broken, BY_ID["leaving"], "chat").faults
    assert any("prompt_after_leavers" in fault for fault in faults)


def test_silence_is_measured() -> None:
    moments = [(1.0, 5), (16.0, 5), (16.0 + LONGEST_SILENCE + 0.2, 5)]
    answer = Answer("chat", True, 200, {}, b"", moments, 34.0)
    assert "16.7 s without a byte" in str(lives(BY_ID["silence"], answer, said(answer)))
    assert (
        lives(BY_ID["silence"], answer._replace(arrivals=[*moments, (30.0, 13)], seconds=30.5), said(answer))
        is not None
    )
    assert lives(BY_ID["silence"], answer._replace(arrivals=moments[:2], seconds=20.0), said(answer)) is None


def test_a_gateway_that_is_not_there_is_told() -> None:
    result = play(Gateway("http://127.0.0.1:9", KEY, MODEL, True), BY_ID["text"], "chat")
    assert result.faults
    assert all("no answer" in fault for fault in result.faults)


def test_a_gateway_that_breaks_connections_fails(kenari: Kenari) -> None:
    def halved(reply: Reply) -> Reply:
        return reply._replace(body=reply.body[: len(reply.body) // 2])

    with broken_gateway(kenari, halved) as broken:
        for form in FORMATS:
            assert play(broken, BY_ID["text"], form).faults


@pytest.mark.parametrize("form", FORMATS)
def test_kenari_passes_what_is_quick(kenari: Kenari, form: Format) -> None:
    gateway = Gateway(kenari.url, KEY, MODEL, True)
    for scenario in scenarios():
        if not scenario.slow and not scenario.leavers and scenario.id != "early":
            assert play(gateway, scenario, form).faults == ()


def test_the_scenarios_are_sound() -> None:
    """Every check is used, every name is one, and requests differ where they should."""
    used = {name for scenario in scenarios() for name in scenario.checks + scenario.scripted}
    assert used == set(CHECKS)
    assert set(FORMATS) == set(get_args(Format))
    assert len(BY_ID) == len(scenarios())
    for form in FORMATS:
        bodies = [json.loads(body_of(scenario, form, MODEL, True)) for scenario in scenarios()]
        assert all(body["stream"] is True for body in bodies)


def _results() -> list[Result]:
    faults = ("stream: says: <no text>",)
    return [
        Result(BY_ID["text"], "chat"),
        Result(BY_ID["text"], "messages", faults),
        Result(BY_ID["text"], "responses", skipped="needs the scripted model"),
    ]


def test_the_card_tells_what_was_wrong() -> None:
    gateway = Gateway("http://x", KEY, "m", False)
    text = terminal(gateway, _results())
    assert re.search(r"A short answer +ok +FAILED +-$", text, re.M)
    assert "text, messages, stream: says: <no text>" in text
    assert "1 of 2 passed (50 %)" in text
    html = page(gateway, _results(), "2026-11-30")
    assert "&lt;no text&gt;" in html
    assert "<h1>50 %</h1>" in html
    assert KEY not in text + html
    assert score([]) == (0, 0)


def test_the_command(kenari: Kenari, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["conformance", "--url", kenari.url, "--key", KEY, "--model", MODEL, "--quick"]
    file = tmp_path / "card.html"
    assert main([*where, "--only", "text,cut,silence", "--html", str(file)]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 passed (100 %)" in out
    assert file.read_text().startswith("<!doctype html>")
    assert main([*where, "--only", "nothing"]) == 2
    assert "--only names no scenario" in capsys.readouterr().err
    assert main([*where[:-3], "--model", "another", "--only", "text,busy"]) == 1
    assert "model_not_found" in capsys.readouterr().out


def test_a_scenario_for_one_format_is_skipped_in_others() -> None:
    only = Scenario(id="x", title="x", prompt="x", ask="plain", checks=("answered",), formats=("chat",))
    assert play(Gateway("http://127.0.0.1:9", KEY, MODEL, False), only, "messages").skipped == "not in this format"
