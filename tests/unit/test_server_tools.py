"""Tools that kenari runs itself, from end to end: rounds, sources, bills, limits, in all three formats."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
import virtual_time
from gateway_kit import DONE, FORMATS, ROLE, Exchange, Rig, Script, chunk, error, plain
from test_structured import deltas_of, text_of

from kenari.core.events import Source
from kenari.core.profile import Profile
from kenari.core.request import Served
from kenari.core.search import Hit, Query, SearchError
from kenari.tools.base import Outcome, ToolError, ToolSettings
from kenari.tools.clock import DateTime
from kenari.tools.web_search import WebSearch

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
PRICE = 5_000_000
HITS = [Hit("https://a.example/1", "First", "text one"), Hit("https://b.example/2", "Second", "text two")]


class Backend:
    """A search backend that knows its hits."""

    def __init__(self, hits: list[Hit] | None = None, fault: str = "", seconds: float = 0.0) -> None:
        self.asked: list[Query] = []
        self._hits, self._fault, self._seconds = HITS if hits is None else hits, fault, seconds
        self.cancelled = False
        self.most = self._now = 0

    async def search(self, query: Query) -> list[Hit]:
        self.asked.append(query)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self._now -= 1
        if self._fault:
            raise SearchError(self._fault)
        return self._hits


def call(name: str = "web_search", arguments: str = '{"query": "kenari"}', at: int = 0) -> bytes:
    """Chunks of one whole call."""
    function = {"name": name, "arguments": ""}
    opening = {"index": at, "id": f"call_{at}", "type": "function", "function": function}
    piece = {"index": at, "function": {"arguments": arguments}}
    return chunk({"tool_calls": [opening]}) + chunk({"tool_calls": [piece]})


def calling(*calls: bytes, text: str = "", thought: str = "") -> Script:
    """A stream that ends in calls."""
    steps: list[Any] = [(0, ROLE)]
    steps += [(0, chunk({"reasoning_content": thought}))] if thought else []
    steps += [(0, chunk({"content": text}))] if text else []
    return Script([*steps, *((0, one) for one in calls), (0, chunk({}, "tool_calls", usage=USAGE) + DONE), (0, None)])


def saying(*pieces: str, thought: str = "") -> Script:
    steps: list[Any] = [(0, ROLE)]
    steps += [(0, chunk({"reasoning_content": thought}))] if thought else []
    steps += [(0, chunk({"content": piece})) for piece in pieces]
    return Script([*steps, (0, chunk({}, "stop", usage=USAGE) + DONE), (0, None)])


def rig(*scripts: Script, backend: Backend | None = None, settings: ToolSettings | None = None, **more: Any) -> Rig:
    made = Rig(list(scripts), **more)
    search = WebSearch(backend or Backend(), PRICE)
    tools = {tool.kind: tool for tool in (search, DateTime(lambda: 1_800_000_000.0))}
    made.services = {"tools": tools, "tool_settings": settings or ToolSettings()}
    return made


SEARCH: list[Any] = [{"type": "kenari:web_search"}]


def ask(made: Rig, client: str, stream: bool = True, tools: list[Any] | None = None, **more: Any) -> Exchange:
    extra: dict[str, Any] = {"max_tokens": 100} if client == "messages" else {}
    return made.ask(client, stream=stream, tools=SEARCH if tools is None else tools, **extra, **more)


SOURCES = [{"url": hit.url, "title": hit.title} for hit in HITS]


def sources_of(client: str, answer: Exchange, stream: bool) -> Any:
    """Where each format shows its sources."""
    if client == "chat":
        if not stream:
            return answer.json["choices"][0]["message"].get("sources")
        found = [one["choices"][0]["delta"]["sources"] for one in answer.data[:-1] if "sources" in json.dumps(one)]
        return found[0] if len(found) == 1 else found or None
    if client == "messages":
        whole = answer.data[-2] if stream else answer.json
        return whole.get("sources")
    return (answer.data[-1]["response"] if stream else answer.json).get("sources")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", FORMATS)
def test_s116_d13_a_search_answers_with_its_sources(client: str, stream: bool) -> None:
    """S52, S116, D13: one answer of two calls; the client sees no trace of the tool but its sources and the usage."""
    backend = Backend()
    made = rig(calling(call()), saying("Two birds [1] ", "and more."), backend=backend)
    answer = ask(made, client, stream)
    text = "".join(deltas_of(client, answer.data)) if stream else text_of(client, answer.json)
    assert text == "Two birds [1] and more."
    assert sources_of(client, answer, stream) == SOURCES
    assert b'"tool_calls"' not in answer.out
    assert b'tool_use"' not in answer.out.replace(b'server_tool_use"', b"")
    assert backend.asked == [Query(text="kenari", limit=5)]
    first, second = made.upstream.sent
    assert first["tools"][0]["function"]["name"] == "web_search"
    assert second["messages"][: len(first["messages"])] == first["messages"]
    called, result = second["messages"][-2:]
    assert called["tool_calls"][0]["function"] == {"name": "web_search", "arguments": '{"query": "kenari"}'}
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_0")
    assert "[1] First\nhttps://a.example/1\ntext one" in result["content"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", FORMATS)
def test_d13_usage_and_bill_are_those_of_all_rounds(client: str, stream: bool) -> None:
    """D13, U1, L7: legs of both calls and of the search with its fee; the client sees their sum."""
    made = rig(calling(call()), saying("ok"))
    answer = ask(made, client, stream)
    (line,) = made.books.lines
    assert [(leg.target, leg.fee) for leg in line.legs] == [
        ("p1/vendor-model", 0),
        ("kenari:web_search", PRICE),
        ("p1/vendor-model", 0),
    ]
    assert (line.usage.fresh, line.usage.output, line.ending) == (18, 6, "done")
    if client == "chat":
        usage = answer.data[-3]["usage"] if stream else answer.json["usage"]
        assert usage == {"prompt_tokens": 18, "completion_tokens": 6, "total_tokens": 24}
    elif client == "messages":
        usage = (answer.data[-2] if stream else answer.json)["usage"]
        assert usage == {"input_tokens": 18, "output_tokens": 6, "server_tool_use": {"web_search_requests": 1}}
    else:
        usage = (answer.data[-1]["response"] if stream else answer.json)["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (18, 6)


def test_s52_the_sources_stand_in_one_chunk_right_before_the_end() -> None:
    """S52, D3: after the finish chunk, which alone has usage; without a search there is none."""
    data = ask(rig(calling(call()), saying("ok")), "chat").data
    assert data[-1] == "[DONE]"
    assert data[-2]["choices"] == [{"index": 0, "delta": {"sources": SOURCES}, "finish_reason": None}]
    assert data[-3]["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in data[-2]
    for client in FORMATS:
        assert b"sources" not in ask(rig(saying("no need")), client).out
    clock = ask(rig(calling(call("datetime", "{}")), saying("ok")), "chat", tools=[{"type": "kenari:datetime"}])
    assert b"sources" not in clock.out


def test_d13_responses_cite_where_the_text_does() -> None:
    """D13: url_citation annotations on the text behind the search, the same in item.done and in completed."""
    data = ask(rig(calling(call()), saying("Two [2], see https://a.example/1.")), "responses").data
    (done,) = [one["item"] for one in data if one["type"] == "response.output_item.done"]
    part = done["content"][0]
    assert [(one["type"], one["url"], one["title"]) for one in part["annotations"]] == [
        ("url_citation", "https://b.example/2", "Second"),
        ("url_citation", "https://a.example/1", "First"),
    ]
    assert [part["text"][one["start_index"] : one["end_index"]] for one in part["annotations"]] == [
        "[2]",
        "https://a.example/1",
    ]
    assert data[-1]["response"]["output"] == [done]


def test_an_answer_that_names_no_source_rests_on_all() -> None:
    data = ask(rig(calling(call()), saying("Birds.")), "responses", stream=False).json
    notes = data["output"][0]["content"][0]["annotations"]
    assert [(one["start_index"], one["end_index"]) for one in notes] == [(0, 6), (0, 6)]


@pytest.mark.parametrize("client", FORMATS)
def test_blocks_are_numbered_on_over_the_rounds(client: str) -> None:
    """S77, S94, D4: text before a call stays; indexes are dense; reasoning of two rounds before the first text is one item."""
    made = rig(calling(call(), thought="first "), saying("done", thought="second"))
    answer = ask(made, client)
    if client == "messages":
        starts = [one["index"] for one in answer.data if one["type"] == "content_block_start"]
        assert starts == [0, 1, 2]
        assert [one["type"] for one in answer.data].count("message_start") == 1
    elif client == "responses":
        items = answer.data[-1]["response"]["output"]
        assert [item["type"] for item in items] == ["reasoning", "message"]
        assert items[0]["summary"][0]["text"] == "first second"
    else:
        assert [one["choices"][0]["delta"].get("role") for one in answer.data[:-1]].count("assistant") == 1
    made = rig(calling(call(), text="Let me look. "), saying("Done."))
    assert "".join(deltas_of(client, ask(made, client).data)) == "Let me look. Done."


def test_the_number_of_rounds_is_bounded() -> None:
    """At the bound the model is told, may call no more, and what it still calls is not run."""
    backend = Backend()
    turns = [calling(call(arguments=json.dumps({"query": f"q{number}"}))) for number in range(4)]
    made = rig(*turns, backend=backend, settings=ToolSettings(rounds=3))
    answer = ask(made, "chat")
    assert len(made.upstream.sent) == 4
    assert len(backend.asked) == 3
    assert "tool_choice" not in made.upstream.sent[2]
    last = made.upstream.sent[3]
    assert last["tool_choice"] == "none"
    assert "answer now with what you have" in json.dumps(last["messages"][-1])
    assert answer.data[-3]["choices"][0]["finish_reason"] == "stop"


def test_a_model_that_calls_in_circles_is_stopped() -> None:
    """The same call is run and paid for once; a model that only repeats itself has to answer."""
    backend = Backend()
    made = rig(calling(call()), calling(call()), saying("ok"), backend=backend)
    ask(made, "chat")
    assert len(backend.asked) == 1
    assert sum(leg.fee for leg in made.books.lines[0].legs) == PRICE
    last = made.upstream.sent[2]
    assert last["tool_choice"] == "none"
    assert "already" in json.dumps(last["messages"][-1])


def test_a_forced_call_is_forced_once() -> None:
    """Else the model would have to call for ever."""
    made = rig(calling(call()), saying("ok"))
    ask(made, "chat", tool_choice="required")
    assert [body.get("tool_choice") for body in made.upstream.sent] == ["required", None]


def test_calls_of_one_turn_run_at_once() -> None:
    backend = Backend(seconds=0.2)
    made = rig(calling(call(), call(arguments='{"query": "b"}', at=1)), saying("ok"), backend=backend)
    started = time.monotonic()
    ask(made, "chat")
    assert backend.most == 2
    assert time.monotonic() - started < 0.39
    results = [one for one in made.upstream.sent[1]["messages"] if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in results] == ["call_0", "call_1"]


@pytest.mark.parametrize(
    ("backend", "arguments", "told"),
    [
        (Backend(fault="the search service is rate limiting"), '{"query": "x"}', "is rate limiting"),
        (Backend(seconds=9), '{"query": "x"}', "took longer than 0.1 s"),
        (Backend(), "{}", "query is missing"),
        (Backend(), "[1]", "must be a JSON object"),
        (Backend(), '{"query": ', "not valid JSON"),
        (Backend(hits=[]), '{"query": "x"}', "nothing was found"),
    ],
)
def test_a_failing_tool_is_news_for_the_model_not_a_failed_request(backend: Backend, arguments: str, told: str) -> None:
    made = rig(calling(call(arguments=arguments)), saying("sorry"), backend=backend, settings=ToolSettings(timeout=0.1))
    answer = ask(made, "chat")
    assert "".join(deltas_of("chat", answer.data)) == "sorry"
    assert told in made.upstream.sent[1]["messages"][-1]["content"]
    fees = sum(leg.fee for leg in made.books.lines[0].legs)
    assert fees == (PRICE if told == "nothing was found" else 0)  # charged when it ran


def test_a_fault_of_a_tool_is_no_fault_of_the_request() -> None:
    class Broken(DateTime):
        async def run(self, arguments: Mapping[str, Any], served: Served) -> Outcome:
            raise ZeroDivisionError

    made = rig(calling(call("datetime", "{}")), saying("ok"))
    made.services["tools"] = {"kenari:datetime": Broken(time.time)}
    assert ask(made, "chat", tools=[{"type": "kenari:datetime"}]).status == 200
    assert "the tool failed" in made.upstream.sent[1]["messages"][-1]["content"]


def test_options_of_the_tool_entry() -> None:
    backend = Backend(
        [Hit(f"https://{name}.example/{at}", name, "x") for at in range(8) for name in ("a", "sub.a", "b")]
    )
    tool = {"type": "kenari:web_search", "max_results": 3, "allowed_domains": ["https://A.example/x"], "max_uses": 1}
    made = rig(calling(call()), calling(call(arguments='{"query": "b"}')), saying("ok"), backend=backend)
    answer = ask(made, "chat", tools=[{**tool, "blocked_domains": ["sub.a.example"]}])
    assert backend.asked == [Query(text="kenari", limit=3, allowed=("a.example",), blocked=("sub.a.example",))]
    assert [one["url"] for one in sources_of("chat", answer, True)] == [f"https://a.example/{at}" for at in range(3)]
    assert "may not be used again" in made.upstream.sent[2]["messages"][-1]["content"]


@pytest.mark.parametrize("client", FORMATS)
@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "kenari:web_serch"}, "tools[0].type"),
        ({"type": "kenari:web_search", "max_results": 11}, "tools[0].max_results"),
        ({"type": "kenari:web_search", "max_results": 0}, "tools[0].max_results"),
        ({"type": "kenari:web_search", "max_uses": 0}, "tools[0].max_uses"),
        ({"type": "kenari:web_search", "allowed_domains": [""]}, "tools[0].allowed_domains"),
        ({"type": "kenari:web_fetch"}, "tools[0]"),
    ],
)
def test_d9_what_is_not_served_is_refused(client: str, tool: dict[str, Any], param: str) -> None:
    """D9: an unknown kind names the known ones; a tool that is switched off says so."""
    made = rig(saying("ok"))
    answer = ask(made, client, tools=[tool])
    assert answer.status == 400
    message = answer.json["error"]["message"]
    if tool["type"] == "kenari:web_serch":
        assert "kenari:web_search, kenari:web_fetch, kenari:datetime" in message
    if client != "messages":
        assert answer.json["error"]["param"] == param
    assert made.upstream.requests == []


@pytest.mark.parametrize("client", FORMATS)
def test_without_a_backend_the_search_is_refused(client: str) -> None:
    made = Rig([saying("ok")])
    answer = ask(made, client)
    assert (answer.status, "no search backend is configured" in answer.json["error"]["message"]) == (400, True)


@pytest.mark.parametrize("configured", [True, False])
def test_d19_a_vendors_search_is_served_by_ours_or_left_out(configured: bool) -> None:
    """D19: under the name that the client gave it."""
    made = rig(calling(call("web_search")), saying("found [1]")) if configured else Rig([saying("no search")])
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "allowed_domains": ["a.example"]}
    choice = {"type": "tool", "name": "web_search"}
    answer = ask(made, "messages", tools=[tool], tool_choice=choice)
    first = made.upstream.sent[0]
    if configured:
        assert first["tool_choice"]["function"]["name"] == "web_search"
        assert "".join(deltas_of("messages", answer.data)) == "found [1]"
        assert sources_of("messages", answer, True) == SOURCES[:1]
    else:
        assert not {"tools", "tool_choice"} & first.keys()
        assert "web_search_20250305" in answer.header["x-kenari-ignored"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", FORMATS)
def test_d13_a_mixed_turn_gives_the_client_its_calls_and_our_result_as_text(client: str, stream: bool) -> None:
    """D13: the result is in the answer, so that it comes back with the next turn."""
    own = {"name": "f", "parameters": {"type": "object"}}
    tool = {
        "chat": {"type": "function", "function": own},
        "messages": {"name": "f", "input_schema": {"type": "object"}},
        "responses": {"type": "function", **own},
    }[client]
    made = rig(calling(call(), call("f", "{}", at=1)))
    answer = ask(made, client, stream, tools=[*SEARCH, tool])
    assert len(made.upstream.sent) == 1
    text = "".join(deltas_of(client, answer.data)) if stream else text_of(client, answer.json)
    assert "[web_search]" in text
    assert "text one" in text
    whole = answer.out.decode()
    if client == "chat":
        assert whole.count('"id":"call_') == 1
        finish = (
            answer.data[-3]["choices"][0]["finish_reason"] if stream else answer.json["choices"][0]["finish_reason"]
        )
        assert finish == "tool_calls"
    elif client == "messages":
        assert (answer.data[-2]["delta"] if stream else answer.json)["stop_reason"] == "tool_use"
    else:
        output = (answer.data[-1]["response"] if stream else answer.json)["output"]
        assert [item["type"] for item in output] == ["function_call", "message"]
    assert sources_of(client, answer, stream) == SOURCES


def test_a_clients_own_tool_of_the_same_name_stays_its_own() -> None:
    own = {"type": "function", "function": {"name": "web_search", "parameters": {"type": "object"}}}
    made = rig(calling(call("web_search")))
    answer = ask(made, "chat", tools=[own, *SEARCH])
    names = [tool["function"]["name"] for tool in made.upstream.sent[0]["tools"]]
    assert names == ["web_search", "kenari_web_search"]
    assert answer.data[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_client_that_leaves_stops_the_tool() -> None:
    """U6: cancellation follows what is under way; the round that ran is billed."""
    backend = Backend(seconds=5)
    made = rig(calling(call()), saying("never"), backend=backend)
    started = time.monotonic()
    ask(made, "chat", act=Exchange.leave)
    assert time.monotonic() - started < 2
    assert backend.cancelled
    (line,) = made.books.lines
    assert line.ending == "client_closed"
    assert [leg.target for leg in line.legs] == ["p1/vendor-model"]
    assert len(made.upstream.sent) == 1


def test_u6_what_ran_is_billed_when_the_client_leaves_while_others_run() -> None:
    """U6: the clock has answered, the search has not; only the first is a leg."""
    backend = Backend(seconds=5)
    made = rig(calling(call(), call("datetime", "{}", at=1)), saying("never"), backend=backend)
    ask(made, "chat", tools=[*SEARCH, {"type": "kenari:datetime"}], act=Exchange.leave)
    (line,) = made.books.lines
    assert [(leg.target, leg.fee) for leg in line.legs] == [("p1/vendor-model", 0), ("kenari:datetime", 0)]
    assert line.ending == "client_closed"


def test_the_same_call_twice_in_one_turn_runs_and_costs_once() -> None:
    backend = Backend()
    made = rig(calling(call(), call(at=1)), saying("ok"), backend=backend)
    assert ask(made, "chat").data[-1] == "[DONE]"
    assert len(backend.asked) == 1
    (line,) = made.books.lines
    assert [leg.fee for leg in line.legs if leg.target == "kenari:web_search"] == [PRICE]
    first, second = made.upstream.sent[1]["messages"][-2:]
    assert "[1] First" in first["content"]
    assert "already" in second["content"]


def test_a_call_that_failed_may_be_made_again() -> None:
    class Moody(Backend):
        async def search(self, query: Query) -> list[Hit]:
            self._fault = "" if self.asked else "the search service failed (status 500)"
            return await super().search(query)

    backend = Moody()
    made = rig(calling(call()), calling(call()), saying("ok"), backend=backend)
    ask(made, "chat")
    assert len(backend.asked) == 2
    assert "[1] First" in made.upstream.sent[2]["messages"][-1]["content"]


def test_keepalives_go_on_while_a_tool_runs() -> None:
    made = rig(calling(call()), saying("ok"), backend=Backend(seconds=0.3))
    made.silence = (0.05, 120.0)
    answer = ask(made, "chat")
    assert answer.out.count(b": keepalive") >= 2
    assert "".join(deltas_of("chat", answer.data)) == "ok"


@pytest.mark.parametrize("stream", [True, False])
def test_a_round_that_fails_before_any_content_goes_to_the_next_candidate(stream: bool) -> None:
    """M2: nothing was shown, so another provider may still answer."""
    made = rig(calling(call()), error(503))
    made.upstream.scripts["p2"] = [saying("from the second")]
    answer = ask(made, "chat", stream)
    text = "".join(deltas_of("chat", answer.data)) if stream else text_of("chat", answer.json)
    assert text == "from the second"


def test_a_round_that_fails_after_content_interrupts_the_stream() -> None:
    """D7."""
    answer = ask(rig(calling(call(), text="Look: "), error(503)), "chat")
    assert answer.data[-2]["error"]["code"] == "stream_interrupted"


def test_long_results_are_cut_to_the_budget() -> None:
    backend = Backend([Hit(f"https://a.example/{at}", "t", "word " * 5000) for at in range(5)])
    made = rig(calling(call()), saying("ok"), backend=backend, settings=ToolSettings(result_tokens=500))
    ask(made, "chat")
    content = made.upstream.sent[1]["messages"][-1]["content"]
    assert len(content) < 2300
    assert content.endswith("[the rest was left out]")


def test_signed_thoughts_go_back_to_their_maker_between_rounds() -> None:
    """D5: a Messages provider wants its signature within a round of calls."""

    def frames(*events: dict[str, Any]) -> Script:
        steps = [(0, f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()) for one in events]
        return Script([*steps, (0, None)])

    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 0}}}

    def block(at: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"type": "content_block_start", "index": at, "content_block": opening},
            *({"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": at},
        ]

    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "sig=="},
    )
    use = block(
        1,
        {"type": "tool_use", "id": "tu", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
    )
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}}
    over = {"type": "message_stop"}
    words = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "ok"})
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
    made = rig(frames(start, *thought, *use, end, over), frames(start, *words, stop, over), dialect="messages")
    answer = ask(made, "messages", thinking={"type": "enabled", "budget_tokens": 50})
    assert answer.status == 200
    said, result = made.upstream.sent[1]["messages"][-2:]
    assert said["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    assert said["content"][1]["type"] == "tool_use"
    assert result["content"][0]["tool_use_id"] == "tu"


def test_structured_output_after_a_search() -> None:
    """Both loops in one: the search runs, then the answer is checked and asked for again."""
    wanted = {"type": "json_object"}
    made = rig(calling(call()), saying("no json"), saying('{"a": 1}'), profile=Profile(response_format="none"))
    answer = ask(made, "chat", stream=False, response_format=wanted)
    assert answer.json["choices"][0]["message"]["content"] == '{"a": 1}'
    assert sources_of("chat", answer, False) == SOURCES


def test_plain_providers_answers_are_rounds_too() -> None:
    function = {"name": "datetime", "arguments": '{"timezone": "Asia/Jakarta"}'}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    first = plain({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": USAGE})
    made = rig(first, saying("ok"))
    answer = ask(made, "chat", stream=False, tools=[{"type": "kenari:datetime"}])
    assert text_of("chat", answer.json) == "ok"
    assert made.upstream.sent[1]["messages"][-1]["content"] == "Friday 2027-01-15T15:00:00+07:00 (Asia/Jakarta)"


def test_the_clock_knows_no_nonsense() -> None:
    with pytest.raises(ToolError):
        virtual_time.run(DateTime(lambda: 0.0).run({"timezone": "../../etc/passwd"}, Served(kind="kenari:datetime")))
    outcome = virtual_time.run(DateTime(lambda: 0.0).run({}, Served(kind="kenari:datetime")))
    assert outcome.text == "Thursday 1970-01-01T00:00:00+00:00 (UTC)"
    assert Source("u").title == ""
