"""What a request may cost at most, and how long its answer may be for what is held (F8). Pure."""

import math

import msgspec

from kenari.catalog.models import Model
from kenari.core.price import Price
from kenari.core.request import Notice, Request
from kenari.ledger.price import affordable_output, quote

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

    @property
    def amount(self) -> int:
        """The prompt and the whole cap."""
        return quote(self.prompt, self.cap, self.price) + self.fees

    @property
    def least(self) -> int:
        """What is enough: all of a cap that was named, else the prompt and a short answer."""
        if self.named:
            return self.amount
        return quote(self.prompt, min(self.cap, LEAST_OUTPUT), self.price) + self.fees

    def room(self, held: int) -> float:
        """How many tokens of output are covered by what is held; infinity where output costs nothing."""
        tokens = affordable_output(held, self.prompt, self.price)
        return math.inf if tokens is None else tokens

    def most(self, held: int, spent: int = 0) -> float:
        """Where our own count ends a call's answer when earlier calls of the request have spent some of what is held:
        where the balance is what bounds it exactly there, else at the cap with slack, which each call has anew."""
        if held < self.amount:
            return self.room(held - spent)
        return self.cap * SLACK if self.price.output else math.inf


def make_quote(request: Request, model: Model, price: Price, prompt: int, fees: int = 0) -> Quote:
    """The quote of a request whose prompt was counted. A cap above the model's own counts as that (D23)."""
    named = request.max_output is not None
    cap = min(request.max_output or model.max_output_tokens, model.max_output_tokens)
    return Quote(price=price, prompt=prompt, cap=cap, named=named, fees=fees)


def lower_cap(request: Request, quote: Quote, held: int) -> None:
    """Where less than the whole was granted to a caller who named no cap: the cap is lowered to it, and that is noted."""
    if quote.named or held >= quote.amount:
        return
    cap = int(quote.room(held - quote.fees))
    request.max_output = max(1, cap)
    request.notices = [*request.notices, Notice("max_output_tokens", f"lowered to {cap}: the balance allows no more")]
