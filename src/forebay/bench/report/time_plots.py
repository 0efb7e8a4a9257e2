"""Plots along the run: what the steps held, and when requests came, waited and failed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from forebay.bench.report import panel, svg, timeline, units
from forebay.bench.report.panel import Key, Panel
from forebay.bench.report.plots import MIDDLE, NARROW, SHOWN, WIDE, Plot, draw_at
from forebay.bench.report.series import Floats
from forebay.bench.report.timeline import Batches, RequestTimeline
from forebay.bench.result import Result, StepSeries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = {NARROW: 140, MIDDLE: 220, WIDE: 340}
_TOP, _GAP, _FOOT = 26, 36, 36
_PANEL = {NARROW: 92, MIDDLE: 96, WIDE: 124}


def step_plots(results: Sequence[Result]) -> list[Plot]:
    """Tokens, requests and KV blocks over time; one plot for each result with steps."""
    found = []
    for index, result in enumerate(results[:SHOWN]):
        if result.steps is None or timeline.batches(result.steps, 1) is None:
            continue
        steps = result.steps
        drawings = draw_at(
            (NARROW, MIDDLE, WIDE),
            _height,
            partial(_paint_steps, steps=steps),
            f"steps{index}",
            f"Tokens in a step, requests and KV blocks over time, {len(steps.start_s)} steps",
        )
        title = "What each step held" if len(results) == 1 else f"What each step held: {units.clean(result.label)}"
        found.append(Plot(section="steps", title=title, text=_about(steps), drawings=drawings, wide=True))
    return found


def _about(steps: StepSeries) -> str:
    number, slack = len(steps.start_s), steps.slack_slots
    used = max(1, sum(steps.blocks_used))
    text = f"{units.count(number)} steps; where many share a pixel their mean is drawn, the largest pale behind it. "
    text += "Promised blocks are reserved by running requests and not yet taken; they stand on the used ones. "
    mean = units.number(sum(slack) / max(1, number))
    return text + (
        f"Slack (unused slots of used blocks): {mean} slots on average, {units.count(max(slack, default=0))} at most, "
        f"{units.number(sum(slack) / used)} a used block."
    )


def _paint_steps(figure: Figure, width: int, steps: StepSeries) -> None:
    found = timeline.batches(steps, BINS[width])
    assert found is not None  # the caller asked before
    x_range = (float(found.edge_s[0]), float(found.edge_s[-1]) + float(found.edge_s[1] - found.edge_s[0]))
    boxes = _boxes(figure, width)
    _tokens(boxes[0], found, x_range)
    _requests(boxes[1], found, x_range)
    _blocks(boxes[2], found, x_range)
    _time_axis(boxes[2], x_range, width)


def _height(width: int) -> float:
    return _TOP + 3 * _PANEL[width] + 2 * _GAP + _FOOT


def _boxes(figure: Figure, width: int) -> list[Panel]:
    """Three panels, one under the other."""
    tops = [_TOP + n * (_PANEL[width] + _GAP) for n in range(3)]
    return [Panel(figure, 44, top, width - 12, top + _PANEL[width]) for top in tops]


def _time_axis(box: Panel, x_range: tuple[float, float], width: int, *, joined: bool = False) -> None:
    ticks = panel.linear_ticks(*x_range, {NARROW: 5, MIDDLE: 9, WIDE: 14}[width])
    box.x_axis(panel.numbers(ticks), "seconds, runs end to end" if joined else "seconds from the start")


def _frame(
    box: Panel, x_range: tuple[float, float], high: float, title: str, keys: Sequence[Key], *, whole: bool = True
) -> None:
    """Scales, grid, title and legend. whole: what is counted has no halves."""
    top = high if 0 < high < 1e15 else 1.0
    box.scale(x_range, (0.0, top * 1.05))
    ticks = panel.linear_ticks(0.0, top, 3)
    if whole:
        ticks = [tick for tick in ticks if tick == round(tick)]
    box.y_axis(panel.numbers(ticks), title, bold=True)
    box.legend(title, keys)
    box.axes.axhline(0, color=svg.MUTED, lw=1, clip_on=False)


def _stack(box: Panel, x: Floats, layers: Sequence[tuple[Floats, str]]) -> None:
    below = np.zeros(x.size)
    for values, colour in layers:
        above = below + np.maximum(values, 0.0)
        box.axes.fill_between(x, below, above, color=colour, lw=0, step="post", zorder=2)
        below = above


def _tokens(box: Panel, found: Batches, x_range: tuple[float, float]) -> None:
    peak = found.columns["peak_tokens"]
    keys = (Key("prefill", svg.PREFILL), Key("decode", svg.DECODE), Key("largest step", svg.PEAK))
    _frame(box, x_range, float(peak.max()), "Tokens a step", keys)
    layers = [(found.columns["decode_tokens"], svg.DECODE), (found.columns["prefill_tokens"], svg.PREFILL)]
    _stack(box, found.edge_s, layers)
    box.axes.fill_between(found.edge_s, 0, peak, color=svg.PEAK, lw=0, step="post", zorder=1)


def _requests(box: Panel, found: Batches, x_range: tuple[float, float]) -> None:
    running, waiting = found.columns["requests"], found.columns["peak_waiting"]
    keys = (Key("running", svg.DECODE, "line"), Key("waiting, most", svg.BAD, "line"))
    _frame(box, x_range, max(float(running.max()), float(waiting.max())), "Requests", keys)
    box.axes.plot(found.edge_s, running, color=svg.DECODE, lw=1.5, drawstyle="steps-post", zorder=3)
    box.axes.fill_between(found.edge_s, 0, waiting, color=svg.BAD, alpha=0.25, lw=0, step="post", zorder=2)
    box.axes.plot(found.edge_s, waiting, color=svg.BAD, lw=1.1, drawstyle="steps-post", zorder=2)


def _blocks(box: Panel, found: Batches, x_range: tuple[float, float]) -> None:
    """Free and cached blocks are what promises are kept from, the free ones first."""
    used, promised, free, cached = (found.columns[f"blocks_{n}"] for n in ("used", "promised", "free", "cached"))
    promised = np.minimum(promised, free + cached)
    left_free = np.maximum(free - promised, 0.0)
    left_cached = np.maximum(free + cached - promised - left_free, 0.0)
    keys = (Key("used", svg.USED), Key("promised", svg.PROMISED), Key("free", svg.FREE), Key("cached", svg.CACHED))
    _frame(box, x_range, float((used + free + cached).max()), "KV blocks", keys)
    layers = [(used, svg.USED), (promised, svg.PROMISED), (left_free, svg.FREE), (left_cached, svg.CACHED)]
    _stack(box, found.edge_s, layers)


def arrival_plots(results: Sequence[Result]) -> list[Plot]:
    """When requests came, how many were open, how late they were sent, what failed."""
    found = []
    for index, result in enumerate(results[:SHOWN]):
        seen = timeline.arrivals(result)
        if seen is None:
            continue
        drawings = draw_at(
            (NARROW, MIDDLE, WIDE),
            _height,
            partial(_paint_arrivals, seen=seen),
            f"arrivals{index}",
            f"Arrivals, open requests and send lag over time, {seen.meant_s.size} requests",
        )
        title = "Arrivals, open requests, send lag"
        title = title if len(results) == 1 else f"{title}: {units.clean(result.label)}"
        text = "Send lag is how much later than meant a request was sent; it counts in every latency."
        if len(seen.starts_s) > 1:
            text += f" {len(seen.starts_s)} runs, drawn end to end; lines mark their starts."
        found.append(Plot(section="arrivals", title=title, text=text, drawings=drawings, wide=True))
    return found


def _paint_arrivals(figure: Figure, width: int, seen: RequestTimeline) -> None:
    edges = seen.edges(BINS[width])
    x_range = (float(edges[0]), float(edges[-1]))
    boxes = _boxes(figure, width)
    _arrival_bars(boxes[0], seen, x_range, width)
    _open(boxes[1], seen, x_range, BINS[width])
    _lag(boxes[2], seen, x_range)
    for start in seen.starts_s[1:60]:
        for box in boxes:
            box.axes.axvline(start, color=svg.MUTED, lw=0.8, ls=(0, (2, 2)), zorder=1)
    _time_axis(boxes[2], x_range, width, joined=len(seen.starts_s) > 1)


def _arrival_bars(box: Panel, seen: RequestTimeline, x_range: tuple[float, float], width: int) -> None:
    span = x_range[1] - x_range[0]
    steps = panel.linear_ticks(0.0, span, {NARROW: 24, MIDDLE: 40, WIDE: 60}[width])
    bin_s = steps[1] - steps[0] if len(steps) > 1 else span
    edges = x_range[0] + bin_s * np.arange(int(span / bin_s) + 2)
    number, _ = np.histogram(seen.meant_s, edges)
    keys = [Key("failed", svg.BAD, "cross")] if seen.failed else []
    keys += [Key("cancelled", svg.MUTED, "ring")] if seen.cancelled_s else []
    _frame(box, x_range, float(number.max()) * 1.25, f"Arrivals in {units.short(bin_s)} s", keys)
    box.axes.bar(edges[:-1], number, bin_s * 0.9, align="edge", color=svg.DECODE, lw=0, zorder=2)
    level = float(number.max()) * 1.2
    ends = [time for time, _ in seen.failed[:2000]]
    box.axes.plot(ends, [level] * len(ends), "x", color=svg.BAD, ms=6, mew=1.8, zorder=4, clip_on=False)
    gone = list(seen.cancelled_s[:2000])
    box.axes.plot(gone, [level] * len(gone), "o", mfc="none", mec=svg.MUTED, ms=5.5, mew=1.4, zorder=3, clip_on=False)


def _open(box: Panel, seen: RequestTimeline, x_range: tuple[float, float], bins: int) -> None:
    edges, level = seen.open_requests(bins)
    _frame(box, x_range, float(level.max()), "Open requests", ())
    box.axes.fill_between(edges, 0, level, color=svg.DECODE, alpha=0.3, lw=0, step="post", zorder=2)
    box.axes.plot(edges, level, color=svg.DECODE, lw=1.2, drawstyle="steps-post", zorder=3)


def _lag(box: Panel, seen: RequestTimeline, x_range: tuple[float, float]) -> None:
    lag = np.clip(seen.lag_s, 0.0, 1e9)
    unit = units.duration_unit(float(lag.max()))
    keep = np.argsort(-lag, kind="stable")[:600]  # the latest matter; more dots than this are a smear
    keep = np.union1d(keep, np.arange(0, lag.size, max(1, lag.size // 400)))
    keys = (Key("a request", svg.SERIES[1], "ring"),)
    _frame(box, x_range, float(lag.max()) * unit.factor, f"Send lag, {unit.name}", keys, whole=False)
    at, late = seen.meant_s[keep], lag[keep] * unit.factor
    box.axes.plot(at, late, "o", mfc="none", mec=svg.SERIES[1], ms=3.2, mew=1, zorder=3, clip_on=False)
