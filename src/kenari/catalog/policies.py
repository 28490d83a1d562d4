"""In which order a request's candidates are tried, and why. Pure: chance comes in as a seed.

A policy makes the order; a conversation's pin comes to the front of it; health moves what does not work to the end.
"""

import hashlib
import math

import msgspec

from kenari.catalog.health import Health, Standing, speed, standing, wait_of
from kenari.catalog.models import Policy


class Choice(msgspec.Struct, frozen=True):
    """A candidate as policies see it. `name` is unique, `group` the member of the route that it belongs to.

    `cost` is what this request would cost there, in any unit; None when it has no price.
    """

    name: str
    group: str
    weight: int
    cost: float | None
    health: Health


class Ranked(msgspec.Struct, frozen=True):
    """A place in the order. `index` is the position of the choice in what was given, `why` words for people."""

    index: int
    standing: Standing
    why: str


class Wish(msgspec.Struct, frozen=True):
    """What decides an order besides the choices: `seed` is the conversation or chance; `pin` is a choice's name.

    `conversation` is true when the seed belongs to a conversation: the same one always makes the same order.
    """

    policy: Policy
    seed: bytes
    now: float
    conversation: bool = False
    pin: str | None = None


def arrange(choices: list[Choice], wish: Wish) -> list[Ranked]:
    """All choices in order, excluded ones at the end: they are not to be called."""
    order, words = _POLICIES[wish.policy](choices, wish)
    ranked = [Ranked(index, standing(choices[index].health, wish.now), words[index]) for index in order]
    if wish.pin is not None:
        ranked.sort(key=lambda one: choices[one.index].name != wish.pin)
        ranked = [_pinned(one) if choices[one.index].name == wish.pin else one for one in ranked]
    waits = {one.index: wait_of(choices[one.index].health, wish.now) for one in ranked}
    ranked.sort(key=lambda one: _place(one.standing, waits[one.index]))
    return [_explained(one, choices[one.index], wish.now) for one in ranked]


def _place(standing: Standing, wait: float) -> tuple[int, float]:
    """What works keeps its order; of what does not, the least bad one comes first."""
    if standing in (Standing.READY, Standing.PROBE):
        return (0, 0.0)
    return (int(standing), wait)


def _pinned(ranked: Ranked) -> Ranked:
    return msgspec.structs.replace(ranked, why="the conversation's provider so far")


def _explained(ranked: Ranked, choice: Choice, now: float) -> Ranked:
    wait = wait_of(choice.health, now)
    more = {
        Standing.READY: "",
        Standing.PROBE: "; it failed before, this request sees whether it works again",
        Standing.OPEN: f"; moved back: {choice.health.failures} failures in a row, next look in {wait:.0f} s",
        Standing.REFUSED: "; moved back: its provider refused this key",
        Standing.EXCLUDED: f"; left out: its provider asked to wait, {wait:.0f} s are left",
    }[ranked.standing]
    return msgspec.structs.replace(ranked, why=ranked.why + more) if more else ranked


Order = tuple[list[int], list[str]]


def _in_order(choices: list[Choice], wish: Wish) -> Order:
    return list(range(len(choices))), ["the order of the configuration"] * len(choices)


def _weighted(choices: list[Choice], wish: Wish) -> Order:
    """By weight, the member first and its targets in their order: the share of first places is the share of weights."""
    by = "the conversation" if wish.conversation else "chance"
    scores = {choice.group: _score(wish.seed, choice.group, choice.weight) for choice in choices}
    order = sorted(range(len(choices)), key=lambda index: scores[choices[index].group])
    return order, [f"weight {choice.weight}, drawn by {by}" for choice in choices]


def _sticky(choices: list[Choice], wish: Wish) -> Order:
    """By weight as well, but each target for itself: conversations spread over all of them."""
    by = "the conversation" if wish.conversation else "chance"
    order = sorted(range(len(choices)), key=lambda index: _score(wish.seed, choices[index].name, choices[index].weight))
    return order, [f"its turn for {by}"] * len(choices)


def _cheapest(choices: list[Choice], wish: Wish) -> Order:
    costs = [math.inf if choice.cost is None else choice.cost for choice in choices]
    words = ["no price" if choice.cost is None else f"about {choice.cost:.9f} for this request" for choice in choices]
    return sorted(range(len(choices)), key=costs.__getitem__), words


def _fastest(choices: list[Choice], wish: Wish) -> Order:
    speeds = [speed(choice.health, wish.now) for choice in choices]
    words = [f"first content after about {one * 1000:.0f} ms" if one else "not measured yet" for one in speeds]
    return sorted(range(len(choices)), key=speeds.__getitem__), words


_POLICIES = {
    "order": _in_order,
    "weighted": _weighted,
    "cheapest": _cheapest,
    "fastest": _fastest,
    "sticky": _sticky,
}


def _score(seed: bytes, name: str, weight: int) -> float:
    """Weighted rendezvous hashing: the smallest score wins with the weight's share, and a name that goes away moves
    only those that it had won."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=seed[:64], digest_size=8).digest()
    uniform = (int.from_bytes(digest) + 1) / (2**64 + 1)
    return -math.log(uniform) / weight
