"""What the plots draw, taken out of result documents: distributions, points and time lines as numpy columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from forebay.bench.metrics import duration_s, latencies_of, rates_of
from forebay.bench.reconcile import DECODE, LAG
from forebay.bench.record import RequestRecord
from forebay.bench.report import units
from forebay.bench.result import Distribution, Result, StepSeries
from forebay.bench.statistics import distribution, quantile
from forebay.errors import BenchError

Floats = NDArray[np.float64]
CURVE_POINTS = 300
# What a point is made of -> its name in the rows of a sweep
FIGURES = {"output_token_rate": "output_token_rate", "ttft_p95": "ttft_p95_s", "itl_p95": "itl_p95_s"}


def check(result: Result, name: str) -> None:
    """Raises BenchError if columns that belong together differ in length, or a whole number needs more than 64 bits."""
    for field, value in (
        ("seed", result.seed), ("machine", result.machine), ("target", result.target), ("workload", result.workload),
        ("rows", result.rows), ("summary", result.summary), ("buckets", result.buckets), ("server", result.server),
        ("reconciled", result.reconciled), ("steps", result.steps), ("runs", result.runs),
    ):  # fmt: skip
        if _too_large(value):
            raise BenchError(f"{name}: a number in {field} needs more than 64 bits; write the result again")
    steps = result.steps
    if steps is not None:
        lengths = {column: len(getattr(steps, column)) for column in StepSeries.__struct_fields__}
        if len(set(lengths.values())) > 1:
            raise BenchError(f"{name}: columns of steps differ in length ({lengths}); write the result again")
    for run in result.runs:
        for record in run.records:
            if len(record.token_ns) != len(record.token_counts):
                raise BenchError(
                    f"{name}: record {record.index} has {len(record.token_ns)} token_ns and "
                    f"{len(record.token_counts)} token_counts; write the result again"
                )
            if min(record.token_counts, default=1) < 1:
                raise BenchError(f"{name}: record {record.index} has a token count below 1; write the result again")


def _too_large(value: Any) -> bool:
    """Whether some whole number inside is none that a clock or a counter gives, and no float can hold."""
    if isinstance(value, int):
        return not -(2**63) <= value < 2**63
    if isinstance(value, Mapping):
        return any(map(_too_large, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_too_large, value))
    if isinstance(value, msgspec.Struct):
        return any(_too_large(getattr(value, field)) for field in value.__struct_fields__)
    return False


class Curve(NamedTuple):
    """An empirical distribution: `share` of all values are at most `x`. zeros: share that is 0."""

    x: Floats
    share: Floats
    zeros: float


def ecdf(values: Floats, weights: Floats | None = None) -> Curve | None:
    """At most CURVE_POINTS points, dense in the tail. None where there are no values."""
    weight = np.ones(values.size) if weights is None else weights
    total = float(weight.sum())
    if values.size == 0 or not total > 0:
        return None
    order = np.argsort(values, kind="stable")
    x, share = values[order], np.cumsum(weight[order]) / total
    half = CURVE_POINTS // 2
    wanted = np.concatenate([np.linspace(0, 0.9, half), 1 - np.geomspace(0.1, 1e-5, half), [1.0]])
    keep = np.unique(np.minimum(np.searchsorted(share, wanted), x.size - 1))
    return Curve(x[keep], share[keep], float(weight[values <= 0].sum()) / total)


def of_distribution(found: Distribution) -> Curve:
    """The few points of a distribution that a document holds."""
    x = np.array([found.min, found.p50, found.p90, found.p95, found.p99, found.max], dtype=float)
    return Curve(x, np.array([0.0, 0.5, 0.9, 0.95, 0.99, 1.0]), 0.0)


def completed(result: Result) -> list[RequestRecord]:
    """The requests that count in latencies, of all runs."""
    return [record for run in result.runs for record in run.records if record.completed and record.token_ns]


def ttft_curve(result: Result) -> Curve | None:
    done = completed(result)
    return ecdf(_seconds([record.token_ns[0] - record.intended_ns for record in done]))


def itl_curve(result: Result) -> Curve | None:
    """A chunk of k tokens is one gap and k - 1 gaps of nothing."""
    done = completed(result)
    gaps = [np.diff(_seconds(record.token_ns)) for record in done]
    zeros = float(sum(sum(record.token_counts) - len(record.token_counts) for record in done))
    values = np.concatenate([np.zeros(1), *gaps])
    return ecdf(values, np.concatenate([[zeros], np.ones(values.size - 1)]))


def client_stretches(result: Result) -> dict[str, Distribution]:
    """Where the time went as far as the client alone can tell."""
    done = completed(result)
    parts = {
        LAG: [record.sent_ns - record.intended_ns for record in done],
        "sent -> first token (network, queue, prefill)": [record.token_ns[0] - record.sent_ns for record in done],
        DECODE: [record.token_ns[-1] - record.token_ns[0] for record in done],
    }
    found = {name: distribution([(value / 1e9,) for value in values], seed=0) for name, values in parts.items()}
    return {name: one for name, one in found.items() if one is not None}


def _seconds(nanoseconds: Iterable[int]) -> Floats:
    return np.array([float(value) for value in nanoseconds], dtype=float) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One place in the plane of throughput and latency. Latencies in seconds. series: which result it is from. values:
    of the knobs that differ. valid: False if the document says that nobody should believe it."""

    label: str
    output_token_rate: float
    ttft_p95: float | None
    itl_p95: float | None
    series: int = 0
    values: tuple[str, ...] = ()
    valid: bool = True


def points(results: Sequence[Result]) -> tuple[list[Point], tuple[str, ...]]:
    """Rows of a sweep, runs of a single result, or one point for each of several results; and the names of the knobs
    whose values make up the labels."""
    if len(results) == 1 and results[0].rows:
        return row_points(results[0].rows)
    if len(results) == 1:
        found = [_point(_run_values(run.records), f"run {n}") for n, run in enumerate(results[0].runs, 1)]
        return [one for one in found if one is not None], ()
    found = [_point(_summary_values(one), one.label, series=n, valid=one.valid) for n, one in enumerate(results)]
    return [one for one in found if one is not None], ()


def row_points(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Point], tuple[str, ...]]:
    """The rows that hold a throughput, labelled by the knobs that differ between them."""
    settings, varying = varied(rows)
    found = []
    for number, (row, values) in enumerate(zip(rows, settings, strict=True), 1):
        figures = {name: _number(row.get(key)) for name, key in FIGURES.items()}
        point = _point(figures, label_of(values, number), values=values, valid=row.get("valid") is not False)
        found += [] if point is None else [point]
    return found, varying


def varied(rows: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """For each row the values of the knobs that differ between rows, and the names of these."""
    knobs = [flat(known) if isinstance(known := row.get("knobs"), dict) else {} for row in rows]
    names = dict.fromkeys(name for values in knobs for name in values)
    varying = tuple(name for name in names if len({str(values.get(name)) for values in knobs}) > 1)
    return [tuple(str(known.get(name, units.ABSENT)) for name in varying) for known in knobs], varying


def label_of(values: Sequence[str], number: int) -> str:
    """Of a row: what was set, or its number."""
    return " · ".join(values) or str(number)


def flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _point(figures: Mapping[str, float | None], label: str, **more: Any) -> Point | None:
    rate, ttft, itl = (figures.get(name) for name in FIGURES)
    if rate is None or (ttft is None and itl is None):
        return None
    return Point(label=label, output_token_rate=rate, ttft_p95=ttft, itl_p95=itl, **more)


def _summary_values(result: Result) -> dict[str, float | None]:
    summary = result.summary
    if summary is None or summary.completed == 0:
        return {}
    return {
        "output_token_rate": summary.output_token_rate,
        "ttft_p95": None if summary.ttft_s is None else summary.ttft_s.p95,
        "itl_p95": None if summary.itl_s is None else summary.itl_s.p95,
    }


def _run_values(records: Sequence[RequestRecord]) -> dict[str, float | None]:
    if not any(record.completed for record in records):
        return {}
    latencies = latencies_of(records)
    p95 = {name: quantile(np.concatenate(latencies[name]), 0.95) for name in ("ttft", "itl") if latencies[name]}
    rate = rates_of(records, duration_s(records))["output_token_rate"]
    return {"output_token_rate": rate, "ttft_p95": p95.get("ttft"), "itl_p95": p95.get("itl")}


def pareto(found: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (throughput, latency) that no other beats in both, by rising throughput."""
    best, front = float("inf"), []
    for index in sorted(range(len(found)), key=lambda i: (-found[i][0], found[i][1])):
        if found[index][1] < best:
            best = found[index][1]
            front.append(index)
    return front[::-1]
