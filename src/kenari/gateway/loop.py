"""An answer that takes more than one call of its provider: server tools, and JSON that has to be asked for again.

ROUND of the gate's table: the provider's Stop is withheld, our tools run, their results go back to the model, the next
call is opened, and its blocks are numbered on. The client sees one answer. Keepalives go on meanwhile, back-pressure and
cancellation follow whatever is under way: a provider's call, or the tools.
"""

from typing import Protocol

import msgspec

from kenari.core.errors import KenariError, interrupted
from kenari.core.events import Event, Sources, Stop
from kenari.core.fold import Block
from kenari.core.ports import Leg
from kenari.core.request import CallPart, Notice, Part, Request, ResultPart, TextPart, ToolChoice, Turn
from kenari.dialects.base import Proof
from kenari.dialects.fit.format import function_name, is_checked, way_of
from kenari.gateway.legs import Legs
from kenari.gateway.plan import Candidate
from kenari.gateway.schema import Check, make_check
from kenari.gateway.services import Services
from kenari.gateway.shape import Shape
from kenari.gateway.sinks import Sink, Source
from kenari.gateway.toolbox import Result, Toolbox, equip
from kenari.gateway.waiting import while_waiting
from kenari.wire import jsonx

MAX_ROUNDS = 30
REPAIRS = 1
MIXED_TOKENS = 2000
"""How much of a result travels as text beside a client's calls (D13)."""
_LAST = (
    "\n\n[this was the last use of tools for this answer: no further tool can be called. answer now with what you have]"
)
_AGAIN = "That answer cannot be used: %s. Give the whole answer again as one JSON value, and nothing else."
_WRONG = "the model did not answer in the JSON that was asked for, also when asked again (%s). change the schema or the model"
_WISH = {"chat": "response_format", "messages": "output_config.format", "responses": "text.format"}
"""Where each format asks for JSON."""
_WRONG_IN_STREAM = "the model's answer is not the JSON that was asked for (%s). send the request again"


class Runner(Protocol):
    """One request's run, as far as a loop needs it."""

    @property
    def services(self) -> Services:
        """What serving needs."""
        ...

    @property
    def sink(self) -> Sink:
        """Where the answer goes."""
        ...

    def ignored(self, notice: Notice) -> None:
        """Something that was asked for was not done; it is named in the header and the line (D9)."""
        ...

    def bill(self, legs: list[Leg]) -> None:
        """Runs of tools, for the line and the bill."""
        ...

    async def cover(self, candidate: Candidate, request: Request, more: int = 0, fees: int = 0) -> Request | None:
        """Set aside what runs of tools for `fees` and another call cost: the request with the output cap that is covered,
        None where the money does not reach. `more` are tokens that will be added to its prompt."""
        ...

    async def cover_fees(self, fees: int) -> bool:
        """Set aside what runs of tools cost that no other call follows; whether they are covered."""
        ...

    def cut(self) -> None:
        """The answer ended because the money did not reach for more of it."""
        ...

    def seal(self, proofs: list[Proof]) -> str:
        """The envelope of these proofs of the candidate that is being tried."""
        ...

    async def leg(self, candidate: Candidate, request: Request, sink: Sink) -> KenariError | None:
        """One call of a provider; its error, None when it answered or the client went away."""
        ...


def needs_loop(request: Request, candidate: Candidate) -> bool:
    """Whether one call of this candidate may not be enough, or its answer has to be looked at."""
    return bool(request.served) or (request.format is not None and is_checked(request, candidate.target))


class Loop(Sink):
    """The sink of each call of one candidate: passes on what the client may see and decides what follows."""

    def __init__(self, run: Runner, request: Request, candidate: Candidate) -> None:
        # not Sink.__init__: the exchange's watcher stays the client's own sink, which this one feeds
        services = run.services
        self.exchange = run.sink.exchange
        self._run, self._candidate = run, candidate
        self._out = run.sink
        self.request, entries = equip(request, services.tools)
        settings = services.tool_settings
        self._toolbox = Toolbox(entries, settings.timeout, settings.result_tokens)
        self._rounds = min(settings.rounds, MAX_ROUNDS)
        self._legs = Legs(frozenset(entries))
        way = way_of(self.request, candidate.target)
        self._function = function_name(request.format) if way == "function" and request.format else ""
        self._check = self._make_check(way) if is_checked(self.request, candidate.target) else None
        self._trying = way == "native" and self._check is not None  # nobody vouches for this provider
        self._shaped = way in ("function", "instruct") or (self._check is not None and not self._wants_logprobs())
        self._shape: Shape | None = None
        self._fault: str | None = None
        self._held: list[Event] = []

    @property
    def shown(self) -> bool:
        """The client may have seen content."""
        return self._legs.shown

    async def run(self) -> KenariError | None:
        """Call the provider until there is an answer; its error, None when there is one or the client went away."""
        request = self.request
        rounds = repairs = 0
        while True:
            self._begin_call()
            error = await self._run.leg(self._candidate, request, self)
            if error is not None and self.shown and not self._out.gone:
                return interrupted()  # content of an earlier call was seen (D7)
            if error is not None or self._out.gone:
                return error
            calls = self._legs.calls
            if calls and rounds < self._rounds:
                rounds += 1
                paid = await self._covers(request, calls)
                results = await self._run_tools(calls) if paid else self._toolbox.unpaid(calls)
                if results is None or self._out.gone:
                    return None
                if self._legs.called:
                    self._end(self._as_text(calls, results))
                    return None
                circling = all(result.repeated for result in results)
                rounds = self._rounds if circling or not paid else rounds
                going = self._go_on(request, results, last=rounds == self._rounds)
                covered = await self._run.cover(self._candidate, going)
                if covered is None or self._out.gone:
                    self._cut()
                    return None
                request = covered
            elif self._fault is None:
                self._end([])
                return None
            elif self._trying:
                return self._pass_on(self._fault)
            elif self._shape is not None and not self._shape.shown and repairs < REPAIRS:
                repairs += 1
                again = await self._run.cover(self._candidate, self._ask_again(request, self._fault))
                if again is None or self._out.gone:
                    return None if self._out.gone else self._give_up(self._fault)
                request = again
            else:
                return self._give_up(self._fault)

    # -- what a provider's call sees of this sink

    def attach(self, source: Source | None) -> None:
        """The provider's call is the client's source while it lasts."""
        self._out.attach(source)

    def put(self, events: list[Event], last: bool = False) -> None:
        """Events of the current call."""
        if self._shape is not None:
            events = self._shape.take(events)
        out = self._legs.take(events)
        if last:
            self._legs.finish()
            if self._shape is not None and not self._legs.calls:
                rest, self._fault = self._shape.finish(self._legs.stop)
                out += self._legs.take(rest)
        if self._trying and not self._legs.shown and not (last and self._fault is None):
            self._held += out  # the head of the answer may still have to say that the wish was ignored
            return
        out, self._held = self._held + out, []
        if out:
            self._out.put(out)

    # -- between the calls

    def _begin_call(self) -> None:
        self._legs.begin()
        self._fault = None
        if self._shaped:
            flow = self.request.stream
            self._shape = Shape(self._function, flow, self._check)

    def _end(self, more: list[Event]) -> None:
        self._out.put([*more, *self._legs.end()], last=True)

    def _cut(self) -> None:
        """The money does not reach for another call: what was said ends as an answer that met its limit (F8)."""
        if not self._out.gone:
            self._legs.stop = Stop("length")
            self._end([])
            self._run.cut()

    async def _covers(self, request: Request, calls: list[CallPart]) -> bool:
        """Whether the money reaches for these runs of tools, and a short answer after them."""
        fees = self._toolbox.fees(calls)
        if not fees:
            return True
        if self._legs.called:  # no other call of ours follows
            return await self._run.cover_fees(fees)
        going = msgspec.structs.replace(request, turns=[*request.turns, self._legs.turn(self._sealed)])
        return await self._run.cover(self._candidate, going, self._toolbox.most_tokens(calls), fees) is not None

    async def _run_tools(self, calls: list[CallPart]) -> list[Result] | None:
        """Run them; None when the client went away meanwhile. What ran is billed, also when others were still running."""
        try:
            results = await while_waiting(self._out, self._toolbox.run(calls))
        finally:
            self._run.bill(self._toolbox.take_legs())
        if results is not None and self._toolbox.searches:
            self._out.put([Sources(self._toolbox.sources, self._toolbox.searches)])
        return results

    def _go_on(self, request: Request, results: list[Result], last: bool) -> Request:
        """The conversation with the calls and their results. A call that was forced is forced once."""
        parts: list[Part] = [result.part for result in results]
        choice = request.tool_choice
        if choice is not None and choice.mode != "none":
            choice = None
        if last:
            choice = ToolChoice("none")
            parts[-1] = _with_words(results[-1].part, _LAST)
        turns = [*request.turns, self._legs.turn(self._sealed), Turn("user", parts)]
        return msgspec.structs.replace(request, turns=turns, tool_choice=choice)

    def _as_text(self, calls: list[CallPart], results: list[Result]) -> list[Event]:
        """D13: beside calls of the client's own tools our results are text, which comes back with the next turn."""
        pieces: list[str] = []
        for call, result in zip(calls, results, strict=True):
            texts = [jsonx.unescape(part.text) for part in result.part.parts if isinstance(part, TextPart)]
            pieces.append(f"[{call.name}] {' '.join(texts)[: MIXED_TOKENS * 4]}")
        return self._legs.open_text(jsonx.escape("\n\n".join(pieces)))

    def _ask_again(self, request: Request, fault: str) -> Request:
        """The one repair round: the model sees its answer and what is wrong with it."""
        assert self._shape is not None
        said = self._shape.text.strip() or "(nothing)"
        turns = [
            *request.turns,
            Turn("assistant", [TextPart(jsonx.escape(said))]),
            Turn("user", [TextPart(jsonx.escape(_AGAIN % fault))]),
        ]
        return msgspec.structs.replace(request, turns=turns)

    def _pass_on(self, fault: str) -> KenariError | None:
        """A provider that was asked natively has ignored the wish: its answer goes out and the header says so, where there
        still is one to say it."""
        assert self._shape is not None
        if self._shape.shown or self._out.begun:
            return self._give_up(fault)
        self._run.ignored(Notice(_WISH[self.request.origin], "the provider ignored it"))
        self._end(self._held + self._legs.take(self._shape.release()))
        return None

    def _give_up(self, fault: str) -> KenariError:
        words = _WRONG_IN_STREAM if self._legs.shown else _WRONG
        return KenariError("upstream_error", words % fault, should_retry=False)

    def _make_check(self, way: str | None) -> Check | None:
        wanted = self.request.format
        if wanted is None:
            return None
        try:
            return make_check(wanted)
        except KenariError as error:
            if way == "native" or (way == "function" and error.elsewhere):
                return None  # the provider understands the schema, or only the library is missing
            raise

    def _wants_logprobs(self) -> bool:
        """They belong to the provider's own pieces of text, which a shaped answer does not keep."""
        return "logprobs" in self.request.fields

    def _sealed(self, blocks: list[Block]) -> str:
        proofs: list[Proof] = []
        for block in blocks:
            length = len(jsonx.unescape(block.text))
            for seal in block.seals:
                if seal.kind != "mark":
                    proofs.append(Proof(seal.kind, seal.value, length))
                    length = 0
        return self._run.seal(proofs) if proofs else ""


def _with_words(part: ResultPart, words: str) -> ResultPart:
    return ResultPart(part.call_id, [*part.parts, TextPart(jsonx.escape(words))], part.is_error)
