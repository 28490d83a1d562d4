"""A Messages client's request -> Request."""

import json
from typing import Any

import pytest
from messages_kit import FIXTURES, MINIMAL, SHARED, request

from kenari.core.errors import KenariError
from kenari.core.request import (
    CallPart,
    FilePart,
    Format,
    ImagePart,
    Notice,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    Served,
    TextPart,
    Thinking,
    ToolChoice,
)
from kenari.dialects.messages import MESSAGES

WHOLE = (FIXTURES / "request.json").read_bytes()
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": list(blocks)}]}


def parts(**members: Any) -> list[Part]:
    return request(**members).turns[-1].parts


def test_the_whole_request() -> None:
    """S58, S70, D12, D23: every part of the format, system prompt, system message in the conversation."""
    made = MESSAGES.decode_request(WHOLE)
    assert [turn.role for turn in made.turns] == ["system", "user", "system", "assistant", "user"]
    assert [turn.param for turn in made.turns][:3] == ["system", "messages[0]", "messages[1]"]
    assert [type(part) for part in made.turns[1].parts] == [TextPart, ImagePart, FilePart, FilePart]
    assert [type(part) for part in made.turns[3].parts] == [
        ReasoningPart,
        ReasoningPart,
        TextPart,
        CallPart,
        OpaquePart,
    ]
    assert made.stream
    assert (made.max_output, made.stop, made.parallel) == (1024, [b"END"], False)
    assert made.tool_choice == ToolChoice("auto")
    assert made.thinking == Thinking(budget=1000)
    assert bytes(made.sampling["temperature"]) == b"0.7"
    assert made.extra == ("service_tier", "context_management", "betas", "future_field")
    assert made.user is None  # D27: metadata goes to a Messages provider and nowhere else
    assert made.tools[0].strict is True
    assert made.tools[0].cache is not None


def test_parts_keep_their_words_and_source() -> None:
    """L10: texts travel escaped, arguments as the object that came."""
    made = MESSAGES.decode_request(WHOLE)
    said = made.turns[1].parts
    assert isinstance(said[0], TextPart)
    assert said[0].text == "Lihat café 😀".encode()
    assert isinstance(said[1], ImagePart)
    assert (said[1].media_type, said[1].data) == ("image/png", b"iVBORw0KGgo=")
    assert isinstance(said[2], FilePart)
    assert (said[2].filename, said[2].media_type, said[2].data) == (b"a.pdf", "application/pdf", b"JVBERi0=")
    assert isinstance(said[3], FilePart)
    assert said[3].text == b"isi"
    past = made.turns[3].parts
    assert isinstance(past[0], ReasoningPart)
    assert (past[0].text, past[0].proof, past[0].kind) == (b"Mari.", "c2ln", "signature")
    assert isinstance(past[1], ReasoningPart)
    assert (past[1].text, past[1].proof, past[1].kind) == (b"", "EmwK", "redacted")
    assert isinstance(past[3], CallPart)
    assert not past[3].quoted
    assert json.loads(past[3].arguments) == {"z": 1.0, "city": "Jakarta"}
    result = made.turns[4].parts[0]
    assert isinstance(result, ResultPart)
    assert result.is_error
    assert [type(part) for part in result.parts] == [TextPart, ImagePart]
    assert all(
        getattr(part, "raw", None) is not None
        for turn in made.turns[1:]
        for part in turn.parts[:1]
        if turn.role != "system"
    )


def test_an_empty_signature_is_accepted() -> None:
    """S70, D20."""
    made = parts(**assistant({"type": "thinking", "thinking": "a", "signature": ""}, {"type": "text", "text": "b"}))
    assert isinstance(made[0], ReasoningPart)
    assert (made[0].proof, made[0].kind) == ("", "mark")


def test_strings_and_nulls() -> None:
    """F2: null is absent; content and results may be strings."""
    made = request(
        system="be brief", tools=None, stream=None, thinking=None, max_tokens=None, metadata=None, top_p=None
    )
    assert made.turns[0].parts == [TextPart(b"be brief")]
    assert (made.tools, made.stream, made.thinking, made.max_output, made.sampling) == ([], False, None, None, {})
    result = parts(**user({"type": "tool_result", "tool_use_id": "t", "content": "31 C"}))[0]
    assert isinstance(result, ResultPart)
    assert result.parts == [TextPart(b"31 C")]
    assert not parts(**user({"type": "tool_result", "tool_use_id": "t", "content": None}))[0].parts  # type: ignore[union-attr]


def test_system_messages_anywhere() -> None:
    """D12: string or array."""
    made = request(
        messages=[
            {"role": "system", "content": "first"},
            {"role": "user", "content": "hi"},
            {"role": "system", "content": [{"type": "text", "text": "later"}]},
        ]
    )
    assert [turn.role for turn in made.turns] == ["system", "user", "system"]


def test_unknown_blocks_and_sources_are_opaque() -> None:
    """D12."""
    made = parts(
        **user(
            {"type": "search_result", "content": []},
            {"type": "image", "source": {"type": "file", "file_id": "f"}},
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
        )
    )
    assert [part.kind for part in made if isinstance(part, OpaquePart)] == ["search_result", "image", "document"]
    assert {part.dialect for part in made if isinstance(part, OpaquePart)} == {"messages"}


def test_a_document_of_texts() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    made = parts(**user({"type": "document", "source": {"type": "content", "content": content}}))[0]
    assert isinstance(made, FilePart)
    assert made.text == b"a\\nb"


def test_tool_references_load_their_tools() -> None:
    """D19: a reference becomes text, and the tool that it names is sent from then on."""
    tools = [TOOL, {**TOOL, "name": "g", "defer_loading": True}, {**TOOL, "name": "h", "defer_loading": True}]
    reference = {"type": "tool_reference", "tool_name": "g"}
    made = request(tools=tools, **user({"type": "tool_result", "tool_use_id": "t", "content": [reference]}))
    assert [(tool.name, tool.deferred) for tool in made.tools] == [("f", False), ("g", False), ("h", True)]
    assert json.loads(bytes(made.tools[1].raw or b"")) == {**TOOL, "name": "g"}
    turn = made.turns[0]
    assert turn.touched == {"content"}
    result = turn.parts[0]
    assert isinstance(result, ResultPart)
    assert result.parts == [TextPart(b"tool loaded: g")]
    assert result.raw is None


def test_a_vendors_search_is_ours_and_stand_ins_are_dropped() -> None:
    """D19, D9: what is dropped leaves a notice; the search is served where a backend is configured."""
    made = request(
        tools=[
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
            {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}},
            {"type": "custom", **TOOL},
            {"type": "function", **TOOL, "name": "g"},
        ],
        tool_choice={"type": "tool", "name": "web_search"},
    )
    assert [tool.name for tool in made.tools] == ["f", "g"]
    assert [notice.name for notice in made.notices] == ["DeferredToolPlaceholder"]
    assert made.served == [
        Served(kind="kenari:web_search", name="web_search", vendor="web_search_20250305", max_uses=8, param="tools[0]")
    ]
    assert all(isinstance(notice, Notice) and notice.why for notice in made.notices)
    assert made.tool_choice == ToolChoice("named", "web_search")


@pytest.mark.parametrize(
    ("choice", "mode", "parallel"),
    [
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "tool", "name": "f", "disable_parallel_tool_use": False}, ToolChoice("named", "f"), None),
    ],
)
def test_tool_choice(choice: dict[str, Any], mode: ToolChoice, parallel: bool | None) -> None:
    """S132, D27."""
    made = request(tools=[TOOL], tool_choice=choice)
    assert (made.tool_choice, made.parallel) == (mode, parallel)


@pytest.mark.parametrize(
    ("members", "wish"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, Thinking(budget=2048)),
        ({"thinking": {"type": "adaptive", "display": "updates"}}, Thinking(adaptive=True)),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, Thinking(effort="none")),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, Thinking(effort="max", adaptive=True)),
        ({"output_config": {"effort": "low"}}, Thinking(effort="low")),
        ({"output_config": {}}, None),
    ],
)
def test_thinking(members: dict[str, Any], wish: Thinking | None) -> None:
    """R1."""
    assert request(**members).thinking == wish


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_answer_format(place: str) -> None:
    """B077: under its name of today and of before."""
    form = {"type": "json_schema", "schema": {"type": "object", "const": 1}}
    made = request(**{place: {"format": form} if place == "output_config" else form}).format
    assert isinstance(made, Format)
    assert json.loads(bytes(made.schema or b"")) == {"type": "object", "const": 1}


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": 4}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 4}]}, "messages[0].content"),
    (user({"text": "x"}), "messages[0].content[0].type"),
    (user({"type": "text", "text": 4}), "messages[0].content[0].text"),
    (user({"type": "text"}), "messages[0].content[0].text"),
    (user({"type": "image"}), "messages[0].content[0].source"),
    (
        user({"type": "image", "source": {"type": "base64", "data": "x"}}),
        "messages[0].content[0].source.media_type",
    ),
    (user({"type": "document", "source": {"type": "url"}}), "messages[0].content[0].source.url"),
    (user({"type": "tool_use", "id": "a", "name": "f", "input": {}}), "messages[0].content[0].type"),
    (user({"type": "tool_result"}), "messages[0].content[0].tool_use_id"),
    (user({"type": "tool_result", "tool_use_id": "t", "content": [{}]}), "messages[0].content[0].content[0].type"),
    (assistant({"type": "tool_use", "name": "f"}), "messages[0].content[0].id"),
    (assistant({"type": "tool_use", "id": "a", "name": "f", "input": "x"}), "messages[0].content[0].input"),
    (assistant({"type": "redacted_thinking"}), "messages[0].content[0].data"),
    ({"system": 5}, "system"),
    ({"system": [{"type": "text"}]}, "system[0].text"),
    ({"stream": "yes"}, "stream"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_k": 1.5}, "top_k"),
    ({"stop_sequences": "END"}, "stop_sequences"),
    ({"stop_sequences": [1]}, "stop_sequences[0]"),
    ({"metadata": "x"}, "metadata"),
    ({"metadata": {"user_id": 4}}, "metadata.user_id"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
    ({"tools": [{"type": "kenari:web_serach"}]}, "tools[0].type"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": {"type": "some"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"thinking": {"type": "hard"}}, "thinking.type"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"output_config": {"effort": "extreme"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "yaml"}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
]


@pytest.mark.parametrize(("members", "param"), FAULTS)
def test_faults_are_named(members: dict[str, Any], param: str) -> None:
    """E1, S17, S19: a 400 with the dotted path of the field."""
    with pytest.raises(KenariError) as caught:
        request(**members)
    assert (caught.value.code, caught.value.param) == ("bad_request", param)
    assert caught.value.message[0].islower()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model":', b"\xff{}", b'{"a":' * 3000])
def test_bodies_that_are_no_json(body: bytes) -> None:
    """F2."""
    with pytest.raises(KenariError) as caught:
        MESSAGES.decode_request(body)
    assert caught.value.status == 400


def test_odd_but_legal_json() -> None:
    """F2: NUL, lone surrogates, duplicate keys, huge numbers, deep values that nobody reads."""
    deep: Any = {}
    for _ in range(400):
        deep = {"a": deep}
    body = json.dumps(MINIMAL | {"future": deep, "max_tokens": 10**40, "temperature": 1}).encode()
    body = body.replace(b'"hi"', b'"a\\u0000b\\ud83d"').replace(b'{"model"', b'{"model":"other","model"', 1)
    made = MESSAGES.decode_request(body)
    assert made.model == "kenari-test"
    assert made.max_output == 2**53
    assert made.turns[0].parts == [TextPart(b"a\\u0000b\\ufffd")]


def captures() -> list[Any]:
    folder = SHARED / "captures"
    out: list[Any] = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        capture = json.loads(path.read_bytes())
        if "/messages" in capture["path"] and capture.get("body"):
            out.append(pytest.param(capture["body"], id=path.stem))
    return out


@pytest.mark.skipif(not captures(), reason="the shared captures are not here")
@pytest.mark.parametrize("body", captures())
def test_real_clients_are_understood(body: dict[str, Any]) -> None:
    """D12: Claude Code, pi, OpenCode, SDKs."""
    made = MESSAGES.decode_request(json.dumps(body, ensure_ascii=False).encode())
    assert len(made.turns) == len(body["messages"]) + ("system" in body)
