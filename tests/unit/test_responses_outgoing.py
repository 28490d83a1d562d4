"""Request -> the body for a Responses provider: its own clients' bytes untouched, other formats' words rebuilt."""

import json
from typing import Any

import pytest
from responses_kit import request, sent, target

from kenari.core.ids import Envelopes, Sealed, SealedPiece
from kenari.core.profile import Profile
from kenari.core.request import CallPart, FilePart, ImagePart, Request, ResultPart, TextPart, Tool, Turn
from kenari.dialects.chat import CHAT
from kenari.dialects.fit import fit
from kenari.dialects.messages import MESSAGES
from kenari.dialects.responses import RESPONSES
from kenari.wire import jsonx

ALWAYS = {"store": False, "include": ["reasoning.encrypted_content"]}


def chat(**members: Any) -> Request:
    return CHAT.decode_request(
        json.dumps({"messages": [{"role": "user", "content": "hi"}], "model": "m"} | members).encode()
    )


def messages(**members: Any) -> Request:
    body = {"messages": [{"role": "user", "content": "hi"}], "model": "m", "max_tokens": 9} | members
    return MESSAGES.decode_request(json.dumps(body).encode())


def test_f3_always_stateless() -> None:
    """F3, S106, S107, S130, S131, S132, S133: whatever the client asked for; fields that keep or cost are not sent."""
    body = sent(
        request(
            store=True,
            background=True,
            conversation="conv_1",
            previous_response_id=None,
            include=["file_search_call.results"],
            metadata={"a": "b"},
            parallel_tool_calls=False,
            service_tier="flex",
            truncation="auto",
            user="u",
            safety_identifier="s",
            max_tool_calls=1,
            prompt="x",
        )
    )
    assert set(body) == {"model", "input", "max_output_tokens", *ALWAYS}
    assert {name: body[name] for name in ALWAYS} == ALWAYS


def test_l10_items_are_byte_equal() -> None:
    """L10: ids, phases, unknown members, white space and escapes of items that no rule names."""
    items = [
        b'{"type": "message", "role":"developer", "content" : "\\u0041", "id":"msg_0"}',
        b'{"role":"user","content":[{"type":"input_text","text":"\\/"},{"type":"input_image","image_url":"data:image/png;base64,QQ==","detail":"original"}], "x":1.0}',
        b'{"type":"reasoning","summary":[{"type":"summary_text","text":"t"}],"content":null , "encrypted_content":null}',
        b'{"type":"message","role":"assistant","id":"msg_1","phase":"commentary","content":[{"type":"output_text","text":"a","annotations":[], "logprobs":[]}]}',
        b'{"type":"message","role":"assistant","id":"msg_2","content":[{"type":"output_text","text":"b"},{"type":"refusal","refusal":"c"}], "status":"completed"}',
        b'{"type":"message","role":"assistant","content":"d"}',
        b'{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{ \\"a\\":1.0}","status":"completed"}',
        b'{"type":"function_call_output", "call_id":"c1","output":[{"type":"input_text","text":"r"}]}',
    ]
    raw = (
        b'{"model":"m","temperature":0.70,"top_p": 1e0,"text":{"verbosity":"low"},"input":[' + b",".join(items) + b"]}"
    )
    out = RESPONSES.encode_request(fit(RESPONSES.decode_request(raw), target()), Profile())
    assert b'"input":[' + b",".join(items) + b"]" in out
    assert b'"temperature":0.70' in out
    assert b'"top_p":1e0' in out
    assert json.loads(out)["text"] == {"verbosity": "low"}


def test_verbosity_of_another_type_is_ignored() -> None:
    """S126, F2."""
    assert "text" not in sent(request(text={"verbosity": 5}))
    assert "text" not in sent(request(text={"verbosity": None, "format": {"type": "text"}}))


def test_s127_the_cache_key_travels_as_an_hmac() -> None:
    """S127, S128, M3."""
    assert sent(request(prompt_cache_key="mine"))["prompt_cache_key"] == "hmac-mine"
    assert "prompt_cache_key" not in sent(request(prompt_cache_key="k" * 513))
    off = target(profile=Profile(prompt_cache_key=False))
    assert "prompt_cache_key" not in sent(request(prompt_cache_key="mine"), off)


def test_s123_the_cap() -> None:
    """S123, D23: 65,536 when the client names none, clamped to the model's."""
    assert sent(request())["max_output_tokens"] == 65536
    assert sent(request(), target(max_output=4096))["max_output_tokens"] == 4096
    assert sent(request(max_output_tokens=10**12), target(max_output=4096))["max_output_tokens"] == 4096


def test_d18_containers_become_functions_with_unique_names() -> None:
    """D18, D27: in the tools, the choice and the history; a name that is taken is not used twice."""
    inner = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    made = request(
        tools=[inner, {"type": "namespace", "name": "mcp__x", "tools": [inner]}],
        tool_choice={"type": "function", "name": "read", "namespace": "mcp__x"},
        input=[
            {"role": "user", "content": "go"},
            {"type": "function_call", "call_id": "c", "name": "read", "namespace": "mcp__x", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ],
    )
    body = sent(made)
    names = [tool["name"] for tool in body["tools"]]
    assert len(set(names)) == 2
    assert names[0] == "read"
    call = body["input"][1]
    assert call == {"type": "function_call", "call_id": "c", "name": names[1], "arguments": "{}"}
    assert body["tool_choice"] == {"type": "function", "name": names[1]}
    assert "namespace" not in json.dumps(body["tools"])


def test_d27_no_choice_without_tools() -> None:
    """D27: neither an empty list nor a choice among nothing."""
    body = sent(request(tools=[], tool_choice="auto"))
    assert not {"tools", "tool_choice"} & set(body)
    assert not {"tools", "tool_choice"} & set(sent(request(tools=[{"type": "web_search"}], tool_choice="required")))


def test_a_provider_that_cannot_be_forced() -> None:
    """The profile's flags hold for a client of the same format too."""
    tool: dict[str, Any] = {"type": "function", "name": "f", "parameters": {}, "strict": True}
    made = request(tools=[tool], tool_choice="required")
    assert sent(made)["tool_choice"] == "required"
    assert sent(made)["tools"] == [tool]
    body = sent(made, target(profile=Profile(tool_choice_required=False, strict_tools=False)))
    assert body["tool_choice"] == "auto"
    assert body["tools"] == [{"type": "function", "name": "f", "parameters": {}}]


def test_s174_streams_are_asked_for() -> None:
    """S2, F7."""
    assert "stream" not in sent(request(stream=False))
    assert sent(request(stream=True))["stream"] is True


# -- clients of other formats


def test_from_chat() -> None:
    """S113, R1, D27: system in front, a flat tool, the answer's format, calls and results as items."""
    schema = {"type": "object", "properties": {"a": {"type": "number"}}}
    body = sent(
        chat(
            messages=[
                {"role": "system", "content": "A"},
                {"role": "developer", "content": [{"type": "text", "text": "B"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see"},
                        {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": "calling",
                    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "r"},
                {"role": "user", "content": ""},
                {"role": "system", "content": "later"},
                {"role": "user", "content": "and?"},
            ],
            tools=[
                {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
                {"type": "function", "function": {"name": "g", "strict": True}},
            ],
            tool_choice={"type": "function", "function": {"name": "f"}},
            parallel_tool_calls=False,
            reasoning_effort="minimal",
            max_completion_tokens=7,
            temperature=0.5,
            frequency_penalty=1,
            stop=["x"],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": schema, "strict": True, "description": "w"},
            },
        )
    )
    assert body["instructions"] == "A\n\nB"
    assert body["input"] == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "https://x.test/a.png", "detail": "low"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "calling", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "later"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ]
    assert body["tools"] == [
        {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": False},
        {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": True},
    ]
    assert body["tool_choice"] == {"type": "function", "name": "f"}
    assert (body["parallel_tool_calls"], body["max_output_tokens"], body["temperature"]) == (False, 7, 0.5)
    assert body["reasoning"] == {"effort": "minimal", "summary": "auto"}
    assert body["text"] == {
        "format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True, "description": "w"}
    }
    assert not {"stop", "frequency_penalty", "response_format", "messages"} & set(body)


def test_free_json() -> None:
    """response_format json_object."""
    assert sent(chat(response_format={"type": "json_object"}))["text"] == {"format": {"type": "json_object"}}


def test_from_messages() -> None:
    """S114, D11, D21: blocks become items; images inside results stay there; errors say that they are."""
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}}
    body = sent(
        messages(
            system=[{"type": "text", "text": "x-anthropic-billing-header: v"}, {"type": "text", "text": "S"}],
            messages=[
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "t", "signature": "foreign"},
                        {"type": "text", "text": "x"},
                        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.0}},
                        {"type": "tool_use", "id": "t2", "name": "f", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}, png]},
                        {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
                        {"type": "text", "text": "go on"},
                    ],
                },
            ],
            tools=[{"name": "f", "input_schema": {"type": "object"}}],
            stop_sequences=["x"],
            metadata={"user_id": "u"},
        )
    )
    assert body["instructions"] == "S"
    items = [item for item in body["input"] if item["type"] != "reasoning"]
    assert [item["type"] for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert [item["arguments"] for item in items[2:4]] == ['{"a": 1.0}', "{}"]
    assert items[4]["output"] == [
        {"type": "input_text", "text": "r"},
        {"type": "input_image", "image_url": "data:image/png;base64,QQ==", "detail": "auto"},
    ]
    assert items[5]["output"] == "Error: no"
    assert "foreign" not in json.dumps(body)
    assert not {"metadata", "user", "stop"} & set(body)


def sealed(maker: str, *pieces: SealedPiece) -> str:
    return Envelopes(b"k").seal(Sealed(maker, list(pieces)))


def test_d5_proofs_only_for_their_maker() -> None:
    """D5, R3, S138: an envelope is opened for its maker, else the proof stays here; the words may go on."""
    own = sealed("responses/p/v", SealedPiece("encrypted", "blob", 1))
    other = sealed("messages/q/w", SealedPiece("signature", "theirs", 1))
    mark = sealed("responses/p/v", SealedPiece("mark", "", 1))
    shown: list[Any] = []
    for proof in (own, other, mark, "kn1.forged"):
        item = {
            "type": "reasoning",
            "id": "rs_ours",
            "summary": [{"type": "summary_text", "text": "t"}],
            "encrypted_content": proof,
        }
        body = sent(request(input=[{"role": "user", "content": "a"}, item, {"role": "user", "content": "b"}]))
        shown.append(body["input"][1])
        assert "kn1." not in json.dumps(body)
        assert "theirs" not in json.dumps(body)
        assert "rs_ours" not in json.dumps(body)
    words = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]}
    assert shown == [words | {"encrypted_content": "blob"}, words, words, words]


@pytest.mark.parametrize("proof", [{}, {"encrypted_content": None}, {"encrypted_content": ""}])
def test_f3_a_thought_without_a_proof_goes_without_its_id(proof: dict[str, Any]) -> None:
    """F3, R3: what a provider does not store it does not find; a thought that is only an id is nothing."""
    words = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}], **proof}
    items = [{"role": "user", "content": "a"}, words | {"id": "rs_1"}, {"role": "user", "content": "b"}]
    assert sent(request(input=items))["input"] == [items[0], words, items[2]]
    items[1] = {"type": "reasoning", "id": "rs_1", "summary": [], **proof}
    assert sent(request(input=items))["input"] == [items[0], items[2]]


def test_what_fit_changed_is_rebuilt_from_its_parts() -> None:
    """A turn that fit touched, one part kept as it came and one new."""
    raw = jsonx.elements(b'[{"type":"message","role":"assistant","content":"kept", "id":"m"}]')[0]
    turns = [
        Turn("user", [TextPart(b"hi")]),
        Turn(
            "assistant",
            [TextPart(b"kept", raw=raw), TextPart(b"new"), CallPart("c", "f", b"", custom=False)],
            touched=frozenset({"content"}),
        ),
        Turn("user", [ResultPart("c", [], is_error=True)], touched=frozenset({"content"})),
    ]
    made = Request(origin="responses", model="m", turns=turns, fields={})
    items = json.loads(RESPONSES.encode_request(made, Profile()))["input"]
    assert [item.get("id") for item in items] == [None, "m", None, None, None]
    assert items[2]["content"][0]["text"] == "new"
    assert items[3]["arguments"] == "{}"
    assert items[4]["output"] == "Error: "


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (
            FilePart(filename=b"a.pdf", media_type="application/pdf", data=b"QQ=="),
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
        ),
        (FilePart(url=b"https://x.test/a.pdf"), {"type": "input_file", "file_url": "https://x.test/a.pdf"}),
        (
            ImagePart(media_type="image/png", data=b"QQ=="),
            {"type": "input_image", "image_url": "data:image/png;base64,QQ==", "detail": "auto"},
        ),
    ],
)
def test_media(part: FilePart | ImagePart, shown: dict[str, Any]) -> None:
    """Documents and images in the format's own parts; also inside a failed result, which still says so."""
    turns = [Turn("user", [part]), Turn("user", [ResultPart("c", [part], is_error=True)])]
    made = Request(origin="chat", model="m", turns=turns, fields={})
    items = json.loads(RESPONSES.encode_request(made, Profile(files=True)))["input"]
    assert items[0]["content"] == [shown]
    assert items[1]["output"] == [{"type": "input_text", "text": "Error:"}, shown]


def test_a_tool_without_a_schema_gets_one() -> None:
    """D27."""
    made = Request(origin="chat", model="m", turns=[Turn("user", [TextPart(b"hi")])], fields={}, tools=[Tool("f")])
    (tool,) = json.loads(RESPONSES.encode_request(made, Profile()))["tools"]
    assert tool["parameters"] == {"type": "object", "properties": {}}
