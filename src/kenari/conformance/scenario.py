"""A scenario of `scenarios.toml`, and the request that it is in each format."""

import tomllib
from importlib import resources
from typing import Any, Literal, TypeAlias

import msgspec

from kenari.wire import jsonx

Format: TypeAlias = Literal["chat", "messages", "responses"]
FORMATS: tuple[Format, ...] = ("chat", "messages", "responses")
PATHS: dict[Format, str] = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
CALL_ID = "call_conformance1"
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFElEQVR4nGP8z4APMOGVZRip0gAzrgEN2lXcUwAAAABJRU5ErkJggg=="
"""A small red picture (PNG)."""
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {"get_weather": "The weather in a city.", "get_time": "The time in a city."}


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked, how, and what the answer is held to (see the file's head)."""

    id: str
    title: str
    prompt: str
    ask: Literal["stream", "plain", "both"]
    checks: tuple[str, ...]
    scripted: tuple[str, ...] = ()
    formats: tuple[Format, ...] = FORMATS
    tools: bool = False
    must_call: bool = False
    result: str = ""
    image: bool = False
    cap: int = 400
    effort: str = ""
    model: str = ""
    wrong_key: bool = False
    broken: bool = False
    only_scripted: bool = False
    slow: bool = False
    leavers: int = 0
    rests: bool = False

    @property
    def alone(self) -> bool:
        """Others would feel it: clients that leave, or a provider that is set aside for a while."""
        return bool(self.leavers) or self.rests

    @property
    def streams(self) -> tuple[bool, ...]:
        """Streamed, plain, or both."""
        return {"stream": (True,), "plain": (False,), "both": (True, False)}[self.ask]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    scenario: list[Scenario]


def scenarios() -> list[Scenario]:
    """All of the file, in order."""
    text = resources.files("kenari.conformance").joinpath("scenarios.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _File).scenario


def body_of(scenario: Scenario, form: Format, model: str, stream: bool) -> bytes:
    """The request's body."""
    body: dict[str, Any] = {"model": scenario.model or model, "stream": stream}
    body |= {"chat": _chat, "messages": _messages, "responses": _responses}[form](scenario)
    if scenario.broken:
        body["input" if form == "responses" else "messages"] = 7
    return jsonx.encode(body)


def headers_of(form: Format, key: str) -> dict[str, str]:
    """The headers that a client of this format sends."""
    headers = {"content-type": "application/json"}
    if form == "messages":
        return headers | {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return headers | {"authorization": f"Bearer {key}"}


def _chat(scenario: Scenario) -> dict[str, Any]:
    content: Any = scenario.prompt
    if scenario.image:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}}
        content = [picture, {"type": "text", "text": scenario.prompt}]
    turns: list[Any] = [{"role": "user", "content": content}]
    if scenario.result:
        function = {"name": "get_weather", "arguments": '{"city":"Jakarta"}'}
        call = {"id": CALL_ID, "type": "function", "function": function}
        turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        turns.append({"role": "tool", "tool_call_id": CALL_ID, "content": scenario.result})
    body: dict[str, Any] = {"messages": turns, "max_tokens": scenario.cap, "stream_options": {"include_usage": True}}
    if scenario.effort:
        body["reasoning_effort"] = scenario.effort
    if scenario.tools:
        body["tools"] = [{"type": "function", "function": _function(name, "parameters")} for name in TOOLS]
    if scenario.must_call:
        body["tool_choice"] = "required"
    return body


def _messages(scenario: Scenario) -> dict[str, Any]:
    content: Any = scenario.prompt
    if scenario.image:
        source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
        content = [{"type": "image", "source": source}, {"type": "text", "text": scenario.prompt}]
    turns: list[Any] = [{"role": "user", "content": content}]
    if scenario.result:
        call = {"type": "tool_use", "id": CALL_ID, "name": "get_weather", "input": {"city": "Jakarta"}}
        turns.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": CALL_ID, "content": scenario.result}
        turns.append({"role": "user", "content": [result]})
    body: dict[str, Any] = {"messages": turns, "max_tokens": scenario.cap}
    if scenario.effort:
        body |= {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    if scenario.tools:
        body["tools"] = [_function(name, "input_schema") for name in TOOLS]
    if scenario.must_call:
        body["tool_choice"] = {"type": "any"}
    return body


def _responses(scenario: Scenario) -> dict[str, Any]:
    content: Any = scenario.prompt
    if scenario.image:
        picture = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{IMAGE}"}
        content = [picture, {"type": "input_text", "text": scenario.prompt}]
    items: list[Any] = [{"type": "message", "role": "user", "content": content}]
    if scenario.result:
        call = {"type": "function_call", "call_id": CALL_ID, "name": "get_weather", "arguments": '{"city":"Jakarta"}'}
        items += [call, {"type": "function_call_output", "call_id": CALL_ID, "output": scenario.result}]
    body: dict[str, Any] = {"input": items, "max_output_tokens": scenario.cap, "store": False}
    if scenario.effort:
        body["reasoning"] = {"effort": scenario.effort, "summary": "auto"}
    if scenario.tools:
        body["tools"] = [{"type": "function", "strict": False, **_function(name, "parameters")} for name in TOOLS]
    if scenario.must_call:
        body["tool_choice"] = "required"
    return body


def _function(name: str, schema: str) -> dict[str, Any]:
    return {"name": name, "description": TOOLS[name], schema: CITY}
