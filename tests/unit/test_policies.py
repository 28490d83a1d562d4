"""Orders of candidates: each policy, a conversation's pin, and health that only reorders."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenari.catalog.health import UNKNOWN, Health, Standing, excluded, failed, refused, succeeded
from kenari.catalog.models import Policy
from kenari.catalog.policies import Choice, Ranked, Wish, arrange

NOW = 1000.0


def choice(name: str, group: str = "", weight: int = 1, cost: float | None = 1.0, health: Health = UNKNOWN) -> Choice:
    return Choice(name, group or name, weight, cost, health)


def opened(at: float = NOW) -> Health:
    return failed(failed(failed(UNKNOWN, at, 0), at, 0), at, 0)


def names(choices: list[Choice], policy: Policy = "order", seed: bytes = b"s", **more: Any) -> list[str]:
    return [choices[one.index].name for one in ranked(choices, policy, seed, **more)]


def ranked(choices: list[Choice], policy: Policy = "order", seed: bytes = b"s", **more: Any) -> list[Ranked]:
    return arrange(choices, Wish(policy, seed, NOW, **more))


ABC = [choice("a"), choice("b"), choice("c")]


def test_order_is_the_configuration_s() -> None:
    assert names(ABC) == ["a", "b", "c"]


@pytest.mark.parametrize("policy", ["weighted", "sticky"])
def test_the_share_of_first_places_is_the_share_of_weights(policy: Policy) -> None:
    choices = [choice("a", weight=7), choice("b", weight=2), choice("c", weight=1)]
    firsts = Counter(names(choices, policy, seed=b"%d" % number)[0] for number in range(2000))
    assert abs(firsts["a"] - 1400) < 100
    assert abs(firsts["b"] - 400) < 80
    assert abs(firsts["c"] - 200) < 60


def test_weighted_keeps_the_targets_of_a_member_together_and_sticky_does_not() -> None:
    choices = [choice("a1", "a"), choice("a2", "a"), choice("b1", "b"), choice("b2", "b")]
    for number in range(50):
        order = names(choices, "weighted", seed=b"%d" % number)
        assert order in (["a1", "a2", "b1", "b2"], ["b1", "b2", "a1", "a2"])
    firsts = {names(choices, "sticky", seed=b"%d" % number)[0] for number in range(50)}
    assert firsts == {"a1", "a2", "b1", "b2"}


@given(st.binary(min_size=1, max_size=40), st.integers(2, 6))
def test_a_candidate_that_goes_moves_only_what_was_its_own_m3(seed: bytes, count: int) -> None:
    """Rendezvous hashing: all nodes agree, and the others' conversations stay where they are."""
    choices = [choice(f"p{number}") for number in range(count)]
    order = names(choices, "sticky", seed=seed)
    for gone in order:
        rest = [one for one in choices if one.name != gone]
        assert names(rest, "sticky", seed=seed) == [name for name in order if name != gone]


def test_cheapest_by_what_this_request_costs() -> None:
    choices = [choice("a", cost=3.0), choice("b", cost=1.0), choice("c", cost=None), choice("d", cost=1.0)]
    assert names(choices, "cheapest") == ["b", "d", "a", "c"]


def test_fastest_by_the_moving_time_to_first_content() -> None:
    choices = [
        choice("slow", health=succeeded(UNKNOWN, NOW, 2.0)),
        choice("fast", health=succeeded(UNKNOWN, NOW, 0.5)),
        choice("new"),
    ]
    assert names(choices, "fastest") == ["new", "fast", "slow"]  # what nobody knows is measured first


@pytest.mark.parametrize("policy", ["order", "weighted", "cheapest", "fastest", "sticky"])
def test_a_pin_comes_first_in_every_policy_while_it_works_m3(policy: Policy) -> None:
    assert names(ABC, policy, pin="c")[0] == "c"
    assert ranked(ABC, policy, pin="c")[0].why == "the conversation's provider so far"
    for health in (opened(), refused(UNKNOWN, NOW), excluded(UNKNOWN, NOW, 9, "x")):
        assert names([*ABC[:2], choice("c", health=health)], policy, pin="c")[-1] == "c"


def test_breakers_only_reorder_and_the_least_bad_one_is_tried_m2() -> None:
    choices = [
        choice("out", health=excluded(UNKNOWN, NOW, 9, "upstream_rate_limited")),
        choice("refused", health=refused(UNKNOWN, NOW)),
        choice("late", health=opened(NOW)),
        choice("soon", health=opened(NOW - 3)),
    ]
    order = ranked(choices)
    assert [choices[one.index].name for one in order] == ["soon", "late", "refused", "out"]
    assert [one.standing for one in order] == [Standing.OPEN, Standing.OPEN, Standing.REFUSED, Standing.EXCLUDED]
    assert "failures in a row" in order[0].why
    assert "9 s are left" in order[3].why
    assert names([*choices, choice("fine")])[0] == "fine"


def test_a_probe_keeps_its_place() -> None:
    choices = [choice("a", health=opened(NOW - 60)), choice("b")]
    assert names(choices) == ["a", "b"]
    assert ranked(choices)[0].standing is Standing.PROBE
