"""Two documents side by side: which figures differ by more than chance, and what stands against saying so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import msgspec

from forebay.bench.metrics import duration_s, latencies_of, rates_of
from forebay.bench.record import RequestRecord
from forebay.bench.result import Interval, Result, Run
from forebay.bench.slo import parse_slo
from forebay.bench.statistics import (
    FIGURES,
    MIN_RUNS,
    Group,
    Ratio,
    figure_ratio_intervals,
    quantile,
    ratio_interval,
    separate_ratio_interval,
)
from forebay.errors import BenchError

Verdict = Literal["faster", "slower", "no difference shown", "not comparable"]
Basis = Literal["pairs of runs", "runs", "requests"]

EQUAL = 1e-9  # a ratio so near to 1 is rounding
VOLATILE = ("available_bytes",)  # facts of a machine that differ from one minute to the next


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """latency, figure: for a distribution, which, and what of it; both empty for a rate."""

    name: str
    higher_is_better: bool
    latency: str = ""
    figure: str = ""


METRICS = (
    ComparedMetric("output_token_rate", True),
    ComparedMetric("request_rate", True),
    ComparedMetric("goodput", True),
    *(
        ComparedMetric(f"{latency}_s.{figure}", False, latency, figure)
        for latency, figures in (("ttft", "p50 p95"), ("itl", "p50 p95"), ("tpot", "mean"), ("e2e", "p95"))
        for figure in figures.split()
    ),
)


class MetricComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of both. ratio: b / a (over pairs or runs, of the geometric means), with its 95 % interval, taken over
    `basis`. verdict: of b, as seen from a; it needs the interval to exclude 1. "not comparable": a value or the
    interval is missing. Each verdict is wrong by chance in 5 % of cases on its own; of ten, one may well be."""

    name: str
    a: float | None
    b: float | None
    ratio: float | None = None
    interval: Interval | None = None
    basis: Basis | None = None
    higher_is_better: bool
    verdict: Verdict


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """interleaved: the runs took turns, so that a drift of the machine hits both. invalid: which of the two is, and
    why. warnings: what else a reader must know before believing a verdict."""

    kind: str
    a: str
    b: str
    interleaved: bool
    metrics: list[MetricComparison]
    invalid: list[str] = []
    warnings: list[str] = []


def compare(a: Result, b: Result) -> Comparison:
    """Compare two documents of one kind.

    With at least 3 runs each, measured in turns on one machine (found by their times): over pairs of runs, the i-th
    with the i-th. Else latencies by a two-sample bootstrap over requests, and rates over runs that do not pair (3
    each), for which one run says nothing. Beside METRICS, `Run.values` that both have are compared: names that end in
    _s (lower is better) or _rate (higher is better). Raises BenchError for different kinds, nothing in common, or a
    damaged record.
    """
    if a.kind != b.kind:
        raise BenchError(f"kind: {a.label} is {a.kind!r} and {b.label} is {b.kind!r}; compare two of one kind")
    pair = _Pair(a, b)
    found = [pair.compared(metric) for metric in (*METRICS, *_of_values(a, b))]
    kept = [one for one in found if one.a is not None or one.b is not None]
    if not any(one.a is not None and one.b is not None for one in kept):
        raise BenchError(
            f"compare: {a.label} and {b.label} have no figure in common; compare documents that measure the same"
        )
    return Comparison(
        kind=a.kind,
        a=a.label,
        b=b.label,
        interleaved=pair.turns,
        metrics=kept,
        invalid=_invalid(a, b),
        warnings=_warnings(a, b, pair.turns),
    )


def interleaved(a: Result, b: Result) -> bool:
    """Whether both have as many runs, at least 2, on one machine, and started them in turns (in any order within a
    turn)."""
    if len(a.runs) != len(b.runs) or len(a.runs) < 2 or _machine(a) != _machine(b):
        return False
    starts = sorted(
        (run.started_ns, turn, side) for side, document in enumerate((a, b)) for turn, run in enumerate(document.runs)
    )
    return all({starts[i][1:], starts[i + 1][1:]} == {(i // 2, 0), (i // 2, 1)} for i in range(0, len(starts), 2))


class _Side:
    """One document, its latencies worked out once."""

    def __init__(self, document: Result) -> None:
        self.document = document
        self._slo = None if document.slo is None else parse_slo(document.slo)
        self._latencies = [latencies_of(run.records) for run in document.runs]
        self._rates = [self._rates_of(run) for run in document.runs]

    def value(self, metric: ComparedMetric) -> float | None:
        """As the document says; without a summary, the mean over runs."""
        summary = self.document.summary
        if summary is None:
            runs = self.per_run(metric)
            return math.fsum(runs) / len(runs) if runs else None
        if not metric.latency:
            found: float | None = getattr(summary, metric.name, None)
            return found
        one = getattr(summary, f"{metric.latency}_s")
        return None if one is None else float(getattr(one, metric.figure))

    def per_run(self, metric: ComparedMetric) -> list[float]:
        """Of each run; empty if any run has none."""
        found = [self._of_run(metric, index) for index in range(len(self.document.runs))]
        return [value for value in found if value is not None] if None not in found else []

    def has_requests(self, metric: ComparedMetric) -> bool:
        return any(run[metric.latency] for run in self._latencies)

    def groups(self, metric: ComparedMetric) -> list[Group]:
        """A latency's values of each request of all runs."""
        return list(chain.from_iterable(run[metric.latency] for run in self._latencies))

    def _of_run(self, metric: ComparedMetric, index: int) -> float | None:
        if not metric.latency:
            return self._rates[index].get(metric.name, self.document.runs[index].values.get(metric.name))
        values = list(chain.from_iterable(self._latencies[index][metric.latency]))
        if not values:
            return self.document.runs[index].values.get(metric.name)
        return math.fsum(values) / len(values) if metric.figure == "mean" else quantile(values, FIGURES[metric.figure])

    def _rates_of(self, run: Run) -> dict[str, float]:
        records: Sequence[RequestRecord] = run.records
        return rates_of(records, duration_s(records), self._slo) if records else {}


def _of_values(a: Result, b: Result) -> list[ComparedMetric]:
    """Further metrics, from what every run of both gives by name."""
    runs = [run.values for document in (a, b) for run in document.runs]
    common = set(runs[0]).intersection(*runs[1:]) if runs else set()
    known = {metric.name for metric in METRICS}
    names = [name for name in sorted(common - known) if name.endswith(("_s", "_rate"))]
    return [ComparedMetric(name, name.endswith("_rate")) for name in names]


class _Pair:
    """Both documents; `turns`: whether run i of one goes with run i of the other."""

    def __init__(self, a: Result, b: Result) -> None:
        self.a, self.b = _Side(a), _Side(b)
        self.turns = interleaved(a, b)
        self._over_requests: dict[str, dict[str, Interval]] = {}

    def compared(self, metric: ComparedMetric) -> MetricComparison:
        a, b = self.a.value(metric), self.b.value(metric)
        ratio: float | None = None
        interval, basis = None, None
        same = metric.name != "goodput" or self.a.document.slo == self.b.document.slo
        if a is not None and b is not None and same:
            ratio = b / a if a else None
            found = self._ratio(metric, ratio)
            if found is not None and found[0].interval is not None:
                ratio, interval, basis = found[0].ratio, found[0].interval, found[1]
        return MetricComparison(
            name=metric.name,
            a=a,
            b=b,
            ratio=ratio,
            interval=interval,
            basis=basis,
            higher_is_better=metric.higher_is_better,
            verdict=_verdict(interval, metric.higher_is_better),
        )

    def _ratio(self, metric: ComparedMetric, ratio: float | None) -> tuple[Ratio, Basis] | None:
        """By the strongest means there are; None if there are none. ratio: of the documents' own figures."""
        runs = self.a.per_run(metric), self.b.per_run(metric)
        enough = min(map(len, runs)) >= MIN_RUNS and min(map(min, runs)) > 0
        if self.turns and enough:
            return ratio_interval(*runs, self.a.document.seed), "pairs of runs"
        if metric.latency and self.a.has_requests(metric) and self.b.has_requests(metric):
            interval = self._intervals(metric).get(metric.figure)
            return None if ratio is None else (Ratio(ratio, interval), "requests")
        return (separate_ratio_interval(*runs), "runs") if enough else None

    def _intervals(self, metric: ComparedMetric) -> dict[str, Interval]:
        """Over requests, of all figures of a latency at once."""
        if metric.latency not in self._over_requests:
            groups = self.a.groups(metric), self.b.groups(metric)
            self._over_requests[metric.latency] = figure_ratio_intervals(*groups, self.a.document.seed)
        return self._over_requests[metric.latency]


def _verdict(interval: Interval | None, higher_is_better: bool) -> Verdict:
    if interval is None or not all(map(math.isfinite, interval)):
        return "not comparable"
    if interval[0] <= 1 + EQUAL and interval[1] >= 1 - EQUAL:
        return "no difference shown"
    return "faster" if (interval[0] > 1) == higher_is_better else "slower"


def _machine(document: Result) -> dict[str, object]:
    return {name: value for name, value in document.machine.items() if name not in VOLATILE}


def _invalid(a: Result, b: Result) -> list[str]:
    return [
        f"{document.label} is invalid: {'; '.join(document.invalid_reasons) or 'no reason given'}"
        for document in (a, b)
        if not document.valid
    ]


def _warnings(a: Result, b: Result, turns: bool) -> list[str]:
    found = ["both are the same measurement"] if a.runs and a.runs == b.runs else []
    differ = [name for name in _machine(a) | _machine(b) if a.machine.get(name) != b.machine.get(name)]
    if differ:
        found.append(f"different machines: {', '.join(differ)} differ")
    if a.workload.get("digest") != b.workload.get("digest"):
        found.append("different workloads: their digests differ")
    if a.seed != b.seed:
        found.append(f"different seeds: {a.seed} and {b.seed}")
    if a.slo != b.slo:
        found.append(f"different SLOs, so goodput is not comparable: {a.slo or 'none'} and {b.slo or 'none'}")
    for document in (a, b):
        if len(document.runs) == 1:
            found.append(f"{document.label} is one run only: what differs from run to run is not in the intervals")
    if not turns and max(len(a.runs), len(b.runs)) > 1:
        found.append("the runs did not take turns: a drift of the machine between them counts as a difference")
    return found
