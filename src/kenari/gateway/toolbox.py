"""A request's server tools: put beside the client's own, and run when the model calls them (S116, D9, D13, D19)."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from kenari.core.errors import bad_request
from kenari.core.events import Source
from kenari.core.ports import Leg
from kenari.core.request import CallPart, Notice, Request, ResultPart, Served, TextPart, Tool
from kenari.core.usage import Usage
from kenari.tools.base import ServerTool, ToolError, cut_to_tokens
from kenari.wire import jsonx

_log = logging.getLogger("kenari.gateway")

MAX_AT_ONCE = 8
"""Runs of one turn that go on at the same time; a turn that calls more gets an error for the rest."""
MAX_SOURCES = 100
_NO_SEARCH = "no search backend is configured on this server. remove the tool, or ask the operator to set [search]"
_REPEATED = "you have the result of this very call already. answer with what you have"
_UNPAID = "the balance does not cover another use of tools. answer with what you have"
_LINKS = " The reader sees your words and nothing else: give the addresses of what you used as Markdown links."
"""For a vendor's search that ours stands in for: its clients do not know our sources (D13, D19)."""
_OFF = "this tool is switched off on this server. remove it"


class Entry(msgspec.Struct, frozen=True):
    """A server tool as this request asks for it."""

    tool: ServerTool
    served: Served


class Result(msgspec.Struct, frozen=True):
    """What became of one call: a part for the model, with the sources and the number of searches behind it."""

    part: ResultPart
    sources: tuple[Source, ...] = ()
    searches: int = 0
    repeated: bool = False
    """The very same call had a result before: small models call in circles."""


class Toolbox:
    """The server tools of one request, by the name that the model calls. Counts uses and collects sources."""

    def __init__(self, entries: dict[str, Entry], seconds: float, tokens: int) -> None:
        self.entries = entries
        self.sources: tuple[Source, ...] = ()
        self.searches = 0
        self._seconds, self._tokens = seconds, tokens
        self._uses: dict[str, int] = {}
        self._done: set[tuple[str, bytes]] = set()
        self._legs: list[Leg] = []

    def take_legs(self) -> list[Leg]:
        """Legs of the bill of what ran since this was asked last. Each is there as soon as its run is over, so a client
        that leaves while others still run owes for it (U6)."""
        legs, self._legs = self._legs, []
        return legs

    def fees(self, calls: list[CallPart]) -> int:
        """What these calls cost at most beside tokens (1e-9 currency units)."""
        return sum(
            self.entries[call.name].tool.fee
            for call in calls[:MAX_AT_ONCE]
            if (call.name, call.arguments) not in self._done
        )

    def most_tokens(self, calls: list[CallPart]) -> int:
        """How many tokens the results of these calls have at most."""
        return len(calls[:MAX_AT_ONCE]) * self._tokens

    def unpaid(self, calls: list[CallPart]) -> list[Result]:
        """None of them is run: the balance does not cover it, and the model hears so."""
        return [_failed(call, _UNPAID) for call in calls]

    async def run(self, calls: list[CallPart]) -> list[Result]:
        """All calls of a turn at once, results in their order. Never raises for a tool's failure: the model hears of it."""
        results = await asyncio.gather(*(self._one(at, call) for at, call in enumerate(calls)))
        for result in results:
            self.searches += result.searches
            known = {source.url for source in self.sources}
            fresh = tuple(source for source in result.sources if source.url not in known)
            self.sources = (self.sources + fresh)[:MAX_SOURCES]
        return list(results)

    async def _one(self, at: int, call: CallPart) -> Result:
        entry = self.entries[call.name]
        if at >= MAX_AT_ONCE:
            return _failed(call, f"at most {MAX_AT_ONCE} tools run at once. call again with fewer")
        same = call.name, call.arguments
        if same in self._done:
            return Result(ResultPart(call.call_id, [TextPart(jsonx.escape(_REPEATED))]), repeated=True)
        used = self._uses.get(call.name, 0)
        if entry.served.max_uses is not None and used >= entry.served.max_uses:
            return _failed(call, "this tool may not be used again for this answer. answer with what you have")
        self._uses[call.name] = used + 1
        self._done.add(same)  # before it runs: the same call may stand in this turn twice
        try:
            return await self._ran(call, entry)
        except ToolError as error:
            self._done.discard(same)
            return _failed(call, error.message)

    async def _ran(self, call: CallPart, entry: Entry) -> Result:
        """One run. Raises ToolError in words for the model."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._seconds):
                outcome = await entry.tool.run(_arguments(call), entry.served)
        except ToolError:
            raise
        except TimeoutError:
            raise ToolError(f"the tool took longer than {self._seconds:g} s and was stopped") from None
        except Exception as fault:  # noqa: BLE001 - a fault of a tool is the model's news, not the client's end
            _log.error("%s in the server tool %s", type(fault).__name__, entry.tool.kind)
            raise ToolError("the tool failed. answer without it") from None
        text, cut = cut_to_tokens(outcome.text, self._tokens)
        if cut:
            text += "\n[the rest was left out]"
        self._legs.append(Leg(entry.tool.kind, Usage(), "ok", (loop.time() - began) * 1000, fee=outcome.fee))
        part = ResultPart(call.call_id, [TextPart(jsonx.escape(text))])
        return Result(part, outcome.sources, outcome.searches)


def equip(request: Request, tools: Mapping[str, ServerTool]) -> tuple[Request, dict[str, Entry]]:
    """The request with its server tools among the tools that the model sees, and those tools by that name.

    Raises the 400 of a tool that is not served here; a vendor's tool that ours would stand in for is left out (D19).
    """
    taken = {tool.name for tool in request.tools}
    entries: dict[str, Entry] = {}
    more: list[Tool] = []
    notices: list[Notice] = []
    for served in request.served:
        tool = tools.get(served.kind)
        if tool is None and served.vendor:
            notices.append(Notice(served.vendor, "no search backend is configured"))
            continue
        if tool is None:
            why = _NO_SEARCH if served.kind == "kenari:web_search" else _OFF
            raise bad_request(f"{served.kind}: {why}", served.param)
        name = served.name or tool.name
        while name in taken:
            name = f"kenari_{name}"
        taken.add(name)
        entries[name] = Entry(tool, served)
        words = tool.description + _LINKS if served.vendor else tool.description
        more.append(Tool(name, jsonx.escape(words), Raw(tool.schema)))
    choice = request.tool_choice
    gone = {served.name for served in request.served if served.vendor} - taken
    if choice is not None and choice.mode == "named" and choice.name in gone:
        choice = None
    equipped = msgspec.structs.replace(
        request,
        tools=[*request.tools, *more],
        served=[],
        tool_choice=choice,
        notices=[*request.notices, *notices],
    )
    return equipped, entries


def _arguments(call: CallPart) -> dict[str, Any]:
    """The arguments of a call. Raises ToolError for what is no JSON object."""
    try:
        value = jsonx.value(jsonx.unescape(call.arguments).encode("utf-8", "replace"))
    except jsonx.Malformed:
        raise ToolError("the arguments are not valid JSON. call the tool again with a JSON object") from None
    if not isinstance(value, dict):
        raise ToolError("the arguments must be a JSON object. call the tool again with one")
    return value  # pyright: ignore[reportUnknownVariableType]


def _failed(call: CallPart, message: str) -> Result:
    part = ResultPart(call.call_id, [TextPart(jsonx.escape(message))], is_error=True)
    return Result(part)
