from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from forebay.bench import statistics
from forebay.bench.result import Interval
from forebay.bench.statistics import (
    Group,
    distribution,
    figure_ratio_intervals,
    mean_interval_over_runs,
    quantile,
    ratio_interval,
    separate_ratio_interval,
    share_interval,
    t_quantile,
)
from forebay.errors import BenchError


def width(interval: Interval) -> float:
    return interval[1] - interval[0]


def singles(values: Group) -> list[tuple[float]]:
    return [(float(value),) for value in values]


def test_a_quantile_lies_between_two_order_statistics() -> None:
    """Type 7: position (n - 1) * q of the sorted values."""
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([10.0, 0.0], 0.25) == 2.5
    assert quantile([float(value) for value in range(101)], 0.95) == 95.0
    assert quantile([7.0], 0.99) == 7.0


def test_figures_of_a_distribution_by_hand() -> None:
    found = distribution([[4.0], [1.0], [3.0], [2.0], [0.0]], seed=0)
    assert found is not None
    assert (found.count, found.mean, found.min, found.p50, found.max) == (5, 2.0, 0.0, 2.0, 4.0)
    assert (found.p90, found.p95) == (pytest.approx(3.6), pytest.approx(3.8))
    assert set(found.intervals) == {"mean", "p50"}


def test_nothing_has_no_distribution_and_few_requests_no_interval() -> None:
    assert distribution([], seed=0) is None
    assert distribution([[], []], seed=0) is None
    four = distribution([[1.0] * 1000] * 4, seed=0)
    assert four is not None
    assert (four.count, four.intervals) == (4000, {})
    with_empty = distribution([[1.0]] * 4 + [[]] * 10, seed=0)  # a request without a gap is no evidence
    assert with_empty is not None
    assert with_empty.intervals == {}


def test_a_quantile_that_few_requests_reach_has_no_interval() -> None:
    """No resample goes beyond the largest value seen, so the interval would be a pretence."""
    for num, named in ((5, {"mean", "p50"}), (100, {"mean", "p50", "p95"}), (400, {"mean", "p50", "p95", "p99"})):
        found = distribution(singles(np.arange(num)), seed=0)
        assert found is not None
        assert set(found.intervals) == named
    # here the gaps above p95 all belong to one request, and there all have some
    one_slow = distribution([[1.0] * 100] * 19 + [[2.0] * 100] * 1, seed=0)
    all_alike = distribution([[1.0] * 90 + [2.0] * 10] * 20, seed=0)
    assert one_slow is not None
    assert all_alike is not None
    assert "p99" not in one_slow.intervals
    assert all_alike.intervals["p99"] == (2.0, 2.0)


def test_weighted_quantiles_are_those_of_the_values_drawn() -> None:
    """A resample in which each group comes once is the sample, and one that draws some twice is the longer list."""
    rng = np.random.default_rng(3)
    groups = [rng.lognormal(size=size) for size in (1, 700, 3, 40, 999, 2, 2)]
    pool = statistics._Pool.of(groups)
    assert pool is not None
    assert pool.owner.shape[0] > 1  # several blocks
    for weights in ([1] * 7, [0, 2, 0, 1, 1, 3, 0], [7, 0, 0, 0, 0, 0, 0]):
        drawn = np.concatenate([np.repeat(group, w) for group, w in zip(groups, weights, strict=True)])
        times = np.array([[*weights, 0]], dtype=float)
        reached = np.cumsum(times[:, :7] @ pool.held, axis=1)
        for rank in {0, len(drawn) // 3, len(drawn) - 1}:
            assert pool._ranked(times, reached, np.array([float(rank)]))[0] == np.sort(drawn)[rank]


def test_intervals_depend_on_the_seed_alone() -> None:
    groups = singles(np.random.default_rng(0).lognormal(size=80))
    assert distribution(groups, seed=5) == distribution(groups, seed=5)
    assert distribution(groups, seed=-1) != distribution(groups, seed=1)
    first, other = distribution(groups, seed=5), distribution(groups, seed=6)
    assert first is not None
    assert other is not None
    assert first.p95 == other.p95
    assert first.intervals != other.intervals


def test_more_tokens_of_the_same_requests_do_not_narrow_an_interval() -> None:
    """The request is the unit: every gap told 16 times over is no new evidence."""
    rng = np.random.default_rng(1)
    groups = [np.round(rng.lognormal(-3, 0.3) * rng.lognormal(0, 0.2, size=40), 3) for _ in range(60)]
    once, often = (distribution([np.tile(gaps, times) for gaps in groups], seed=2) for times in (1, 16))
    assert once is not None
    assert often is not None
    assert often.count == 16 * once.count
    for name in ("mean", "p50", "p95"):
        assert width(once.intervals[name]) > 0
        assert width(often.intervals[name]) == pytest.approx(width(once.intervals[name]), rel=0.05)
    assert often.intervals["mean"] == pytest.approx(once.intervals["mean"], rel=1e-12)


def test_one_request_of_many_equal_gaps_does_not_narrow_the_interval() -> None:
    gaps: list[Group] = [[0.01], [0.02], [0.03], [0.04], [0.05], [0.06]]
    few, many = distribution([*gaps, [0.03]], seed=0), distribution([*gaps, [0.03] * 10_000], seed=0)
    assert few is not None
    assert many is not None
    assert width(many.intervals["mean"]) >= 0.9 * width(few.intervals["mean"])


def cover(true: float, make: Callable[[np.random.Generator], Interval | None], times: int, seed: int = 0) -> float:
    rng = np.random.default_rng(seed)
    found = [make(rng) for _ in range(times)]
    return sum(low <= true <= high for low, high in filter(None, found)) / times


@pytest.mark.parametrize(("name", "true"), [("mean", math.exp(0.125)), ("p50", 1.0)])
def test_intervals_over_requests_cover(name: str, true: float) -> None:
    def of_requests(rng: np.random.Generator) -> Interval | None:
        found = distribution(singles(rng.lognormal(0, 0.5, 30)), seed=0)
        return None if found is None else found.intervals[name]

    assert 0.90 <= cover(true, of_requests, 200) <= 0.99


def test_intervals_over_gaps_that_are_alike_within_a_request_cover() -> None:
    """Were the token the unit, they would cover the true mean in some 40 % of cases."""

    def of_gaps(rng: np.random.Generator) -> Interval | None:
        found = distribution(list(np.exp(rng.normal(0, 0.4, (30, 1)) + rng.normal(0, 0.3, (30, 20)))), seed=0)
        return None if found is None else found.intervals["mean"]

    assert 0.90 <= cover(math.exp(0.125), of_gaps, 200) <= 0.99


def test_an_interval_over_runs_is_students() -> None:
    assert mean_interval_over_runs([10.0, 12.0]) is None
    # by hand: mean 12, standard deviation 2, 4.3027 * 2 / sqrt(3)
    assert mean_interval_over_runs([10.0, 12.0, 14.0]) == pytest.approx((12 - 4.96833, 12 + 4.96833), abs=1e-4)
    assert mean_interval_over_runs([10.0, 10.0, 10.0]) == (10.0, 10.0)
    # weights: 10/s for 2 s and 40/s for 2 times 1 s is 100 in 4 s
    low, high = mean_interval_over_runs([10.0, 40.0, 40.0], [1.0, 1.0, 1.0]) or (0, 0)
    assert (low + high) / 2 == pytest.approx(30.0)
    low, high = mean_interval_over_runs([10.0, 40.0, 40.0], [2.0, 1.0, 1.0]) or (0, 0)
    assert (low + high) / 2 == pytest.approx(25.0)
    assert mean_interval_over_runs([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]) is None


def test_an_interval_over_three_runs_covers() -> None:
    """A bootstrap of 3 runs cannot: the true mean lies outside all of them in a quarter of cases."""
    assert 0.93 <= cover(10.0, lambda rng: mean_interval_over_runs(rng.normal(10, 1, 3)), 2000) <= 0.97


def test_quantiles_of_student() -> None:
    for freedom, value in ((1, 12.7062), (4, 2.7764), (10, 2.2281), (11, 2.2010), (30, 2.0423), (120, 1.9799)):
        assert t_quantile(freedom) == pytest.approx(value, abs=1e-3)


def test_a_ratio_is_the_geometric_mean_over_pairs() -> None:
    found = ratio_interval([1.0, 2.0, 4.0], [2.0, 4.0, 8.0], seed=0)
    assert found.ratio == pytest.approx(2.0)
    assert found.interval == pytest.approx((2.0, 2.0))
    there, back = ratio_interval([1, 2, 3], [2, 5, 4], seed=0), ratio_interval([2, 5, 4], [1, 2, 3], seed=0)
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert ratio_interval([1.0, 2.0], [2.0, 4.0], seed=0).interval is None
    for wrong in (([1.0], [1.0, 2.0]), ([], []), ([1.0, 0.0, 1.0], [1.0, 1.0, 1.0])):
        with pytest.raises(BenchError, match="pairs"):
            ratio_interval(*wrong, seed=0)


@pytest.mark.parametrize("num_pairs", [3, 5, 8, 12])
def test_an_interval_over_few_pairs_covers(num_pairs: int) -> None:
    """Nominal 95 %, on noisy lognormal ratios with a drift that hits both of a pair."""

    def of_pairs(rng: np.random.Generator) -> Interval | None:
        drift = rng.lognormal(0, 0.3, num_pairs)
        a, b = (drift * true * rng.lognormal(0, 0.05, num_pairs) for true in (1.0, 1.1))
        return ratio_interval(a, b, seed=0).interval

    assert 0.91 <= cover(1.1, of_pairs, 600) <= 0.98


def test_runs_that_do_not_pair_are_compared_by_welch() -> None:
    found = separate_ratio_interval([1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0])
    assert (found.ratio, found.interval) == (pytest.approx(2.0), pytest.approx((2.0, 2.0)))
    assert separate_ratio_interval([1.0, 2.0], [1.0, 2.0, 3.0]).interval is None
    with pytest.raises(BenchError, match="runs"):
        separate_ratio_interval([], [1.0])

    def of_runs(rng: np.random.Generator) -> Interval | None:
        return separate_ratio_interval(rng.lognormal(0, 0.02, 4), 1.1 * rng.lognormal(0, 0.1, 6)).interval

    assert 0.93 <= cover(1.1, of_runs, 1000) <= 0.985


def test_the_ratio_of_a_figure_covers_and_needs_both_sides() -> None:
    def of_both(rng: np.random.Generator) -> Interval | None:
        a, b = rng.lognormal(0, 0.4, 40), 1.2 * rng.lognormal(0, 0.4, 30)
        return figure_ratio_intervals(singles(a), singles(b), seed=0)["p50"]

    assert 0.90 <= cover(1.2, of_both, 200) <= 0.995
    assert figure_ratio_intervals([], [[1.0]], seed=0) == {}
    assert figure_ratio_intervals([[1.0]] * 4, [[1.0]] * 9, seed=0) == {}
    assert figure_ratio_intervals([[0.0]] * 9, [[1.0]] * 9, seed=0) == {}
    assert "p95" not in figure_ratio_intervals(singles(range(1, 10)), singles(range(1, 100)), seed=0)


def test_huge_pools_are_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_DRAWN", 40_000)
    pool = statistics._Pool.of(singles(np.arange(200.0)))
    assert pool is not None
    assert len(pool.resampled(np.random.default_rng(0))["mean"]) == 200
    pool = statistics._Pool.of(singles(np.arange(2000.0)))
    assert pool is not None
    assert len(pool.resampled(np.random.default_rng(0))["mean"]) == statistics.MIN_RESAMPLES


def test_the_interval_of_a_share() -> None:
    assert share_interval(0, 0) is None
    assert share_interval(90, 100) == pytest.approx((0.8256, 0.9448), abs=1e-4)  # Wilson's own formula, worked by hand
    assert share_interval(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
