"""What a user calls fast enough, and whether one request was."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from forebay.bench.statistics import quantile
from forebay.errors import BenchError
from forebay.observe.latency import RequestTimes

NAMES = ("ttft", "itl", "tpot", "e2e")
UNITS_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
ITL_LEVEL = 0.95
_PART = re.compile(r"(?P<name>[A-Za-z_0-9]*):(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>[A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class SLO:
    """Upper bounds in ns by name, in the order of NAMES. `str` gives a text that parse_slo reads back to the same."""

    limits_ns: tuple[tuple[str, int], ...]

    def holds(self, times: RequestTimes) -> bool:
        """Whether a completed request kept every bound (equal is kept).

        itl is judged at the request's own 95th percentile gap: one late token of a long answer breaks nothing, a tenth
        of them does. A latency that does not exist for it, such as itl of an answer of one token, holds.
        """
        seen = {
            "ttft": times.ttft,
            "itl": quantile(times.itl, ITL_LEVEL) if times.itl else None,
            "tpot": times.tpot,
            "e2e": times.e2e,
        }
        return all((value := seen[name]) is None or value <= limit / 1e9 for name, limit in self.limits_ns)

    def __str__(self) -> str:
        return ",".join(f"{name}:{_written(limit)}" for name, limit in self.limits_ns)


def parse_slo(text: str) -> SLO:
    """Read "ttft:500ms,itl:50ms,tpot:40ms,e2e:5s"; units us, ms, s. Raises BenchError naming the part at fault."""
    limits: dict[str, int] = {}
    for part in text.split(","):
        name, limit = _limit(part.strip(), text)
        if name in limits:
            raise BenchError(f"SLO {text[:200]!r}: {name} stands twice; give each latency one bound", param="slo")
        limits[name] = limit
    return SLO(tuple((name, limits[name]) for name in NAMES if name in limits))


def _limit(part: str, text: str) -> tuple[str, int]:
    found = _PART.fullmatch(part)
    where = f"SLO {text[:200]!r}: {part[:100]!r}"
    if found is None:
        raise BenchError(f"{where} is not a name, a colon, a number and a unit, such as ttft:500ms", param="slo")
    name, number, unit = found["name"], found["number"], found["unit"]
    if name not in NAMES:
        raise BenchError(f"{where} names no latency we know; known are {', '.join(NAMES)}", param="slo")
    if unit not in UNITS_NS:
        raise BenchError(f"{where} has no unit we know; known are {', '.join(UNITS_NS)}", param="slo")
    limit = int(Decimal(number) * UNITS_NS[unit])
    if limit < 1:
        raise BenchError(f"{where} is a bound that nothing keeps; give one of at least a nanosecond", param="slo")
    return name, limit


def _written(limit: int) -> str:
    """In s from a second up, else in ms if that is whole, else in us."""
    unit = "s" if limit >= UNITS_NS["s"] else "ms" if limit % UNITS_NS["ms"] == 0 else "us"
    whole, rest = divmod(limit, UNITS_NS[unit])
    fraction = f"{rest:0{len(str(UNITS_NS[unit])) - 1}d}".rstrip("0")
    return f"{whole}.{fraction}{unit}" if fraction else f"{whole}{unit}"
