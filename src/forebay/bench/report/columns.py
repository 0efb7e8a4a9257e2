"""Cells, and the columns of a document's rows: what a name's ending says of its unit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.bench.report import units
from forebay.bench.report.units import Unit

_LONGEST = 160  # characters of a cell
_SHARES = ("share", "fraction", "attained", "spread")
_RANGE = ("_range", "_interval")
_DIGEST = re.compile("[0-9a-f]{32,}")
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T"}


@dataclass(frozen=True, slots=True)
class Cell:
    """text, and under it `small` (an interval). tone: "", "better", "worse" or "same". share: of 1, shown as a bar.
    ours: no part of it comes from a document."""

    text: str
    small: str = ""
    number: bool = True
    tone: str = ""
    share: float | None = None
    ours: bool = False


def word(text: object) -> Cell:
    return Cell(units.clean(text), number=False)


def term(text: str) -> Cell:
    """A word of our own."""
    return Cell(text, number=False, ours=True)


def column(name: str, values: Sequence[Any], row_units: Sequence[str] | None = None) -> tuple[str, tuple[Cell, ...]]:
    """Head with the unit, and cells. row_units: of each row, for rows whose figures are of different kinds."""
    label = units.clean(name.removeprefix("knobs."))
    ends = name.endswith(_RANGE) or name == "range"
    figures = sorted(abs(v) for v in map(_size, values) if v)
    if not figures:
        return label, tuple(_plain_cell(value, number=False) for value in values)
    if row_units is not None:
        pairs = zip(values, row_units, strict=True)
        return label, tuple(_cell(value, *_of_unit(unit, _size(value) or 0.0), True) for value, unit in pairs)
    typical = figures[len(figures) // 2]
    stem = name.removesuffix("_range").removesuffix("_interval") if ends else name
    unit, cut = _unit_of(stem, typical)
    show: Callable[[float], str] = _as_written if unit == units.NO_UNIT else lambda value: units.figure(value, unit)
    bar = unit == units.PERCENT and not ends and not name.endswith("spread")
    return _head(label, ends, unit, cut), tuple(_cell(value, show, unit, False, bar) for value in values)


def _head(label: str, ends: bool, unit: Unit, cut: str) -> str:
    words = (label.removesuffix("_range").removesuffix("_interval") if ends else label).removesuffix(cut)
    words = words.replace("seconds", "time").replace("gbps", "").replace("gops", "").replace("_", " ").strip()
    said = f"{words} from, to" if ends else words
    return ", ".join(filter(None, (said, unit.name)))


def _cell(value: Any, show: Callable[[float], str], unit: Unit, with_unit: bool, bar: bool = False) -> Cell:
    """A figure, or two as a range; anything else as text."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_figure, value)):
        text = f"{show(value[0])} to {show(value[1])}"
    elif _is_figure(value):
        text = show(value)
    else:
        return _plain_cell(value)
    share = min(1.0, max(0.0, float(value))) if bar and _is_figure(value) else None
    return Cell(units.with_unit(text, unit) if with_unit else text, share=share)


def _plain_cell(value: Any, *, number: bool = True) -> Cell:
    """number: whether the column is one of figures, where an absent one stands as they do."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return Cell(f"{len(value)} entries", number=False)
    text = units.plain(value)
    if _DIGEST.fullmatch(text):
        text = f"{text[:12]}…"  # enough to tell one from another; the document has the whole
    return Cell(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…", number=number and value is None)


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _size(value: Any) -> float | None:
    """How large a figure is, or the second of two."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_figure, value)):
        return float(value[1])
    return float(value) if _is_figure(value) else None


def _of_unit(unit: str, size: float) -> tuple[Callable[[float], str], Unit]:
    if unit == "s":
        found = units.duration_unit(size)
    elif unit in ("B", "bytes"):
        found = units.size_unit(size)
    else:
        found = Unit(1.0, units.clean(unit))
    return (lambda value: units.figure(value, found)), found


def _unit_of(name: str, typical: float) -> tuple[Unit, str]:
    """The unit for a column, and the end of its name that the unit replaces."""
    suffix = name.rpartition("_")[2].rpartition(".")[2]
    if name.endswith("_s") or "_s." in name:
        return units.duration_unit(typical), "_s"
    if "seconds" in (suffix, name.partition("_")[0]):
        return units.duration_unit(typical), ""
    if suffix == "bytes":
        return units.size_unit(typical), "_bytes"
    if suffix in _SHARES and typical <= 1.5:
        return units.PERCENT, ""
    for word, said in (("gbps", "GB/s"), ("gops", "GOP/s")):
        if word in name.split("_"):
            return Unit(1.0, said), ""
    power = _power(typical)
    if suffix == "rate":
        return Unit(10.0**-power, f"{_PREFIXES[power]}/s"), "_rate"
    return (Unit(10.0**-power, _PREFIXES[power]) if typical >= 1e7 else units.NO_UNIT), ""


def _power(typical: float) -> int:
    """Of the thousands to leave out of figures about as large."""
    return min(12, int(math.log10(typical) // 3) * 3) if typical >= 1e5 else 0


def _as_written(value: float) -> str:
    if isinstance(value, int):
        return units.count(value) if abs(value) >= 10_000 else str(value)
    return units.number(value)
