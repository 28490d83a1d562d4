"""The scripted provider as an Upstream: callbacks, timing, abort, pause and resume."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from kenari.core.errors import KenariError
from kenari.core.outbound import Call, Outgoing
from kenari.upstream.scripted import ScriptedUpstream

URL = "scripted:/chat/completions"


class Ear:
    """A Receiver that writes down what it hears; `then` may act at each word."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.status = 0
        self.body = b""
        self.over = asyncio.get_running_loop().create_future()
        self.call: Call | None = None
        self.then: Callable[[str], None] = lambda word: None

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status = status
        self._hear("head")

    def on_body(self, data: bytes) -> None:
        self.body += data
        self._hear("body")

    def on_end(self) -> None:
        self._hear("end")
        self.over.set_result(None)

    def on_lost(self, error: KenariError) -> None:
        self._hear(f"lost {error.code}")
        self.over.set_result(None)

    def _hear(self, word: str) -> None:
        self.heard.append(word)
        self.then(word)


def run(text: str, act: Callable[[Ear], Awaitable[None]], url: str = URL, stream: bool = True) -> Ear:
    async def play() -> Ear:
        ear = Ear()
        body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}
        request = Outgoing(url, b"", json.dumps(body).encode())
        ear.call = ScriptedUpstream(lambda: 5.9).start(request, ear)
        assert ear.heard == []  # never before start has returned
        await act(ear)
        return ear

    return asyncio.run(asyncio.wait_for(play(), 20))


async def to_the_end(ear: Ear) -> None:
    await ear.over


def test_a_stream_is_head_bodies_end() -> None:
    ear = run("fast", to_the_end)
    assert ear.heard[0] == "head"
    assert set(ear.heard[1:-1]) == {"body"}
    assert ear.heard[-1] == "end"
    assert ear.body.endswith(b"data: [DONE]\n\n")
    assert b'"created":5,' in ear.body


def test_a_plain_answer_is_one_body() -> None:
    ear = run("fast", to_the_end, stream=False)
    assert ear.heard == ["head", "body", "end"]
    assert json.loads(ear.body)["object"] == "chat.completion"


def test_a_failure_is_a_lost_connection_after_content() -> None:
    """What S54 and E8 can be tried with."""
    ear = run("fast fail", to_the_end)
    assert ear.heard[-1] == "lost stream_interrupted"
    assert ear.heard.count("body") > 1
    assert run("fast fail", to_the_end, stream=False).heard == ["head", "body", "lost stream_interrupted"]


def test_an_error_and_an_empty_stream() -> None:
    assert run("error 503", to_the_end).status == 503
    assert run("empty", to_the_end).heard == ["head", "end"]


def test_another_dialect_is_refused() -> None:
    ear = run("hello", to_the_end, url="scripted:/messages")
    assert ear.status == 404
    assert "chat completions" in json.loads(ear.body)["error"]["message"]


def test_nothing_is_heard_after_abort() -> None:
    async def at_once(ear: Ear) -> None:
        assert ear.call is not None
        ear.call.abort()
        await asyncio.sleep(0.05)

    assert run("hello", at_once).heard == []

    async def in_the_body(ear: Ear) -> None:
        call = ear.call
        assert call is not None
        ear.then = lambda word: call.abort() if word == "body" else None
        await asyncio.sleep(0.1)
        call.resume()
        await asyncio.sleep(0.05)

    assert run("hello", in_the_body).heard == ["head", "body"]
    assert run("fast", in_the_body).heard == ["head", "body"]


def test_a_pause_holds_the_stream_and_resume_goes_on() -> None:
    async def pause_once(ear: Ear) -> None:
        call = ear.call
        assert call is not None

        def pause(word: str) -> None:
            if ear.heard.count("body") == 2:
                call.pause()

        ear.then = pause
        await asyncio.sleep(0.15)
        assert ear.heard == ["head", "body", "body"]
        call.pause()
        call.resume()
        await ear.over

    for text in ("fast", "hello"):
        ear = run(text, pause_once)
        assert ear.heard[-1] == "end"
        assert ear.body == run(text, to_the_end).body


def test_a_pause_at_the_last_word_holds_the_end() -> None:
    async def pause_last(ear: Ear) -> None:
        call = ear.call
        assert call is not None
        last = asyncio.Event()

        def pause(word: str) -> None:
            if word == "body" and b"[DONE]" in ear.body:
                call.pause()
                last.set()

        ear.then = pause
        await last.wait()
        await asyncio.sleep(0.05)
        assert ear.heard[-1] == "body"
        call.resume()
        await ear.over

    assert run("fast", pause_last).heard[-1] == "end"


def test_pause_and_resume_within_one_word_changes_nothing() -> None:
    async def flutter(ear: Ear) -> None:
        call = ear.call
        assert call is not None

        def both(word: str) -> None:
            if word in ("head", "body"):
                call.pause()
                call.resume()

        ear.then = both
        await ear.over
        await asyncio.sleep(0.02)

    ear = run("fast", flutter)
    assert ear.heard.count("end") == 1
    assert ear.body == run("fast", to_the_end).body


def test_a_silent_provider_has_sent_its_head() -> None:
    async def wait(ear: Ear) -> None:
        await asyncio.sleep(0.2)
        assert ear.call is not None
        ear.call.abort()

    ear = run("slow 60", wait)
    assert ear.heard == ["head", "body"]
    assert b'"content":""' in ear.body
