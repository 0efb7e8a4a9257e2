"""The highest open-loop rate that holds an SLO, by doubling and bisection, with every probe kept.

That a lower rate is easier than a higher one is what the search is built on, and is not taken for granted: the rate
found is probed once more, and so is one well above it; what contradicts the assumption is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from forebay.bench.result import Interval
from forebay.errors import BenchError

MAX_STEPS = 16  # doublings or halvings: a factor of 65,536 from the first guess
MIN_RATE, MAX_RATE = 1e-6, 1e6  # what arrivals can be made for
MAX_CONFIRMS = 3
ABOVE = 1.5  # times the highest rate probed; far above, a probe takes long to drain


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One run at one rate (requests a second).

    attained: share of requests within the SLO, with its interval where there is one. ceiling: the largest share that
    a lower rate could attain. why: why it was made. holds: that the share was enough. row: further figures for the
    document.
    """

    rate: float
    attained: float
    ceiling: float = 1.0
    interval: Interval | None = None
    invalid_reasons: tuple[str, ...] = ()
    why: str = ""
    holds: bool = False
    row: dict[str, Any] = field(default_factory=dict)

    def as_row(self) -> dict[str, Any]:
        return {
            "rate": self.rate,
            "attained": self.attained,
            "attained_interval": self.interval,
            "holds": self.holds,
            "why": self.why,
            "valid": not self.invalid_reasons,
            "invalid_reasons": list(self.invalid_reasons),
            **self.row,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RateFound:
    """rate: the highest that held, twice; None if none did. fails_at: the lowest probed rate above it that failed; None
    if none did. notes: what contradicts the search's assumption, or ended it early. hopeless: the last probe showed
    that no rate at all can hold."""

    rate: float | None
    fails_at: float | None
    probes: tuple[Probe, ...]
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    hopeless: bool = False


def shown(rate: float) -> str:
    """For a reader: four digits."""
    return f"{rate:.4g}" if rate < 1e4 else f"{rate:.0f}"


class _Search:
    def __init__(self, probe: Callable[[float], Probe], attain: float) -> None:
        self._probe = probe
        self._attain = attain
        self.probes: list[Probe] = []
        self.notes: list[str] = []

    def holds(self, rate: float, why: str) -> bool:
        """Probe a rate; once more if the machine was disturbed meanwhile."""
        made = self._made(rate, why)
        if made.invalid_reasons:
            made = self._made(rate, f"{why}, repeated: {made.invalid_reasons[0]}")
        return made.holds

    def _made(self, rate: float, why: str) -> Probe:
        found = self._probe(rate)
        made = replace(found, why=why, holds=found.attained >= self._attain)
        self.probes.append(made)
        return made

    def hopeless(self) -> bool:
        """Whether the last probe leaves no lower rate a chance."""
        return self.probes[-1].ceiling < self._attain

    def highest_held(self, below: float = float("inf")) -> float | None:
        return max((p.rate for p in self._counted() if p.holds and p.rate < below), default=None)

    def result(self, rate: float | None, *, interrupted: bool = False) -> RateFound:
        failed = [p.rate for p in self._counted() if not p.holds and (rate is None or p.rate > rate)]
        return RateFound(
            rate=rate,
            fails_at=min(failed, default=None),
            probes=tuple(self.probes),
            notes=tuple(dict.fromkeys([*self.notes, *self._contradictions(), *self._disturbed()])),
            interrupted=interrupted,
            hopeless=not interrupted and not any(probe.holds for probe in self.probes) and self.hopeless(),
        )

    def _counted(self) -> Iterator[Probe]:
        """Of probes that were repeated, the second."""
        for made, after in zip_longest(self.probes, self.probes[1:]):
            if after is None or not after.why.startswith(f"{made.why}, repeated"):
                yield made

    def _disturbed(self) -> Iterator[str]:
        rates = dict.fromkeys(shown(p.rate) for p in self._counted() if p.invalid_reasons)
        if rates:
            yield f"disturbed, and when repeated again, at {', '.join(rates)} a second: the probes' rows say by what"

    def _contradictions(self) -> Iterator[str]:
        counted, held = list(self._counted()), self.highest_held() or 0.0
        for made in counted:
            if not made.holds and made.rate < held:
                yield f"not monotone: {shown(made.rate)} a second failed ({made.attained:.1%}), yet {shown(held)} held"
            elif not made.holds and any(p.holds and p.rate == made.rate for p in counted):
                yield f"{shown(made.rate)} a second held once and failed once: the edge is within the noise there"


def find_rate(
    probe: Callable[[float], Probe], *, start: float = 1.0, attain: float = 0.9, width: float = 0.1
) -> RateFound:
    """Search from `start`; done when the rates around the edge are less than `width` apart (relative to the lower).

    attain: a rate holds if at least this share of its requests is within the SLO. A probe that is invalid is repeated
    once, and none is made below one whose ceiling is under `attain`. A KeyboardInterrupt ends the search with what is
    known. Raises BenchError for arguments that make no sense.
    """
    check_search(start=start, attain=attain, width=width)
    search = _Search(probe, attain)
    try:
        low, high = _bracket(search, start)
        if high is None:
            return search.result(low)
        return search.result(None if low is None else _narrow(search, low, high, width))
    except KeyboardInterrupt:
        search.notes.append("interrupted before the search was done")
        return search.result(search.highest_held(), interrupted=True)


def check_search(*, start: float, attain: float, width: float) -> None:
    """Raises BenchError for what `find_rate` cannot work with."""
    for flag, value, most in (("start-rate", start, MAX_RATE), ("attain", attain, 1.0), ("width", width, 1.0)):
        if not MIN_RATE <= value <= most:
            raise BenchError(f"--{flag} must be a number from {MIN_RATE:g} to {most:g}, got {value}", param=flag)


def _bracket(search: _Search, start: float) -> tuple[float | None, float | None]:
    """(a rate that holds, a higher one that fails); None where MAX_STEPS did not meet one."""
    if not search.holds(start, "first"):
        return _halve(search, start), start
    rate = start
    for _ in range(MAX_STEPS):
        if rate * 2 > MAX_RATE:
            break
        if not search.holds(rate * 2, "doubled"):
            return rate, rate * 2
        rate *= 2
    search.notes.append(f"no rate failed up to {shown(rate)} a second")
    return rate, None


def _halve(search: _Search, rate: float) -> float | None:
    """A rate below that holds. `rate` was probed last."""
    for _ in range(MAX_STEPS):
        if search.hopeless() or rate / 2 < MIN_RATE:
            break
        rate /= 2
        if search.holds(rate, "halved"):
            return rate
    why = "; not even requests that met no other one did, so no lower rate can" if search.hopeless() else ""
    search.notes.append(f"no rate held down to {shown(rate)} a second{why}; loosen the SLO")
    return None


def _narrow(search: _Search, low: float, high: float, width: float) -> float | None:
    """The edge between the two, confirmed. A rate that does not hold again counts as failed."""
    for _ in range(MAX_CONFIRMS):
        while high - low > width * low:
            middle = (low + high) / 2
            low, high = (middle, high) if search.holds(middle, "between") else (low, middle)
        if search.holds(low, "confirmed"):
            search.holds(min(MAX_RATE, ABOVE * max(p.rate for p in search.probes)), "well above")
            return low
        search.notes.append(f"{shown(low)} a second did not hold again, so lower rates were tried")
        below = search.highest_held(below=low) or _halve(search, low)
        if below is None:
            return None
        low, high = below, low
    search.notes.append("no rate held twice")
    return None
