"""A scripted provider over real sockets, in the three formats: what a play says, and how it is said on the wire.

The server runs in a thread of its own, so that tests may be synchronous or asynchronous. The model's name in a request
picks the play, so what a provider does is a property of the model that is asked for.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

Delta = tuple[Literal["text", "reasoning", "arguments", "call"], Any]


class Call(NamedTuple):
    """A function call; `pieces` are the fragments of its arguments."""

    name: str
    pieces: list[str]

    @property
    def arguments(self) -> str:
        """The whole arguments."""
        return "".join(self.pieces)


class Play(NamedTuple):
    """What the provider does when its model is asked.

    `finish` is chat's word (stop, length, tool_calls, content_filter). `status` other than 200 is an HTTP error.
    `broken` ends the connection after the last piece, without a finish. `fails` sends an error event there instead.
    `pause` is seconds of silence before the first piece and in the middle, `hangs` only in the middle, `forever` never
    ends.
    """

    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    signature: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    prompt: int = 14
    cached: int = 0
    output: int = 6
    status: int = 200
    message: str = "the script says no"
    headers: tuple[tuple[str, str], ...] = ()
    broken: bool = False
    fails: bool = False
    pause: float = 0.0
    forever: bool = False
    hangs: float = 0.0
    comment: bool = False
    tag: str = ""
    """Stands in the ids of this play's calls, so that a longer conversation has no id twice."""


class Seen(NamedTuple):
    """A request that reached the provider."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any]


JsonObject = dict[str, Any]
WORDS: dict[str, dict[str, str]] = {
    "messages": {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"},
}


# -- chat


def chat_stream(play: Play, model: str) -> Iterator[bytes]:
    """The frames of a chat completion."""

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**_chat_head(model, "chat.completion.chunk"), "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in play.reasoning:
        yield chunk({"reasoning_content": piece})
    for piece in play.text:
        yield chunk({"content": piece})
    for index, call in enumerate(play.calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk(
            {
                "tool_calls": [
                    {"index": index, "id": f"call_{play.tag}{index}", "type": "function", "function": function}
                ]
            }
        )
        for piece in call.pieces:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if play.broken:
        return
    if play.fails:
        yield _data({"error": {"message": play.message, "type": "server_error", "code": None, "param": None}})
        return
    yield chunk({}, play.finish)
    yield _data({**_chat_head(model, "chat.completion.chunk"), "choices": [], "usage": _chat_usage(play)})
    yield b"data: [DONE]\n\n"


def chat_reply(play: Play, model: str) -> JsonObject:
    """The chat completion as one object."""
    message: JsonObject = {"role": "assistant", "content": "".join(play.text) or None}
    if play.reasoning:
        message["reasoning_content"] = "".join(play.reasoning)
    if play.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{play.tag}{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(play.calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": play.finish}
    return {**_chat_head(model, "chat.completion"), "choices": [choice], "usage": _chat_usage(play)}


def _chat_head(model: str, kind: str) -> JsonObject:
    return {"id": "chatcmpl-upstream", "object": kind, "created": 1780000000, "model": model}


def _chat_usage(play: Play) -> JsonObject:
    usage: JsonObject = {
        "prompt_tokens": play.prompt,
        "completion_tokens": play.output,
        "total_tokens": play.prompt + play.output,
    }
    if play.cached:
        usage["prompt_tokens_details"] = {"cached_tokens": play.cached}
    return usage


# -- messages


def messages_stream(play: Play, model: str) -> Iterator[bytes]:
    """The frames of a message."""
    whole = _message(play, model)
    usage: JsonObject = whole["usage"] | {"output_tokens": 1}
    start: JsonObject = {**whole, "content": [], "stop_reason": None, "usage": usage}
    yield _event({"type": "message_start", "message": start})
    yield _event({"type": "ping"})
    for index, (opening, deltas) in enumerate(_blocks(play)):
        yield _event({"type": "content_block_start", "index": index, "content_block": opening})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        if play.broken and not play.calls and opening["type"] == "text":
            return
        yield _event({"type": "content_block_stop", "index": index})
    if play.broken:
        return
    if play.fails:
        yield _event({"type": "error", "error": {"type": "api_error", "message": play.message}})
        return
    delta = {"stop_reason": WORDS["messages"][play.finish], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": play.output}})
    yield _event({"type": "message_stop"})


def messages_reply(play: Play, model: str) -> JsonObject:
    """The message as one object."""
    return _message(play, model) | {"content": list(_content(play))}


def _message(play: Play, model: str) -> JsonObject:
    usage = {"input_tokens": play.prompt - play.cached, "output_tokens": play.output}
    if play.cached:
        usage["cache_read_input_tokens"] = play.cached
    return {
        "id": "msg_upstream",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_reason": WORDS["messages"][play.finish],
        "stop_sequence": None,
        "usage": usage,
    }


def _blocks(play: Play) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    if play.reasoning:
        deltas: list[JsonObject] = [{"type": "thinking_delta", "thinking": piece} for piece in play.reasoning]
        seal = {"type": "signature_delta", "signature": play.signature or "c2lnbmF0dXJl"}
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, seal]
    if play.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in play.text]
    for index, call in enumerate(play.calls):
        opening: JsonObject = {"type": "tool_use", "id": f"toolu_{play.tag}{index}", "name": call.name, "input": {}}
        yield opening, [{"type": "input_json_delta", "partial_json": piece} for piece in call.pieces]


def _content(play: Play) -> Iterator[JsonObject]:
    if play.reasoning:
        thought = "".join(play.reasoning)
        yield {"type": "thinking", "thinking": thought, "signature": play.signature or "c2lnbmF0dXJl"}
    if play.text:
        yield {"type": "text", "text": "".join(play.text)}
    for index, call in enumerate(play.calls):
        yield {
            "type": "tool_use",
            "id": f"toolu_{play.tag}{index}",
            "name": call.name,
            "input": json.loads(call.arguments),
        }


# -- responses


def responses_stream(play: Play, model: str) -> Iterator[bytes]:
    """The frames of a response, with the vendor's whole list of events."""
    number = 0

    def event(kind: str, **members: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": kind, **members, "sequence_number": number - 1})

    head = _response(play, model)
    begun: JsonObject = {**head, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(_items(play)):
        at: JsonObject = {"item_id": item["id"], "output_index": index}
        yield event("response.output_item.added", output_index=index, item=_opened(item))
        for kind, members in _item_events(play, item):
            yield event(kind, **at, **members)
        if play.broken and item["type"] == "message":
            return
        yield event("response.output_item.done", output_index=index, item=item)
    if play.broken:
        return
    if play.fails:
        error = {"code": "server_error", "message": play.message}
        yield event("response.failed", response=head | {"status": "failed", "error": error})
        return
    last = "response.incomplete" if head["status"] == "incomplete" else "response.completed"
    yield event(last, response=head)


def responses_reply(play: Play, model: str) -> JsonObject:
    """The response as one object."""
    return _response(play, model)


def _response(play: Play, model: str) -> JsonObject:
    details = {
        "length": {"reason": "max_output_tokens"},
        "content_filter": {"reason": "content_filter"},
    }.get(play.finish)
    return {
        "id": "resp_upstream",
        "object": "response",
        "created_at": 1780000000,
        "status": "incomplete" if details else "completed",
        "model": model,
        "output": _items(play),
        "incomplete_details": details,
        "error": None,
        "usage": {
            "input_tokens": play.prompt,
            "input_tokens_details": {"cached_tokens": play.cached},
            "output_tokens": play.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": play.prompt + play.output,
        },
    }


def _items(play: Play) -> list[JsonObject]:
    items: list[JsonObject] = []
    if play.reasoning:
        summary = [{"type": "summary_text", "text": "".join(play.reasoning)}]
        items.append(
            {"type": "reasoning", "id": "rs_upstream", "summary": summary, "encrypted_content": "ZW5jcnlwdGVk"}
        )
    if play.text:
        part: JsonObject = {"type": "output_text", "text": "".join(play.text), "annotations": [], "logprobs": []}
        items.append({"type": "message", "id": "msg_up", "role": "assistant", "status": "completed", "content": [part]})
    for index, call in enumerate(play.calls):
        items.append(
            {
                "type": "function_call",
                "id": f"fc_up{play.tag}{index}",
                "call_id": f"call_{play.tag}{index}",
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
        )
    return items


def _opened(item: JsonObject) -> JsonObject:
    empty: JsonObject = {"status": "in_progress"}
    lists: JsonObject = {"summary": [], "content": [], "arguments": ""}
    empty |= {name: value for name, value in lists.items() if name in item}
    return {name: value for name, value in (item | empty).items() if name != "encrypted_content"}


def _item_events(play: Play, item: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    if item["type"] == "reasoning":
        part = item["summary"][0]
        yield "response.reasoning_summary_part.added", {"summary_index": 0, "part": part | {"text": ""}}
        for piece in play.reasoning:
            yield "response.reasoning_summary_text.delta", {"summary_index": 0, "delta": piece}
        yield "response.reasoning_summary_text.done", {"summary_index": 0, "text": part["text"]}
        yield "response.reasoning_summary_part.done", {"summary_index": 0, "part": part}
    elif item["type"] == "message":
        part = item["content"][0]
        yield "response.content_part.added", {"content_index": 0, "part": part | {"text": ""}}
        for piece in play.text:
            yield "response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {"content_index": 0, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {"content_index": 0, "part": part}
    else:
        call = play.calls[int(item["id"][-1])]
        for piece in call.pieces:
            yield "response.function_call_arguments.delta", {"delta": piece}
        yield "response.function_call_arguments.done", {"name": call.name, "arguments": call.arguments}


# -- the wire


class Format(NamedTuple):
    """How a dialect says a play."""

    stream: Callable[[Play, str], Iterator[bytes]]
    reply: Callable[[Play, str], JsonObject]


FORMATS = {
    "chat": Format(chat_stream, chat_reply),
    "messages": Format(messages_stream, messages_reply),
    "responses": Format(responses_stream, responses_reply),
}
PATHS = {"/chat/completions": "chat", "/messages": "messages", "/responses": "responses"}


def _data(body: JsonObject) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _event(body: JsonObject) -> bytes:
    return b"event: " + body["type"].encode() + b"\n" + _data(body)


def error_body(play: Play, dialect: str) -> JsonObject:
    """An HTTP error of a provider of this dialect."""
    if dialect == "messages":
        return {"type": "error", "error": {"type": "invalid_request_error", "message": play.message}}
    return {"error": {"message": play.message, "type": "invalid_request_error", "param": None, "code": None}}


def bodies(play: Play, dialect: str, model: str, stream: bool) -> Iterator[bytes]:
    """The pieces of an answer's body with status 200."""
    form = FORMATS[dialect]
    if stream:
        return form.stream(play, model)
    return iter([json.dumps(form.reply(play, model)).encode()])


class ScriptedProvider:
    """One listening server. `seen` are the requests that came, `gone` counts calls that the client broke off."""

    def __init__(self, plays: Mapping[str, Play]) -> None:
        self.plays = dict(plays)
        self.seen: list[Seen] = []
        self.gone = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted provider", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen on a free port of the loopback interface."""
        self._thread.start()
        self._call(self._listen())

    def stop(self) -> None:
        """End the server with all its connections and its thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def base_url(self, dialect: str) -> str:
        """What stands in a provider's `base_url`; the dialect shows in the path so that logs can be read."""
        return f"http://127.0.0.1:{self.port}/{dialect}/v1"

    def last(self) -> Seen:
        """The request that came last."""
        return self.seen[-1]

    def play_of(self, seen: Seen) -> Play:
        """What is played for a request: here the model's name decides alone."""
        return self.plays.get(str(seen.body.get("model")), Play(status=404, message="no such model"))

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection may be used again."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        body: JsonObject = json.loads(raw) if raw else {}
        self.seen.append(Seen(path, headers, raw, body))
        dialect = next((name for end, name in PATHS.items() if path.endswith(end)), None)
        if dialect is None and path.endswith("/messages/count_tokens"):
            writer.write(_whole(200, b'{"input_tokens": 42}'))
            return True
        play = self.play_of(self.seen[-1])
        if dialect is None or play.status != 200:
            extra = "".join(f"{name}: {value}\r\n" for name, value in play.headers)
            words = json.dumps(error_body(play, dialect or "chat")).encode()
            writer.write(_whole(play.status if dialect else 404, words, extra=extra))
            return True
        stream = body.get("stream") is True
        return await self._perform(writer, play, bodies(play, dialect, body["model"], stream), stream)

    async def _perform(self, writer: asyncio.StreamWriter, play: Play, pieces: Iterable[bytes], stream: bool) -> bool:
        kind = b"text/event-stream" if stream else b"application/json"
        if stream:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind)
        written = list(pieces)
        silent = {1, len(written) // 2} if stream else {0}
        for at, piece in enumerate(written):
            if play.pause and at in silent:
                await self._wait(writer, play.pause)
            if play.hangs and at == len(written) // 2:
                await self._wait(writer, play.hangs)
            if play.comment and stream:
                writer.write(_chunk(b": provider is alive\n\n"))
            if not stream:
                if play.broken or play.fails:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: 9999\r\n\r\n" % kind)
                    writer.write(piece[: len(piece) // 2])
                    return False
                writer.write(_whole(200, piece))
            else:
                writer.write(_chunk(piece))
            await writer.drain()
        if play.forever:
            await self._wait(writer, 3600)
        if stream and not play.broken:
            writer.write(b"0\r\n\r\n")
        return not play.broken

    async def _wait(self, writer: asyncio.StreamWriter, seconds: float) -> None:
        """Be silent, but notice when the client goes."""
        until = self._loop.time() + seconds
        while self._loop.time() < until:
            if writer.transport.is_closing():
                self.gone += 1
                raise ConnectionResetError
            await asyncio.sleep(min(0.02, seconds))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(status: int, body: bytes, extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


@contextmanager
def scripted_provider(plays: Mapping[str, Play]) -> Generator[ScriptedProvider]:
    """A provider that lives as long as the block."""
    provider = ScriptedProvider(plays)
    provider.start()
    try:
        yield provider
    finally:
        provider.stop()
