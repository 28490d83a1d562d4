"""What providers do beside the rules of their formats, seen from the client's side."""

import json
from typing import Any

import pytest
from chat_kit import MINIMAL
from chat_kit import decode as decode_chat
from gateway_kit import DONE, GOOD, PATHS, ROLE, STOP, Rig, Script, chunk, error, plain
from messages_kit import decode as decode_messages
from responses_kit import decode as decode_responses

from kenari.core.events import Close, Event, Open
from kenari.core.fold import fold
from kenari.core.profile import Profile
from kenari.dialects.chat import CHAT

ANSWER = ROLE + chunk({"content": "Hello"}) + STOP + DONE


def call(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    """A delta of a call; the one with a name begins it."""
    begins = {} if name is None else {"id": f"call_{index}", "type": "function"}
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"tool_calls": [{"index": index, "function": function, **begins}]}


# -- what a stream is called


@pytest.mark.parametrize("kind", ["", "text/plain", "application/octet-stream", "application/json"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b": hi\n\n", b"\n"])
def test_a_stream_is_known_by_its_first_letter(kind: str, start: bytes) -> None:
    """S4: servers that leave the content type out, or send a wrong one, still stream."""
    data = start + ANSWER
    pieces = [(0, data[at : at + 7]) for at in range(0, len(data), 7)]
    got = Rig(Script([*pieces, (0, None)], 200, {b"content-type": kind.encode()})).ask("chat")
    assert "".join(frame["choices"][0]["delta"].get("content", "") for frame in got.data[:-1]) == "Hello"
    assert got.data[-1] == "[DONE]"


@pytest.mark.parametrize("body", [b"<html>busy</html>", b"error: busy", b"   ", b'"busy"'])
def test_e4_what_is_neither_stream_nor_json_is_no_answer(body: bytes) -> None:
    got = Rig(Script([(0, body), (0, None)], 200, {b"content-type": b"text/html"})).ask("chat")
    assert (got.status, got.json["error"]["code"]) == (502, "upstream_error")


# -- parallel calls, one after the other


def closed_before(events: list[Event], index: int) -> list[int]:
    """The blocks that are closed when this one opens."""
    at = next(at for at, event in enumerate(events) if isinstance(event, Open) and event.index == index)
    return [event.index for event in events[:at] if isinstance(event, Close)]


def test_a_call_is_over_when_the_next_one_begins() -> None:
    """S4, S25, S26: formats with one open block at a time would hold the second call back until the finish."""
    data = chunk(call(0, '{"a"', "f")) + chunk(call(0, ":1}")) + chunk(call(1, "{}", "g")) + chunk({}, "tool_calls")
    assert closed_before(decode_chat(data + DONE), 1) == [0]


def test_a_call_that_goes_on_later_stays_open() -> None:
    """S45: arguments that interleave are put together whole."""
    data = chunk(call(0, '{"a":', "f")) + chunk(call(1, '{"b"', "g")) + chunk(call(0, "1}")) + chunk(call(1, ":2}"))
    events = decode_chat(data + chunk({}, "tool_calls") + DONE)
    assert closed_before(events, 1) == []
    assert [block.text for block in fold(events).blocks] == [b'{\\"a\\":1}', b'{\\"b\\":2}']


def test_nothing_is_added_to_a_call_that_is_over() -> None:
    """S45: white space or a repetition behind whole arguments would break them."""
    data = chunk(call(0, "{}", "f")) + chunk(call(1, "{}", "g")) + chunk(call(0, " ")) + chunk(call(0, "{}"))
    events = decode_chat(data + chunk({}, "tool_calls") + DONE)
    assert [block.text for block in fold(events).blocks] == [b"{}", b"{}"]


def test_an_empty_call_before_another_one_is_held() -> None:
    """S45: it may still get its arguments."""
    data = chunk(call(0, "", "f")) + chunk(call(1, "{}", "g")) + chunk(call(0, '{"late":1}')) + chunk({}, "tool_calls")
    reply = fold(decode_chat(data + DONE))
    assert [(block.name, block.text) for block in reply.blocks] == [("f", b'{\\"late\\":1}'), ("g", b"{}")]


def test_text_behind_a_call_is_not_held_back() -> None:
    """S4: the same for text."""
    data = chunk(call(0, "{}", "f")) + chunk({"content": "done"}) + chunk({}, "tool_calls") + DONE
    assert closed_before(decode_chat(data), 1) == [0]


@pytest.mark.parametrize(("client", "second"), [("messages", '"name":"g"'), ("responses", '"name":"g"')])
def test_the_second_call_reaches_the_client_before_the_finish(client: str, second: str) -> None:
    """S4: as it comes, in the formats that show one block at a time."""
    steps = [(0, ROLE), (0, chunk(call(0, "{}", "f"))), (0, chunk(call(1, '{"b":', "g"))), (5, STOP), (0, None)]
    rig = Rig(Script(steps))
    seen: list[bytes] = []
    rig.ask(client, act=lambda exchange: (seen.append(exchange.out), exchange.leave())[1])
    assert second in seen[0].decode()


def test_calls_of_a_responses_provider_that_ends_all_items_last() -> None:
    """S26: llama-server sends every `output_item.done` at the end of the answer."""

    def event(name: str, **members: Any) -> bytes:
        return b"data: " + json.dumps({"type": f"response.{name}", **members}).encode() + b"\n\n"

    def item(number: int, arguments: str) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"c{number}",
            "name": "f",
            "arguments": arguments,
        }

    data = event("created", response={"status": "in_progress"})
    for number in (1, 2):
        data += event("output_item.added", item=item(number, ""))
        data += event("function_call_arguments.delta", item_id=f"fc_{number}", delta='{"n":1}')
    data += b"".join(event("output_item.done", item=item(number, '{"n":1}')) for number in (1, 2))
    events = decode_responses(data + event("completed", response={"status": "completed", "output": []}))
    assert closed_before(events, 1) == [0]
    assert [block.text for block in fold(events).blocks] == [b'{\\"n\\":1}'] * 2


# -- reasoning and calls under other names


def test_reasoning_that_is_told_in_details_only() -> None:
    """S21: `reasoning_details`, texts and summaries."""
    first = chunk({"reasoning_details": [{"type": "reasoning.text", "text": "A"}, {"type": "reasoning.encrypted"}]})
    second = chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": "B"}, 5]})
    reply = fold(decode_chat(first + second + chunk({"content": "hi"}) + STOP + DONE))
    assert [(block.kind, block.text) for block in reply.blocks] == [("reasoning", b"AB"), ("text", b"hi")]


def test_s43_details_beside_another_name_count_once() -> None:
    told = chunk({"reasoning": "A", "reasoning_details": [{"type": "reasoning.text", "text": "A"}]})
    again = chunk({"reasoning_details": [{"type": "reasoning.text", "text": "A", "signature": "s"}]})
    reply = fold(decode_chat(told + again + chunk({"content": "hi"}) + STOP + DONE))
    assert [block.text for block in reply.blocks] == [b"A", b"hi"]


def test_a_call_in_the_older_form() -> None:
    """S24: `function_call` deltas, and the same in a plain answer."""
    first, second = {"function_call": {"name": "f", "arguments": '{"a"'}}, {"function_call": {"arguments": ":1}"}}
    reply = fold(decode_chat(chunk(first) + chunk(second) + chunk({}, "function_call") + DONE))
    body = {"choices": [{"message": {"function_call": {"name": "f", "arguments": '{"a":1}'}}, "finish_reason": "stop"}]}
    whole = fold(CHAT.decode_reply(json.dumps(body).encode(), Profile(), "0" * 16))
    for one in (reply, whole):
        assert [(block.name, block.text) for block in one.blocks] == [("f", b'{\\"a\\":1}')]
        assert one.stop.reason == "call"


def test_the_older_form_beside_the_newer_one_counts_once() -> None:
    """S24: llama-cpp-python sends both."""
    both = call(0, "{}", "f") | {"function_call": {"name": "f", "arguments": "{}"}}
    reply = fold(decode_chat(chunk(both) + chunk({"function_call": {"arguments": " "}}) + chunk({}, "stop") + DONE))
    assert [(block.name, block.text) for block in reply.blocks] == [("f", b"{}")]


def test_f12_an_id_that_a_messages_provider_says_twice_is_made_unique() -> None:
    def event(name: str, **members: Any) -> bytes:
        return b"data: " + json.dumps({"type": name, **members}).encode() + b"\n\n"

    block: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    data = b"".join(event("content_block_start", index=at, content_block=block) for at in (0, 1))
    data += event("message_delta", delta={"stop_reason": "tool_use"}) + event("message_stop")
    ids = [event.call_id for event in decode_messages(data) if isinstance(event, Open)]
    assert ids[0] == "t"
    assert len(set(ids)) == 2


# -- usage


@pytest.mark.parametrize("count", [10**25, -5])
def test_u3_a_count_that_cannot_be_is_counted_by_us(count: int) -> None:
    """A provider's nonsense is neither told nor charged, in each of its formats."""
    bodies: dict[str, dict[str, Any]] = {
        "chat": {
            "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": count, "completion_tokens": count},
        },
        "messages": {
            "type": "message",
            "content": [{"type": "text", "text": "hi"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": count, "output_tokens": count, "cache_read_input_tokens": count},
        },
        "responses": {
            "status": "completed",
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
            "usage": {"input_tokens": count, "output_tokens": count},
        },
    }
    for dialect, body in bodies.items():
        rig = Rig(plain(body), dialect=dialect)
        usage = rig.ask("chat", stream=False).json["usage"]
        assert 0 < usage["prompt_tokens"] < 100
        assert 0 < usage["completion_tokens"] < 100
        assert rig.books.lines[0].usage.estimated


@pytest.mark.parametrize(("said_", "asked", "status"), [(6, 6, "incomplete"), (5, 6, "completed")])
def test_s93_a_provider_that_hides_its_cuts(said_: int, asked: int, status: str) -> None:
    """S93, S156: llama-server calls a response complete that its cap has cut."""
    body = {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
        "usage": {"input_tokens": 3, "output_tokens": said_},
    }
    rig = Rig(plain(body), dialect="responses", profile=Profile(cuts_silently=True))
    assert rig.ask("responses", stream=False, max_output_tokens=asked).json["status"] == status
    honest = Rig(plain(body), dialect="responses")
    assert honest.ask("responses", stream=False, max_output_tokens=asked).json["status"] == "completed"


# -- errors


SPELLINGS = [
    "This model's maximum context length is 8192 tokens. However, you requested 9000",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Your request exceeded model token limit: 131072",
    "prompt token count of 70000 exceeds the limit of 64000",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "Range of input length should be [1, 30720]",
    "Prompt too long: 5000 > 4096",
    "context window exceeds limit (2013)",
]


@pytest.mark.parametrize("words", SPELLINGS)
def test_e5_a_context_overflow_is_known_in_all_its_spellings(words: str) -> None:
    """E5, E7: with the code, and with the provider's own numbers, which clients read."""
    got = Rig(error(400, words)).ask("messages", stream=False)
    assert got.status == 400
    assert got.json["error"]["message"].startswith("prompt is too long")
    assert words[10:] in got.json["error"]["message"]
    assert Rig(error(400, words)).ask("responses").json["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("words", ["string too long. Expected at most 10", "max_tokens must be below 4096", "bad word"])
def test_e7_other_limits_are_no_context_overflow(words: str) -> None:
    assert Rig(error(400, words)).ask("chat").json["error"]["code"] == "bad_request"


def test_e3_a_provider_that_wants_money_is_not_told_to_try_again() -> None:
    """E1, E3: it is our account, and the caller can do nothing about it."""
    got = Rig(error(402, "insufficient credits")).ask("chat")
    assert (got.status, got.json["error"]["code"], got.header["x-should-retry"]) == (502, "upstream_error", "false")


# -- what only the provider's own format has words for


@pytest.mark.parametrize("stream", [True, False])
def test_citations_reach_a_client_of_the_same_format(stream: bool) -> None:
    """D12, L6: streamed and plain alike; other formats have no words for them."""
    cited = {"type": "char_location", "cited_text": "x", "document_index": 0}
    body: dict[str, Any] = {
        "type": "message",
        "content": [{"type": "text", "text": "hi", "citations": [cited, cited]}, {"type": "text", "text": "ho"}],
        "stop_reason": "end_turn",
    }
    got = Rig(plain(body), dialect="messages").ask("messages", stream=stream)
    if stream:
        deltas = [frame["delta"] for frame in got.data if frame["type"] == "content_block_delta"]
        assert [delta["citation"] for delta in deltas if delta["type"] == "citations_delta"] == [cited, cited]
    else:
        assert got.json["content"] == body["content"]
    assert b"cited_text" not in Rig(plain(body), dialect="messages").ask("chat", stream=stream).out


def test_d8_our_choice_is_found_behind_another_one() -> None:
    choices = [{"index": at, "delta": {"content": "BA"[1 - at]}, "finish_reason": "stop"} for at in (1, 0)]
    assert fold(decode_chat(b"data: " + json.dumps({"choices": choices}).encode() + b"\n\n")).blocks[0].text == b"A"


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_d27_a_conversation_of_nothing_is_refused(dialect: str) -> None:
    """S110, S140: items that are dropped may leave nothing, which no provider takes."""
    got = Rig(GOOD, dialect=dialect).ask("responses", input=[{"type": "unheard_of"}])
    assert (got.status, got.json["error"]["param"]) == (400, "input")


# -- line ends between tokens


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_s13_json_written_over_several_lines_stays_one_frame(client: str, dialect: str) -> None:
    """S12, S13: bodies as people write them for curl, and providers that indent their answers."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools: dict[str, Any] = {
        "chat": {"type": "function", "function": {"name": "f", "parameters": schema}},
        "messages": {"name": "f", "input_schema": schema},
        "responses": {"type": "function", "name": "f", "parameters": schema},
    }
    said_: dict[str, Any] = {
        "chat": {
            "choices": [
                {
                    "message": {"content": "hi", "tool_calls": [{"function": {"name": "f", "arguments": {"a": "b"}}}]},
                    "logprobs": {"content": [{"token": "hi", "logprob": -1}]},
                    "finish_reason": "tool_calls",
                }
            ]
        },
        "messages": {
            "type": "message",
            "content": [
                {"type": "text", "text": "hi", "citations": [{"type": "x"}]},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": "b"}},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}},
            ],
            "stop_reason": "tool_use",
        },
        "responses": {
            "status": "completed",
            "output": [
                {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": "b"}},
            ],
        },
    }
    talk = {"input": [{"role": "user", "content": "q"}]} if client == "responses" else MINIMAL
    body = {**talk, "model": "m", "stream": True, "tools": [tools[client]], "metadata": {"user_id": "u"}}
    answer = json.dumps(said_[dialect], indent=2).replace("\n", "\r\n").encode()
    rig = Rig(Script([(0, answer), (0, None)], 200, {b"content-type": b"application/json"}), dialect=dialect)
    got = rig.post(PATHS[client], json.dumps(body, indent=2).encode())
    lines = got.out.decode().split("\n")
    assert all(line.startswith(("event: ", "data: ")) for line in lines if line)
    assert sum(line.startswith("data: ") for line in lines) == got.out.count(b"\n\n")
    assert "hi" in got.out.decode()
