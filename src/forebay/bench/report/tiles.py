"""The answer first: a handful of figures, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.bench.report import panel, series, svg, units
from forebay.bench.report.series import Point
from forebay.bench.report.tables import SummaryMetric, metrics
from forebay.bench.result import Result, Summary

# metric -> name of its tile
_KEY = {
    "Output tokens": "Output tokens",
    "TTFT p50": "TTFT p50",
    "TTFT p95": "TTFT p95",
    "ITL p50": "ITL p50",
    "ITL p95": "ITL p95",
    "Goodput": "Goodput",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """colour and dash: of its result's mark in the plots."""

    value: str
    unit: str = ""
    small: str = ""
    colour: str = ""
    dash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    name: str
    entries: tuple[Entry, ...]


def tiles(results: Sequence[Result]) -> list[Tile]:
    """Of the results' summaries; of a sweep its best points; none where there is nothing to say in a figure."""
    shown = [(index, one) for index, one in enumerate(results) if one.summary is not None][: len(svg.SERIES)]
    if not shown:
        return _best_points(results)
    known = [(index, {m.name: m for m in metrics(s)}) for index, one in shown if (s := one.summary) is not None]
    found = []
    for metric, name in _KEY.items():
        entries = tuple(_entry(values, metric, index) for index, values in known if metric in values)
        if entries:
            found.append(Tile(name=name, entries=entries))
    requests = tuple(_requests(s, index) for index, one in shown if (s := one.summary) is not None)
    found.insert(min(5, len(found)), Tile(name="Requests completed", entries=requests))
    return found


def mark(index: int) -> tuple[str, str]:
    """Colour and dash pattern of a result."""
    place = index % len(svg.SERIES)
    return svg.CSS[svg.SERIES[place]], panel.DASHES[place]


def _entry(values: dict[str, SummaryMetric], name: str, index: int) -> Entry:
    metric = values[name]
    unit = metric.unit_for()
    value = units.figure(metric.value, unit, metric.interval)
    colour, dash = mark(index)
    small = units.bounds(metric.interval, unit)
    if name == "Goodput" and (attained := values.get("SLO attained")) is not None:
        small = f"{units.figure(attained.value, units.PERCENT, attained.interval)} % within the SLO"
    return Entry(value=value, unit=unit.name, small=small, colour=colour, dash=dash)


def _requests(summary: Summary, index: int) -> Entry:
    failed = sum(summary.failures.values())
    parts = [f"{units.count(failed)} failed"] if failed else []
    parts += [f"{units.count(summary.cancelled)} cancelled"] if summary.cancelled else []
    colour, dash = mark(index)
    value, unit = units.count(summary.completed), f"of {units.count(summary.requests)}"
    return Entry(value=value, unit=unit, small=", ".join(parts) or "none failed", colour=colour, dash=dash)


def _best_points(results: Sequence[Result]) -> list[Tile]:
    if len(results) != 1 or not results[0].rows:
        return []
    points, knobs = series.points(results)
    points = [point for point in points if point.valid]
    if not points:
        return []
    best = max(points, key=lambda point: point.output_token_rate)
    found = [_point_tile("Most output tokens", units.figure(best.output_token_rate), "/s", best, knobs)]
    for key, name in (("ttft_p95", "Lowest TTFT p95"), ("itl_p95", "Lowest ITL p95")):
        known = [(y, point) for point in points if (y := getattr(point, key)) is not None]
        if known:
            lowest, best = min(known, key=lambda one: one[0])
            unit = units.duration_unit(lowest)
            found.append(_point_tile(name, units.figure(lowest, unit), unit.name, best, knobs))
    return found


def _point_tile(name: str, value: str, unit: str, best: Point, knobs: Sequence[str]) -> Tile:
    pairs = zip(knobs, best.values, strict=True)
    where = ", ".join(f"{units.clean(knob).rpartition('.')[2]} {value}" for knob, value in pairs) or best.label
    return Tile(name=name, entries=(Entry(value=value, unit=unit, small=where),))
