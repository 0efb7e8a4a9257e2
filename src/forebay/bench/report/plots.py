"""The plots of a report. Each is drawn at several widths; the page's style sheet shows the one that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from forebay.bench.report import panel, series, svg, units
from forebay.bench.report.panel import Panel, Ticks
from forebay.bench.report.series import Curve, Point
from forebay.bench.result import Distribution, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = len(svg.SERIES)  # results that can be told apart in one plot
NARROW, MIDDLE, WIDE = 340, 620, 1180
SECTIONS = {
    "throughput": "Throughput and latency",
    "lengths": "Speed by length",
    "rates": "Rates tried",
    "roofline": "How far from the limit",
    "distributions": "Latency distributions",
    "phases": "Where the time went",
    "steps": "The batch over time",
    "arrivals": "Requests over time",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotTrace:
    """A row under a plot: its mark (a line with a dash pattern, or rings) and a few figures."""

    label: str
    colour: str
    dash: str
    rings: bool = False
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """drawings: the same at rising widths. heads: of the figures of `traces`. wide: takes a whole row of the page."""

    section: str
    title: str
    text: str
    drawings: tuple[Markup, ...]
    traces: tuple[PlotTrace, ...] = ()
    heads: tuple[str, ...] = ()
    wide: bool = False


def draw_at(
    widths: Sequence[int], height: Callable[[int], float], paint: Callable[..., None], name: str, label: str
) -> tuple[Markup, ...]:
    """`paint` gets the figure and its width in pixels."""
    return tuple(
        svg.draw(width, height(width), partial(paint, width=width), name=f"{name}-{width}", label=label)
        for width in widths
    )


def throughput_plots(results: Sequence[Result]) -> list[Plot]:
    """Output tokens a second against p95 latencies; needs two points at least."""
    points, knobs = series.points(results)
    runs = len(results) == 1 and not results[0].rows
    found = []
    for key, name, title in (("ttft_p95", "ttft", "TTFT p95"), ("itl_p95", "itl", "ITL p95")):
        known = [p for p in points if 0 < (getattr(p, key) or 0.0) < 1e9 and 0 <= p.output_token_rate < 1e15]
        if len(known) < 2:
            continue
        text = "The best points are joined: no other has more tokens a second and a lower latency."
        if runs:
            text = "Each run of this result: how far apart they lie is what a single run cannot tell."
        if any(not point.valid for point in known):
            text += " Points that are not valid cannot be among them."
        if knobs:
            text += f" Labels: {' · '.join(units.clean(knob) for knob in knobs)}."
        drawings = draw_at(
            (NARROW, MIDDLE),
            _points_height,
            partial(_paint_points, points=known, key=key, title=title, alike=runs),
            f"throughput-{name}",
            f"Output tokens a second against {title}, {len(known)} points",
        )
        found.append(Plot(section="throughput", title=f"Throughput and {title}", text=text, drawings=drawings))
    return found


def _points_height(width: int) -> float:
    return 270 if width == NARROW else 330


def _paint_points(figure: Figure, width: int, points: Sequence[Point], key: str, title: str, alike: bool) -> None:
    """alike: they are the same setting again, so none is better than another."""
    y = [float(getattr(point, key)) for point in points]
    unit = units.duration_unit(sorted(y)[len(y) // 2])
    y = [value * unit.factor for value in y]
    x = [point.output_token_rate for point in points]
    box = Panel(figure, 44, 26, width - 14, _points_height(width) - 36)
    log_y = max(y) / min(y) > 12
    x_range = range_around(x)
    y_range = (min(y) / 1.25, max(y) * 1.25) if log_y else range_around(y)
    box.scale(x_range, y_range, log_y=log_y)
    ticks = panel.log_ticks(*y_range, 6) if log_y else panel.linear_ticks(*y_range, 5)
    box.y_axis(panel.numbers(ticks), f"{title}, {unit.name}")
    box.x_axis(panel.numbers(panel.linear_ticks(*x_range, 5 if width == NARROW else 8)), "output tokens a second")
    valid = [i for i, point in enumerate(points) if point.valid and not alike]
    front = [valid[n] for n in series.pareto([(x[i], y[i]) for i in valid])]
    box.axes.plot([x[i] for i in front], [y[i] for i in front], color=svg.MUTED, lw=1.3, zorder=2)
    for index, point in enumerate(points):
        colour = svg.SERIES[point.series % SHOWN]
        marker, face = panel.MARKERS[point.series % SHOWN], colour if alike or index in front else svg.CARD
        box.axes.plot(x[index], y[index], marker, ms=7, mfc=face, mec=colour, mew=1.6, zorder=3, clip_on=False)
    _label_points(box, points, list(zip(x, y, strict=True)), front)


def range_around(values: Sequence[float]) -> tuple[float, float]:
    """Room on both sides, and never so close that a small difference looks large."""
    low, high = min(values), max(values)
    room = max((high - low) * 0.12, (0.3 * high - (high - low)) / 2, high * 0.01, 1e-9)
    return max(0.0, low - room), high + room


def _label_points(box: Panel, points: Sequence[Point], at: Sequence[tuple[float, float]], front: Sequence[int]) -> None:
    order = sorted(range(len(points)), key=lambda i: i not in front)  # the best ones find room first
    labels = [_shortened(points[i].label, 34) for i in order]
    room = (box.left + 2, box.top - 4, box.width - 2, box.bottom - 2)
    ends = [box.place(*at[i]) for i in front]
    steps = np.linspace(0, 1, 24)
    line = [(a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])) for a, b in pairwise(ends) for t in steps]
    widths = [len(label) * panel.CHAR_PX + 2 for label in labels]
    spots = panel.spread_labels([box.place(*at[i]) for i in order], widths, room, line)
    for label, index, spot in zip(labels, order, spots, strict=True):
        if spot is not None:
            lead(box, box.place(*at[index]), spot, len(label) * panel.CHAR_PX)
            box.text(spot[0], spot[1], label, color=svg.TEXT if index in front else svg.MUTED)


def lead(box: Panel, point: tuple[float, float], spot: tuple[float, float], width: float) -> None:
    """A thin line from a point to a label that could not stand beside it."""
    x, y = min(max(point[0], spot[0]), spot[0] + width), min(max(point[1], spot[1] - 9), spot[1] + 2)
    if (x - point[0]) ** 2 + (y - point[1]) ** 2 > 12**2:
        box.segment(point, (x, y))


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def distribution_plots(results: Sequence[Result]) -> list[Plot]:
    """TTFT and ITL of the client's view, and of the server's where there is one."""
    found = []
    for key, title, text in (
        ("ttft_s", "Time to first token (TTFT)", "Share of completed requests whose first token came within the time."),
        ("itl_s", "Gap between tokens (ITL)", "Share of gaps that were at most as long."),
    ):
        curves = _curves(results[:SHOWN], key)
        if not curves:
            continue
        if zeros := max(one.curve.zeros for one in curves):
            text += f" Up to {units.number(100 * zeros)} % of gaps are 0: tokens that came in one chunk."
        drawings = draw_at(
            (NARROW, MIDDLE),
            _curves_height,
            partial(_paint_curves, curves=curves),
            f"dist-{key.removesuffix('_s')}",
            f"Empirical distribution: {title}",
        )
        traces = tuple(_trace(one) for one in curves)
        heads = ("p50", "p95", "p99")
        section = "distributions"
        found.append(Plot(section=section, title=title, text=text, drawings=drawings, traces=traces, heads=heads))
    return found


@dataclass(frozen=True, slots=True)
class _Drawn:
    label: str
    curve: Curve
    figures: Distribution
    index: int
    server: bool


def _curves(results: Sequence[Result], key: str) -> list[_Drawn]:
    found = []
    for index, result in enumerate(results):
        summary = result.summary
        client = None if summary is None else getattr(summary, key)
        raw = series.ttft_curve(result) if key == "ttft_s" else series.itl_curve(result)
        if client is not None:
            curve = raw if raw is not None else series.of_distribution(client)
            name = result.label if len(results) > 1 else "client's view"
            found.append(_Drawn(name, curve, client, index, False))
        server = None if result.server is None else getattr(result.server, key)
        if server is not None:
            name = f"{result.label}, server's view" if len(results) > 1 else "server's view"
            found.append(_Drawn(name, series.of_distribution(server), server, index, True))
    return [one for one in found if np.isfinite(one.curve.x).all() and 0 < one.curve.x[-1] < 1e9]


def _trace(one: _Drawn) -> PlotTrace:
    found, names = one.figures, ("p50", "p95", "p99")
    figures = tuple(units.duration(getattr(found, name), found.intervals.get(name)) for name in names)
    colour, dash = svg.CSS[svg.SERIES[one.index]], panel.DASHES[one.index]
    return PlotTrace(label=one.label, colour=colour, dash=dash, rings=one.server, figures=figures)


def _curves_height(width: int) -> float:
    return 240 if width == NARROW else 290


def _paint_curves(figure: Figure, width: int, curves: Sequence[_Drawn]) -> None:
    typical = [one.figures.p50 or one.figures.p95 or one.figures.max for one in curves]
    unit = units.duration_unit(sorted(typical)[len(typical) // 2])
    high = max(float(one.curve.x[-1]) for one in curves) * unit.factor
    lows = [float(one.curve.x[one.curve.x > 0][0]) * unit.factor for one in curves]
    log_x = high > 12 * max(typical) * unit.factor
    low = max(min(lows), high / 1e5)
    x_range = (low / 1.15, high * 1.15) if log_x else (0.0, high * 1.04)
    box = Panel(figure, 44, 30, width - 16, _curves_height(width) - 36)
    box.scale(x_range, (0.0, 1.0), log_x=log_x)
    box.y_axis(Ticks([0.0, 0.25, 0.5, 0.75, 0.95], ["0", "25 %", "50 %", "75 %", "95 %"]))
    wanted = 5 if width == NARROW else 9
    ticks = panel.log_ticks(*x_range, wanted) if log_x else panel.linear_ticks(*x_range, wanted)
    box.x_axis(panel.numbers(ticks), f"{unit.name}, logarithmic" if log_x else unit.name)
    for one in curves:
        _paint_curve(box, one, unit, x_range)
    client = [one for one in curves if not one.server]
    if len(client) == 1:
        _name_percentiles(box, client[0].figures, unit, x_range)


def _paint_curve(box: Panel, one: _Drawn, unit: units.Unit, x_range: tuple[float, float]) -> None:
    colour = svg.SERIES[one.index]
    x = np.maximum(one.curve.x * unit.factor, x_range[0])
    if one.server:  # only its quantiles are known
        style: dict[str, Any] = {"ms": 8, "mfc": "none", "mec": colour, "mew": 1.2, "zorder": 5}
        box.axes.plot(x[1:-1], one.curve.share[1:-1], "o", clip_on=False, **style)
        return
    x, share = np.concatenate([[x_range[0], x[0]], x]), np.concatenate([[0.0, 0.0], one.curve.share])
    box.axes.plot(x, share, color=colour, ls=panel.LINES[one.index], lw=1.8, zorder=3, clip_on=False)
    marks = [getattr(one.figures, name) * unit.factor for name in ("p50", "p95", "p99")]
    shown = [(value, share) for value, share in zip(marks, (0.5, 0.95, 0.99), strict=True) if value >= x_range[0]]
    for value, level in shown:
        marker = panel.MARKERS[one.index]
        box.axes.plot(value, level, marker, ms=6, mfc=colour, mec=svg.CARD, mew=1.2, zorder=4, clip_on=False)


def _name_percentiles(box: Panel, found: Distribution, unit: units.Unit, x_range: tuple[float, float]) -> None:
    """p50 and p95 at the lower right of the curve, p99 over it."""
    for name, level in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        value = getattr(found, name)
        if value * unit.factor < x_range[0]:
            continue
        label = f"{name} {units.with_unit(units.figure(value, unit, found.intervals.get(name)), unit)}"
        x, y = box.place(value * unit.factor, level)
        room = len(label) * panel.CHAR_PX + 10
        if name == "p99":
            box.text(min(x, box.width - room / 2), y - 12, label, ha="center")
        elif x + room < box.width:
            box.text(x + 9, y + (4 if name == "p50" else 17), label)
        else:
            box.text(x - 4, y + 19, label, ha="right")


def phase_plot(results: Sequence[Result]) -> Plot | None:
    """Mean of each stretch of a request's life, one after the other, with its p95 as a tick."""
    shown = [(index, stretches) for index, one in enumerate(results[:SHOWN]) if (stretches := _stretches(one))]
    shown = [(i, s) for i, s in shown if 0 < sum(max(0.0, d.mean) for d in s.values()) < 1e9]
    if not shown:
        return None
    names = list(dict.fromkeys(name for _, stretches in shown for name in stretches))[:16]
    row = 22 + 11 * len(shown)
    seen = any(results[index].reconciled is not None for index, _ in shown)
    text = "Each bar is a mean and starts at its boundary; the tick is the p95 of that stretch, from the same start."
    matched = [one.reconciled for one in results[:SHOWN] if one.reconciled is not None]
    if matched:
        number, left = sum(m.matched for m in matched), sum(m.unmatched for m in matched)
        text += f" Client and server records of {units.count(number)} requests laid side by side"
        text += f", {units.count(left)} unmatched." if left else "."
    if not seen and any(one.kind == "serve" for one in results):
        text += " The client alone cannot tell queue from prefill; measure with a server's record to see them."
    alone = len(results) > 1 or results[0].reconciled is None  # no table beside it
    drawings = draw_at(
        (NARROW, MIDDLE, WIDE) if alone else (NARROW, MIDDLE),
        lambda width: 40 + row * len(names),
        partial(_paint_phases, names=names, shown=shown, row=row),
        "phases",
        "Mean time of each stretch of a request",
    )
    traces = tuple(
        PlotTrace(label=results[i].label, colour=svg.CSS[svg.SERIES[i]], dash="", figures=()) for i, _ in shown
    )  # fmt: skip
    traces = traces if len(results) > 1 else ()
    title = "A request, stretch by stretch"
    return Plot(section="phases", title=title, text=text, drawings=drawings, traces=traces, wide=alone)


def _stretches(result: Result) -> dict[str, Distribution]:
    return result.reconciled.stretches if result.reconciled is not None else series.client_stretches(result)


def _paint_phases(
    figure: Figure, width: int, names: Sequence[str], shown: Sequence[tuple[int, dict[str, Distribution]]], row: int
) -> None:
    bottom = 4 + row * len(names)
    box = Panel(figure, 6, 4, width - 10, bottom)
    starts = {index: _starts(stretches) for index, stretches in shown}
    ends = [
        starts[i].get(name, 0.0) + max(0.0, d.mean, min(d.p95, 10 * d.mean)) for i, s in shown for name, d in s.items()
    ]  # fmt: skip
    unit = units.duration_unit(max(ends))
    high = max(ends) * unit.factor * 1.04
    box.scale((0.0, high), (bottom - 4.0, 0.0))
    ticks = panel.numbers(panel.linear_ticks(0.0, high, 4 if width == NARROW else 7))
    for at in ticks.at:
        box.axes.axvline(at, color=svg.GRID, lw=1, zorder=0)
    box.x_axis(ticks, unit.name)
    for place, name in enumerate(names):
        top = place * row
        said, figures = _phase_label(name, shown, width)
        box.text(box.left, box.top + top + 13, said)
        box.text(box.right, box.top + top + 13, figures, ha="right", color=svg.MUTED)
        for n, (index, stretches) in enumerate(shown):
            if (found := stretches.get(name)) is None:
                continue
            begin, y = starts[index][name] * unit.factor, top + 24 + 11 * n
            mean, p95 = max(0.0, found.mean) * unit.factor, found.p95 * unit.factor
            box.axes.barh(y, max(mean, high / 400), 9, left=begin, color=svg.SERIES[index], zorder=2)
            box.axes.plot([begin + mean, begin + p95], [y, y], color=svg.SERIES[index], lw=1, zorder=1)
            box.axes.plot([begin + p95] * 2, [y - 4, y + 4], color=svg.TEXT, lw=1.5, zorder=3)


def _phase_label(name: str, shown: Sequence[tuple[int, dict[str, Distribution]]], width: int) -> tuple[str, str]:
    """The stretch's name, as much of it as fits, and its mean and p95."""
    known = [stretches[name] for _, stretches in shown if name in stretches]
    figures = " | ".join(units.duration(one.mean, one.intervals.get("mean")) for one in known[:3])
    if len(known) == 1:
        figures += f", p95 {units.duration(known[0].p95, known[0].intervals.get('p95'))}"
    room = int(width / panel.CHAR_PX) - len(figures) - 3
    said = name.replace("->", "→")
    if len(said) > room:
        said = said.partition(" (")[0]
    return _shortened(said, room), figures


def _starts(stretches: dict[str, Distribution]) -> dict[str, float]:
    """Where each bar begins. A stretch is named "from -> to (what)"; two may leave the same boundary, since a client's
    first token travels while the next one is computed. One whose name says nothing follows the one before it."""
    found: dict[str, float] = {}
    boundary: dict[str, float] = {}
    at = 0.0
    for name, one in stretches.items():
        begin, _, end = name.partition(" (")[0].partition(" -> ")
        found[name] = boundary.get(begin, at)
        at = found[name] + max(0.0, one.mean)
        boundary.setdefault(end or name, at)
    return found
