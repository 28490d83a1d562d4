"""What a request may cost at most, and how long its answer may be for what is held (F8). Pure."""

import math

import msgspec

from kenari.catalog.models import Model
from kenari.core.errors import KenariError
from kenari.core.price import Price
from kenari.core.request import FilePart, Notice, Request
from kenari.ledger.price import affordable_output, quote

_LONG = "the balance of this account does not cover the text of the documents. send less of them, or ask for credit"
DOCUMENT_TOKENS = 500_000
"""What a document may have at most, once it is read (`[documents] max_text`)."""
LEAST_OUTPUT = 256
"""Tokens: a request whose caller named no cap is served when the balance covers at least this much of an answer."""
SLACK = 1.25
"""Where the whole cap is covered, its provider keeps it; our count, which may be a guess, only ends what runs on well
beyond it."""


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be set aside: `amount`, or at least `least`, in 1e-9 currency units. `prompt` and `cap` are tokens;
    `named` says that the caller chose the cap; `fees` are set aside beside tokens (an own key, one run of each tool)."""

    price: Price
    prompt: int
    cap: int
    named: bool
    fees: int = 0
    unread: int = 0
    """Tokens that documents may have beyond what was counted of them unread."""

    @property
    def amount(self) -> int:
        """The prompt and the whole cap."""
        return quote(self.prompt + self.unread, self.cap, self.price) + self.fees

    @property
    def least(self) -> int:
        """What is enough: all of a cap that was named, else the prompt and a short answer."""
        output = self.cap if self.named else min(self.cap, LEAST_OUTPUT)
        return quote(self.prompt, output, self.price) + self.fees

    def check(self, held: int, prompt: int) -> None:
        """Raise the 402 where what is held does not cover a prompt whose documents are read now, and a short answer."""
        if quote(prompt, min(self.cap, LEAST_OUTPUT), self.price) + self.fees > max(held, self.least):
            raise KenariError("insufficient_balance", _LONG)

    def room(self, held: int) -> float:
        """How many tokens of output are covered by what is held; infinity where output costs nothing."""
        tokens = affordable_output(held, self.prompt, self.price)
        return math.inf if tokens is None else tokens

    def first(self, held: int) -> "Share":
        """What is covered of the first call."""
        return self._share(held, self.room(held))

    def another(self, price: Price, prompt: int, fees: int) -> "Quote":
        """What a further call within the request costs, with the tools that run before it. Whoever chose the cap, a short
        answer is enough: what was said already is better ended than broken."""
        return Quote(price=price, prompt=prompt, cap=self.cap, named=False, fees=fees)

    def share(self, held: int) -> "Share":
        """What is covered of a further call, behind its fees."""
        return self._share(held, self.room(held - self.fees))

    def _share(self, held: int, room: float) -> "Share":
        if held >= self.amount:
            return Share(self.cap, self.cap * SLACK if self.price.output else math.inf)
        return Share(int(min(self.cap, room)), room)


class Share(msgspec.Struct, frozen=True):
    """What is covered of one call's answer: `cap` tokens may be asked for; `most` is where our own count ends it. Where the
    balance is what bounds an answer that is exactly there, else at the cap with slack."""

    cap: int
    most: float


def make_quote(request: Request, model: Model, price: Price, prompt: int, fees: int = 0) -> Quote:
    """The quote of a request whose prompt was counted. A cap above the model's own counts as that (D23)."""
    named = request.max_output is not None
    cap = min(request.max_output or model.max_output_tokens, model.max_output_tokens)
    return Quote(price=price, prompt=prompt, cap=cap, named=named, fees=fees, unread=_unread(request, model))


def lower_cap(request: Request, quote: Quote, held: int) -> None:
    """Where less than the whole was granted to a caller who named no cap: the cap is lowered to it, and that is noted."""
    if quote.named or held >= quote.amount:
        return
    cap = int(min(quote.cap, quote.room(held - quote.fees)))
    if cap == quote.cap:  # documents may be short
        return
    request.max_output = max(1, cap)
    request.notices = [*request.notices, _notice(cap)]


def lowered(request: Request, cap: int) -> Request:
    """A request that goes on with a lower output cap, because the balance allows no more."""
    return msgspec.structs.replace(request, max_output=cap, notices=[*request.notices, _notice(cap)])


def _notice(cap: int) -> Notice:
    return Notice("max_output_tokens", f"lowered to {cap}: the balance allows no more")


def _unread(request: Request, model: Model) -> int:
    """What documents that are not read yet may have, no more than the model can take."""
    if request.plain:
        return 0
    files = sum(
        isinstance(part, FilePart) and bool(part.data or part.url) for turn in request.turns for part in turn.parts
    )
    return min(files * DOCUMENT_TOKENS, model.context_window or DOCUMENT_TOKENS)
