"""L8: a rule that is turned off makes its test fail. Each row breaks one rule; the check behind it must notice."""
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# (the stand-ins are lambdas without types)

import importlib
from collections.abc import Callable
from typing import Any

import gateway_kit as kit
import pytest
import test_contract_points as points
import test_gateway as gateway
import test_responses as responses

from kenari.core.errors import KINDS, KenariError, Kind
from kenari.core.events import Event, Stop
from kenari.core.profile import Profile
from kenari.core.request import Notice, Turn
from kenari.core.usage import Usage

Mutation = tuple[str, str, Any, Callable[[], object]]


def first(test: Callable[..., object], *args: Any) -> Callable[[], object]:
    """A test with its parameters."""
    return lambda: test(*args)


def unpaired(turns: list[Turn]) -> list[Turn]:
    """Pairing turned off."""
    return turns


def orphan_result() -> None:
    """F12: a call without its result is dropped."""
    rig = kit.Rig(kit.GOOD)
    history = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"role": "user", "content": "y"},
    ]
    rig.ask("responses", input=history)
    assert all(message["role"] == "user" for message in rig.upstream.sent[0]["messages"])


def late_system_where_only_the_first_is_taken() -> None:
    """D12: a later system text comes from the user where a provider takes them only in front."""
    rig = kit.Rig(kit.GOOD, profile=Profile(system_first_only=True))
    history = [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}, {"role": "user", "content": "z"}]
    rig.ask("chat", messages=history)
    assert {message["role"] for message in rig.upstream.sent[0]["messages"]} == {"user"}


def squeezed_names() -> None:
    """D27: tool names outside the allowed letters."""
    rig = kit.Rig(kit.GOOD)
    rig.ask("responses", tools=[{"type": "function", "name": "a.b c", "parameters": {}}])
    assert rig.upstream.sent[0]["tools"][0]["function"]["name"].replace("_", "").isalnum()


def clamped_cap() -> None:
    """D23: a cap above the model's is lowered."""
    rig = kit.Rig(kit.GOOD, max_output_tokens=100)
    rig.ask("chat", max_tokens=5000)
    assert rig.upstream.sent[0]["max_tokens"] == 100


def default_cap() -> None:
    """S123."""
    rig = kit.Rig(kit.GOOD)
    rig.ask("responses")
    assert rig.upstream.sent[0]["max_tokens"] == 65536


def cached_once() -> None:
    """U2: Messages input excludes cached tokens."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 105,
        "prompt_tokens_details": {"cached_tokens": 75},
    }
    end = kit.chunk({}, "stop", usage=usage)
    got = kit.Rig(kit.Script([(0, kit.ROLE + kit.chunk({"content": "x"}) + end + kit.DONE), (0, None)])).ask("messages")
    shown = next(event["usage"] for event in got.data if event["type"] == "message_delta")
    assert (shown["input_tokens"], shown["cache_read_input_tokens"]) == (25, 75)


def no_retry_on_400() -> None:
    """E1."""
    assert kit.Rig(kit.error(400, "x")).ask("chat").header["x-should-retry"] == "false"


def interrupted_words() -> None:
    """S54, S176."""
    gateway.test_a_failure_after_content_is_in_the_stream("chat")


def keep_silent(self: Any, now: float) -> None:
    """Keepalives turned off."""


def nothing_mended(stopped: bool) -> list[Event]:
    """The end of file counts as a finish."""
    return [] if stopped else [Stop("stop")]


def any_fault_stays(*_: Any, **__: Any) -> KenariError:
    """Every provider error becomes a plain 502."""
    return KenariError("upstream_error", "x")


def no_notices(notices: list[Notice]) -> bytes:
    """The header of dropped things left out."""
    return b""


def unmarked(reported: Usage | None, *_: Any) -> Usage:
    """Missing usage is not counted."""
    return reported or Usage()


MUTATIONS: list[Mutation] = [
    ("kenari.dialects.fit.request", "pair_results", unpaired, orphan_result),
    (
        "kenari.dialects.fit.content",
        "_fit_system",
        lambda turn, leading, target: turn,
        late_system_where_only_the_first_is_taken,
    ),
    ("kenari.dialects.fit.tools", "squeeze_name", lambda name, taken, number=0: name, squeezed_names),
    ("kenari.dialects.fit.request", "_max_output", lambda request, target: request.max_output, clamped_cap),
    ("kenari.dialects.fit.request", "DEFAULT_OUTPUT", 5, default_cap),
    ("kenari.core.usage", "Usage.cache_read", 0, cached_once),
    (
        "kenari.core.errors",
        "KINDS",
        KINDS | {"bad_request": Kind(400, "invalid_request_error", "invalid_request_error", None)},
        no_retry_on_400,
    ),
    ("kenari.gateway.gate", "interrupted", lambda: KenariError("upstream_error", "other words"), interrupted_words),
    (
        "kenari.gateway.sinks",
        "StreamSink.tick",
        keep_silent,
        first(gateway.test_silence_brings_keepalives_and_noops, "chat"),
    ),
    ("kenari.dialects.chat.decode", "mend", nothing_mended, gateway.test_done_without_a_finish_is_an_interruption),
    (
        "kenari.gateway.attempt",
        "failure_of_status",
        any_fault_stays,
        gateway.test_messages_says_a_context_overflow_in_its_own_words,
    ),
    (
        "kenari.gateway.attempt",
        "failure_of_status",
        any_fault_stays,
        gateway.test_the_providers_retry_after_reaches_the_client,
    ),
    ("kenari.gateway.run", "ignored_line", no_notices, gateway.test_dropped_things_are_named),
    ("kenari.gateway.attempt", "completed_usage", unmarked, gateway.test_missing_usage_is_counted_by_us),
    ("kenari.gateway.attempt", "DRAIN_SECONDS", 0.0, gateway.test_late_usage_is_waited_for),
    (
        "kenari.dialects.responses.encode",
        "status_of",
        lambda stop: "completed",
        first(responses.test_a_cut_answer_ends_with_completed, "length", "incomplete", {"reason": "max_output_tokens"}),
    ),
    (
        "kenari.dialects.responses.encode",
        "reasoning_item",
        lambda item, text, envelope, status: {"type": "reasoning", "id": item, "summary": [], "status": status},
        responses.test_the_events_of_a_whole_answer,
    ),
    (
        "kenari.dialects.fit.content",
        "_BILLING",
        b"nothing like it",
        points.test_the_billing_line_of_claude_code_does_not_travel,
    ),
]


@pytest.mark.parametrize(
    ("module", "name", "broken", "check"),
    MUTATIONS,
    ids=[f"{row[0].split('.')[-1]}.{row[1]}-{at}" for at, row in enumerate(MUTATIONS)],
)
def test_a_broken_rule_is_noticed(
    module: str, name: str, broken: Any, check: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: the check passes, and fails once its rule is turned off."""
    check()
    place: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for step in path:
        place = getattr(place, step)
    monkeypatch.setattr(place, last, broken)
    with pytest.raises((AssertionError, KeyError, IndexError, StopIteration, TypeError, AttributeError, TimeoutError)):
        check()
