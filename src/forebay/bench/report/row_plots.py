"""Plots of rows: speed by length of the prompt, and what share kept the SLO at each rate that was tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from forebay.bench.report import panel, series, svg, units
from forebay.bench.report.panel import Panel, Range
from forebay.bench.report.plots import MIDDLE, NARROW, SHOWN, WIDE, Plot, PlotTrace, draw_at, range_around
from forebay.bench.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOG_FROM = 12  # largest over smallest


class Mark(NamedTuple):
    """A point with the ends of its interval (both y where there is none). hollow: it is not what one wants."""

    x: float
    y: float
    low: float
    high: float
    hollow: bool = False


class Line(NamedTuple):
    label: str
    marks: list[Mark]


def length_plots(results: Sequence[Result]) -> list[Plot]:
    """Prompt and decode speed by length, a line for each result that has them."""
    found = []
    for key, title in (("prefill_token_rate", "Prompt speed"), ("decode_token_rate", "Decode speed")):
        lines = [Line(one.label, _speeds(one.rows, key)) for one in results[:SHOWN]]
        if any(len(line.marks) > 1 for line in lines):
            text = "Medians with the smallest and the largest of the repeats."
            paint = partial(_paint, lines=lines, y_title="token/s", x_title="prompt tokens")
            found.append(_plot("lengths", f"{title} by length", text, lines, paint, key.partition("_")[0]))
    return found


def rate_plots(results: Sequence[Result]) -> list[Plot]:
    """The probes of each search for the highest rate: one plot a result, a line for each row."""
    found = []
    for index, result in enumerate(results[:SHOWN]):
        settings, names = series.varied(result.rows)
        labels = [series.label_of(values, n) for n, values in enumerate(settings, 1)]
        lines = [Line(label, _probes(row)) for label, row in zip(labels, result.rows, strict=True)]
        lines = [line for line in lines if line.marks][:SHOWN]
        if not lines:
            continue
        goal = _goal(result)
        text = "Each rate that was tried, with the 95 % interval of its share. Hollow: not enough requests kept the SLO"
        text += "." if goal is None else f" (the line: {units.figure(goal, units.PERCENT)} %)."
        text += f" Lines: {' · '.join(map(units.clean, names))}." if names else ""
        title = "Share within the SLO by rate"
        title = title if len(results) == 1 else f"{title}: {units.clean(result.label)}"
        paint = partial(_paint, lines=lines, y_title="share within the SLO", x_title="requests a second", goal=goal,
                        share=True)  # fmt: skip
        found.append(_plot("rates", title, text, lines, paint, f"rates{index}", (NARROW, MIDDLE, WIDE)))
    return found


def _speeds(rows: Sequence[Mapping[str, Any]], key: str) -> list[Mark]:
    found = []
    for row in rows:
        length, speed, ends = row.get("length"), row.get(key), row.get(f"{key}_range")
        if _positive(length) and _positive(speed):
            found.append(Mark(float(length), float(speed), *_ends(ends, speed)))
    return sorted(found)


def _probes(row: Mapping[str, Any]) -> list[Mark]:
    probes = row.get("probes")
    found = []
    for probe in probes if isinstance(probes, list) else ():
        known = probe if isinstance(probe, dict) else {}
        rate, share, ends = (known.get(name) for name in ("rate", "attained", "attained_interval"))
        if _positive(rate) and isinstance(share, int | float) and 0 <= share <= 1:
            found.append(Mark(float(rate), float(share), *_ends(ends, share), not known.get("holds")))
    return sorted(found)


def _goal(result: Result) -> float | None:
    goal = result.workload.get("goal")
    attain = goal.get("attain") if isinstance(goal, dict) else None
    return float(attain) if isinstance(attain, int | float) and 0 <= attain <= 1 else None


def _positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and 1e-12 < value < 1e12


def _ends(value: Any, middle: float) -> Range:
    """A range as a document has it; both ends in the middle where it has none."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(end == 0 or _positive(end) for end in value):
        return float(value[0]), float(value[1])
    return float(middle), float(middle)


def _plot(
    section: str,
    title: str,
    text: str,
    lines: Sequence[Line],
    paint: Callable[..., None],
    name: str,
    widths: Sequence[int] = (NARROW, MIDDLE),
) -> Plot:
    traces = tuple(
        PlotTrace(label=line.label, colour=svg.CSS[svg.SERIES[n]], dash=panel.DASHES[n])
        for n, line in enumerate(lines)
        if line.marks
    )
    drawings = draw_at(widths, _height, paint, name, title)
    traces = traces if len(lines) > 1 else ()
    return Plot(section=section, title=title, text=text, drawings=drawings, traces=traces, wide=WIDE in widths)


def _height(width: int) -> float:
    return 240 if width == NARROW else 290


def _paint(
    figure: Figure,
    width: int,
    lines: Sequence[Line],
    y_title: str,
    x_title: str,
    goal: float | None = None,
    share: bool = False,
) -> None:
    x = [mark.x for line in lines for mark in line.marks]
    log_x = max(x) / min(x) > _LOG_FROM
    x_range = (min(x) / 1.25, max(x) * 1.25) if log_x else range_around(x)
    ends = [end for line in lines for mark in line.marks for end in (mark.low, mark.high)]
    y_range: Range = (0.0, 1.05) if share else (0.0, max(ends) * 1.08)
    box = Panel(figure, 44, 30, width - 16, _height(width) - 36)
    box.scale(x_range, y_range, log_x=log_x)
    ticks = panel.numbers(panel.linear_ticks(0.0, 1.0 if share else y_range[1], 5))
    box.y_axis(panel.Ticks(ticks.at, [f"{at:.0%}" for at in ticks.at]) if share else ticks, y_title)
    wanted = 5 if width == NARROW else 9
    places = panel.log_ticks(*x_range, wanted) if log_x else panel.linear_ticks(*x_range, wanted)
    box.x_axis(panel.numbers(places), f"{x_title}, logarithmic" if log_x else x_title)
    if goal is not None:
        box.axes.axhline(goal, color=svg.MUTED, lw=1.3, ls=panel.LINES[1], zorder=2)
    for index, line in enumerate(lines):
        _paint_line(box, line.marks, index)


def _paint_line(box: Panel, marks: Sequence[Mark], index: int) -> None:
    colour, marker = svg.SERIES[index], panel.MARKERS[index]
    box.axes.plot([m.x for m in marks], [m.y for m in marks], color=colour, ls=panel.LINES[index], lw=1.3, zorder=3)
    for mark in marks:
        box.axes.plot([mark.x] * 2, [mark.low, mark.high], color=colour, lw=1, alpha=0.6, zorder=2)
        face = svg.CARD if mark.hollow else colour
        box.axes.plot(mark.x, mark.y, marker, ms=6, mfc=face, mec=colour, mew=1.4, zorder=4, clip_on=False)
