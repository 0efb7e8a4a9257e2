"""Quantiles, and intervals that say how far a figure can be trusted. Plain numpy.

All intervals are meant to hold the true figure in 95 % of repetitions. The unit that is drawn again is the request (or
the run, or the pair of runs), never the token: the gaps of one request share a batch, a prompt and a neighbour, so ten
times as many of them are not ten times as much evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from forebay.bench.result import Distribution, Interval
from forebay.errors import BenchError

Floats = npt.NDArray[np.float64]
Group = Sequence[float] | Floats

MIN_REQUESTS = 5  # fewer requests: no interval
MIN_RUNS = 3  # fewer runs or pairs of runs: no interval
TAIL_REQUESTS = 3  # a quantile has an interval only if so many requests hold a value as large
FEW_PAIRS = 8  # below, the interval of a ratio is Student's
FIGURES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}  # beside the mean, those with intervals

MAX_RESAMPLES, MIN_RESAMPLES = 1000, 100
MAX_DRAWN = 20_000_000  # requests drawn over all resamples: a second or two
_CHUNK = 1_000_000  # numbers held at a time

_NORMAL = NormalDist()
# Student's t at 0.975 for 1 to 10 degrees of freedom
_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


def quantile(values: Group, q: float) -> float:
    """The quantile by linear interpolation between order statistics (type 7, numpy's default): of n
    sorted values, the one at position (n - 1) * q. `values`: at least one, in any order."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), q, method="linear"))


def distribution(groups: Sequence[Group], seed: int) -> Distribution | None:
    """Of the values of all groups together; None if there are none.

    groups: the values of each request (one latency, or all of its gaps). Figures are over all values; intervals are
    percentile bootstrap over requests (An Introduction to the Bootstrap, 1993, ch. 13), each with all its values, with
    levels for small samples (see _bounds). There are none under 5 requests, and none for a quantile that fewer than 3
    requests reach: no resample can go beyond the largest value seen, so with 20 requests a "95 %" interval of p95
    would hold it in 62 % of cases, one of p99 in 16 %. Where a request is slow or fast as a whole, that of p95 of its
    gaps is still too narrow for few of them: simulated, it holds in 74 % of cases for 10 requests, in 93 % for 60.

    There are 1000 resamples, and fewer (20,000,000 / requests, at least 100) from 20,000 requests on.
    """
    pool = _Pool.of(groups)
    if pool is None:
        return None
    samples = pool.resampled(_rng(seed)) if pool.num_groups >= MIN_REQUESTS else {}
    sure = {name: _bounds(some, pool.num_groups) for name, some in samples.items() if pool.bounds(name)}
    p50, p90, p95, p99 = (quantile(pool.values, q) for q in (0.5, 0.9, 0.95, 0.99))
    return Distribution(
        count=len(pool.values),
        mean=pool.mean,
        min=float(pool.values[0]),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(pool.values[-1]),
        intervals=sure,
    )


def figure_ratio_intervals(a: Sequence[Group], b: Sequence[Group], seed: int) -> dict[str, Interval]:
    """Intervals of figure of b / figure of a ("mean", "p50", "p95", "p99") by a two-sample bootstrap over requests:
    each side is drawn again on its own. A figure that either side cannot bound, or that is 0 in a resample of a, is
    absent.
    """
    pool_a, pool_b = _Pool.of(a), _Pool.of(b)
    if pool_a is None or pool_b is None:
        return {}
    fewest = min(pool_a.num_groups, pool_b.num_groups)
    if fewest < MIN_REQUESTS:
        return {}
    drawn_a, drawn_b = (p.resampled(_rng(seed, i)) for i, p in enumerate((pool_a, pool_b)))
    count = min(len(drawn_a["mean"]), len(drawn_b["mean"]))  # a huge pool has fewer resamples
    return {
        name: _bounds(drawn_b[name][:count] / drawn_a[name][:count], fewest)
        for name in drawn_a
        if pool_a.bounds(name) and pool_b.bounds(name) and drawn_a[name].min() > 0
    }


def mean_interval_over_runs(values: Group, weights: Group | None = None) -> Interval | None:
    """Student's t interval of the (weighted) mean over runs; None under 3 runs.

    For a rate, `weights` are the runs' durations: the mean is then what all runs did over the time of all runs, and the
    interval that of a ratio estimator by linearization (Sampling Techniques, 1977, ch. 6). Not a bootstrap:
    the mean of a resample never leaves [min, max] of the runs, and the true mean lies outside these in a quarter of
    cases for 3 runs (2 / 2**n for n).
    """
    found = np.asarray(values, dtype=np.float64)
    n = len(found)
    if n < MIN_RUNS:
        return None
    weight = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if weight.sum() <= 0:
        return None
    mean = float((found * weight).sum() / weight.sum())
    residuals = (found - mean) * weight / weight.mean()
    half = t_quantile(n - 1) * math.sqrt(float((residuals**2).sum()) / (n * (n - 1)))
    return mean - half, mean + half


def share_interval(successes: int, of: int) -> Interval | None:
    """Wilson's 95 % interval of a share (Probable inference, JASA 22(158), 1927); None of nothing."""
    if of == 0:
        return None
    share, z = successes / of, _NORMAL.inv_cdf(0.975)
    middle = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * math.sqrt(share * (1 - share) / of + z**2 / (4 * of**2))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))  # rounding may cross an end


@dataclass(frozen=True, slots=True)
class Ratio:
    """b / a, with its interval (None where there are too few of them)."""

    ratio: float
    interval: Interval | None


def ratio_interval(pairs_a: Group, pairs_b: Group, seed: int) -> Ratio:
    """The geometric mean of b[i] / a[i], with an interval over pairs; pairs are independent of each other.

    The geometric mean because only it gives the inverse when a and b are exchanged (How not to lie
    with statistics, CACM 29(3), 1986). From 8 pairs on the interval is a bootstrap over pairs. Below, it is Student's t
    of the log ratios, as for any mean of few measurements (Statistically rigorous Java
    performance evaluation, OOPSLA 2007): the bootstrap of 5 pairs, even with all 3125 resamples enumerated, holds the
    true ratio in 84 % of cases, and cannot do better than [min, max]. None under 3 pairs.

    Raises BenchError for sides of different length, or a value that is not above 0.
    """
    a, b = np.asarray(pairs_a, dtype=np.float64), np.asarray(pairs_b, dtype=np.float64)
    if len(a) != len(b) or len(a) == 0:
        raise BenchError(f"pairs: {len(a)} measurements cannot be paired with {len(b)}; measure both equally often")
    if not (np.all(a > 0) and np.all(b > 0)):
        raise BenchError("pairs: a measurement of 0 or less has no ratio; measure for longer")
    logs = np.log(b) - np.log(a)
    n = len(logs)
    if n < FEW_PAIRS:
        bounds = mean_interval_over_runs(logs)
    else:
        drawn = _rng(seed).integers(n, size=(MAX_RESAMPLES, n))
        bounds = _bounds(logs[drawn].mean(axis=1), n)
    return Ratio(math.exp(logs.mean()), None if bounds is None else (math.exp(bounds[0]), math.exp(bounds[1])))


def separate_ratio_interval(runs_a: Group, runs_b: Group) -> Ratio:
    """Geometric mean of b over that of a, for runs that do not pair, with Welch's t interval of the logs
    (Biometrika 34, 1947). No interval if either side has under 3 runs. Raises BenchError for a value not above 0."""
    a, b = np.asarray(runs_a, dtype=np.float64), np.asarray(runs_b, dtype=np.float64)
    if not (len(a) and len(b) and np.all(a > 0) and np.all(b > 0)):
        raise BenchError("runs: a measurement of 0 or less, or none, has no ratio; measure for longer")
    a, b = np.log(a), np.log(b)
    center = float(b.mean() - a.mean())
    if min(len(a), len(b)) < MIN_RUNS:
        return Ratio(math.exp(center), None)
    parts = [float(side.var(ddof=1)) / len(side) for side in (a, b)]
    spread = sum(p * p / (len(side) - 1) for p, side in zip(parts, (a, b), strict=True))
    freedom = math.floor(sum(parts) ** 2 / spread + 1e-9) if spread > 0 else len(a) + len(b) - 2
    half = t_quantile(freedom) * math.sqrt(sum(parts))
    return Ratio(math.exp(center), (math.exp(center - half), math.exp(center + half)))


def t_quantile(freedom: int) -> float:
    """Student's t at 0.975. Above 10 degrees of freedom by the Handbook of Mathematical Functions, 26.7.5: error below
    0.001."""
    if freedom <= len(_T):
        return _T[max(1, freedom) - 1]
    z = _NORMAL.inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


@dataclass(frozen=True, slots=True)
class _Pool:
    """Values of all groups, sorted once and cut into blocks of equal length.

    values: [N]. owner: [blocks, length], the group of each value; past the end group `num_groups`, which no resample
    draws. held: [groups, blocks], how many values of a group a block holds. sizes, sums: of each group.
    """

    values: Floats
    owner: npt.NDArray[np.intp]
    held: Floats
    sizes: npt.NDArray[np.intp]
    sums: Floats

    @classmethod
    def of(cls, groups: Sequence[Group]) -> _Pool | None:
        """None if no group has a value. Empty groups do not count as groups."""
        full = [group for group in groups if len(group)]
        if not full:
            return None
        n = len(full)
        sizes = np.fromiter((len(group) for group in full), np.intp, n)
        flat = np.fromiter(chain.from_iterable(full), np.float64, int(sizes.sum()))
        of_flat = np.repeat(np.arange(n), sizes)
        order = np.argsort(flat, kind="stable")
        length = math.ceil(len(flat) / max(1, min(math.isqrt(len(flat)), _CHUNK // n)))
        num_blocks = math.ceil(len(flat) / length)
        owner = np.full(num_blocks * length, n, np.intp)
        owner[: len(flat)] = of_flat[order]
        at = owner[: len(flat)] * num_blocks + np.arange(len(flat)) // length
        held = np.bincount(at, minlength=n * num_blocks).reshape(n, num_blocks).astype(np.float64)
        sums = np.bincount(of_flat, flat, n).astype(np.float64)
        return cls(flat[order], owner.reshape(num_blocks, length), held, sizes, sums)

    @property
    def num_groups(self) -> int:
        return len(self.sizes)

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    def bounds(self, name: str) -> bool:
        """Whether enough requests reach the figure for resamples to vary around it."""
        if name not in FIGURES:
            return True
        at = math.ceil((len(self.values) - 1) * FIGURES[name] - 1e-9)
        first = int(np.searchsorted(self.values, self.values[at]))  # equal values reach it too
        reaching = self.owner.ravel()[first : len(self.values)]
        return len(np.unique(reaching)) >= TAIL_REQUESTS

    def resampled(self, rng: np.random.Generator) -> dict[str, Floats]:
        """Mean and quantiles of as many groups, drawn with replacement, for each resample."""
        total = max(MIN_RESAMPLES, min(MAX_RESAMPLES, MAX_DRAWN // self.num_groups))
        at_once = max(1, _CHUNK // (self.num_groups + self.owner.shape[1]))
        parts = [self._resample(rng, min(at_once, total - done)) for done in range(0, total, at_once)]
        return dict(zip(("mean", *FIGURES), np.concatenate(parts, axis=1), strict=True))

    def _resample(self, rng: np.random.Generator, rows: int) -> Floats:
        """[1 + quantiles, rows]. A group drawn k times weighs k, so nothing is sorted again; blocks are added up first,
        and only those where a quantile lies are looked into."""
        n = self.num_groups
        drawn = rng.integers(n, size=(rows, n)) + np.arange(rows)[:, None] * (n + 1)
        times = np.bincount(drawn.ravel(), minlength=rows * (n + 1)).reshape(rows, n + 1).astype(np.float64)
        counts = times[:, :n] @ self.sizes
        reached = np.cumsum(times[:, :n] @ self.held, axis=1)
        found = [times[:, :n] @ self.sums / counts]
        for q in FIGURES.values():
            at = (counts - 1) * q
            low = np.floor(at)
            lower = self._ranked(times, reached, low)
            upper = self._ranked(times, reached, np.minimum(low + 1, counts - 1))
            found.append(lower + (upper - lower) * (at - low))
        return np.stack(found)

    def _ranked(self, times: Floats, reached: Floats, rank: Floats) -> Floats:
        """For each resample the value with this rank (from 0), where group g weighs times[:, g] and `reached` values
        lie up to the end of each block."""
        rows = np.arange(len(rank))
        block = (reached <= rank[:, None]).sum(axis=1)
        before = np.where(block > 0, reached[rows, block - 1], 0.0)
        inside = np.cumsum(times[rows[:, None], self.owner[block]], axis=1) + before[:, None]
        index = (inside <= rank[:, None]).sum(axis=1)
        found: Floats = self.values[block * self.owner.shape[1] + index]
        return found


def _rng(*seed: int) -> np.random.Generator:
    """Any whole numbers will do; numpy takes none below 0."""
    return np.random.default_rng([number % 2**64 for number in seed])


def _bounds(samples: Floats, n: int) -> Interval:
    """The percentile interval of `samples`, each made of n units drawn again.

    Levels of the expanded percentile interval (What teachers should know about the bootstrap, The American
    Statistician 69(4), 2015): a resample of n varies less than a sample of n by sqrt((n - 1) / n) and knows
    nothing of Student's t; with these levels the interval of a mean is about as wide as the t interval.
    """
    tail = _NORMAL.cdf(-t_quantile(n - 1) * math.sqrt(n / (n - 1)))
    low, high = np.quantile(samples, (tail, 1 - tail))
    return float(low), float(high)
