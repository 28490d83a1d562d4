"""`fit`: efforts and budgets, caps, cache key, sampling, answer formats."""

import json

import pytest
from fit_kit import fitted, number, request, target
from msgspec import Raw

from kenari.core.request import EFFORTS, Effort, Format, TextPart, Thinking, Tool, ToolChoice, Turn
from kenari.dialects.fit import fit
from kenari.dialects.fit.format import way_of
from kenari.dialects.fit.thinking import nearest_lower

SCHEMA = Raw(b'{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}')
SHARES: list[tuple[Effort, float]] = [
    ("max", 0.95),
    ("xhigh", 0.95),
    ("high", 0.8),
    ("medium", 0.5),
    ("low", 0.2),
    ("minimal", 0.1),
]


@pytest.mark.parametrize(("effort", "share"), SHARES)
def test_r2_an_effort_is_a_share_of_the_cap_for_budgets(effort: Effort, share: float) -> None:
    what = request(max_output=20000, thinking=Thinking(effort=effort))
    assert fitted(what, target("messages")).thinking == Thinking(budget=int(20000 * share))


def test_r2_a_budget_is_within_the_least_and_the_cap() -> None:
    low = request(max_output=4000, thinking=Thinking(effort="minimal"))
    assert fitted(low, target("messages")).thinking == Thinking(budget=1024)
    assert fitted(low, target("messages", min_budget=2000)).thinking == Thinking(budget=2000)
    large = request(max_output=4000, thinking=Thinking(budget=9000))
    assert fitted(large, target("messages")).thinking == Thinking(budget=3999)
    tight = request(max_output=1000, thinking=Thinking(effort="high"))
    assert fitted(tight, target("messages")).thinking is None


def test_r2_none_is_none_for_budgets() -> None:
    what = request(thinking=Thinking(effort="none"))
    assert fitted(what, target("messages")).thinking == Thinking(effort="none")


KNOWN: list[tuple[Effort, tuple[Effort, ...], Effort | None]] = [
    ("max", EFFORTS, "max"),
    ("max", ("low", "high"), "high"),
    ("medium", ("low", "high"), "low"),
    ("minimal", ("low", "high"), "low"),
    ("none", ("low", "high"), "low"),
    ("none", ("none", "high"), "none"),
    ("high", ("none",), "none"),
    ("high", (), None),
]


@pytest.mark.parametrize(("effort", "known", "sent"), KNOWN)
def test_r2_the_nearest_lower_level(effort: Effort, known: tuple[Effort, ...], sent: Effort | None) -> None:
    assert nearest_lower(effort, known) == sent
    out = fitted(request(thinking=Thinking(effort=effort)), target(efforts=known))
    assert out.thinking == Thinking(effort=sent)


@pytest.mark.parametrize(
    ("budget", "effort"), [(9600, "xhigh"), (8000, "high"), (5000, "medium"), (2000, "low"), (100, "minimal")]
)
def test_r1_a_budget_becomes_the_effort_whose_share_it_reaches(budget: int, effort: Effort) -> None:
    what = request(origin="messages", max_output=10000, thinking=Thinking(budget=budget))
    assert fitted(what).thinking == Thinking(effort=effort)


def test_r1_the_wish_of_messages_stays_for_messages() -> None:
    own = Thinking(budget=9000, adaptive=True)
    assert fitted(request(origin="messages", thinking=own), target("messages")).thinking == own


def test_r2_a_model_that_does_not_reason_ignores_all_of_it() -> None:
    for to in (target(reasoning=False), target(effort="none"), target("messages", reasoning=False)):
        assert fitted(request(thinking=Thinking(effort="high")), to).thinking is None
        hidden = Thinking(effort="high", exclude=True)
        assert fitted(request(thinking=hidden), to).thinking == Thinking(exclude=True)


# -- caps


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_d23_a_cap_above_the_models_is_clamped(dialect: str) -> None:
    assert fitted(request(max_output=99999), target(dialect, max_output=4096)).max_output == 4096
    assert fitted(request(max_output=10), target(dialect, max_output=4096)).max_output == 10


def test_s123_responses_has_a_default_cap_f12_messages_needs_one() -> None:
    """S123, F12."""
    assert fitted(request(origin="responses"), target(max_output=200000)).max_output == 65536
    assert fitted(request(origin="responses"), target(max_output=4096)).max_output == 4096
    assert fitted(request(), target("messages", max_output=8192)).max_output == 8192
    assert fitted(request(), target()).max_output is None
    assert fitted(request(), target(default_max_tokens=True, max_output=8192)).max_output == 8192


# -- cache key


def test_m3_a_cache_key_travels_sealed_to_those_who_take_it() -> None:
    what = request(cache_key="conversation-1")

    def seal(key: str) -> str:
        return f"<{len(key)}>"

    assert fit(what, target("responses"), seal).cache_key == "<14>"
    assert fit(what, target(prompt_cache_key=True), seal).cache_key == "<14>"
    assert fit(what, target("responses")).cache_key is None
    for to in (target(), target("messages"), target("responses", prompt_cache_key=False)):
        assert fit(what, to, seal).cache_key is None


# -- sampling and formats


@pytest.mark.parametrize("raw", [b"1.7", b"2", b"1e3"])
def test_a_temperature_above_what_the_provider_takes_is_lowered_and_told(raw: bytes) -> None:
    what = request(sampling={"temperature": number(raw)})
    out = fitted(what, target("messages"))
    assert json.loads(bytes(out.sampling["temperature"])) == 1
    assert [notice.name for notice in out.notices] == ["temperature"]
    assert json.loads(bytes(fitted(what, target(temperature_max=1.5)).sampling["temperature"])) == 1.5
    assert bytes(fitted(what).sampling["temperature"]) == raw
    assert bytes(what.sampling["temperature"]) == raw


def test_a_temperature_within_the_range_stays_as_it_was_written() -> None:
    out = fitted(request(sampling={"temperature": number(b"0.70")}), target("messages"))
    assert bytes(out.sampling["temperature"]) == b"0.70"
    assert out.notices == []


@pytest.mark.parametrize(
    ("kind", "dialect", "able", "way"),
    [
        ("json_schema", "chat", "json_schema", "native"),
        ("json_object", "chat", "json_object", "native"),
        ("json_schema", "chat", "json_object", "function"),
        ("json_schema", "messages", "none", "function"),
        ("json_object", "chat", "none", "instruct"),
        ("json_schema", "messages", "json_schema", "native"),
        ("json_object", "messages", "json_schema", "instruct"),
        ("json_object", "responses", "json_schema", "native"),
        ("json_schema", "chat", None, "native"),
        ("json_schema", "messages", None, "native"),
        ("json_schema", "responses", None, "native"),
    ],
)
def test_a_response_format_is_asked_for_in_the_strongest_way(
    kind: str, dialect: str, able: str | None, way: str
) -> None:
    """Native, else a forced function, else words: never silently ignored."""
    wanted = Format("json_object") if kind == "json_object" else Format("json_schema", schema=SCHEMA)
    to = target(dialect, response_format=able)
    asked = request(format=wanted)
    assert way_of(asked, to) == way
    made = fitted(asked, to)
    if way == "native":
        assert made.format == wanted
    elif way == "function":
        assert made.format is None
        assert [(tool.name, tool.schema) for tool in made.tools] == [("response", SCHEMA)]
        assert made.tool_choice == ToolChoice("named", "response")
    else:
        assert made.format is None
        assert made.turns[0].role == "system"
        assert b"JSON object" in text_of(made.turns[0])


def test_a_schema_without_a_function_is_asked_for_in_words() -> None:
    """Where the client has tools of its own, no call can be forced, or the schema is not an object's."""
    wanted = Format("json_schema", schema=SCHEMA)
    own = request(format=wanted, tools=[Tool("f")])
    assert way_of(own, target("chat", response_format="none")) == "instruct"
    meek = target("chat", response_format="json_object", tool_choice_required=False)
    assert way_of(request(format=wanted), meek) == "instruct"
    made = fitted(request(format=wanted), meek)
    assert made.format == Format("json_object")  # half of it is enforced all the same
    assert b"number" in text_of(made.turns[0])
    array = Format("json_schema", schema=Raw(b'{"type":"array"}'))
    assert way_of(request(format=array), target("chat", response_format="none")) == "instruct"


def test_the_words_stand_behind_the_system_prompt_and_leave_the_client_request_alone() -> None:
    asked = request(format=Format("json_object"))
    asked.turns.insert(0, Turn("system", [TextPart(b"Be brief.")]))
    made = fitted(asked, target("chat", response_format="none"))
    assert text_of(made.turns[0]).startswith(b"Be brief.")
    assert [part.text for part in asked.turns[0].parts if isinstance(part, TextPart)] == [b"Be brief."]


def text_of(turn: Turn) -> bytes:
    return b"".join(part.text for part in turn.parts if isinstance(part, TextPart))
