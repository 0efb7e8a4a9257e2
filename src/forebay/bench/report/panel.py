"""Axes the page's way: quiet grid, ticks at round places, titles that need no turning of the head, labels apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.bench.report import svg, units

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHAR_PX = 0.56 * svg.FONT_PX  # of a usual sans-serif, on average
LINES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (3, 3)), (0, (9, 3)))
DASHES = ("", "5 2", "1.5 1.5", "7 2 1.5 2", "3 3", "9 3")  # the same for the page's own marks
MARKERS = ("o", "s", "^", "D", "v", "P")


Range = tuple[float, float]


class Key(NamedTuple):
    """An entry of a legend. mark: "area", "line", "cross" or "ring"."""

    label: str
    colour: str
    mark: str = "area"


class Ticks(NamedTuple):
    at: list[float]
    labels: list[str]


def linear_ticks(low: float, high: float, wanted: int) -> list[float]:
    """About `wanted` round numbers from low to high."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    rough = span / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999), default=10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if last - first > 200:
        return [low, high]
    return [n * step for n in range(first, last + 1)]


def log_ticks(low: float, high: float, wanted: int) -> list[float]:
    """1, 2, 5 of each power of ten, or the powers alone where those are enough."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [m * 10.0**p for p in range(first, last + 1) for m in steps]
        inside = [value for value in found if low * 0.999 <= value <= high * 1.001]
        if len(inside) <= wanted:
            break
    return inside[:: max(1, math.ceil(len(inside) / max(1, wanted)))]


def numbers(at: Sequence[float]) -> Ticks:
    return Ticks(list(at), [units.short(value) if abs(value) > 1e-12 else "0" for value in at])


class Panel:
    """A rectangle of a figure, in CSS pixels from its top left corner."""

    def __init__(self, figure: Figure, left: float, top: float, right: float, bottom: float) -> None:
        inches = figure.get_size_inches()
        self.width, self.height = float(inches[0]) * 72, float(inches[1]) * 72
        self.left, self.top, self.right, self.bottom = left, top, right, bottom
        self.figure = figure
        box = (left / self.width, 1 - bottom / self.height, (right - left) / self.width, (bottom - top) / self.height)
        self.axes: Axes = figure.add_axes(box)
        self.axes.set_axis_off()

    def scale(self, x: Range, y: Range, *, log_x: bool = False, log_y: bool = False) -> None:
        if log_x:
            self.axes.set_xscale("log")
        if log_y:
            self.axes.set_yscale("log")
        self.axes.set_xlim(*x)
        self.axes.set_ylim(*y)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Data to pixels of the figure, y downwards."""
        px, py = self.axes.transData.transform((x, y))
        scale = 72.0 / self.figure.dpi
        return float(px) * scale, self.height - float(py) * scale

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """At pixels of the figure. The baseline is at y unless `va` says otherwise."""
        style = {"color": svg.TEXT, "va": "baseline", **style}
        self.figure.text(x / self.width, 1 - y / self.height, units.clean(text).replace("\n", " "), **style)

    def segment(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """A thin line between two pixels of the figure."""
        from matplotlib.lines import Line2D

        x, y = zip(start, end, strict=True)
        across, up = [value / self.width for value in x], [1 - value / self.height for value in y]
        self.figure.add_artist(Line2D(across, up, color=svg.MUTED, lw=0.7, zorder=0))

    def x_axis(self, ticks: Ticks, title: str = "") -> None:
        """Labels under the rectangle that do not touch each other, and the title right under them."""
        self.axes.axhline(self.axes.get_ylim()[0], color=svg.MUTED, lw=1, clip_on=False)
        free = -math.inf
        for at, label in zip(*ticks, strict=True):
            x, _ = self.place(at, self.axes.get_ylim()[0])
            half = len(label) * CHAR_PX / 2
            x = min(max(x, half), self.width - half)
            if x - half < free:
                continue
            self.text(x, self.bottom + 14, label, ha="center", color=svg.MUTED)
            free = x + half + 6
        if title:
            self.text(self.right, self.bottom + 29, title, ha="right", color=svg.MUTED)

    def y_axis(self, ticks: Ticks, title: str = "", *, bold: bool = False) -> None:
        """Grid lines with labels at their left, and the title over the rectangle."""
        for at, label in zip(*ticks, strict=True):
            self.axes.axhline(at, color=svg.GRID, lw=1, zorder=0)
            _, y = self.place(self.axes.get_xlim()[0], at)
            self.text(self.left - 6, y + 4, label, ha="right", color=svg.MUTED)
        if title:
            colour, weight = (svg.TEXT, "bold") if bold else (svg.MUTED, "normal")
            self.text(2, self.top - 9, title, color=colour, weight=weight)

    def legend(self, title: str, keys: Sequence[Key]) -> None:
        """Marks with their names over the rectangle, right of its title."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Rectangle

        x, y = 2 + len(title) * CHAR_PX * 1.08 + 12, self.top - 9
        for key in keys:
            if key.mark == "area":
                corner, size = (x / self.width, 1 - y / self.height), (9 / self.width, 9 / self.height)
                spot: Any = Rectangle(corner, *size, fc=key.colour)
            else:
                shape = {"cross": "x", "ring": "o"}.get(key.mark)
                ends = [x - 1, x + 10] if shape is None else [x + 5]
                spot = Line2D(
                    [e / self.width for e in ends], [1 - (y - 4) / self.height] * len(ends), color=key.colour,
                    marker=shape, ms=5.5, mfc="none", lw=1.6,
                )  # fmt: skip
            self.figure.add_artist(spot)
            self.text(x + 14, y, key.label, color=svg.MUTED)
            x += 14 + len(key.label) * CHAR_PX + 10


def spread_labels(
    at: Sequence[tuple[float, float]],
    widths: Sequence[float],
    box: tuple[float, float, float, float],
    avoid: Sequence[tuple[float, float]] = (),
) -> list[tuple[float, float] | None]:
    """Where each label's left end and baseline go, near its point and clear of points and of other labels.

    at: points in pixels. box: left, top, right, bottom that labels must stay in. avoid: further places to keep free if
    that is possible. None: no room for it.
    """
    height = svg.FONT_PX
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in at]
    found: list[tuple[float, float] | None] = []
    for (x, y), width in zip(at, widths, strict=True):
        free = []
        for left, base in _candidates(x, y, width, height):
            area = (left, base - height + 2, left + width, base + 2)
            inside = area[0] >= box[0] and area[1] >= box[1] and area[2] <= box[2] and area[3] <= box[3]
            if inside and not any(_overlap(area, other) for other in taken):
                free.append(area)
        clear = [area for area in free if not any(area[0] < a < area[2] and area[1] < b < area[3] for a, b in avoid)]
        best = next(iter(clear or free), None)
        taken += [] if best is None else [best]
        found.append(None if best is None else (best[0], best[3] - 2))
    return found


def _candidates(x: float, y: float, width: float, height: float) -> list[tuple[float, float]]:
    near = [(x - width / 2, y - 8), (x + 8, y + 4), (x - width - 8, y + 4), (x - width / 2, y + 8 + height)]
    corners = [(x + 7, y - 6), (x - width - 7, y - 6), (x + 7, y + 6 + height), (x - width - 7, y + 6 + height)]
    far = [(x - width / 2 + dx, y + dy) for dy in (-20, 30, -32, 42) for dx in (0, -width / 2 - 6, width / 2 + 6)]
    return [*near, *corners, *far]


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
