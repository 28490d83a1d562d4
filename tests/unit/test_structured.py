"""Structured output from end to end: JSON is enforced, checked, asked for once more, or refused; never ignored."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pytest
from gateway_kit import DONE, FORMATS, ROLE, Rig, Script, chunk, plain

from kenari.core.events import Open, Stop, Text
from kenari.core.profile import Profile
from kenari.core.request import Format
from kenari.dialects.responses.dialect import ResponsesDialect
from kenari.gateway import schema
from kenari.gateway.schema import make_check
from kenari.gateway.shape import Shape, best_json
from kenari.wire import jsonx

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["city", "n"],
    "additionalProperties": False,
}
GOOD = '{"city": "Bandung", "n": 3}'
BAD = '{"city": "Bandung"}'
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
MEEK = Profile(response_format="none", tool_choice_required=False)
FUNCTION = Profile(response_format="none")


def asking(client: str) -> dict[str, Any]:
    """The wish in each client's words."""
    if client == "chat":
        wanted = {"name": "place", "schema": SCHEMA, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": wanted}}
    if client == "messages":
        return {"max_tokens": 100, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    return {"text": {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA}}}


def text_of(client: str, answer: Any) -> str:
    """The text of a plain answer."""
    if client == "chat":
        return answer["choices"][0]["message"]["content"]
    if client == "messages":
        return "".join(block.get("text", "") for block in answer["content"])
    return "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])


def deltas_of(client: str, frames: list[Any]) -> list[str]:
    """The pieces of text of a stream."""
    out: list[str] = []
    for frame in frames:
        if frame == "[DONE]":
            continue
        if client == "chat" and frame.get("choices"):
            out.append(frame["choices"][0]["delta"].get("content") or "")
        elif client == "messages" and frame["type"] == "content_block_delta":
            out.append(frame["delta"].get("text", ""))
        elif client == "responses" and frame["type"] == "response.output_text.delta":
            out.append(frame["delta"])
    return [piece for piece in out if piece]


def says(*pieces: str, finish: str = "stop") -> Script:
    """A stream of text."""
    steps: list[Any] = [(0, ROLE), *((0, chunk({"content": piece})) for piece in pieces)]
    return Script([*steps, (0, chunk({}, finish, usage=USAGE) + DONE), (0, None)])


def calls(*pieces: str, name: str = "place") -> Script:
    """A stream of a call."""
    opening = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": ""}}
    steps: list[Any] = [(0, ROLE), (0, chunk({"tool_calls": [opening]}))]
    steps += [(0, chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})) for piece in pieces]
    return Script([*steps, (0, chunk({}, "tool_calls", usage=USAGE) + DONE), (0, None)])


def completion(text: str) -> Script:
    message = {"role": "assistant", "content": text}
    return plain({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE})


def rig(*scripts: Script, profile: Profile = MEEK) -> Rig:
    made = Rig(list(scripts), profile=profile)
    made.services = {"dialects": {"responses": ResponsesDialect(formats=True)}}
    return made


@pytest.mark.parametrize("client", FORMATS)
def test_a_forced_function_becomes_the_answer_and_keeps_streaming(client: str) -> None:
    name = "place" if client != "messages" else "response"
    made = rig(calls('{"city": "Ban', 'dung", ', '"n": 3}', name=name), profile=FUNCTION)
    answer = made.ask(client, **asking(client))
    pieces = deltas_of(client, answer.data)
    assert len(pieces) == 3
    assert json.loads("".join(pieces)) == json.loads(GOOD)
    (sent,) = made.upstream.sent
    assert sent["tool_choice"] == {"type": "function", "function": {"name": name}}
    assert sent["tools"][0]["function"]["parameters"] == SCHEMA
    assert not {"response_format", "output_config", "text"} & sent.keys()
    if client == "chat":
        assert [frame["choices"][0]["finish_reason"] for frame in answer.data[-2:-1]] == ["stop"]
        assert "tool_calls" not in answer.out.decode()
    assert made.books.lines[0].ending == "done"


@pytest.mark.parametrize("client", FORMATS)
def test_words_are_checked_and_a_wrong_answer_is_asked_for_once_more(client: str) -> None:
    """One repair round, billed: the client's usage is that of both calls (L7)."""
    made = rig(completion(BAD), completion(f"Sure:\n```json\n{GOOD}\n```"))
    answer = made.ask(client, stream=False, **asking(client))
    assert answer.status == 200
    assert json.loads(text_of(client, answer.json)) == json.loads(GOOD)
    first, second = made.upstream.sent
    assert json.dumps(SCHEMA["required"]) in json.dumps(first["messages"][0]).replace("\\", "")
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert [message["role"] for message in second["messages"][-2:]] == ["assistant", "user"]
    assert "n" in second["messages"][-1]["content"]
    (line,) = made.books.lines
    assert [leg.outcome for leg in line.legs] == ["ok", "ok"]
    assert (line.usage.fresh, line.usage.output) == (18, 6)
    usage = answer.json["usage"]
    assert (usage.get("prompt_tokens") or usage.get("input_tokens")) == 18


@pytest.mark.parametrize("client", FORMATS)
def test_an_answer_that_stays_wrong_is_an_error(client: str) -> None:
    made = rig(completion("I cannot."), completion("Still not."))
    answer = made.ask(client, stream=False, **asking(client))
    assert answer.status == 502
    assert "JSON" in answer.json["error"]["message"]
    assert len(made.upstream.requests) == 2


@pytest.mark.parametrize("client", FORMATS)
def test_a_stream_in_words_flows_from_where_its_json_begins(client: str) -> None:
    """The first piece goes out before the provider has finished; the fence does not."""
    slow = [(0, ROLE), (0, chunk({"content": "```json\n"})), (0, chunk({"content": '{"city": "Ban'}))]
    rest = [(0.3, chunk({"content": 'dung", "n": 3}\n``'})), (0, chunk({"content": "`\n"}))]
    seen: list[str] = []
    made = rig(Script([*slow, *rest, (0, chunk({}, "stop", usage=USAGE) + DONE), (0, None)]))
    answer = made.ask(client, act=lambda exchange: seen.extend(deltas_of(client, exchange.data)), **asking(client))
    assert seen == ['{"city": "Ban']
    assert "".join(deltas_of(client, answer.data)) == GOOD


@pytest.mark.parametrize("client", FORMATS)
def test_a_stream_that_begins_with_other_words_is_kept_and_mended(client: str) -> None:
    made = rig(says("Let me ", "think. No JSON."), says(GOOD))
    answer = made.ask(client, **asking(client))
    assert "".join(deltas_of(client, answer.data)) == GOOD
    made = rig(says("Here you are: ", GOOD, " Bye."))
    assert "".join(deltas_of(client, made.ask(client, **asking(client)).data)) == GOOD


@pytest.mark.parametrize("client", FORMATS)
def test_a_wrong_stream_that_was_seen_ends_in_an_error_not_in_success(client: str) -> None:
    answer = rig(says('{"city": ', '"x"}')).ask(client, **asking(client))
    text = answer.out.decode()
    assert "is not the JSON that was asked for" in text
    assert "message_stop" not in text
    assert "response.completed" not in text
    if client == "chat":
        assert answer.data[-1] == "[DONE]"
        assert answer.data[-2]["error"]["code"] == "upstream_error"


def test_a_cut_answer_is_passed_on_as_cut() -> None:
    """Providers that enforce a schema do the same: the finish reason says why it is no JSON."""
    answer = rig(says('{"city": "Ba', finish="length")).ask("chat", **asking("chat"))
    assert "".join(deltas_of("chat", answer.data)) == '{"city": "Ba'
    assert answer.data[-2]["choices"][0]["finish_reason"] == "length"


def test_a_client_that_calls_its_own_tool_is_not_checked() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    answer = rig(calls("{}", name="f"), profile=FUNCTION).ask("chat", tools=tools, **asking("chat"))
    assert answer.data[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_json_object_in_words() -> None:
    made = rig(completion("[1]"), completion('{"a": 1}'))
    answer = made.ask("chat", stream=False, response_format={"type": "json_object"})
    assert answer.json["choices"][0]["message"]["content"] == '{"a": 1}'


def test_a_native_format_is_left_to_its_provider() -> None:
    made = rig(says(BAD), profile=Profile(response_format="json_schema"))
    answer = made.ask("chat", **asking("chat"))
    assert "".join(deltas_of("chat", answer.data)) == BAD
    assert made.upstream.sent[0]["response_format"]["json_schema"]["schema"] == SCHEMA


WISH = {"chat": "response_format", "messages": "output_config.format", "responses": "text.format"}


@pytest.mark.parametrize("client", FORMATS)
def test_d9_a_provider_that_ignores_the_wish_is_told_of(client: str) -> None:
    """D9: servers that do not know the wish ignore it without a word; the answer's header and the line do not."""
    made = rig(completion("A colour."), profile=Profile())
    answer = made.ask(client, stream=False, **asking(client))
    assert made.upstream.sent[0]["response_format"]["json_schema"]["schema"] == SCHEMA
    assert text_of(client, answer.json) == "A colour."
    assert answer.header["x-kenari-ignored"] == WISH[client]
    assert [notice.name for notice in made.books.lines[0].notices] == [WISH[client]]
    answer = rig(says("A ", "colour."), profile=Profile()).ask(client, **asking(client))
    assert "".join(deltas_of(client, answer.data)) == "A colour."
    assert answer.header["x-kenari-ignored"] == WISH[client]
    made = rig(says(GOOD[:5], GOOD[5:]), profile=Profile())
    good = made.ask(client, **asking(client))
    assert deltas_of(client, good.data) == [GOOD[:5], GOOD[5:]]
    assert "x-kenari-ignored" not in good.header
    assert len(made.upstream.sent) == 1


@pytest.mark.parametrize("client", FORMATS)
def test_where_no_header_can_say_it_any_more_a_wrong_answer_is_an_error(client: str) -> None:
    answer = rig(says('{"city": ', '"x"}'), profile=Profile()).ask(client, **asking(client))
    assert "is not the JSON that was asked for" in answer.out.decode()
    made = rig(Script([(0, ROLE), (0.3, chunk({"content": "Prose."}, "stop", usage=USAGE) + DONE), (0, None)]))
    made.profile, made.silence = Profile(), (0.05, 120.0)
    late = made.ask(client, **asking(client))
    assert b": keepalive" in late.out
    assert b"Prose" not in late.out
    assert "did not answer in the JSON" in late.out.decode()


def test_a_provider_is_not_doubted_where_it_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library, for a schema that only the provider understands, and where logprobs are wanted."""
    odd: dict[str, Any] = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"pattern": "(?=a)b"}}}
    }
    assert "".join(deltas_of("chat", rig(says("b"), profile=Profile()).ask("chat", **odd).data)) == "b"
    probs = rig(says(BAD), profile=Profile()).ask("chat", logprobs=True, **asking("chat"))
    assert "".join(deltas_of("chat", probs.data)) == BAD
    monkeypatch.setattr(schema, "_LIBRARY", "kenari_no_such_library")
    assert "".join(deltas_of("chat", rig(says(BAD), profile=Profile()).ask("chat", **asking("chat")).data)) == BAD


def test_a_function_that_was_not_called_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing can be checked: words instead of the forced call are asked for again, then refused."""
    monkeypatch.setattr(schema, "_LIBRARY", "kenari_no_such_library")
    made = rig(completion("A colour."), completion("A colour."), profile=FUNCTION)
    answer = made.ask("chat", stream=False, **asking("chat"))
    assert (answer.status, "function was not called" in answer.json["error"]["message"]) == (502, True)
    assert len(made.upstream.requests) == 2


def test_s126_json_on_responses_only_where_the_operator_allows_it() -> None:
    """S126: refused unless `responses_formats` is set; then the object shows the format."""
    made = Rig(says(GOOD))
    refused = made.ask("responses", **asking("responses"))
    assert (refused.status, refused.json["error"]["param"]) == (400, "text.format")
    assert made.upstream.requests == []
    answer = rig(completion(GOOD), profile=Profile()).ask("responses", stream=False, **asking("responses"))
    assert answer.json["text"]["format"]["schema"] == SCHEMA


def test_what_cannot_be_checked_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library an instruction alone would be a promise that nobody keeps."""
    monkeypatch.setattr(schema, "_LIBRARY", "kenari_no_such_library")
    made = rig(completion(GOOD))
    answer = made.ask("chat", stream=False, **asking("chat"))
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request")
    assert "kenari[schema]" in answer.json["error"]["message"]
    assert made.upstream.requests == []
    forced = rig(calls(GOOD), profile=FUNCTION)
    assert forced.ask("chat", **asking("chat")).status == 200


@pytest.mark.parametrize(
    "wrong", [{"type": "nonsense"}, {"$ref": "http://169.254.169.254/x"}, {"pattern": "(?=a)b"}, {"$ref": "#/nowhere"}]
)
def test_a_schema_that_cannot_be_used_is_the_clients_fault(wrong: dict[str, Any]) -> None:
    """A reference to an address is not followed from here."""
    wanted = {"name": "x", "schema": wrong}
    answer = rig(completion(GOOD)).ask(
        "chat", stream=False, response_format={"type": "json_schema", "json_schema": wanted}
    )
    assert (answer.status, answer.json["error"]["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (' {"a": 1} ', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ("x\n```\n[1]\n```\ny", "[1]"),
        ('so {"a": {"b": 1}} it is', '{"a": {"b": 1}}'),
        ("none", "none"),
        ("", ""),
    ],
)
def test_json_is_found_in_words(text: str, found: str) -> None:
    assert best_json(text) == found


def test_a_schema_fault_names_the_place() -> None:
    wanted = Format("json_schema", schema=json.dumps(SCHEMA).encode())  # pyright: ignore[reportArgumentType]
    check = make_check(wanted)
    assert check(GOOD) is None
    assert "(at n)" in (check('{"city": "x", "n": "y"}') or "")
    assert "not valid JSON" in (check("{") or "")


def test_a_shape_takes_one_answer_only() -> None:
    assert Shape("f", True, None).finish(None) == ([], "it is empty")


@pytest.mark.parametrize("piece", ["ab", " ", "`", "\n"])
def test_a_long_answer_in_words_costs_as_much_for_each_piece_as_a_short_one(piece: str) -> None:
    """A model that goes on with spaces is a usual way for JSON to fail: no stream of others may wait for it."""
    shape = Shape("", flow=True, check=None)
    began = time.process_time()
    shape.take([Open(0, "text"), Text(0, jsonx.escape('{"a":"'))])
    for _ in range(15_000):
        shape.take([Text(0, jsonx.escape(piece))])  # what it lets out at once is not looked at
    out = shape.take([Text(0, jsonx.escape('x"}  '))])
    rest, fault = shape.finish(Stop("stop", "stop"))
    assert time.process_time() - began < 5  # it took minutes when the whole text was looked at for each piece
    text = "".join(jsonx.unescape(event.delta) for event in [*out, *rest] if isinstance(event, Text))
    assert fault is None
    assert text.endswith('x"}') if piece == "ab" else text == piece * 15_000 + 'x"}'


def chained(count: int, step: Step) -> dict[str, Any]:
    """Definitions that each refer to the next one by `step`."""
    made = {f"d{number}": step({"$ref": f"#/$defs/d{number + 1}"}) for number in range(count)}
    return {"$defs": made | {f"d{count}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def recursive(step: Step) -> dict[str, Any]:
    """A definition that stands in itself."""
    return {"$defs": {"node": step({"$ref": "#/$defs/node"})}, "$ref": "#/$defs/node"}


ENDLESS: dict[str, dict[str, Any]] = {
    "twice at one place": chained(40, lambda ref: {"allOf": [ref, ref]}),
    "twice in one member": recursive(lambda ref: {"allOf": [{"properties": {"a": ref}}, {"properties": {"a": ref}}]}),
    "a member and all members": recursive(lambda ref: {"properties": {"a": ref}, "patternProperties": {"": ref}}),
    "elements, twice": recursive(lambda ref: {"anyOf": [{"items": ref}, {"items": ref}, {"type": "string"}]}),
    "members not seen yet": chained(30, lambda ref: {"allOf": [ref], "unevaluatedProperties": False}),
    "itself": recursive(lambda ref: {"anyOf": [ref]}),
    "by a name": {
        "$ref": "#name",
        "$defs": {"x": {"$anchor": "name", "allOf": [{"$ref": "#name"}, {"$ref": "#name"}]}},
    },
    "while it is checked": {"$dynamicRef": "#node"},
    "patterns": {"properties": {f"a{number}": {"pattern": "^(a{1,90}b){1,20}$"} for number in range(4000)}},
}
OBJECT: dict[str, Any] = {"type": "object"}


def operator(name: str, operand: dict[str, Any]) -> dict[str, Any]:
    """One kind of expression."""
    return OBJECT | {"properties": {name: operand}, "required": [name]}


USUAL: dict[str, tuple[dict[str, Any], str, str]] = {
    "a list": (
        recursive(lambda ref: OBJECT | {"properties": {"next": ref, "value": {"type": "integer"}}}),
        '{"next": {"value": 3}}',
        '{"next": {"value": "x"}}',
    ),
    "a tree": (
        recursive(lambda ref: OBJECT | {"properties": {"left": ref, "right": ref}}),
        '{"left": {"right": {}}}',
        '{"left": {"right": 3}}',
    ),
    "elements": (
        recursive(lambda ref: OBJECT | {"properties": {"children": {"type": "array", "items": ref}}}),
        '{"children": [{}]}',
        '{"children": [3]}',
    ),
    "an expression": (
        recursive(
            lambda ref: {
                "anyOf": [
                    operator("and", {"type": "array", "items": ref}),
                    operator("or", {"type": "array", "items": ref}),
                    operator("not", ref),
                    {"type": "string"},
                ]
            }
        ),
        '{"and": ["x", {"not": "y"}]}',
        '{"and": ["x", {"not": 3}]}',
    ),
    "many kinds": (
        {"anyOf": [OBJECT | {"properties": {"kind": {"const": number}}} for number in range(500)]},
        '{"kind": 3}',
        '{"kind": 500}',
    ),
    "definitions in a row": (
        chained(200, lambda ref: OBJECT | {"properties": {"a": ref}}),
        '{"a": {"a": {}}}',
        '{"a": {"a": 3}}',
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_schema_that_would_hold_up_everybody_is_not_used_here(name: str) -> None:
    """Words alone do not hold a model to it: 400. A provider that understands schemas gets it, unchecked."""
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": ENDLESS[name]}}
    began = time.process_time()
    refused = Rig(completion(GOOD), profile=MEEK).ask("chat", stream=False, response_format=wanted)
    assert (refused.status, refused.json["error"]["param"]) == (400, "response_format")
    assert "cannot be used" in refused.json["error"]["message"]
    passed = Rig(completion(GOOD)).ask("chat", stream=False, response_format=wanted)
    assert (passed.status, text_of("chat", passed.json)) == (200, GOOD)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", USUAL)
def test_schemas_that_stand_in_themselves_are_checked_as_ever(name: str) -> None:
    wanted, right, wrong = USUAL[name]
    check = make_check(Format("json_schema", schema=msgspec.Raw(json.dumps(wanted).encode())))
    assert check(right) is None
    assert check(wrong) is not None
