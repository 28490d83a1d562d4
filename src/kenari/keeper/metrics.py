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

from kenari.core.alike import Alike, Ended
from kenari.core.ports import Leg, Line
from kenari.core.price import UNIT

Gauges: TypeAlias = Mapping[str, float]
FIRST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
DURATION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Seconds; an answer of a model takes from a moment to half an hour."""
MAX_SERIES = 10_000
"""No family keeps more label sets than this; what is new beyond it is counted under the model `other`."""

MAX_ALIKE = 1024
"""Kinds of requests whose place is remembered."""

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

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class _Model:
    """What is counted of a model."""

    __slots__ = ("cache_read", "cache_write", "durations", "first", "input", "money", "output")

    def __init__(self) -> None:
        self.input = self.cache_read = self.cache_write = self.output = 0
        self.money = 0
        self.durations, self.first = _Spread(DURATION_BUCKETS), _Spread(FIRST_BUCKETS)


class _Requests:
    """Requests for a model that were alike: their number."""

    __slots__ = ("model", "number")

    def __init__(self, model: _Model) -> None:
        self.model, self.number = model, 0


class _Calls:
    """Calls of a target that ended alike: their number, and of how many we counted the tokens; the tokens of prompts that are
    billed, and those of them that came from its cache."""

    __slots__ = ("cached", "estimated", "number", "prompt")

    def __init__(self) -> None:
        self.number = self.estimated = self.cached = self.prompt = 0


class Metrics(Collector):
    """Counts finished requests by their lines and shows them with what `gauges` says now.

    `label` is the name that a model is counted under: what clients send must not make series without bound.
    """

    def __init__(
        self, currency: str, version: str, label: Callable[[str], str], gauges: Callable[[], Gauges] = dict
    ) -> None:
        self._currency, self._version, self._label, self._gauges = currency, version, label, gauges
        self._models: dict[str, _Model] = {}
        self._requests: dict[tuple[str, str, int, str], _Requests] = {}
        self._calls: dict[tuple[str, str], _Calls] = {}
        self._codes: dict[str, int] = {}
        self._alike: dict[tuple[Alike, str], _Requests] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, line: Line) -> None:
        """One finished request."""
        requests = self._alike_to(line, line.ending)
        requests.number += 1
        if line.code:
            self._codes[line.code] = self._codes.get(line.code, 0) + 1
        if line.ending == "refused":
            return
        model = requests.model
        model.durations.add(line.duration_ms / 1000)
        if line.first_content_ms is not None:
            model.first.add(line.first_content_ms / 1000)
        model.money += line.charge
        for leg in line.legs:
            self._count_call(model, leg)

    def count_ended(self, ended: Ended) -> None:
        """The same of a request whose line is not made."""
        kind = (ended.alike, ended.ending)
        requests = self._alike.get(kind)
        if requests is None:
            if len(self._alike) >= MAX_ALIKE:
                self._alike.clear()
            requests = self._alike[kind] = self._alike_to(ended.alike.line, ended.ending)
        requests.number += 1
        model, leg = requests.model, ended.leg
        seconds = leg.ms / 1000
        model.durations.add(seconds)
        model.first.add(seconds)
        model.money += ended.charge(leg)
        self._count_call(model, leg)

    def _alike_to(self, line: Line, ending: str) -> _Requests:
        """Where requests with such a line are counted that end so."""
        kind = (self._label(line.model) if line.model else "", line.client_format, line.status, ending)
        return self._requests.get(kind) or self._more_requests(kind)

    def _count_call(self, model: _Model, leg: Leg) -> None:
        calls = self._calls.get((leg.target, leg.outcome)) or self._more_calls(leg.target, leg.outcome)
        usage = leg.usage
        calls.number += 1
        calls.estimated += usage.estimated
        if leg.billed:
            fresh, read = usage.fresh or 0, usage.cache_read or 0
            write = (usage.cache_write_5m or 0) + (usage.cache_write_1h or 0)
            model.input += fresh
            model.cache_read += read
            model.cache_write += write
            model.output += usage.output or 0
            calls.cached += read
            calls.prompt += fresh + read + write

    def _more_requests(self, kind: tuple[str, str, int, str]) -> _Requests:
        """The place where requests of a kind are counted that has none yet."""
        if len(self._requests) >= MAX_SERIES:
            kind = ("other", *kind[1:])
        model = self._models.get(kind[0])
        if model is None:
            model = self._models[kind[0]] = _Model()
        return self._requests.setdefault(kind, _Requests(model))

    def _more_calls(self, target: str, outcome: str) -> _Calls:
        """The same for calls of a target: callers' own keys name any target."""
        if len(self._calls) >= MAX_SERIES:
            target = "other"
        return self._calls.setdefault((target, outcome), _Calls())

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
        models, calls = self._models, self._calls
        labels = ["model", "format", "status", "reason"]
        requests = {
            (name, form, str(status), end): one.number for (name, form, status, end), one in self._requests.items()
        }
        yield _counter("kenari_requests", "Finished requests.", labels, requests)
        codes = {(code,): number for code, number in self._codes.items()}
        yield _counter("kenari_errors", "Requests that ended with an error, by its code.", ["code"], codes)
        tokens = {
            (name, kind): number
            for name, one in models.items()
            for kind, number in (
                ("input", one.input),
                ("cache_read", one.cache_read),
                ("cache_write", one.cache_write),
                ("output", one.output),
            )
            if number
        }
        yield _counter("kenari_tokens", "Tokens that were billed, by class.", ["model", "class"], tokens)
        money = {(name, self._currency): one.money / UNIT for name, one in models.items() if one.money}
        yield _counter("kenari_charged", "Money charged, in units of the currency.", ["model", "currency"], money)
        attempts = {key: one.number for key, one in calls.items()}
        yield _counter("kenari_attempts", "Calls of providers.", ["target", "outcome"], attempts)
        prompts: dict[str, list[int]] = {}
        for (target, _), one in calls.items():
            of_target = prompts.setdefault(target, [0, 0])
            of_target[0] += one.cached
            of_target[1] += one.prompt
        share = {(target,): cached / prompt for target, (cached, prompt) in prompts.items() if prompt}
        text = "Share of the tokens of prompts that a target read from its cache, since the start."
        yield _gauge("kenari_cache_hit_share", text, ["target"], share)
        text = "Calls of providers whose tokens were counted here because the provider did not say."
        yield _counter("kenari_estimated_usage", text, [], {(): sum(one.estimated for one in calls.values())})
        text = "Seconds from a request to its first content."
        first = {name: one.first for name, one in models.items() if any(one.first.counts)}
        yield _histogram("kenari_first_content_seconds", text, FIRST_BUCKETS, first)
        text = "Seconds from a request to the end of its answer."
        durations = {name: one.durations for name, one in models.items() if any(one.durations.counts)}
        yield _histogram("kenari_request_seconds", text, DURATION_BUCKETS, durations)
        for name, value in gauges.items():
            yield GaugeMetricFamily(f"kenari_{name}", GAUGES.get(name, name), value=value)
        info = GaugeMetricFamily("kenari_info", "Always 1; the version stands in the label.", labels=["version"])
        info.add_metric([self._version], 1)
        yield info


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
