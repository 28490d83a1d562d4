"""A Responses client's request -> Request: what real clients send, and what is refused with its place."""

import contextlib
import json
from typing import Any

import pytest
from responses_kit import SHARED, request, sent, target

from kenari.core.errors import KenariError
from kenari.core.profile import Profile
from kenari.core.request import CallPart, ImagePart, ReasoningPart, ResultPart, TextPart, ToolChoice
from kenari.dialects.responses import RESPONSES
from kenari.dialects.responses.packed import ASKED

INNER = {"type": "function", "name": "read", "description": "reads", "parameters": {"type": "object"}}


def refused(**members: Any) -> KenariError:
    with pytest.raises(KenariError) as caught:
        request(**members)
    return caught.value


def one(item: dict[str, Any]) -> Any:
    """The only part of the only turn that an item makes."""
    ((part,),) = [turn.parts for turn in request(input=[item]).turns]
    return part


def test_the_pages_follow_up() -> None:
    """S104, S136, S137, S154, S155, S158: the page's own request, to a provider of each format."""
    made = request(
        input=[
            {"role": "user", "content": "Bagaimana cuaca di Jakarta?"},
            {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Jakarta"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "31 C dan cerah"},
        ],
        tools=[
            {
                "type": "function",
                "name": "get_weather",
                "description": "Ambil cuaca saat ini untuk sebuah kota.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            }
        ],
    )
    chat = sent(made, target("chat"))["messages"]
    assert [message["role"] for message in chat] == ["user", "assistant", "tool"]
    assert chat[1]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Jakarta"}'}
    assert (chat[2]["tool_call_id"], chat[2]["content"]) == ("call_1", "31 C dan cerah")
    messages = sent(made, target("messages"))["messages"]
    assert messages[1]["content"][0]["input"] == {"city": "Jakarta"}
    assert [item.get("type") for item in sent(made)["input"]] == [None, "function_call", "function_call_output"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": [{"role": "user", "content": None}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": {"url": "x"}}]}]},
        "input[0].content[0].image_url",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]},
        "input[0].content[0].file_id",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x"}]}]},
        "input[0].content[0].image_url",
    ),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
    ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": {}}]}, "input[0].output"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file"}]}]},
        "input[0].output[0].type",
    ),
    ({"input": [{"type": "reasoning", "summary": "x", "content": [5]}, {}]}, "input[1].role"),
    ({"input": [{"type": 7}]}, "input[0].type"),
    ({"input": [{"role": "user", "content": "x"}, {"role": "tool", "content": "x"}]}, "input[1].role"),
    ({"tools": [{}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
    ({"text": "json"}, "text"),
    ({"text": {"format": "text"}}, "text.format"),
    ({"text": {"format": {}}}, "text.format"),
    ({"tool_choice": {"type": "custom", "name": "x"}}, "tool_choice"),
    ({"tool_choice": {"type": ["function"], "name": "x"}}, "tool_choice.type"),
    ({"tool_choice": True}, "tool_choice"),
    ({"reasoning": {"effort": 3}}, "reasoning.effort"),
    ({"max_output_tokens": "many"}, "max_output_tokens"),
    ({"previous_response_id": ""}, "previous_response_id"),
]


@pytest.mark.parametrize(("members", "param"), REFUSED)
def test_refusals_name_the_field(members: dict[str, Any], param: str) -> None:
    """S105, S119, S121, S126, S134-S137, S141-S146, S166-S172, E1: 400 bad_request with a dotted path."""
    error = refused(**members)
    assert (error.status, error.code, error.param) == (400, "bad_request", param)
    assert error.message.isascii()
    assert error.message[:1].islower()


def test_s173_is_not_this_rooms_but_a_model_is_required() -> None:
    """S108: missing, null and other types."""
    for body in (b'{"input":"x"}', b'{"input":"x","model":null}', b'{"input":"x","model":["m"]}'):
        with pytest.raises(KenariError) as caught:
            RESPONSES.decode_request(body)
        assert caught.value.param == "model"


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"{", b'{"model":"m","input":"\xff"}', b'{"a":' + b"[" * 2000])
def test_bodies_that_are_no_request(body: bytes) -> None:
    """F2: never anything but a 400."""
    with pytest.raises(KenariError) as caught:
        RESPONSES.decode_request(body)
    assert caught.value.status == 400


def test_deep_containers_of_tools_are_no_danger() -> None:
    """D18 knows one level; deeper ones are dropped by name."""
    tool: dict[str, Any] = INNER
    for _ in range(40):
        tool = {"type": "namespace", "name": "n", "tools": [tool]}
    made = request(tools=[tool])
    assert made.tools == []
    assert [notice.name for notice in made.notices] == ["namespace"]
    deep = b'{"type":"namespace","name":"n","tools":[' * 1000 + b"]}" * 1000
    with contextlib.suppress(KenariError):  # how deep is too deep depends on the interpreter
        assert RESPONSES.decode_request(b'{"model":"m","input":"x","tools":[' + deep + b"]}").tools == []


def test_legal_json_passes() -> None:
    """F2: NUL and lone surrogates, escaped."""
    made = RESPONSES.decode_request(rb'{"model":"m","input":"a\u0000\ud83d","instructions":"\udc00"}')
    body = sent(made)
    assert body["input"][0] == "a"
    assert body["input"].startswith("a\x00")


def test_strings_are_messages_of_the_user() -> None:
    """S111, S113: and instructions come first, then leading developer items (S139)."""
    made = request(
        instructions="A",
        input=[
            {"role": "developer", "content": "B"},
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "C"}]},
            {"role": "user", "content": "D"},
            {"role": "developer", "content": "E"},
        ],
    )
    assert [turn.role for turn in made.turns] == ["system", "system", "system", "user", "system"]
    messages = sent(made, target("chat"))["messages"]
    assert (messages[0]["role"], messages[0]["content"]) == ("system", "A\n\nB\n\nC")
    assert messages[-1]["content"] == "E"
    assert [turn.role for turn in request(input="hi").turns] == ["user"]


@pytest.mark.parametrize(
    ("item", "kind", "name", "arguments"),
    [
        ({"type": "custom_tool_call", "call_id": "c", "name": "apply", "input": "a\nb"}, "custom", "apply", b"a\\nb"),
        (
            {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}},
            "object",
            "local_shell",
            b'{"type": "exec", "command": ["ls"]}',
        ),
        (
            {"type": "tool_search_call", "call_id": "c", "arguments": {"query": "x"}},
            "object",
            "tool_search",
            b'{"query": "x"}',
        ),
        ({"type": "tool_search_call", "call_id": "c", "arguments": "{}"}, "text", "tool_search", b"{}"),
    ],
)
def test_d26_call_kinds_that_clients_replay(item: dict[str, Any], kind: str, name: str, arguments: bytes) -> None:
    """D26: they stay in the history as function calls."""
    part = one(item)
    assert isinstance(part, CallPart)
    assert (part.call_id, part.name, part.arguments) == ("c", name, arguments)
    assert (part.custom, part.quoted) == (kind == "custom", kind != "object")


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}, "ok"),
        ({"type": "local_shell_call_output", "id": "c", "output": '{"stdout":"x"}'}, '{"stdout":"x"}'),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": {"a": 1}}, '{"a": 1}'),
        ({"type": "tool_search_output", "call_id": "c", "tools": []}, "[]"),
    ],
)
def test_d26_outputs(item: dict[str, Any], text: str) -> None:
    """D26."""
    part = one(item)
    assert isinstance(part, ResultPart)
    ((inner),) = part.parts
    assert isinstance(inner, TextPart)
    assert (part.call_id, json.loads(b'"' + inner.text + b'"')) == ("c", text)


def test_a_whole_history_of_replayed_calls_reaches_chat() -> None:
    """D26, D27: calls with results, in their order, with names that all providers take."""
    made = request(
        input=[
            {"role": "user", "content": "go"},
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply", "input": 'say "hi"'},
            {"type": "local_shell_call", "call_id": "c2", "action": {"command": ["ls"]}},
            {"type": "function_call", "call_id": "c3", "name": "read", "namespace": "mcp__x", "arguments": "{}"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
            {"type": "local_shell_call_output", "call_id": "c2", "output": "x"},
            {"type": "function_call_output", "call_id": "c3", "output": "y"},
        ],
        tools=[{"type": "namespace", "name": "mcp__x", "tools": [INNER]}],
    )
    body = sent(made, target("chat"))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "tool", "tool"]
    made_calls = [call["function"] for call in body["messages"][1]["tool_calls"]]
    assert json.loads(made_calls[0]["arguments"]) == {"input": 'say "hi"'}
    assert json.loads(made_calls[1]["arguments"]) == {"command": ["ls"]}
    assert made_calls[2]["name"] == body["tools"][0]["function"]["name"]


def test_d18_tools_in_input_items() -> None:
    """D18: additional_tools and what a tool search found are merged into the tools, each once."""
    made = request(
        tools=[INNER],
        input=[
            {"type": "additional_tools", "role": "developer", "tools": [INNER, {"type": "custom", "name": "exec"}]},
            {"role": "user", "content": "hi"},
            {"type": "tool_search_call", "call_id": "c", "arguments": {}},
            {
                "type": "tool_search_output",
                "call_id": "c",
                "tools": [{"type": "namespace", "name": "mcp__y", "tools": [INNER]}],
            },
        ],
    )
    assert [(tool.namespace, tool.name, tool.custom) for tool in made.tools] == [
        (None, "read", False),
        (None, "exec", True),
        ("mcp__y", "read", False),
    ]


def test_s117_other_kinds_are_dropped_by_name() -> None:
    """S117, D9, D10, S140: tools and items, without an error whatever they look like."""
    made = request(
        tools=[{"type": "web_search"}, {"type": "mcp", "name": 5}, {"type": "custom"}, {"type": "custom", "name": 1}],
        input=[{"type": "compaction", "role": 7}, {"role": "user", "content": "hi"}],
    )
    assert made.tools == []
    assert [notice.name for notice in made.notices] == ["web_search", "mcp", "custom", "custom", "compaction"]
    assert "tools" not in sent(made)


def test_d10_freeform_tools_where_a_model_takes_them() -> None:
    """D10: as a function with one string argument."""
    made = request(tools=[{"type": "custom", "name": "apply", "description": "d", "format": {"type": "grammar"}}])
    assert "tools" not in sent(made)
    (tool,) = sent(made, target(custom_tools=True))["tools"]
    assert (tool["type"], tool["name"], tool["description"]) == ("function", "apply", "d")
    assert tool["parameters"]["required"] == ["input"]


def test_d17_references() -> None:
    """D17: to reasoning dropped, to all else refused."""
    items = [{"type": "item_reference", "id": "rs_1"}, {"role": "user", "content": "hi"}]
    assert [turn.role for turn in request(input=items).turns] == ["user"]
    for identity in ("msg_1", "fc_1", "", None):
        assert "store: false" in refused(input=[{"type": "item_reference", "id": identity}]).message


def test_d17_a_reference_needs_no_type() -> None:
    """D17: the specification lets it be null or absent."""
    for head in ({"type": None}, {}):
        assert len(request(input=[{**head, "id": "rs_1"}, {"role": "user", "content": "hi"}]).turns) == 1
        assert "store: false" in refused(input=[{**head, "id": "msg_1"}]).message


def test_only_the_last_item_asks_for_notes() -> None:
    """A question that has its notes behind it is over: what comes after is an ordinary turn."""
    trigger: dict[str, Any] = {"type": "compaction_trigger"}
    hello = {"role": "user", "content": "hi"}
    notes = {"type": "compaction", "encrypted_content": "kncompact1.aGk="}
    made = request(input=[hello, trigger, notes, hello])
    assert ASKED not in made.fields
    assert [turn.param for turn in made.turns] == ["input[0]", "input[2]", "input[3]"]
    made = request(input=[hello, trigger, notes, trigger])
    assert ASKED in made.fields
    assert [turn.param for turn in made.turns] == ["input[0]", "input[2]", "input[3]"]


def test_reasoning_items() -> None:
    """S138, R3, D5: the summary, else the text; the proof as it came; null is absent."""
    part = one(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
            "content": None,
            "encrypted_content": "kn1.abc",
        }
    )
    assert isinstance(part, ReasoningPart)
    assert (part.text, part.proof, part.item_id) == (b"a\\n\\nb", "kn1.abc", "rs_1")
    part = one({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "c"}]})
    assert isinstance(part, ReasoningPart)
    assert (part.text, part.proof) == (b"c", "")


def test_d11_images_in_results() -> None:
    """D11, A24: Codex's view_image."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,QQ==", "detail": "high"}
    part = one({"type": "function_call_output", "call_id": "c", "output": [image]})
    assert isinstance(part, ResultPart)
    (inner,) = part.parts
    assert isinstance(inner, ImagePart)
    assert (inner.media_type, inner.data, inner.detail) == ("image/png", b"QQ==", "high")


def test_s146_unknown_parts_of_the_model_are_dropped() -> None:
    """S142, S146."""
    made = request(
        input=[
            {
                "role": "assistant",
                "content": [
                    {"type": "output_audio"},
                    {"type": "reasoning_text", "text": "x"},
                    {"type": "text", "text": "y"},
                ],
            },
            {"role": "user", "content": "hi"},
        ]
    )
    assert [part.text for part in made.turns[0].parts if isinstance(part, TextPart)] == [b"x", b"y"]
    assert "hologram" in refused(input=[{"role": "user", "content": [{"type": "hologram"}]}]).message


def test_tool_choice() -> None:
    """S118, F12."""
    for word in ("auto", "none", "required"):
        choice = request(tool_choice=word).tool_choice
        assert choice is not None
        assert choice.mode == word
    assert request(tool_choice={"type": "function", "name": "f"}).tool_choice == ToolChoice("named", "f")
    with pytest.raises(KenariError, match="not among the tools"):
        sent(request(tool_choice={"type": "function", "name": "f"}))


@pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", "max"])
def test_efforts(effort: str) -> None:
    """S120, S121, R1."""
    thinking = request(reasoning={"effort": effort, "summary": {"any": 1}}).thinking
    assert thinking is not None
    assert thinking.effort == effort


def captures() -> list[Any]:
    folder = SHARED / "captures"
    out: list[Any] = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        capture = json.loads(path.read_bytes())
        if capture["path"].partition("?")[0].endswith("/responses") and capture["method"] == "POST":
            out.append(pytest.param(capture["body"], id=path.stem))
    return out


@pytest.mark.skipif(not captures(), reason="the shared captures are not here")
@pytest.mark.parametrize("body", captures())
def test_real_clients(body: dict[str, Any]) -> None:
    """S102, S133, A23-A27: Codex, OpenCode, pi and the SDKs; all that a person or a tool said reaches every format."""
    text: dict[str, Any] = body.get("text") or {}
    wanted: dict[str, Any] = text.get("format") or {}
    if wanted.get("type", "text") != "text":
        with pytest.raises(KenariError, match="chat/completions"):
            RESPONSES.decode_request(json.dumps(body).encode())
        return
    made = RESPONSES.decode_request(json.dumps(body).encode())
    said: list[str] = []
    items: list[dict[str, Any]] = [{"content": body["input"]}] if isinstance(body["input"], str) else body["input"]
    for item in items:
        said += texts(item.get("content")) + texts(item.get("output"))
    for dialect in ("chat", "messages", "responses"):
        to = target(dialect, profile=Profile(reasoning_content_roundtrip=True))
        everything = "\n".join(strings(sent(made, to)))
        assert [text for text in said if text not in everything] == []


def texts(content: Any) -> list[str]:
    """The texts of content in either form."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if isinstance(part.get("text"), str)]


def strings(value: Any) -> list[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner: Any = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()  # type: ignore[union-attr]
    return [text for one_ in inner for text in strings(one_)]
