"""The memory of processes over time, from /proc (Linux), and how fast it grows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MB = 1e6
KINDS = ("rss", "anonymous")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a process: seconds since the first one, bytes resident, of those bytes that no file backs."""

    t_s: float
    rss: int
    anonymous: int


def look(pid: int, t_s: float) -> Sample:
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    return Sample(t_s, fields["Rss"], fields["Anonymous"])


def num_descriptors(pid: int) -> int:
    """Open files and sockets of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@dataclass(frozen=True, slots=True)
class Growth:
    """The second half of a series: where it began and ended (MB), and its slope with the standard error (MB/min)."""

    start_mb: float
    end_mb: float
    mb_per_minute: float
    error: float


def second_half(samples: Sequence[Sample]) -> Sequence[Sample]:
    return [s for s in samples if s.t_s >= samples[-1].t_s / 2]


def growth(samples: Sequence[Sample], kind: str) -> Growth:
    """Least squares over the second half; the error takes samples as independent. Needs three samples there."""
    half = second_half(samples)
    minutes = np.array([s.t_s for s in half]) / 60
    size = np.array([getattr(s, kind) for s in half]) / MB
    slope, base = np.polyfit(minutes, size, 1)
    residual = size - (slope * minutes + base)
    spread = float(((minutes - minutes.mean()) ** 2).sum())
    error = float(np.sqrt((residual**2).sum() / (len(half) - 2) / spread))
    return Growth(*(round(float(x), 3) for x in (size[0], size[-1], slope, error)))


def total(parts: Iterable[Sequence[Sample]]) -> list[Sample]:
    """Samples of several processes, which were taken together, as those of one."""
    together = zip(*parts, strict=True)
    return [Sample(at[0].t_s, sum(s.rss for s in at), sum(s.anonymous for s in at)) for at in together]
