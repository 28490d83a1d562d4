"""What is counted of requests, and how it is shown to Prometheus."""

import io
import tracemalloc
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kenari.core.ports import Leg, Line, Reservation
from kenari.core.usage import Usage
from kenari.keeper import metrics as rules
from kenari.keeper.books import FLUSH_LINES, LogBooks
from kenari.keeper.metrics import Metrics
from kenari.keys.bootstrap import OPERATOR


def line(model: str = "m", **more: object) -> Line:
    """A request that went well, unless `more` says otherwise."""
    values: dict[str, object] = {
        "id": "0" * 16,
        "model": model,
        "client_format": "chat",
        "status": 200,
        "ending": "done",
        "legs": [Leg("p/x", Usage(fresh=10, cache_read=5, cache_write_5m=1, cache_write_1h=2, output=7), "ok", 900.0)],
        "first_content_ms": 240.0,
        "duration_ms": 1500.0,
        "charge": 1_250_000_000,
    }
    return Line(**(values | more))  # pyright: ignore[reportArgumentType]


def samples(metrics: Metrics) -> dict[str, float]:
    """All samples, as `name{label=value,...}`."""
    text = metrics.render("text/plain")[0].decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def make(**more: object) -> Metrics:
    values = {"currency": "USD", "version": "1.2.3", "label": lambda name: name} | more  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]
    return Metrics(**values)  # pyright: ignore[reportArgumentType]


def test_a_request_is_counted_by_what_it_was_and_how_it_ended() -> None:
    metrics = make()
    metrics.count(line())
    metrics.count(line())
    metrics.count(line(status=200, ending="client_closed", charge=0))
    found = samples(metrics)
    assert found["kenari_requests_total{format=chat,model=m,reason=done,status=200}"] == 2
    assert found["kenari_requests_total{format=chat,model=m,reason=client_closed,status=200}"] == 1
    assert found["kenari_tokens_total{class=input,model=m}"] == 30
    assert found["kenari_tokens_total{class=cache_read,model=m}"] == 15
    assert found["kenari_tokens_total{class=cache_write,model=m}"] == 9
    assert found["kenari_tokens_total{class=output,model=m}"] == 21
    assert found["kenari_charged_total{currency=USD,model=m}"] == 2.5
    assert found["kenari_cache_hit_share{target=p/x}"] == pytest.approx(15 / 54)  # pyright: ignore[reportUnknownMemberType]
    assert found["kenari_attempts_total{outcome=ok,target=p/x}"] == 3
    assert found["kenari_info{version=1.2.3}"] == 1


def test_u1_each_leg_counts_and_one_that_is_not_billed_has_no_tokens() -> None:
    metrics = make()
    legs = [
        Leg("p/a", Usage(fresh=100), "upstream_error", 5.0, billed=False),
        Leg("p/b", Usage(fresh=3, output=4, estimated=True), "ok", 5.0),
    ]
    metrics.count(line(legs=legs))
    found = samples(metrics)
    assert found["kenari_attempts_total{outcome=upstream_error,target=p/a}"] == 1
    assert found["kenari_attempts_total{outcome=ok,target=p/b}"] == 1
    assert found["kenari_tokens_total{class=input,model=m}"] == 3
    assert found["kenari_estimated_usage_total"] == 1


def test_times_fall_into_buckets() -> None:
    metrics = make()
    for milliseconds in (50.0, 240.0, 250.0, 400_000.0):
        metrics.count(line(first_content_ms=milliseconds, duration_ms=milliseconds))
    found = samples(metrics)
    assert found["kenari_first_content_seconds_bucket{le=0.05,model=m}"] == 1
    assert found["kenari_first_content_seconds_bucket{le=0.25,model=m}"] == 3
    assert found["kenari_first_content_seconds_bucket{le=+Inf,model=m}"] == 4
    assert found["kenari_first_content_seconds_count{model=m}"] == 4
    assert found["kenari_request_seconds_sum{model=m}"] == pytest.approx(400.54)


def test_a_request_that_was_refused_has_a_code_and_no_times() -> None:
    metrics = make()
    metrics.count(line(ending="refused", status=401, code="invalid_api_key", legs=[], charge=0, model=""))
    found = samples(metrics)
    assert found["kenari_requests_total{format=chat,model=,reason=refused,status=401}"] == 1
    assert found["kenari_errors_total{code=invalid_api_key}"] == 1
    assert not any(name.startswith("kenari_request_seconds_") for name in found)


def only_m(name: str) -> str:
    """The label of a node that serves one model."""
    return name if name == "m" else "other"


def test_names_that_clients_make_up_are_no_series() -> None:
    metrics = Metrics("USD", "1.2.3", only_m)
    for number in range(500):
        metrics.count(line(model=f'made-up-{number}"\n', ending="refused", status=404, code="model_not_found", legs=[]))
    found = samples(metrics)
    assert found["kenari_requests_total{format=chat,model=other,reason=refused,status=404}"] == 500
    assert sum(name.startswith("kenari_requests_total") for name in found) == 1


def test_families_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_SERIES", 3)
    metrics = make()
    for number in range(10):
        metrics.count(line(model=f"m{number}"))
    found = samples(metrics)
    assert found["kenari_requests_total{format=chat,model=other,reason=done,status=200}"] == 7
    assert sum(name.startswith("kenari_request_seconds_count") for name in found) == 4
    for number in range(10):  # a caller's own key serves any target that is asked for
        metrics.count(line(legs=[Leg(f"p/{number}", Usage(), "ok", 1.0)]))
    assert sum(name.startswith("kenari_attempts_total") for name in samples(metrics)) == 4


def test_gauges_are_asked_when_they_are_wanted() -> None:
    values = {"in_flight": 3.0, "store_queue": 0.0}
    metrics = make(gauges=lambda: values)
    assert samples(metrics)["kenari_in_flight"] == 3
    values["in_flight"] = 4.0
    assert samples(metrics)["kenari_in_flight"] == 4


def test_the_format_follows_what_a_scraper_accepts() -> None:
    metrics = make()
    metrics.count(line())
    body, kind = metrics.render("application/openmetrics-text; version=1.0.0")
    assert kind.startswith(b"application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    body, kind = metrics.render("*/*")
    assert kind.startswith(b"text/plain")


def test_the_books_log_is_tapped() -> None:
    """Whatever is logged is counted: requests of this process, of workers, and those that crashed."""
    metrics, out = make(), io.StringIO()
    books = LogBooks("json", lambda: 0.0, lambda delay, call: call(), out, metrics)
    books.settle(None, line(ending="crashed"))
    books.flush()
    assert samples(metrics)["kenari_requests_total{format=chat,model=m,reason=crashed,status=200}"] == 1
    assert out.getvalue().count("\n") == 1


def test_a_line_that_is_made_later_is_made_once_and_before_it_is_counted() -> None:
    metrics, out, made = make(), io.StringIO(), list[int]()
    books = LogBooks("json", lambda: 0.0, lambda delay, call: None, out, metrics)
    hold = books.admit(Reservation(id="1", caller=OPERATOR, model="m"))
    assert books.in_flight == 1

    def finish() -> Line:
        made.append(1)
        return line()

    books.settle_later(hold, finish)
    assert (books.in_flight, made) == (0, [])
    books.settle(None, line(ending="refused"))
    books.flush()
    books.flush()
    assert made == [1]
    assert out.getvalue().count("\n") == 2
    assert samples(metrics)["kenari_requests_total{format=chat,model=m,reason=done,status=200}"] == 1


def test_many_lines_leave_one_timer() -> None:
    """Full batches are written at once; what is left waits for the timer that was set first."""
    timers: list[Callable[[], None]] = []
    out = io.StringIO()
    books = LogBooks("json", lambda: 0.0, lambda delay, call: timers.append(call), out)
    for _ in range(3 * FLUSH_LINES + 1):
        books.settle(None, line())
    assert (len(timers), out.getvalue().count("\n")) == (1, 3 * FLUSH_LINES)
    timers.pop()()
    assert out.getvalue().count("\n") == 3 * FLUSH_LINES + 1
    books.settle(None, line())
    assert len(timers) == 1


def test_counting_keeps_nothing_of_a_request() -> None:
    metrics = make()
    one = line()
    metrics.count(one)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10_000):
        metrics.count(one)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 10_000
