"""The roofline of an ops result: what each op achieved by operations per byte, under what the machine can do.

A point's height is operations over the time taken, its place to the right operations over the least bytes
(bench/ops/cost.py). A diagonal is a read bandwidth, a level line the peak of an arithmetic, both measured in the same
run. (Roofline, CACM 52(4), 2009.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from forebay.bench.report import panel, svg, units
from forebay.bench.report.panel import Key, Panel, Range
from forebay.bench.report.plots import MIDDLE, NARROW, SHOWN, WIDE, Plot, draw_at, lead
from forebay.bench.result import Result
from forebay.errors import BenchError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# family of ops -> (its name, its colour); ops that are in none are the last
_FAMILIES = {
    "linear": ("linear", svg.SERIES[0]),
    "attention": ("attention", svg.SERIES[1]),
    "logits": ("sampling", svg.SERIES[2]),
    "": ("others", svg.SERIES[5]),
}
_ARITHMETIC = {"dot_u8": "int8", "dot_u4": "int8, 4-bit codes", "fma_f32": "float32"}
_ALIKE = 0.03  # peaks that differ by less are one line
_FEW = 4  # labels that a narrow drawing has room for
_BY_PHASE = ("linear", "attention")  # these get a label for a step of decoding and one for a chunk of a prompt


class Spot(NamedTuple):
    """A case of the result. intensity: operations a byte; rate: 10^9 operations a second. kernels: whose it is."""

    op: str
    words: str
    intensity: float
    rate: float
    decode: bool
    kernels: str

    @property
    def what(self) -> str:
        """The op and its format."""
        return self.words.partition(",")[0]

    @property
    def family(self) -> str:
        return self.op if self.op in _FAMILIES else ""


class Roof(NamedTuple):
    """rate: 10^9 bytes or operations a second."""

    label: str
    rate: float


class Roofs(NamedTuple):
    """bandwidths: of the largest working set, and before it the fastest one if that is another."""

    bandwidths: list[Roof]
    peaks: list[Roof]


def roofline_plots(results: Sequence[Result]) -> list[Plot]:
    """One for each result that has measured ops and the machine's limits."""
    found = []
    for index, result in enumerate(results[:SHOWN]):
        spots, roofs = spots_of(result.rows), roofs_of(result.rows)
        if not spots or not roofs.bandwidths or not roofs.peaks:
            continue
        title = "What the ops achieve" if len(results) == 1 else f"What the ops achieve: {units.clean(result.label)}"
        drawings = draw_at(
            (NARROW, MIDDLE, WIDE),
            _height,
            partial(_paint, spots=spots, roofs=roofs),
            f"roofline{index}",
            f"Operations a second by operations a byte, {len(spots)} cases under the machine's limits",
        )
        found.append(Plot(section="roofline", title=title, text=_about(spots), drawings=drawings, wide=True))
    return found


def roofline_svg(result: Result) -> str:
    """The same as a file of its own. Raises BenchError where there is nothing to draw, MissingExtraError."""
    plots = roofline_plots([result])
    if not plots:
        raise BenchError(
            f"result {units.clean(result.label)!r} has no ops to draw; name one that `forebay bench ops` wrote",
            param="results",
        )
    return svg.standalone(plots[0].drawings[1])


def spots_of(rows: Sequence[Mapping[str, Any]]) -> list[Spot]:
    """The cases that took a known time and compute something."""
    found = []
    for row in rows:
        size, count, seconds = (row.get(name) for name in ("bytes", "operations", "seconds"))
        if row.get("op") == "roofline" or not (_positive(size) and _positive(count) and _positive(seconds)):
            continue
        what = " ".join(str(row[name]) for name in ("op", "format") if row.get(name))
        shape = str(row.get("shape", "")).replace(", context ", " at ")
        kernels = " ".join(str(row[name]) for name in ("backend", "isa") if row.get(name))
        decode = not shape.startswith("prefill")
        found.append(Spot(str(row.get("op")), f"{what}, {shape}", count / size, count / seconds / 1e9, decode, kernels))
    return found


def roofs_of(rows: Sequence[Mapping[str, Any]]) -> Roofs:
    """The best of each kind, whatever the instruction set."""
    reads: dict[float, float] = {}
    peaks: dict[str, float] = {}
    for row in rows:
        if row.get("op") != "roofline":
            continue
        kind, gbps, gops = str(row.get("kind")), row.get("gbps"), row.get("gops")
        if _positive(gbps):
            size = row.get("working_set_bytes")
            size = float(size) if _positive(size) else 0.0
            reads[size] = max(reads.get(size, 0.0), float(gbps))
        elif _positive(gops):
            peaks[kind] = max(peaks.get(kind, 0.0), float(gops))
    ends = {max(reads, key=lambda size: (reads[size], size)), max(reads)} if reads else set()
    return Roofs([_bandwidth(size, reads[size]) for size in sorted(ends)], _merged(peaks))


def _bandwidth(size: float, gbps: float) -> Roof:
    unit = units.size_unit(size)
    where = f", {units.with_unit(units.number(size * unit.factor, 0), unit)}" if size else ""
    return Roof(f"{units.number(gbps)} GB/s{where}", gbps)


def _merged(peaks: Mapping[str, float]) -> list[Roof]:
    """By rising rate; of two alike the one with the shorter name."""
    found: list[Roof] = []
    for kind, rate in sorted(peaks.items(), key=lambda one: (len(_ARITHMETIC.get(one[0], one[0])), one[0])):
        if all(abs(other.rate / rate - 1) > _ALIKE for other in found):
            found.append(Roof(_ARITHMETIC.get(kind, kind), rate))
    named = [Roof(f"{roof.label} {units.number(roof.rate)} GOP/s", roof.rate) for roof in found]
    return sorted(named, key=lambda roof: roof.rate)


def _positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1e-12 < value < 1e15


def _about(spots: Sequence[Spot]) -> str:
    text = "Filled: steps of decoding. Hollow: chunks of a prompt. Diagonals: the bandwidth of the largest working set"
    text += " and of the fastest. Bytes are the least that an op must move; what is in a cache goes by faster."
    kernels = _kernels(spots)
    if len(kernels) > 1:
        marks = ("circle", "square", "triangle", "diamond", "triangle downwards", "plus")
        said = [f"{mark} {units.clean(name)}" for name, mark in zip(kernels, marks, strict=False)]
        text += f" Marks: {', '.join(said)}."
    return text


def _kernels(spots: Sequence[Spot]) -> list[str]:
    return list(dict.fromkeys(spot.kernels for spot in spots))


def _keys(spots: Sequence[Spot], width: int) -> list[Key]:
    """What the colours mean, and where there is room the hollow marks."""
    here = {spot.family for spot in spots}
    found = [Key(label, colour) for family, (label, colour) in _FAMILIES.items() if family in here]
    hollow = width > NARROW and not all(spot.decode for spot in spots)
    return [*found, Key("hollow: prompts", svg.MUTED, "ring")] if hollow else found


def _height(width: int) -> float:
    return {NARROW: 320, MIDDLE: 400, WIDE: 520}[width]


def _paint(figure: Figure, width: int, spots: Sequence[Spot], roofs: Roofs) -> None:
    box = Panel(figure, 44, 30, width - 14, _height(width) - 36)
    top = max(roof.rate for roof in (*roofs.peaks, *(Roof("", spot.rate) for spot in spots)))
    x_range = min(spot.intensity for spot in spots) / 1.7, max(spot.intensity for spot in spots) * 2.2
    y_range = min(spot.rate for spot in spots) / 1.7, top * 2.2
    box.scale(x_range, y_range, log_x=True, log_y=True)
    box.y_axis(panel.numbers(panel.log_ticks(*y_range, 7)), "GOP/s")
    box.legend("GOP/s", _keys(spots, width))
    box.x_axis(panel.numbers(panel.log_ticks(*x_range, 5 if width == NARROW else 9)), "operations a byte, logarithmic")
    lines = _paint_roofs(box, roofs, x_range, y_range)
    kernels = _kernels(spots)
    for spot in spots:
        colour = _FAMILIES[spot.family][1]
        marker = panel.MARKERS[kernels.index(spot.kernels) % len(panel.MARKERS)]
        face = colour if spot.decode else svg.CARD
        box.axes.plot(spot.intensity, spot.rate, marker, ms=5, mfc=face, mec=colour, mew=1.2, zorder=3, clip_on=False)
    _label(box, spots, lines, short=width == NARROW)


def _paint_roofs(box: Panel, roofs: Roofs, x_range: Range, y_range: Range) -> list[tuple[float, float]]:
    """Returns places on the lines and their labels, in pixels, which other labels should leave free."""
    (low, high), bottom = x_range, y_range[0]
    top, fastest = roofs.peaks[-1].rate, max(roof.rate for roof in roofs.bandwidths)
    taken: list[tuple[float, float]] = []
    for roof in roofs.bandwidths:
        start, end = max(low, bottom / roof.rate), min(high, top / roof.rate)
        if start < end:
            taken += _line(box, (start, start * roof.rate), (end, end * roof.rate), roof.label, 0.66)
    for roof in roofs.peaks:
        start = min(max(low, roof.rate / fastest), high)
        taken += _line(box, (start, roof.rate), (high, roof.rate), roof.label, 1.0)
    return taken


def _line(
    box: Panel, start: tuple[float, float], end: tuple[float, float], label: str, share: float
) -> list[tuple[float, float]]:
    """Its label stands on it, the middle at `share` of its length if that leaves the ends inside."""
    box.axes.plot(*zip(start, end, strict=True), color=svg.MUTED, lw=1.3, zorder=2)
    a, b = np.array(box.place(*start)), np.array(box.place(*end))
    length = float(np.hypot(*(b - a)))
    along = (b - a) / max(length, 1e-9)
    above = np.array([along[1], -along[0]])
    half = len(label) * panel.CHAR_PX / 2 + 2
    middle = a + along * max(half, min(share * length, length - half)) + 5 * above
    angle = math.degrees(math.atan2(-along[1], along[0]))
    box.text(middle[0], middle[1], label, color=svg.MUTED, ha="center", rotation=angle, rotation_mode="anchor")
    said = [middle + along * at + 4 * above for at in np.arange(-half, half, 6.0)]
    return [(float(x), float(y)) for x, y in (*said, *(a + along * at for at in np.linspace(0, length, 60)))]


def _label(box: Panel, spots: Sequence[Spot], lines: Sequence[tuple[float, float]], *, short: bool) -> None:
    chosen = _labelled(spots, short)[: _FEW if short else None]
    places = [box.place(spot.intensity, spot.rate) for spot, _ in chosen]
    others = [box.place(spot.intensity, spot.rate) for spot in spots]
    widths = [len(label) * panel.CHAR_PX + 2 for _, label in chosen]
    room = (box.left + 2, box.top - 4, box.width - 2, box.bottom - 2)
    spots_found = panel.spread_labels(places, widths, room, [*others, *lines])
    for (_, label), point, spot in zip(chosen, places, spots_found, strict=True):
        if spot is not None:
            lead(box, point, spot, len(label) * panel.CHAR_PX)
            box.text(spot[0], spot[1], label)


def _labelled(spots: Sequence[Spot], short: bool) -> list[tuple[Spot, str]]:
    """One case of each op and its kernels, the first; of some ops also the last of a prompt in the same format, which
    is the largest. Those come before the others, since the first find room."""
    several = len(_kernels(spots)) > 1
    found: dict[tuple[str, str, bool], tuple[Spot, str]] = {}
    for spot in spots:
        by_phase = spot.op in _BY_PHASE
        key = (spot.kernels, spot.op, spot.decode or not by_phase)
        if key in found and (key[2] or found[key][0].what != spot.what):
            continue
        label = spot.op
        if by_phase:
            label = f"{spot.op}, {'decode' if spot.decode else 'prompt'}" if short else spot.words
        found[key] = (spot, f"{label} ({spot.kernels})" if several else label)
    return sorted(found.values(), key=lambda one: one[0].op not in _BY_PHASE)
