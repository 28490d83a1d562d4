"""The official OpenAI SDK for Python on chat completions and Responses, against a provider of each dialect (L9)."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from gateway import KEY
from openai import OpenAI
from openai.types.chat import ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall, ResponseReasoningItem
from rig import PAGE_MODEL, Rig

pytestmark = pytest.mark.sdk

PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
CHAT_TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "get_weather", "description": "the weather of a city", "parameters": PARAMETERS},
}
TOOL: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "the weather of a city",
    "parameters": PARAMETERS,
    "strict": None,
}
CITIES = [{"city": "Jakarta"}, {"city": "Bandung"}]
ASK: Any = [{"role": "user", "content": "Hitung dari 1 sampai 3."}]
REASONING_PIECES = 2


@pytest.fixture
def client(rig: Rig) -> Iterator[OpenAI]:
    with OpenAI(base_url=rig.v1, api_key=KEY, max_retries=0) as made:
        yield made


# -- chat completions


def test_chat_create(client: OpenAI) -> None:
    """S2, S20, S38, S51: a plain answer."""
    answer = client.chat.completions.create(model=PAGE_MODEL, messages=ASK)
    assert answer.choices[0].message.content == "1, 2, 3"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == PAGE_MODEL
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (14, 6, 20)


def test_chat_page_sample(client: OpenAI, capsys: pytest.CaptureFixture[str]) -> None:
    """S55: the loop of the Streaming page, as it stands there."""
    stream = client.chat.completions.create(
        model="step-3-7-flash:free",
        messages=[{"role": "user", "content": "Hitung dari 1 sampai 3."}],
        stream=True,
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            print(chunk.choices[0].delta.content, end="", flush=True)
        if chunk.usage:
            print("\ntoken:", chunk.usage.total_tokens)
    assert capsys.readouterr().out == "1, 2, 3\ntoken: 20\n"


def test_chat_create_streamed_with_reasoning(client: OpenAI) -> None:
    """S21, S43: reasoning under both names, before the text."""
    order: list[str] = []
    both: list[tuple[Any, Any]] = []
    for chunk in client.chat.completions.create(model="thinks", messages=ASK, stream=True):
        delta = chunk.choices[0].delta
        extra = delta.model_extra or {}
        if "reasoning" in extra or "reasoning_content" in extra:
            order.append("reasoning")
            both.append((extra["reasoning"], extra["reasoning_content"]))
        if delta.content:
            order.append("text")
    assert order == sorted(order)
    assert "".join(one for one, _ in both) == "I count from one."
    assert all(one == other for one, other in both)


def test_chat_stream_helper(client: OpenAI) -> None:
    """S41, S42, S47."""
    with client.chat.completions.stream(model=PAGE_MODEL, messages=ASK) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == "1, 2, 3"
    assert final.choices[0].message.content == "1, 2, 3"
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.total_tokens == 20


def test_chat_stream_helper_with_parallel_calls(client: OpenAI) -> None:
    """S24, S44, S45, S46."""
    with client.chat.completions.stream(model="calls", messages=ASK, tools=[CHAT_TOOL]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert final.choices[0].finish_reason == "tool_calls"
    assert [call.function.name for call in calls] == ["get_weather", "get_weather"]
    assert [json.loads(call.function.arguments) for call in calls] == CITIES
    assert len({call.id for call in calls}) == 2


def test_chat_calls_plain(client: OpenAI) -> None:
    """S46, plain."""
    answer = client.chat.completions.create(model="calls", messages=ASK, tools=[CHAT_TOOL])
    calls = answer.choices[0].message.tool_calls or []
    assert answer.choices[0].finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in calls if call.type == "function"] == CITIES


def test_chat_conversation_with_results(client: OpenAI, rig: Rig) -> None:
    """A second turn with the calls and their results reaches the provider whole (S155 in chat's words)."""
    answer = client.chat.completions.create(model="calls", messages=ASK, tools=[CHAT_TOOL])
    message = answer.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"{at} C"}
        for at, call in enumerate(message.tool_calls or [])
    ]
    again: Any = [*ASK, message.model_dump(exclude_none=True), *results]
    assert client.chat.completions.create(model=PAGE_MODEL, messages=again, tools=[CHAT_TOOL]).choices
    sent = rig.provider.last().raw.decode()
    assert '"0 C"' in sent
    assert '"1 C"' in sent


def test_chat_cut(client: OpenAI) -> None:
    """F1: length."""
    answer = client.chat.completions.create(model="cut", messages=ASK)
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("length", "1, 2")


def test_chat_cached_tokens(client: OpenAI) -> None:
    """S48, U2: cached tokens are inside prompt_tokens and named beside."""
    usage = client.chat.completions.create(model="cached", messages=ASK).usage
    assert usage is not None
    assert usage.prompt_tokens == 120
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 100


# -- responses


def test_responses_page_sample(client: OpenAI, capsys: pytest.CaptureFixture[str]) -> None:
    """S101, S159: the sample of the Responses page, as it stands there."""
    response = client.responses.create(
        model="step-3-7-flash:free",
        instructions="Kamu menjawab dengan singkat.",
        input="Halo!",
    )
    print(response.output_text)
    assert capsys.readouterr().out == "1, 2, 3\n"
    assert response.status == "completed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (14, 6)
    assert response.usage.input_tokens_details.cached_tokens == 0


def test_responses_page_follow_up(client: OpenAI, rig: Rig) -> None:
    """S158: the page's request with a call and its result."""
    follow_up: Any = [
        {"role": "user", "content": "Bagaimana cuaca di Jakarta?"},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Jakarta"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "31 C dan cerah"},
    ]
    response = client.responses.create(model=PAGE_MODEL, input=follow_up, tools=[TOOL])
    assert response.output_text == "1, 2, 3"
    assert "31 C dan cerah" in rig.provider.last().raw.decode()


def test_responses_create_streamed(client: OpenAI) -> None:
    """S78, S80, S86, S90, S160."""
    events = list(client.responses.create(model=PAGE_MODEL, input="Halo!", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events] == [
        "response.created",
        "response.output_item.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_item.done",
        "response.completed",
    ]
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "1, 2, 3"


def test_responses_stream_helper(client: OpenAI) -> None:
    """D1: the helper crashes when an announced message has no text part."""
    with client.responses.stream(model=PAGE_MODEL, input="Halo!") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == "1, 2, 3"


def test_responses_stream_helper_with_reasoning(client: OpenAI) -> None:
    """S23, S83, S94, S152, D5."""
    with client.responses.stream(model="thinks", input="Halo!") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds.count("response.reasoning_summary_text.delta") == REASONING_PIECES
    thought = final.output[0]
    assert isinstance(thought, ResponseReasoningItem)
    assert [part.text for part in thought.summary] == ["I count from one."]
    assert final.output_text == "1, 2, 3"


def test_responses_stream_helper_with_parallel_calls(client: OpenAI) -> None:
    """S26, S88, S96, S154."""
    with client.responses.stream(model="calls", input="Halo!", tools=[TOOL]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    calls = [item for item in final.output if isinstance(item, ResponseFunctionToolCall)]
    assert [json.loads(call.arguments) for call in calls] == CITIES
    assert len({call.call_id for call in calls}) == 2


def test_responses_conversation(client: OpenAI, rig: Rig) -> None:
    """S104, S138, S155: all that came goes back in `input`."""
    first = client.responses.create(model="talks-and-calls", input="Halo!", tools=[TOOL])
    call = next(item for item in first.output if isinstance(item, ResponseFunctionToolCall))
    history: Any = [
        {"role": "user", "content": "Halo!"},
        *[item.model_dump(exclude_none=True) for item in first.output],
        {"type": "function_call_output", "call_id": call.call_id, "output": "31 C"},
    ]
    assert client.responses.create(model=PAGE_MODEL, input=history, tools=[TOOL]).output_text == "1, 2, 3"
    sent = rig.provider.last().raw.decode()
    assert "31 C" in sent
    assert "Jakarta" in sent
    assert "I will look." in sent


def test_responses_cut(client: OpenAI) -> None:
    """S93, S156: cut by the limit, streamed and plain."""
    plain = client.responses.create(model="cut", input="Halo!")
    with client.responses.stream(model="cut", input="Halo!") as stream:
        streamed = stream.get_final_response()
    for response in (plain, streamed):
        assert response.status == "incomplete"
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"


# -- failures


@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_stream(client: OpenAI, stream: bool) -> None:
    """S17, E2, E5, E7: an HTTP error of the right class, streamed or not."""
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="refuses", messages=ASK, stream=stream)
    assert refused.value.code == "bad_request"
    with pytest.raises(openai.BadRequestError) as overflown:
        client.responses.create(model="overflows", input="Halo!", stream=stream)
    assert overflown.value.code == "context_length_exceeded"
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="limits", messages=ASK, stream=stream)
    assert limited.value.response.headers["retry-after"] == "1"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="nobody", input="Halo!", stream=stream)


def test_wrong_key(rig: Rig) -> None:
    """S17, S103, E1: refused at once and not tried again."""
    with OpenAI(base_url=rig.v1, api_key="kn-wrong") as stranger:
        before = len(rig.provider.seen)
        with pytest.raises(openai.AuthenticationError) as refused:
            stranger.chat.completions.create(model=PAGE_MODEL, messages=ASK)
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert len(rig.provider.seen) == before


@pytest.mark.parametrize("model", ["breaks", "fails"])
def test_chat_errors_in_the_stream(client: OpenAI, model: str) -> None:
    """S18, S31, S53: the SDK raises on a chunk with an error."""
    seen: list[str] = []
    stream = client.chat.completions.create(model=model, messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match="interrupted the response"):
        seen.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert "".join(seen) == "1, 2, 3"


@pytest.mark.parametrize("model", ["breaks", "fails"])
def test_responses_errors_in_the_stream(client: OpenAI, model: str) -> None:
    """S31, S91, S98: the last event tells; it carries the whole resource, so that nothing in the SDK trips over it."""
    events = list(client.responses.create(model=model, input="Halo!", stream=True))
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "stream_interrupted"
    assert last.response.output_text in ("", "1, 2, 3")


@pytest.mark.parametrize("model", ["breaks", "fails"])
def test_plain_answers_that_break_off(client: OpenAI, model: str) -> None:
    """E8."""
    with pytest.raises(openai.InternalServerError) as broken:
        client.chat.completions.create(model=model, messages=ASK)
    assert (broken.value.status_code, broken.value.code) == (502, "stream_interrupted")


# -- silence


def test_keepalive_comments_are_ignored(client: OpenAI, rig: Rig) -> None:
    """S15, S16: a provider that is silent for long; the SDK sees the same answer as without the comments."""
    body = {"model": "quiet", "messages": ASK, "stream": True}
    assert b": keepalive\n\n" in rig.gateway.call("/v1/chat/completions", body).body
    with client.chat.completions.stream(model="quiet", messages=ASK) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == "1, 2, 3"
    with client.responses.stream(model="quiet", input="Halo!") as responses:
        for _ in responses:
            pass
        assert responses.get_final_response().output_text == "1, 2, 3"


def test_models(client: OpenAI) -> None:
    """M1: the list and one entry, in OpenAI's shape."""
    names = [model.id for model in client.models.list()]
    assert PAGE_MODEL in names
    assert client.models.retrieve(PAGE_MODEL).id == PAGE_MODEL
