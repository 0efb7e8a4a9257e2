"""What this machine can do at best, measured in the same run as the ops: read bandwidth by working set, arithmetic
peaks.

The kernels are csrc/roofline: the vector code of one instruction set on the engine's own thread pool. A read is a pass
of wide loads over a buffer, each thread over its contiguous share. A peak is a loop of independent chains in registers,
of the very instructions that the linear and attention kernels multiply with; it moves no data and so is above any real
kernel. (Roofline, CACM 52(4), 2009.)
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from forebay.errors import BenchError
from forebay.ops import native

SMALLEST_WORKING_SET = 2**14
LARGEST_WORKING_SET = 2**28


@dataclass(frozen=True, slots=True)
class Rate:
    """Best and median of several timings, in bytes or operations per second."""

    best: float
    median: float


def working_set_step(size: int) -> int:
    """The power of two at or below `size` bytes, within the sizes that are measured: where its bandwidth is looked up.
    A smaller set is never slower, so what was measured there stays a bound."""
    power = 1 << (max(size, 1).bit_length() - 1)
    return min(max(power, SMALLEST_WORKING_SET), LARGEST_WORKING_SET)


class Roofline:
    """Rates measured so far, of one instruction set and number of threads. Fractions are taken of the best: a bound
    that was reached once can be reached."""

    def __init__(self, isa: str, threads: int) -> None:
        """Raises BenchError when `isa` cannot run here."""
        supported = native.supported_isas()
        if isa not in supported:
            raise BenchError(f"isa {isa!r} cannot run here; choose from {', '.join(supported)}", param="isa")
        self.isa, self.threads = isa, threads
        self._machine = native.measuring_kernels(isa, threads)
        self._samples: dict[int | str, list[float]] = {}

    def sample(self, what: int | str, seconds: float) -> None:
        """Time once more: a working set in bytes, or an arithmetic ("dot_u8", "dot_u4", "fma_f32")."""
        measured = (
            self._machine.read(what, seconds, 1) if isinstance(what, int) else self._machine.peak(what, seconds, 1)
        )
        self._samples.setdefault(what, []).extend(measured)

    def rate(self, what: int | str) -> Rate:
        """KeyError if it has not been sampled."""
        samples = self._samples[what]
        return Rate(best=max(samples), median=median(samples))

    def rows(self) -> list[dict[str, object]]:
        """One row per working set and per arithmetic, for a result document."""
        sizes = sorted(what for what in self._samples if isinstance(what, int))
        kinds = sorted(what for what in self._samples if isinstance(what, str))
        return [*map(self._row, sizes), *map(self._row, kinds)]

    def _row(self, what: int | str) -> dict[str, object]:
        rate, is_read = self.rate(what), isinstance(what, int)
        unit = "gbps" if is_read else "gops"
        return {
            "op": "roofline", "isa": self.isa, "threads": self.threads,
            "kind": "read" if is_read else what, "working_set_bytes": what if is_read else None,
            unit: rate.best / 1e9, f"{unit}_median": rate.median / 1e9, "samples": len(self._samples[what]),
        }  # fmt: skip
