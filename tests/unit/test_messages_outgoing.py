"""Request -> the body for a Messages provider."""

import json
from typing import Any

import msgspec
import pytest
from messages_kit import FIXTURES, encoded, request
from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.profile import Profile
from kenari.core.request import (
    CallPart,
    FilePart,
    Format,
    ImagePart,
    OpaquePart,
    Part,
    ReasoningPart,
    Request,
    ResultPart,
    Role,
    TextPart,
    Thinking,
    Tool,
    ToolChoice,
    Turn,
)
from kenari.dialects.messages import MESSAGES
from kenari.wire import jsonx

WHOLE = (FIXTURES / "request.json").read_bytes()
SCHEMA = Raw(b'{"type":"object","$defs":{"c":{"const":"USD"}},"properties":{},"additionalProperties":false}')
TOOL = Tool("f", b"does f", SCHEMA, strict=True)


def said(role: Role, *parts: Part) -> Turn:
    return Turn(role, list(parts))


def foreign(*turns: Turn, **members: Any) -> Request:
    """A request of a chat client."""
    return Request(
        origin="chat",
        model="vendor-model",
        turns=list(turns) or [said("user", TextPart(b"hi"))],
        fields={"n": Raw(b"1")},
        max_output=members.pop("max_output", 8000),
        **members,
    )


def test_a_messages_request_goes_out_as_it_came() -> None:
    """L10, B102, F4: messages, system, tools and settings byte for byte; what needs a beta or changes the price stays."""
    made = MESSAGES.decode_request(WHOLE)
    made.model = "vendor-model"
    mine = jsonx.members(WHOLE)
    theirs = jsonx.members(MESSAGES.encode_request(made, Profile()))
    kept = (
        "max_tokens",
        "system",
        "tool_choice",
        "metadata",
        "stop_sequences",
        "temperature",
        "top_k",
        "thinking",
        "stream",
    )
    for name in kept:
        assert bytes(theirs[name]) == bytes(mine[name]), name
    assert bytes(theirs["model"]) == b'"vendor-model"'
    assert [bytes(raw) for raw in jsonx.elements(theirs["tools"])] == [
        bytes(raw) for raw in jsonx.elements(mine["tools"])
    ]
    messages = [bytes(raw) for raw in jsonx.elements(mine["messages"])]
    sent = [bytes(raw) for raw in jsonx.elements(theirs["messages"])]
    assert [sent[0], *sent[2:]] == [messages[0], *messages[2:]]
    assert json.loads(sent[1]) == {"role": "user", "content": "ingat"}
    assert set(mine) - set(theirs) == {"service_tier", "context_management", "betas", "future_field"}
    assert list(theirs)[:3] == ["model", "max_tokens", "system"]


def test_a_beta_of_the_profile_brings_its_field() -> None:
    """F4."""
    made = MESSAGES.decode_request(WHOLE)
    sent = encoded(made, Profile(betas=("context-management-2025-06-27",)))
    assert sent["context_management"] == {"edits": []}


def test_a_touched_message_keeps_its_other_blocks() -> None:
    """L10: only what `fit` changed is written anew."""
    made = MESSAGES.decode_request(WHOLE)
    turn = made.turns[3]
    parts = [part for part in turn.parts if not isinstance(part, ReasoningPart)]
    made.turns[3] = msgspec.structs.replace(turn, parts=parts, touched=frozenset({"reasoning"}))
    sent = jsonx.elements(jsonx.members(MESSAGES.encode_request(made, Profile()))["messages"])[2]
    blocks = [bytes(raw) for raw in jsonx.elements(jsonx.members(sent)["content"])]
    assert blocks == [bytes(getattr(part, "raw", b"")) for part in parts]


def test_clamped_and_renamed_settings() -> None:
    """D23, F12: the cap, the tool choice and the sampling that `fit` decided on."""
    made = request(
        max_tokens=99999,
        temperature=1.5,
        tools=[{"name": "a b", "input_schema": {"type": "object"}}],
        tool_choice={"type": "tool", "name": "a b"},
    )
    made.max_output = 100
    made.sampling = {"temperature": Raw(b"1.0")}
    made.tools = [Tool("a_b", schema=SCHEMA)]
    made.tool_choice = ToolChoice("named", "a_b")
    sent = encoded(made)
    assert (sent["max_tokens"], sent["temperature"]) == (100, 1.0)
    assert sent["tool_choice"] == {"type": "tool", "name": "a_b"}
    assert sent["tools"][0]["name"] == "a_b"


def test_blank_texts_and_odd_ids_never_go_out() -> None:
    """D27: vendors refuse them, also from their own format."""
    sent = encoded(
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "\n "}, {"type": "text", "text": "a"}]},
                {"role": "user", "content": ""},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "functions.f:0", "name": "f", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "b"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "functions.f:0",
                            "content": [{"type": "text", "text": ""}],
                        },
                    ],
                },
            ]
        }
    )
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "a"}]
    call, result = sent["messages"][1]["content"][0], sent["messages"][2]["content"][0]
    assert call["id"] == result["tool_use_id"]
    assert call["id"].replace("_", "").isalnum()
    assert result == {"type": "tool_result", "tool_use_id": call["id"]}
    assert sent["messages"][2]["content"][1] == {"type": "text", "text": "b"}


def test_tool_references_go_out_as_text() -> None:
    """D19."""
    reference = {"type": "tool_reference", "tool_name": "g"}
    sent = encoded(
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "s", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [reference]}]},
            ],
            "tools": [{"name": "g", "defer_loading": True, "input_schema": {"type": "object"}}],
        }
    )
    assert sent["messages"][1]["content"][0]["content"] == "tool loaded: g"
    assert sent["tools"] == [{"name": "g", "input_schema": {"type": "object"}}]


def test_providers_without_cache_marks() -> None:
    """The profile's `cache_control`; otherwise marks travel only as the client gave them."""
    assert b"cache_control" in MESSAGES.encode_request(MESSAGES.decode_request(WHOLE), Profile())
    assert b"cache_control" not in MESSAGES.encode_request(MESSAGES.decode_request(WHOLE), Profile(cache_control=False))
    assert b"cache_control" not in MESSAGES.encode_request(foreign(), Profile())


def test_a_foreign_conversation() -> None:
    """S139, B065, B061: system on top, results in the message behind their calls, no empty texts."""
    sent = encoded(
        foreign(
            said("system", TextPart(b"INS")),
            Turn("system", [TextPart(b"DEV")], developer=True),
            said("user", TextPart(b"a")),
            said("assistant", TextPart(b""), CallPart("c1", "f", b"{}"), CallPart("c2", "f", b"")),
            said("user", ResultPart("c1", [TextPart(b"12:00")])),
            said("user", ResultPart("c2", [], is_error=True)),
            said("user", TextPart(b"go"), OpaquePart("chat", "x", Raw(b"{}"))),
            said("system", TextPart(b"LATE")),
        )
    )
    assert sent["system"] == "INS\n\nDEV"
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user", "user", "user"]
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use", "tool_use"]
    assert [block["input"] for block in sent["messages"][1]["content"]] == [{}, {}]
    assert sent["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "12:00"},
        {"type": "tool_result", "tool_use_id": "c2", "is_error": True},
    ]
    assert [message["content"][0]["text"] for message in sent["messages"][3:]] == ["go", "LATE"]
    assert "n" not in sent
    assert sent["max_tokens"] == 8000


def test_cache_marks_of_a_foreign_client() -> None:
    mark = Raw(b'{"type":"ephemeral"}')
    sent = encoded(foreign(said("system", TextPart(b"S", cache=mark)), said("user", TextPart(b"a", cache=mark))))
    assert sent["system"] == [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]
    assert sent["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}


def test_sources_of_other_formats_are_not_copied() -> None:
    """Their words are not ours: a raw chat part never reaches a Messages provider."""
    alien = Raw(b'{"type":"image_url"}')
    parts = [
        TextPart(b"x", raw=alien),
        ImagePart(url=b"https://e.test/a", raw=alien),
        CallPart("c", "f", b"{}", raw=alien),
    ]
    body = MESSAGES.encode_request(foreign(said("user", *parts[:2]), said("assistant", parts[2])), Profile())
    assert b"image_url" not in body


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            ImagePart(media_type="image/jpeg", data=b"/9j/"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/"}},
        ),
        (ImagePart(url=b"https://e.test/a"), {"type": "image", "source": {"type": "url", "url": "https://e.test/a"}}),
        (
            ImagePart(media_type="application/pdf", data=b"JVBE"),
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
        ),
        (
            FilePart(filename=b"a.pdf", media_type="application/pdf; v=1", data=b"JVBE"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
                "title": "a.pdf",
            },
        ),
        (
            FilePart(media_type="image/png", data=b"iVBO"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}},
        ),
        (
            FilePart(media_type="text/csv", data=b"YSxi"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
        ),
        (
            FilePart(text=b"isi"),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "isi"}},
        ),
        (FilePart(url=b"https://e.test/a"), {"type": "document", "source": {"type": "url", "url": "https://e.test/a"}}),
    ],
)
def test_images_and_documents(part: Part, block: dict[str, Any]) -> None:
    """B057, S145, D11: the right block with the right media type, inside results too."""
    assert encoded(foreign(said("user", part)))["messages"][0]["content"] == [block]
    inside = encoded(foreign(said("assistant", CallPart("c", "f", b"{}")), said("user", ResultPart("c", [part]))))
    assert inside["messages"][1]["content"][0]["content"] == [block]


def test_documents_that_no_vendor_takes() -> None:
    """D27."""
    with pytest.raises(KenariError) as caught:
        encoded(foreign(said("user", FilePart(media_type="application/msword", data=b"AAAA"))))
    assert caught.value.status == 400
    assert caught.value.elsewhere


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (b'{\\"a\\": 1.0}', b'{"a": 1.0}'),
        (b"", b"{}"),
        (b" \\n", b"{}"),
        (b"[1]", b'{"arguments":"[1]"}'),
        (b'{\\"a\\":', b'{"arguments":"{\\"a\\":"}'),
        (b'{\\"a\\":\\"\\\\ud83d\\"}', b'{"a":"\xef\xbf\xbd"}'),
    ],
)
def test_arguments_become_an_object(arguments: bytes, shown: bytes) -> None:
    """S71: as the model wrote them, where they are an object."""
    body = MESSAGES.encode_request(foreign(said("assistant", CallPart("c", "f", arguments))), Profile())
    assert b'"input":' + shown + b"}" in body


def test_only_proven_thoughts_go_out() -> None:
    """R3, D5, D20."""
    sent = encoded(
        foreign(
            said(
                "assistant",
                ReasoningPart(b"unproven"),
                ReasoningPart(b"mine", "c2ln", "signature"),
                ReasoningPart(b"", "EmwK", "redacted"),
                TextPart(b"x"),
            )
        )
    )
    assert sent["messages"][0]["content"] == [
        {"type": "thinking", "thinking": "mine", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "EmwK"},
        {"type": "text", "text": "x"},
    ]


def test_tools_and_parallel_calls() -> None:
    """B073: schemas are opaque, strict stays, parallel calls are forbidden where they should be."""
    sent = encoded(foreign(tools=[TOOL], tool_choice=ToolChoice("required"), parallel=False))
    assert sent["tools"] == [
        {"name": "f", "description": "does f", "input_schema": json.loads(bytes(SCHEMA)), "strict": True}
    ]
    assert sent["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert encoded(foreign(tools=[TOOL], parallel=False))["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert encoded(foreign(tools=[TOOL], tool_choice=ToolChoice("none"), parallel=False))["tool_choice"] == {
        "type": "none"
    }
    assert "tool_choice" not in encoded(foreign(tools=[TOOL], parallel=True))


@pytest.mark.parametrize("schema", [None, Raw(b"{}"), Raw(b'{"properties":{"a":{}}}')])
def test_schemas_are_objects(schema: Raw | None) -> None:
    """D27: a vendor wants the type said."""
    assert encoded(foreign(tools=[Tool("f", schema=schema)]))["tools"][0]["input_schema"]["type"] == "object"


def test_no_tools_no_choice() -> None:
    """D27: neither an empty list nor a choice without tools."""
    sent = encoded({"tools": [], "tool_choice": {"type": "auto"}})
    assert "tools" not in sent
    assert "tool_choice" not in sent


def test_settings_of_a_foreign_client() -> None:
    """B094: stop sequences as a list; only sampling that the format knows."""
    sent = encoded(
        foreign(stop=[b"END", b" "], sampling={"temperature": Raw(b"0.5"), "seed": Raw(b"1")}, stream=True, user="u")
    )
    assert sent["stop_sequences"] == ["END"]
    assert sent["temperature"] == 0.5
    assert sent["stream"] is True
    assert not {"seed", "user", "metadata", "stop"} & set(sent)


def test_answer_format() -> None:
    """B077: `response_format` becomes `output_config.format`."""
    sent = encoded(foreign(format=Format("json_schema", schema=SCHEMA, strict=True)))
    assert sent["output_config"] == {"format": {"type": "json_schema", "schema": json.loads(bytes(SCHEMA))}}


def test_old_name_of_the_answer_format() -> None:
    """F4: `output_format` needs a beta, its successor does not."""
    form = {"type": "json_schema", "schema": {"type": "object"}}
    sent = encoded({"output_format": form, "output_config": {"effort": "high"}})
    assert sent["output_config"] == {"effort": "high", "format": form}
    assert "output_format" not in sent


def test_thinking_by_budget() -> None:
    """R2: below the cap, without the sampling that vendors refuse beside it."""
    sampling = {"temperature": Raw(b"0.5"), "top_p": Raw(b"0.9"), "top_k": Raw(b"4")}
    sent = encoded(foreign(thinking=Thinking(budget=4000), sampling=sampling))
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    assert not {"temperature", "top_p", "top_k"} & set(sent)
    assert encoded(foreign(thinking=Thinking(budget=9000)))["thinking"]["budget_tokens"] == 7999
    small = encoded(foreign(thinking=Thinking(budget=500), max_output=600, sampling=sampling))
    assert "thinking" not in small
    assert small["temperature"] == 0.5
    assert encoded(foreign(thinking=Thinking(effort="none")))["thinking"] == {"type": "disabled"}


def test_thinking_by_effort() -> None:
    """R2: adaptive, with the levels that vendors have words for."""
    profile = Profile(effort="output_config")
    sent = encoded(foreign(thinking=Thinking(effort="minimal"), sampling={"temperature": Raw(b"0.5")}), profile)
    assert sent["thinking"] == {"type": "adaptive"}
    assert sent["output_config"] == {"effort": "low"}
    assert "temperature" not in sent
    assert "thinking" not in encoded(foreign(thinking=Thinking(effort="high")), Profile(effort="none"))


def test_thinking_of_a_messages_client() -> None:
    """L10: its own words, unless the cap or the profile is against them."""
    adaptive: dict[str, Any] = {
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high"},
        "max_tokens": 4000,
    }
    assert encoded(adaptive)["thinking"] == adaptive["thinking"]
    assert encoded(adaptive)["output_config"] == {"effort": "high"}
    made = request(**adaptive)
    made.thinking = Thinking(effort="medium")
    sent = encoded(made, Profile(effort="output_config"))
    assert (sent["thinking"], sent["output_config"]) == (adaptive["thinking"], {"effort": "medium"})
    made.thinking = None
    assert not {"thinking", "output_config"} & set(encoded(made))
    budget = {"thinking": {"type": "enabled", "budget_tokens": 5000}, "max_tokens": 4000}
    assert encoded(budget)["thinking"] == {"type": "enabled", "budget_tokens": 3999}


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "f")])
def test_a_forced_call_and_thinking_exclude_each_other(choice: ToolChoice) -> None:
    """D27."""
    wish = Thinking(budget=4000)
    assert "thinking" not in encoded(foreign(thinking=wish, tools=[TOOL], tool_choice=choice))


def test_thinking_within_a_round_of_calls() -> None:
    """D27: a vendor refuses to think on where the thought before the calls is missing."""
    call = CallPart("c", "f", b"{}")
    result = said("user", ResultPart("c", [TextPart(b"1")]))
    wish = Thinking(budget=4000)
    assert "thinking" not in encoded(foreign(said("assistant", call), result, thinking=wish))
    proven = said("assistant", ReasoningPart(b"a", "c2ln", "signature"), call)
    assert "thinking" in encoded(foreign(proven, result, thinking=wish))
    assert "thinking" in encoded(
        foreign(said("assistant", TextPart(b"x")), said("user", TextPart(b"y")), thinking=wish)
    )


def test_streams_always() -> None:
    """F7."""
    assert "stream" not in encoded(foreign())
    assert encoded(foreign(), Profile(stream_always=True))["stream"] is True
    assert encoded({"stream": False}, Profile(stream_always=True))["stream"] is True
