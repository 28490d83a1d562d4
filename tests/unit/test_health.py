"""The breaker and what else is remembered of a candidate: pure functions of a state and the time."""

from hypothesis import given
from hypothesis import strategies as st

from kenari.catalog.health import (
    COOL,
    FAILURES,
    MAX_COOL,
    MAX_EXCLUSION,
    PROBE_SECONDS,
    REFUSED_SECONDS,
    UNKNOWN,
    Health,
    Standing,
    began,
    excluded,
    failed,
    left,
    percentile,
    refused,
    speed,
    standing,
    succeeded,
    wait_of,
)


def broken(now: float = 100.0) -> Health:
    health = UNKNOWN
    for _ in range(FAILURES):
        health = failed(health, now, 0.0)
    return health


def test_failures_in_a_row_open_the_breaker_and_a_success_between_starts_anew_m2() -> None:
    health = UNKNOWN
    for _ in range(FAILURES - 1):
        health = failed(health, 1.0, 0.0)
        assert standing(health, 1.0) is Standing.READY
    health = succeeded(health, 1.0, 0.1)
    for _ in range(FAILURES - 1):
        health = failed(health, 1.0, 0.0)
    assert standing(health, 1.0) is Standing.READY
    assert standing(failed(health, 1.0, 0.0), 1.0) is Standing.OPEN


def test_one_probe_after_the_pause_and_what_becomes_of_it() -> None:
    health = broken()
    assert standing(health, 100 + COOL - 0.01) is Standing.OPEN
    assert standing(health, 100 + COOL) is Standing.PROBE
    probing = began(health, 106.0)
    assert standing(probing, 106.0) is Standing.OPEN  # nobody else joins the probe
    assert standing(left(probing), 106.0) is Standing.PROBE  # the client went away: the next one looks
    assert standing(probing, 106.0 + PROBE_SECONDS) is Standing.PROBE  # a probe without a word is forgotten
    assert standing(succeeded(probing, 107.0, None), 107.0) is Standing.READY
    again = failed(probing, 107.0, 0.0)
    assert standing(again, 107.0 + 2 * COOL - 0.01) is Standing.OPEN  # twice the pause
    assert standing(again, 107.0 + 2 * COOL) is Standing.PROBE


def test_calls_that_fail_together_do_not_double_the_pause() -> None:
    health = failed(failed(broken(), 100.5, 0.0), 101.0, 0.0)
    assert standing(health, 100 + COOL) is Standing.PROBE


def test_the_pause_has_an_end_and_chance_spreads_it() -> None:
    health, now = broken(), 100.0
    for _ in range(20):
        now += MAX_COOL * 2
        health = failed(began(health, now), now, 0.0)
    assert wait_of(health, now) == MAX_COOL
    assert COOL < wait_of(failed(failed(failed(UNKNOWN, 0, 0), 0, 0), 0, 1.0), 0) <= COOL * 1.2


def test_retry_after_keeps_a_candidate_out_until_then_m2() -> None:
    health = excluded(UNKNOWN, 10.0, 7.0, "upstream_rate_limited")
    assert standing(health, 16.9) is Standing.EXCLUDED
    assert round(wait_of(health, 16.0), 6) == 1.0
    assert standing(health, 17.0) is Standing.READY
    shorter = excluded(health, 11.0, 1.0, "upstream_rate_limited")
    assert standing(shorter, 16.0) is Standing.EXCLUDED  # a shorter wish does not shorten an earlier one
    assert wait_of(excluded(UNKNOWN, 0.0, 1e12, "x"), 0.0) == MAX_EXCLUSION


def test_a_refused_key_is_set_aside_and_tried_again_much_later() -> None:
    health = refused(UNKNOWN, 10.0)
    assert standing(health, 10.0 + REFUSED_SECONDS - 1) is Standing.REFUSED
    assert standing(health, 10.0 + REFUSED_SECONDS) is Standing.READY
    assert standing(succeeded(health, 11.0, None), 11.0) is Standing.READY


def test_speed_moves_and_fades() -> None:
    assert speed(UNKNOWN, 0.0) == 0.0
    slow = succeeded(UNKNOWN, 100.0, 4.0)
    assert speed(slow, 100.0) == 4.0
    assert speed(slow, 400.0) == 2.0  # not measured for a while: it gets another chance
    faster = succeeded(slow, 100.0, 0.0)
    assert speed(faster, 100.0) == 3.0


def test_the_95th_percentile_needs_some_calls() -> None:
    health = UNKNOWN
    for number in range(19):
        health = succeeded(health, 1.0, float(number))
    assert percentile(health, 0.95) is None
    for number in range(19, 500):
        health = succeeded(health, 1.0, float(number))
    assert len(health.samples) == 64
    assert percentile(health, 0.95) == 496.0


@given(st.lists(st.tuples(st.sampled_from(["ok", "fail", "began", "left", "wait", "refused"]), st.floats(0, 50))))
def test_any_history_ends_in_a_state_that_recovers(history: list[tuple[str, float]]) -> None:
    """However it fared, a candidate is never lost: in time it is asked again."""
    health, now = UNKNOWN, 0.0
    for what, seconds in history:
        now += seconds
        match what:
            case "ok":
                health = succeeded(health, now, seconds)
            case "fail":
                health = failed(health, now, 0.5)
            case "began":
                health = began(health, now)
            case "left":
                health = left(health)
            case "wait":
                health = excluded(health, now, seconds, "x")
            case _:
                health = refused(health, now)
        assert wait_of(health, now) >= 0
    assert standing(health, now + 1000) in (Standing.READY, Standing.PROBE)
