"""Numbers as a reader wants them: one unit, no more digits than the interval justifies."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from forebay.bench.result import Interval

ABSENT = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
# What must not reach a page as it is: C0 but tab and newline, DEL, C1, lone surrogates, marks that reorder a line
_CONTROLS, _MARKS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff", "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff"
_UNPRINTABLE = re.compile(f"[{_CONTROLS}{_MARKS}]")


class Unit(NamedTuple):
    """A figure times `factor` is in the unit `name`."""

    factor: float
    name: str


NO_UNIT = Unit(1.0, "")
PERCENT = Unit(100.0, "%")
PER_SECOND = Unit(1.0, "/s")


def clean(text: object) -> str:
    """Any value as text, with characters that could harm a page's or a terminal's layout replaced."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text))


def duration_unit(typical_s: float) -> Unit:
    """The unit for durations about as long as `typical_s` seconds."""
    size = abs(typical_s)
    if size >= 1000:
        return Unit(1 / 60, "min")
    if size >= 1:
        return Unit(1.0, "s")
    if size >= 1e-3 or size == 0:
        return Unit(1e3, "ms")
    return Unit(1e6, "µs") if size >= 1e-6 else Unit(1e9, "ns")


def size_unit(typical_bytes: float) -> Unit:
    for power, name in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(typical_bytes) >= 1024**power:
            return Unit(1024.0**-power, name)
    return Unit(1.0, "B")


def places(value: float, interval: Interval | None) -> int:
    """Decimal places to show, negative to round to tens: three significant digits, or what the interval's half width
    justifies: its first digit, and one more where that digit is 1 or 2; but never none of the value."""
    if value == 0 or not math.isfinite(value):
        return 0
    first = math.floor(math.log10(abs(value)))
    last = first - 2
    if interval is not None:
        half = abs(interval[1] - interval[0]) / 2
        if math.isfinite(half) and half > 0:
            power = math.floor(math.log10(half))
            last = min(first, max(last - 1, power - (half / 10.0**power < 3)))
    return min(12, -last)


def number(value: float, decimals: int | None = None) -> str:
    """With thousands separated; three significant digits unless `decimals` says otherwise (negative: tens)."""
    if not math.isfinite(value):
        return ABSENT
    shown = places(value, None) if decimals is None else decimals
    rounded = round(value, shown)
    if abs(rounded) >= 1e15:
        return f"{rounded:.3g}".replace("-", MINUS)
    return f"{rounded:,.{max(0, shown)}f}".replace("-", MINUS)


def count(value: float) -> str:
    """A whole number, exactly."""
    return number(value, 0)


def short(value: float) -> str:
    """Three digits with k, M or G, for axes and large rates."""
    for factor, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}".replace("-", MINUS) + name
    return f"{value:.3g}".replace("-", MINUS)


def figure(value: float | None, unit: Unit = NO_UNIT, interval: Interval | None = None) -> str:
    """The number alone, in `unit`, with the digits its interval justifies."""
    if value is None or not math.isfinite(value):
        return ABSENT
    scaled = None if interval is None else (interval[0] * unit.factor, interval[1] * unit.factor)
    return number(value * unit.factor, places(value * unit.factor, scaled))


def bounds(interval: Interval | None, unit: Unit = NO_UNIT) -> str:
    """An interval's two ends to the same place, without the unit; "" where there is none. Where one of them would be
    rounded to nothing, each has two digits of its own."""
    if interval is None or not all(map(math.isfinite, interval)):
        return ""
    low, high = interval[0] * unit.factor, interval[1] * unit.factor
    decimals = [places((low + high) / 2 or high, (low, high))] * 2
    if any(end and not round(end, decimals[0]) for end in (low, high)):
        decimals = [places(end, None) - 1 for end in (low, high)]
    return f"{number(low, decimals[0])} to {number(high, decimals[1])}"


def with_unit(text: str, unit: Unit) -> str:
    if not text or text == ABSENT or not unit.name:
        return text
    return f"{text}{unit.name}" if unit.name == "/s" else f"{text}\N{NO-BREAK SPACE}{unit.name}"


def duration(seconds: float | None, interval: Interval | None = None) -> str:
    """Seconds as text in the unit that suits them."""
    if seconds is None:
        return ABSENT
    unit = duration_unit(seconds)
    return with_unit(figure(seconds, unit, interval), unit)


def plain(value: Any) -> str:
    """Any value of a document as short text."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value) if abs(value) < 1e6 or not value.is_integer() else count(value)
    if isinstance(value, (list, tuple)):
        return clean(", ".join(map(plain, value))) or "none"
    if isinstance(value, dict):
        return clean(", ".join(f"{key} {plain(item)}" for key, item in value.items())) or "none"
    return clean(value)
