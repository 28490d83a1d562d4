"""What is counted of all requests, and how Prometheus reads it.

Counting is plain additions in dictionaries, once for each line that is logged (`LogBooks` has a tap); the exposition is made only
when it is asked for.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from kenari.core.ports import Line
from kenari.core.price import UNIT

Gauges: TypeAlias = Mapping[str, float]
FIRST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
DURATION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Seconds; an answer of a model takes from a moment to half an hour."""
MAX_SERIES = 10_000
"""No family keeps more label sets than this; what is new beyond it is counted under the model `other`."""

GAUGES = {
    "in_flight": "Requests that are being answered.",
    "connections": "Open connections of clients.",
    "keys_loaded": "Keys in memory.",
    "store_queue": "Operations that wait for the store's writer.",
    "store_up": "1 while the store answers, 0 while it does not.",
    "store_slowest_seconds": "Seconds of the slowest batch of the store so far.",
    "open_holds": "Requests that are admitted and not settled.",
    "spool_bytes": "Bytes of what waits on local disk for the store.",
    "limits_fallback": "1 while limits hold per process because the shared ones cannot be reached.",
    "limits_fallbacks": "Requests that were counted per process because of that.",
    "workers": "Processes that serve.",
    "worker_starts": "Worker processes started so far; more than there are workers when some had to be started again.",
    "config_version": "The version of the configuration that every worker serves by; each reload raises it.",
    "uptime_seconds": "Seconds since the start.",
}
"""What a gauge means; `gauges` may leave out those that do not apply."""


class _Spread:
    """A histogram: how many values fell into each bucket, and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.sum = 0.0


class Metrics(Collector):
    """Counts finished requests by their lines and shows them with what `gauges` says now.

    `label` is the name that a model is counted under: what clients send must not make series without bound.
    """

    def __init__(
        self, currency: str, version: str, label: Callable[[str], str], gauges: Callable[[], Gauges] = dict
    ) -> None:
        self._currency, self._version, self._label, self._gauges = currency, version, label, gauges
        self._requests: dict[tuple[str, str, str, str], int] = {}
        self._codes: dict[str, int] = {}
        self._tokens: dict[tuple[str, str], int] = {}
        self._money: dict[str, int] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._first: dict[str, _Spread] = {}
        self._durations: dict[str, _Spread] = {}
        self._prompts: dict[str, tuple[int, int]] = {}  # target: tokens read from its cache, of all tokens of prompts
        self._estimated = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, line: Line) -> None:
        """One finished request."""
        model = self._label(line.model) if line.model else ""
        key = (model, line.client_format, str(line.status), line.ending)
        if key not in self._requests and len(self._requests) >= MAX_SERIES:
            model, key = "other", ("other", *key[1:])
        self._requests[key] = self._requests.get(key, 0) + 1
        if line.code:
            self._codes[line.code] = self._codes.get(line.code, 0) + 1
        if line.ending == "refused":
            return
        _spread(self._durations, model, DURATION_BUCKETS, line.duration_ms / 1000)
        if line.first_content_ms is not None:
            _spread(self._first, model, FIRST_BUCKETS, line.first_content_ms / 1000)
        if line.charge:
            self._money[model] = self._money.get(model, 0) + line.charge
        tokens = self._tokens
        for leg in line.legs:
            outcome = (leg.target, leg.outcome)
            if outcome not in self._attempts and len(self._attempts) >= MAX_SERIES:  # own keys name any target
                outcome = ("other", leg.outcome)
            self._attempts[outcome] = self._attempts.get(outcome, 0) + 1
            usage = leg.usage
            self._estimated += usage.estimated
            if leg.billed and usage.prompt:
                cached, prompt = self._prompts.get(leg.target, (0, 0))
                self._prompts[leg.target] = (cached + (usage.cache_read or 0), prompt + usage.prompt)
            if leg.billed and usage.total:
                for name, number in (
                    ("input", usage.fresh),
                    ("cache_read", usage.cache_read),
                    ("cache_write", usage.cache_write),
                    ("output", usage.output),
                ):
                    if number:
                        tokens[model, name] = tokens.get((model, name), 0) + number

    def render(self, accept: str) -> tuple[bytes, bytes]:
        """The exposition in the format that a scraper accepts, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type.encode()

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are found when they are collected."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All families as they stand."""
        gauges = self._gauges()  # first: what is logged is counted then
        labels = ["model", "format", "status", "reason"]
        yield _counter("kenari_requests", "Finished requests.", labels, self._requests)
        codes = {(code,): number for code, number in self._codes.items()}
        yield _counter("kenari_errors", "Requests that ended with an error, by its code.", ["code"], codes)
        yield _counter("kenari_tokens", "Tokens that were billed, by class.", ["model", "class"], self._tokens)
        money = {(model, self._currency): units / UNIT for model, units in self._money.items()}
        yield _counter("kenari_charged", "Money charged, in units of the currency.", ["model", "currency"], money)
        yield _counter("kenari_attempts", "Calls of providers.", ["target", "outcome"], self._attempts)
        share = {(target,): cached / prompt for target, (cached, prompt) in self._prompts.items()}
        text = "Share of the tokens of prompts that a target read from its cache, since the start."
        yield _gauge("kenari_cache_hit_share", text, ["target"], share)
        text = "Calls of providers whose tokens were counted here because the provider did not say."
        yield _counter("kenari_estimated_usage", text, [], {(): self._estimated})
        text = "Seconds from a request to its first content."
        yield _histogram("kenari_first_content_seconds", text, FIRST_BUCKETS, self._first)
        text = "Seconds from a request to the end of its answer."
        yield _histogram("kenari_request_seconds", text, DURATION_BUCKETS, self._durations)
        for name, value in gauges.items():
            yield GaugeMetricFamily(f"kenari_{name}", GAUGES.get(name, name), value=value)
        info = GaugeMetricFamily("kenari_info", "Always 1; the version stands in the label.", labels=["version"])
        info.add_metric([self._version], 1)
        yield info


def _spread(family: dict[str, _Spread], model: str, buckets: tuple[float, ...], value: float) -> None:
    spread = family.get(model)
    if spread is None:
        spread = family[model] = _Spread(len(buckets))
    spread.counts[bisect_left(buckets, value)] += 1
    spread.sum += value


def _gauge(name: str, text: str, labels: list[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def _counter(name: str, text: str, labels: list[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(list(key), value)
    return family


def _histogram(name: str, text: str, buckets: tuple[float, ...], spreads: Mapping[str, _Spread]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=["model"])
    for model, spread in spreads.items():
        total, cumulated = 0, list[tuple[str, float]]()
        for bound, number in zip((*buckets, "+Inf"), spread.counts, strict=True):
            total += number
            cumulated.append((str(bound), total))
        family.add_metric([model], cumulated, spread.sum)
    return family
