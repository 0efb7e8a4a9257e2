"""When requests arrive, as offsets in seconds from the start of the run.

    constant:R         one every 1/R seconds, the first at 0
    poisson:R          independent arrivals, R a second on average
    gamma:R,CV         gaps with a mean of 1/R and this coefficient of variation; CV 1 is poisson, above is bursty
    ramp:R1..R2@S      Poisson with a rate that goes from R1 to R2 in S seconds, then ends
    steps:R1,R2,...@S  Poisson with each rate held for S seconds, then ends
    at-once            all at 0

Changing rates: arrivals of a Poisson process of rate 1, put through the inverse of the rate's integral.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BenchError

MAX_ARRIVALS = 1_000_000
_MAX_RATE = 1_000_000.0
_MAX_CV = 100.0
_MAX_SECONDS = 30 * 86_400.0
_DRAWN = 4096  # gaps drawn at a time, always, so that a longer run begins like a shorter one
_FORMS = "constant:R, poisson:R, gamma:R,CV, ramp:R1..R2@S, steps:R1,R2@S or at-once"

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """rates: requests per second, one, the two ends of a ramp, or those of the steps. cv: of the gaps.
    hold_s: the length of the ramp, or of each step."""

    kind: Literal["constant", "gamma", "ramp", "steps", "at-once"]
    rates: tuple[float, ...] = ()
    cv: float = 1.0
    hold_s: float = 0.0

    @property
    def end_s(self) -> float | None:
        """When it stops by itself; None: never."""
        return {"ramp": self.hold_s, "steps": self.hold_s * len(self.rates)}.get(self.kind)

    def offsets(
        self, rng: np.random.Generator, *, requests: int | None = None, duration_s: float | None = None
    ) -> list[float]:
        """Rising offsets, at most `requests` and all before `duration_s`. BenchError if nothing ends them."""
        if self.kind == "at-once" and requests is None:
            raise BenchError("arrivals at-once: say how many with requests")
        if requests is None and duration_s is None and self.end_s is None:
            raise BenchError(f"arrivals {self.kind}: they never end; give requests or duration_s")
        most = MAX_ARRIVALS + 1 if requests is None else requests
        times = self._times(rng, most, min(duration_s or math.inf, self.end_s or math.inf))[:most]
        if len(times) > MAX_ARRIVALS:
            raise BenchError(f"arrivals {self.kind}: more than {MAX_ARRIVALS} requests; shorten duration_s or the rate")
        return [float(time) for time in times]

    def _times(self, rng: np.random.Generator, most: int, end_s: float) -> Floats:
        """At least the first `most` of all times before end_s."""
        if self.kind == "at-once":
            return np.zeros(most)
        if self.kind == "constant":
            times = np.arange(min(most, end_s * self.rates[0] + 2)) / self.rates[0]
        elif self.kind == "gamma":
            shape = self.cv**-2
            times = _sums(lambda: rng.gamma(shape, 1 / (shape * self.rates[0]), _DRAWN), most, end_s)
        else:
            marks, sums = self._integral()
            unit = _sums(lambda: rng.standard_exponential(_DRAWN), most, float(sums[-1]))
            times = self._ramped(unit) if self.kind == "ramp" else np.interp(unit, sums, marks)
        return times[times < end_s]

    def _integral(self) -> tuple[Floats, Floats]:
        """Corners of the rate's integral: seconds, and arrivals expected until then."""
        if self.kind == "ramp":
            return np.array([0, self.hold_s]), np.array([0, self.hold_s * sum(self.rates) / 2])
        marks: Floats = np.arange(len(self.rates) + 1, dtype=np.float64) * self.hold_s
        return marks, np.concatenate([[0.0], np.cumsum(self.rates) * self.hold_s])

    def _ramped(self, unit: Floats) -> Floats:
        """Solve r1*t + (r2-r1)*t^2/(2S) = unit for t, in the form that is exact for equal rates too."""
        first, last = self.rates
        slope = (last - first) / self.hold_s
        root: Floats = 2 * unit / (first + np.sqrt(np.maximum(first**2 + 2 * slope * unit, 0)))
        return root


def parse_arrivals(text: str) -> Arrivals:
    """Read the grammar above. Raises BenchError naming the part that is wrong."""
    name, colon, rest = text.strip().partition(":")
    if name == "at-once" and not colon:
        return Arrivals("at-once")
    if name in ("constant", "poisson"):
        return Arrivals("constant" if name == "constant" else "gamma", (_rate(rest, text),))
    if name == "gamma":
        rate, _, cv = rest.partition(",")
        return Arrivals("gamma", (_rate(rate, text),), cv=_number(cv, "CV", 0.01, _MAX_CV, text))
    if name == "ramp":
        rates, _, seconds = rest.partition("@")
        first, dots, last = rates.partition("..")
        if not dots:
            raise BenchError(f"arrivals {text!r}: {rates!r} must be two rates such as 1..4; give {_FORMS}")
        ends = (_rate(first, text, least=0.0), _rate(last, text, least=0.0))
        if not any(ends):
            raise BenchError(f"arrivals {text!r}: one of the two rates must be more than 0")
        return Arrivals("ramp", ends, hold_s=_seconds(seconds, text))
    if name == "steps":
        rates, _, seconds = rest.partition("@")
        return Arrivals("steps", tuple(_rate(rate, text) for rate in rates.split(",")), hold_s=_seconds(seconds, text))
    raise BenchError(f"arrivals {text!r}: unknown kind {name!r}; give {_FORMS}")


def _sums(draw_gaps: Callable[[], Floats], most: int, end: float) -> Floats:
    """Running sums of gaps: `most` of them, or up to the first that is not before `end`."""
    parts: list[Floats] = []
    drawn, last = 0, 0.0
    while drawn < most and last < end:
        parts.append(last + np.cumsum(draw_gaps()))
        drawn, last = drawn + _DRAWN, float(parts[-1][-1])
    times = np.concatenate(parts) if parts else np.zeros(0)
    return times[times < end]


def _rate(part: str, text: str, least: float = 1e-6) -> float:
    return _number(part, "rate", least, _MAX_RATE, text)


def _seconds(part: str, text: str) -> float:
    return _number(part, "seconds after @", 1e-3, _MAX_SECONDS, text)


def _number(part: str, name: str, least: float, most: float, text: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise BenchError(
            f"arrivals {text!r}: {name} {part!r} must be a number from {least:g} to {most:g}; give {_FORMS}"
        )
    return value
