"""The order in which a request's candidates are tried: policies and pins over the health that this process has seen."""

import hashlib
import logging
import random
from collections.abc import Callable, Iterable

import msgspec

from kenari.catalog import health as rules
from kenari.catalog.health import UNKNOWN, Health, News, Standing
from kenari.catalog.policies import Choice, Ranked, Wish, arrange
from kenari.core.errors import KenariError
from kenari.core.ids import cache_key
from kenari.core.request import Request
from kenari.gateway.estimate import estimate_prompt
from kenari.gateway.pins import Pins
from kenari.gateway.plan import Candidate, Plan

_log = logging.getLogger("kenari.routing")

USUAL_OUTPUT = 1024
"""Tokens of an answer whose length nobody named, to compare prices by."""
REFUSALS = (401, 403)
MAX_SESSION = 512
"""Bytes; longer session ids are ignored."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one candidate fared with one request.

    `error` is None when it answered, `called` false when it was not even asked (its model cannot take the request),
    `left` that the client went away. `status` is the provider's, 0 for none; `wait` the seconds that it asked for by
    Retry-After. `first_content` is in seconds from the call; `cut` says that our deadline ended it, not its own silence.
    """

    candidate: Candidate
    error: KenariError | None
    called: bool = True
    left: bool = False
    status: int = 0
    wait: float | None = None
    first_content: float | None = None
    cut: bool = False


class Step(msgspec.Struct, frozen=True):
    """A candidate in its place, where it stands, and why it is there."""

    candidate: Candidate
    standing: Standing
    why: str


class _Answers:
    """Answers of a candidate that is well: how many seconds each took to its first content, and when the last one came."""

    __slots__ = ("first_contents", "last")

    def __init__(self) -> None:
        self.first_contents: list[float] = []
        self.last = 0.0


class Routing:
    """Orders candidates and remembers how they fared; it outlives a reload. `tell`, where it is set, lets other processes know,
    and never waits; `hear` is for what they tell.

    A candidate is known by its mark: its name, and a digest of its provider's address and key. So a key that was changed
    begins anew, and nodes that mean different keys by one name do not mix them up.
    """

    def __init__(self, clock: Callable[[], float], pins: Pins, secret: bytes, chance: random.Random) -> None:
        self._clock, self.pins, self._secret, self._chance = clock, pins, secret, chance
        self._health: dict[str, Health] = {}
        self._answers: dict[str, _Answers] = {}  # that `_health` does not hold yet
        self._marks: dict[str, tuple[str, str, str]] = {}
        self.tell: Callable[[str, News], None] | None = None

    async def steps(self, plan: Plan, request: Request | None, conversation: str | None) -> list[Step]:
        """The plan's candidates in the order of trying; excluded ones last, which are not to be called.

        `conversation` is what `conversation_key` made; None has no pin.
        """
        if len(plan.candidates) == 1:
            candidate = plan.candidates[0]
            return [Step(candidate, rules.standing(self.health(candidate), self._clock()), "the only candidate")]
        pin = None if conversation is None else await self.pins.get(conversation)
        return self.arrange(plan, request, conversation, pin)

    def arrange(self, plan: Plan, request: Request | None, conversation: str | None, pin: str | None) -> list[Step]:
        """The same with a pin that is known."""
        policy = plan.entry.policy
        seed = conversation.encode() if conversation is not None else self._chance.randbytes(16)
        costs = policy == "cheapest" and request is not None
        size = (estimate_prompt(request), _output(request)) if costs and request is not None else None
        choices = [
            Choice(one.name, one.model.id, one.weight, _cost(one, size), self.health(one)) for one in plan.candidates
        ]
        wish = Wish(policy, seed, self._clock(), conversation is not None, pin)
        return [_step(plan, ranked) for ranked in arrange(choices, wish)]

    def conversation_key(self, account: str, model: str, session: str) -> str:
        """The name under which a conversation's pin is kept: an HMAC of account, model and session (M3)."""
        return cache_key(self._secret, f"{account}\0{model}", session)

    def health(self, candidate: Candidate) -> Health:
        """What is remembered of a candidate; nothing of one with a caller's own key."""
        return UNKNOWN if candidate.own else self._known(self.mark(candidate))

    def mark(self, candidate: Candidate) -> str:
        """By what a candidate is known to all processes."""
        key, address = candidate.key, candidate.provider.base_url
        known = self._marks.get(candidate.name)
        if known is None or known[0] != key or known[1] != address:
            digest = hashlib.blake2b(f"{address}\0{key}".encode(), key=self._secret[:64], digest_size=8).hexdigest()
            known = self._marks[candidate.name] = (key, address, f"{candidate.name}@{digest}")
        return known[2]

    def wait_of(self, candidate: Candidate) -> float:
        """Seconds until it is worth another try."""
        return rules.wait_of(self.health(candidate), self._clock())

    def began(self, candidate: Candidate) -> None:
        """A candidate is called now."""
        if not candidate.own:
            before = self.health(candidate)
            if before.retry_at is not None:  # else its breaker is closed: there is nothing to probe
                self._keep(candidate, before, rules.began(before, self._clock()))

    def note(self, outcome: Outcome) -> None:
        """Remember how a candidate fared. What happens to a caller's own key says nothing about others' calls."""
        candidate, error, now = outcome.candidate, outcome.error, self._clock()
        if candidate.own or not outcome.called:
            return
        first = outcome.first_content
        if error is None and first is not None and not (outcome.left or outcome.cut):
            mark = self.mark(candidate)
            if self._is_fine(mark):  # nearly always: it worked and works, which is no news
                self._add(mark, first)
                return
        before = self.health(candidate)
        if outcome.left or outcome.cut:
            after = rules.left(before)
        elif error is None:
            after = rules.succeeded(before, now, outcome.first_content)
            mark = self.mark(candidate)
            if self.is_well(mark):  # no news either
                self._health[mark] = after
                return
        elif outcome.status in REFUSALS:
            after = rules.refused(before, now)
            self._report_refusal(candidate, before, now, outcome.status)
        elif error.kind.status in (400, 413) or outcome.status == 429 or error.code == "upstream_rate_limited":
            after = rules.left(before)
        else:
            after = rules.failed(before, now, self._chance.random())
        if outcome.wait is not None and error is not None and not outcome.left:
            after = rules.excluded(after, now, outcome.wait, error.code)
        self._report_change(candidate, before, after, now)
        self._keep(candidate, before, after)

    def is_well(self, mark: str) -> bool:
        """Whether nothing speaks against calling the candidate of this mark: what comes of it is no news."""
        return rules.is_well(self._health.get(mark, UNKNOWN))

    def worked(self, candidate: Candidate, mark: str, first_content: float) -> None:
        """A candidate of this mark has answered: what `note` makes of that, when it is asked for."""
        if self._is_fine(mark):
            self._add(mark, first_content)
        else:
            self.note(Outcome(candidate=candidate, error=None, status=200, first_content=first_content))

    def _is_fine(self, mark: str) -> bool:
        """The same as `is_well`: whose answers are kept is."""
        return mark in self._answers or self.is_well(mark)

    def _add(self, mark: str, first_content: float) -> None:
        answers = self._answers.get(mark)
        if answers is None:
            answers = self._answers[mark] = _Answers()
        answers.first_contents.append(first_content)
        answers.last = self._clock()
        if len(answers.first_contents) >= rules.SAMPLES:
            self._known(mark)

    def _known(self, mark: str) -> Health:
        """What is remembered of the candidate of this mark."""
        health, answers = self._health.get(mark, UNKNOWN), self._answers.pop(mark, None)
        if answers is not None:
            health = self._health[mark] = rules.answered(health, answers.last, answers.first_contents)
        return health

    def hear(self, mark: str, news: News) -> None:
        """What another process knows of a candidate."""
        health = rules.learned(self._known(mark), news, self._clock())
        if health == UNKNOWN:
            self._health.pop(mark, None)
        else:
            self._health[mark] = health

    def keep_only(self, candidates: Iterable[Candidate]) -> None:
        """Drop what is remembered of all other candidates (the configuration was reloaded)."""
        self._marks.clear()
        marks = {self.mark(candidate) for candidate in candidates}
        self._health = {mark: health for mark, health in self._health.items() if mark in marks}
        self._answers = {mark: answers for mark, answers in self._answers.items() if mark in marks}

    def jitter(self, longest: float) -> float:
        """A share of some seconds, by chance."""
        return longest * self._chance.random()

    def _keep(self, candidate: Candidate, before: Health, after: Health) -> None:
        if after is not before:
            mark = self.mark(candidate)
            self._health[mark] = after
            if self.tell is not None and rules.is_news(before, after):
                self.tell(mark, rules.news_of(after, self._clock()))

    def _report_refusal(self, candidate: Candidate, before: Health, now: float, status: int) -> None:
        if rules.standing(before, now) is not Standing.REFUSED:
            _log.error("%s: its provider refused the key (status %d); it is set aside", candidate.name, status)

    def _report_change(self, candidate: Candidate, before: Health, after: Health, now: float) -> None:
        was, is_now = rules.standing(before, now), rules.standing(after, now)
        if is_now is Standing.OPEN and was is not Standing.OPEN:
            _log.warning("%s: %d failures in a row; it is tried last for a while", candidate.name, after.failures)
        elif is_now is Standing.EXCLUDED and was is not Standing.EXCLUDED:
            _log.warning("%s: its provider asked to wait %.0f s", candidate.name, rules.wait_of(after, now))
        elif is_now is Standing.READY and was is Standing.PROBE:
            _log.info("%s: it works again", candidate.name)


def session_of(request: Request, headers: dict[bytes, bytes]) -> str | None:
    """What a client calls its conversation: `prompt_cache_key`, `session_id` or the header `x-session-id` (M3)."""
    return session_in(headers) if request.cache_key is None else request.cache_key


def session_in(headers: dict[bytes, bytes]) -> str | None:
    """The same of the header alone."""
    value = headers.get(b"x-session-id", b"")
    return value.decode("latin-1") if 0 < len(value) <= MAX_SESSION else None


def _step(plan: Plan, ranked: Ranked) -> Step:
    return Step(plan.candidates[ranked.index], ranked.standing, ranked.why)


def _output(request: Request) -> int:
    return min(request.max_output or USUAL_OUTPUT, USUAL_OUTPUT)


def _cost(candidate: Candidate, size: tuple[int, int] | None) -> float | None:
    """What a request of (input, output) tokens would cost there, in the currency; one of a usual size without it."""
    price = candidate.model.price
    if price is None:
        return None
    tokens, output = size or (USUAL_OUTPUT, USUAL_OUTPUT)
    return (tokens * float(price.input) + output * float(price.output)) / 1e6
