"""`fit`: tools, the choice among them, and calls with their results."""

import json
import re

import pytest
from fit_kit import call, fitted, request, result, said, target, user
from msgspec import Raw

from kenari.core.errors import KenariError
from kenari.core.request import CallPart, Part, TextPart, Tool, ToolChoice, ToolName, Turn

SCHEMA = Raw(b'{"type":"object"}')


def test_d18_namespaces_are_flattened_and_kept_for_the_way_back() -> None:
    """D18, also in the history."""
    tools = [Tool("read", schema=SCHEMA, namespace="mcp"), Tool("read", schema=SCHEMA), Tool("mcp__read")]
    history = [user(), said(call("read", namespace="mcp")), user(result())]
    out = fitted(request(*history, tools=tools))
    names = [tool.name for tool in out.tools]
    assert len(set(names)) == 3
    assert names[1:] == ["read", "mcp__read"]
    assert out.names[names[0]] == ToolName("read", "mcp")
    assert all(tool.namespace is None for tool in out.tools)
    [part] = out.turns[1].parts
    assert isinstance(part, CallPart)
    assert (part.name, part.namespace) == (names[0], None)


def test_d18_a_namespaced_choice_is_found() -> None:
    out = fitted(
        request(
            tools=[Tool("read", namespace="a"), Tool("read", namespace="b")],
            tool_choice=ToolChoice("named", "read", "b"),
        )
    )
    assert out.tool_choice == ToolChoice("named", "b__read")


@pytest.mark.parametrize("name", ["a.b", "x" * 90, "nama alat", "été", "a/b", ""])
def test_d27_names_are_squeezed_and_mapped_back(name: str) -> None:
    """D27: outside [A-Za-z0-9_-]{1,64} nothing is sent."""
    out = fitted(request(user(), said(call(name)), user(result()), tools=[Tool(name), Tool("plain")]))
    seen = out.tools[0].name
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", seen)
    assert out.names[seen].name == name
    [part] = out.turns[1].parts
    assert isinstance(part, CallPart)
    assert part.name == seen


def test_d27_names_that_squeeze_alike_stay_apart() -> None:
    out = fitted(request(tools=[Tool("a.b"), Tool("a/b"), Tool("a b")]))
    assert len({tool.name for tool in out.tools}) == 3


def test_d27_no_empty_tools_and_no_choice_without_tools() -> None:
    out = fitted(request(tool_choice=ToolChoice("required"), parallel=False))
    assert (out.tools, out.tool_choice, out.parallel) == ([], None, None)
    out = fitted(request(tools=[Tool("later", deferred=True)], tool_choice=ToolChoice("auto"), parallel=False))
    assert (out.tools, out.tool_choice, out.parallel) == ([], None, None)


def test_d10_s117_custom_tools_are_left_out_with_a_notice() -> None:
    out = fitted(request(tools=[Tool("patch", custom=True), Tool("read")], origin="responses"))
    assert [tool.name for tool in out.tools] == ["read"]
    assert [notice.name for notice in out.notices] == ["custom"]


def test_d10_a_model_may_opt_in_and_gets_a_function_with_one_text() -> None:
    history = [user(), said(CallPart("c1", "patch", b'a \\"b\\"', custom=True)), user(result())]
    out = fitted(request(*history, tools=[Tool("patch", custom=True)], origin="responses"), target(custom_tools=True))
    [tool] = out.tools
    assert b'"input"' in bytes(tool.schema or b"")
    assert out.names["patch"].custom
    [part] = out.turns[1].parts
    assert isinstance(part, CallPart)
    assert (part.custom, part.quoted) == (False, False)
    assert json.loads(part.arguments) == {"input": 'a "b"'}


def test_d19_deferred_tools_wait_until_they_are_referenced() -> None:
    out = fitted(request(tools=[Tool("later", deferred=True), Tool("now")], origin="messages"))
    assert [tool.name for tool in out.tools] == ["now"]


@pytest.mark.parametrize("tools", [[], [Tool("other")], [Tool("gone", deferred=True)]])
def test_f12_a_choice_that_names_no_tool_is_400(tools: list[Tool]) -> None:
    with pytest.raises(KenariError) as caught:
        fitted(request(tools=tools, tool_choice=ToolChoice("named", "gone")))
    assert (caught.value.code, caught.value.param) == ("bad_request", "tool_choice")


@pytest.mark.parametrize("choice", [ToolChoice("required"), ToolChoice("named", "a")])
def test_a_provider_that_cannot_be_made_to_call_gets_auto_and_a_notice(choice: ToolChoice) -> None:
    out = fitted(request(tools=[Tool("a")], tool_choice=choice), target(tool_choice_required=False))
    assert out.tool_choice == ToolChoice("auto")
    assert [notice.name for notice in out.notices] == ["tool_choice"]
    assert fitted(request(tools=[Tool("a")], tool_choice=choice)).tool_choice == choice


def test_strict_and_the_parallel_switch_by_flag() -> None:
    what = request(tools=[Tool("a", strict=True)], parallel=False)
    out = fitted(what)
    assert (out.tools[0].strict, out.parallel) == (True, False)
    out = fitted(what, target(strict_tools=False, parallel_tool_calls=False))
    assert (out.tools[0].strict, out.parallel) == (None, None)


def test_fit_leaves_the_clients_request_as_it_was() -> None:
    what = request(user(), said(call("a.b")), user(result()), tools=[Tool("a.b", custom=True)])
    before = repr(what)
    fitted(what)
    assert repr(what) == before


# -- pairs


def kinds(turns: list[Turn]) -> list[tuple[str, list[str]]]:
    def word(part: Part) -> str:
        return getattr(part, "call_id", "") or type(part).__name__

    return [(turn.role, [word(part) for part in turn.parts]) for turn in turns]


def test_d27_what_is_in_order_is_left_alone() -> None:
    turns = [user(), said(call("a", "1"), call("b", "2")), user(result("1")), user(result("2")), user()]
    assert kinds(fitted(request(*turns)).turns) == kinds(turns)


def test_d27_results_away_from_their_calls_are_moved_behind_them() -> None:
    turns = [user(), said(call("a", "1")), user(TextPart(b"wait")), user(result("1"), TextPart(b"go on"))]
    assert kinds(fitted(request(*turns)).turns) == [
        ("user", ["TextPart"]),
        ("assistant", ["1"]),
        ("user", ["1"]),
        ("user", ["TextPart"]),
        ("user", ["TextPart"]),
    ]


def test_f12_a_call_without_its_result_and_a_result_without_its_call_are_dropped() -> None:
    turns = [user(), said(TextPart(b"so"), call("a", "1"), call("b", "2")), user(result("2"), result("9")), user()]
    assert kinds(fitted(request(*turns)).turns) == [
        ("user", ["TextPart"]),
        ("assistant", ["TextPart", "2"]),
        ("user", ["2"]),
        ("user", ["TextPart"]),
    ]


def test_f12_a_turn_of_calls_only_vanishes_with_them() -> None:
    assert kinds(fitted(request(user(), said(call("a", "1")), user())).turns) == [("user", ["TextPart"])] * 2


def test_d27_one_id_used_twice_keeps_both_pairs() -> None:
    turns = [said(call("a", "1")), user(result("1")), said(call("a", "1")), user(result("1"))]
    assert kinds(fitted(request(*turns)).turns) == kinds(turns)
