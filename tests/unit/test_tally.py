"""Our own count of tokens: the calibrated guess, and the vocabularies of the extra (U3, F8)."""

import json
import math
from typing import Any

import pytest
from gateway_kit import DONE, ROLE, Rig, Script, chunk
from hypothesis import example, given
from hypothesis import strategies as st
from money_kit import paid

from kenari.core.events import Args, Event, Ping, Reason, Text
from kenari.core.request import Request
from kenari.core.usage import Usage
from kenari.dialects.registry import DIALECTS
from kenari.gateway import vocabulary
from kenari.gateway.estimate import completed_usage, estimate_prompt
from kenari.gateway.tally import MEASURED, Count, Tally
from kenari.gateway.vocabulary import Vocabularies, vocabulary_of
from kenari.wire import jsonx


def request(text: str = "hi") -> Request:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return DIALECTS["chat"].decode_request(json.dumps(body).encode())


class Words:
    """A vocabulary in which each word is a token."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encoding(self, model: str) -> str:
        return "words" if model == "m" else ""

    def count(self, encoding: str, text: str) -> int:
        assert encoding == "words"
        self.texts.append(text)
        return len(text.split())


def test_the_guess_does_not_count_how_text_is_escaped() -> None:
    """A provider that writes every letter as an escape does not make its answer dearer."""
    plain, escaped = Tally(Count(request())), Tally(Count(request()))
    text = "бесплатно и дорого 価格" * 20
    plain.add([Text(0, text.encode())])
    escaped.add([Text(0, json.dumps(text)[1:-1].encode())])
    assert plain.tokens == escaped.tokens > 0


def test_only_what_is_said_counts_reasoning_and_arguments_too_s35() -> None:
    tally = Tally(Count(request()), most=3)
    events: list[Event] = [Text(0, b"1234"), Ping(), Reason(1, b"1234"), Args(2, b"1234")]
    tally.add(events)
    assert (tally.tokens, tally.over) == (3, False)
    tally.add(events)
    assert (tally.tokens, tally.over) == (6, True)
    assert not Tally(Count(request()), most=math.inf).over


@given(st.lists(st.text(alphabet='abc é\n"\\', max_size=300), max_size=30))
def test_a_vocabulary_counts_pieces_as_it_counts_the_whole(texts: list[str]) -> None:
    tally = Tally(Count(request(), Words(), "m"))
    for text in texts:
        tally.add([Text(0, jsonx.escape(text + " "))])
    assert tally.tokens == len("".join(text + " " for text in texts).split())
    assert tally.tokens == tally.tokens


def test_a_long_prompt_is_measured_at_its_beginning_and_reckoned_up() -> None:
    words = Words()
    text = "four " * (MEASURED // 2)
    count = Count(request(text), words, "m")
    assert count.prompt() == pytest.approx(MEASURED // 2, rel=0.01)
    assert sum(map(len, words.texts)) <= MEASURED
    many = DIALECTS["chat"].decode_request(
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}] * 20}).encode()
    )
    assert Count(many, words, "m").prompt() == pytest.approx(10 * MEASURED, rel=0.01)
    assert Count(many, words, "unknown").prompt() == estimate_prompt(many)


def test_u3_json_in_a_prompt_is_counted_as_it_stands() -> None:
    """A tool's schema is no escaped text: escapes in its strings are part of it (agents send such), and so are quotes in
    a tool's name."""
    schema = {"type": "object", "properties": {"path": {"type": "string", "pattern": '^\\w+ "x" \n$'}}}
    name, purpose = 'say "hi" \\ now', 'it says "hi"\n'
    function = {"name": name, "description": purpose, "parameters": schema}
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    tools = [{"type": "function", "function": function}]
    words = Words()
    plain = DIALECTS["chat"].decode_request(json.dumps(body).encode())
    offered = DIALECTS["chat"].decode_request(json.dumps(body | {"tools": tools}).encode())
    tokens = Count(offered, words, "m").prompt() - Count(plain, Words(), "m").prompt()
    assert json.dumps(schema) in words.texts
    assert tokens == len((name + purpose).split()) + len(json.dumps(schema).split())


def test_u3_what_was_broken_off_counts_at_least_what_it_said() -> None:
    """A Messages provider begins with one token of output: that is no report of what came after."""
    begun = Usage(fresh=9, output=1)
    assert completed_usage(begun, lambda: 5, 40) is begun
    cut = completed_usage(begun, lambda: 5, 40, partial=True)
    assert (cut.fresh, cut.output, cut.estimated) == (9, 40, True)
    assert completed_usage(Usage(fresh=9, output=50), lambda: 5, 40, partial=True).output == 50
    nothing = completed_usage(None, lambda: 5, 0, partial=True)
    assert (nothing.fresh, nothing.output, nothing.estimated) == (5, None, True)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai/gpt-oss-120b", "o200k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("o3-mini", "o200k_base"),
        ("deepseek-r1-distill-qwen-32b", "qwen3"),
        ("deepseek-r1-distill-llama-70b", "llama3"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3"),
        ("deepseek-chat", "deepseek_v3"),
        ("zai-org/GLM-4.6", "glm4"),
        ("mistral-large-latest", "mistral_v3"),
        ("claude-sonnet-4-5", ""),
        ("m", ""),
    ],
)
def test_the_vocabulary_is_told_from_the_name(model: str, name: str) -> None:
    assert vocabulary_of(model) == name


def test_vocabularies_are_loaded_when_they_are_wanted() -> None:
    known = Vocabularies()
    for model in ("gpt-4o", "gpt-4"):
        assert known.encoding(model) == ""  # it has begun to load
    known.wait(30)
    assert known.encoding("gpt-4o") == "o200k_base"
    assert known.count("o200k_base", "hello world") == 2
    assert known.count("o200k_base", "<|endoftext|>") > 1  # text, never a control token
    assert known.count("cl100k_base", "") == 0
    assert known.encoding("claude") == ""


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "PACKAGE", "no_such_package")
    assert not Vocabularies.there()
    with pytest.raises(OSError, match=r"kenari\[tokenizer\]"):
        Vocabularies()


@pytest.mark.parametrize("payer", [True, False])
def test_u3_the_line_names_how_it_was_counted(payer: bool) -> None:
    answer = [(0, chunk({"content": f"word{number} "})) for number in range(50)]
    script = Script([(0, ROLE), *answer, (0, chunk({}, "stop") + DONE), (0, None)])
    rig = paid(script)[0] if payer else Rig(script)
    rig.more["counter"] = Named()
    got = rig.ask("chat")
    line = rig.books.lines[0]
    assert (line.usage.output, line.usage.estimated, line.counted) == (50, True, "words")
    assert next(one for one in got.data if one != "[DONE]" and one.get("usage"))["usage"]["completion_tokens"] == 50


class Named(Words):
    """Knows the provider's model."""

    def encoding(self, model: str) -> str:
        return "words" if model == "vendor-model" else ""


def test_a_reported_number_is_not_ours() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    rig = Rig(
        Script([(0, ROLE), (0, chunk({"content": "a b c d"})), (0, chunk({}, "stop", usage=usage) + DONE), (0, None)])
    )
    rig.more["counter"] = Named()
    rig.ask("chat")
    line: Any = rig.books.lines[0]
    assert (line.usage.output, line.usage.estimated, line.counted) == (3, False, "")


def test_m4_counting_uses_the_vocabulary_where_the_provider_cannot_count() -> None:
    rig = Rig(Script())
    rig.more["counter"] = Named()
    body = {"model": "m", "messages": [{"role": "user", "content": "one two three four five six"}]}
    got = rig.post("/v1/messages/count_tokens", json.dumps(body).encode())
    assert got.json == {"input_tokens": 6 + 4}


SPELLED = [b"word ", b"\\n", b"\\u00e9", b"\\\\", b"u00e9", b"\\ud83d\\ude00", "é".encode()]


@given(texts=st.lists(st.sampled_from(SPELLED), max_size=9), most=st.integers(0, 9))
@example([b"\\\\", b"u00e9"], 9)
def test_pieces_at_once_are_counted_as_one_by_one(texts: list[bytes], most: int) -> None:
    """U3, F8: their sum; none of them where that is more than is covered."""
    together, apart = (Tally(Count(request()), most=most) for _ in range(2))
    apart.add([Text(0, text) for text in texts])
    assert together.add_texts(texts) is not apart.over
    assert together.tokens == (0 if apart.over else apart.tokens)
