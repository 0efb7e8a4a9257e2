"""What the plots draw, before it is drawn."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from forebay.bench.record import RequestRecord
from forebay.bench.report import series, timeline
from forebay.bench.report.panel import linear_ticks, log_ticks, spread_labels
from forebay.bench.result import Result, Run, StepSeries
from forebay.errors import BenchError
from tests.bench.report import documents

MS = 1_000_000


def record(token_ms: tuple[int, ...], counts: tuple[int, ...], *, start_ms: int = 0, index: int = 0) -> RequestRecord:
    return RequestRecord(
        index=index, intended_ns=start_ms * MS, sent_ns=start_ms * MS, token_ns=tuple(t * MS for t in token_ms),
        token_counts=counts, end_ns=(token_ms[-1] if token_ms else start_ms) * MS, planned_output_tokens=sum(counts),
        output_tokens=sum(counts),
    )  # fmt: skip


def result_of(*found: RequestRecord) -> Result:
    run = Run(started_ns=5, load=documents.load(), records=found)
    return Result(kind="serve", label="x", created="", seed=0, runs=[run])


def test_a_chunk_of_k_tokens_is_one_gap_and_zeros() -> None:
    curve = series.itl_curve(result_of(record((10, 30, 40), (1, 3, 1))))  # gaps: 20 ms, 0, 0, 10 ms
    assert curve is not None
    assert curve.zeros == pytest.approx(0.5)
    assert np.allclose(curve.x, [0.0, 0.01, 0.02])
    assert np.allclose(curve.share, [0.5, 0.75, 1.0])


def test_a_huge_chunk_costs_no_memory() -> None:
    curve = series.itl_curve(result_of(record((10, 30), (1, 10**15))))
    assert curve is not None
    assert curve.zeros == pytest.approx(1.0)


def test_a_curve_of_many_values_has_few_points_and_keeps_its_quantiles() -> None:
    values = np.random.default_rng(1).lognormal(size=100_000)
    curve = series.ecdf(values)
    assert curve is not None
    assert curve.x.size <= series.CURVE_POINTS + 1
    for share in (0.5, 0.95, 0.99, 0.999):
        assert np.interp(share, curve.share, curve.x) == pytest.approx(np.quantile(values, share), rel=0.02)
    assert (curve.x[-1], curve.share[-1]) == (values.max(), 1.0)


def test_failed_and_cancelled_requests_are_in_no_curve() -> None:
    done, cancelled = record((10, 20), (1, 1)), msgspec.structs.replace(record((999, 9999), (1, 1)), cancelled=True)
    curve = series.ttft_curve(result_of(done, cancelled))
    assert curve is not None
    assert curve.x.tolist() == [0.01]
    assert series.ttft_curve(result_of(cancelled)) is None


def test_pareto_keeps_what_nothing_beats() -> None:
    points = [(10.0, 5.0), (20.0, 4.0), (30.0, 9.0), (30.0, 8.0), (25.0, 8.5)]
    assert series.pareto(points) == [1, 3]


def test_points_of_a_sweep_are_labelled_by_the_knobs_that_differ() -> None:
    rows = [
        {"knobs": {"a": 1, "b": n, "c": "same"}, "output_token_rate": 10.0 * n, "ttft_p95_s": 0.1, "valid": n != 2}
        for n in (1, 2)
    ]
    points, knobs = series.row_points([*rows, {"knobs": {"a": 1, "b": 3, "c": "same"}, "error": "it did not start"}])
    assert knobs == ("b",)
    assert [(p.label, p.output_token_rate, p.ttft_p95, p.itl_p95, p.valid) for p in points] == [
        ("1", 10.0, 0.1, None, True),
        ("2", 20.0, 0.1, None, False),
    ]


def test_points_of_runs_come_from_their_requests() -> None:
    one = Run(started_ns=0, load=documents.load(), records=(record((100, 200, 300, 400), (1, 1, 1, 1)),))
    result = Result(kind="serve", label="x", created="", seed=0, runs=[one, one])
    points, _ = series.points([result])
    assert [p.label for p in points] == ["run 1", "run 2"]
    assert points[0].output_token_rate == pytest.approx(10.0)  # 4 tokens in 0.4 s
    assert (points[0].ttft_p95, points[0].itl_p95) == (pytest.approx(0.1), pytest.approx(0.1))


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(BenchError, match=r"x: columns of steps differ in length .*'waiting': 0"):
        series.check(msgspec.structs.replace(result_of(), steps=StepSeries(start_s=[1.0])), "x")
    with pytest.raises(BenchError, match="x: record 0 has 2 token_ns and 1 token_counts"):
        series.check(result_of(record((1, 2), (1,))), "x")
    with pytest.raises(BenchError, match="x: record 0 has a token count below 1"):
        series.check(result_of(record((1, 2), (1, -3))), "x")


@pytest.mark.parametrize("field", ["machine", "rows", "seed"])
def test_numbers_beyond_64_bits_are_refused(field: str) -> None:
    value = {"machine": {"a": [{"b": 10**400}]}, "rows": [{"x": -(10**30)}], "seed": 2**63}[field]
    with pytest.raises(BenchError, match=f"a number in {field} needs more than 64 bits"):
        series.check(msgspec.structs.replace(result_of(), **{field: value}), "x")


def steps(*each: tuple[float, float, int]) -> StepSeries:
    """(start, duration, decode tokens) of each."""
    n = len(each)
    return StepSeries(
        start_s=[s for s, _, _ in each], duration_s=[d for _, d, _ in each], decode_tokens=[t for _, _, t in each],
        requests=[1] * n, prefill_tokens=[0] * n, waiting=[0] * n, blocks_used=[t for _, _, t in each],
        blocks_cached=[0] * n, blocks_promised=[0] * n, blocks_free=[0] * n, slack_slots=[0] * n,
    )  # fmt: skip


def test_idle_bins_hold_no_tokens_but_keep_their_blocks() -> None:
    found = timeline.batches(steps((0.0, 1.0, 10), (3.0, 1.0, 20)), 4)
    assert found is not None
    assert found.edge_s.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found.columns["decode_tokens"].tolist() == [10.0, 0.0, 0.0, 20.0]
    assert found.columns["blocks_used"].tolist() == [10.0, 10.0, 10.0, 20.0]


def test_a_bin_of_many_steps_holds_their_mean_and_largest() -> None:
    found = timeline.batches(steps(*((n / 100, 0.01, n % 10) for n in range(1000))), 10)
    assert found is not None
    assert np.allclose(found.columns["decode_tokens"], 4.5)
    assert np.allclose(found.columns["peak_tokens"], 9.0)
    assert found.count == 1000


def test_a_step_longer_than_a_bin_fills_it() -> None:
    found = timeline.batches(steps((0.0, 10.0, 7)), 5)
    assert found is not None
    assert found.columns["decode_tokens"].tolist() == [7.0] * 5


def test_open_requests_are_counted_between_arrival_and_end() -> None:
    seen = timeline.arrivals(result_of(record((4000,), (1,)), record((3000,), (1,), start_ms=1000, index=1)))
    assert seen is not None
    edges, level = seen.open_requests(4)
    assert edges.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert level.tolist() == [1.0, 2.0, 2.0, 2.0]  # the most at once: at 3 s the second has only just ended


def test_a_place_that_is_taken_the_moment_it_is_free_holds_one_request() -> None:
    seen = timeline.arrivals(result_of(record((2000,), (1,)), record((2000,), (1,), start_ms=2000, index=1)))
    assert seen is not None
    assert seen.meant_s[1] == seen.end_s[0]
    assert seen.open_requests(4)[1].tolist() == [1.0, 1.0, 1.0, 1.0]


def test_runs_stand_end_to_end() -> None:
    one = Run(started_ns=0, load=documents.load(), records=(record((1000,), (1,)),))
    later = msgspec.structs.replace(one, started_ns=3600 * 10**9)
    seen = timeline.arrivals(Result(kind="serve", label="x", created="", seed=0, runs=[one, later]))
    assert seen is not None
    assert seen.starts_s == (0.0, pytest.approx(1.01))
    assert seen.meant_s.tolist() == pytest.approx([0.0, 1.01])


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 637.0), (-3.0, 1e-3), (5.0, 5.0), (0.0, float("inf"))])
def test_linear_ticks_are_few_and_inside(low: float, high: float) -> None:
    found = linear_ticks(low, high, 5)
    assert 1 <= len(found) <= 11
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)


def test_log_ticks_thin_out() -> None:
    assert log_ticks(1.0, 100.0, 9) == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    assert log_ticks(1.0, 100.0, 3) == [1.0, 10.0, 100.0]
    assert len(log_ticks(1e-9, 1e9, 5)) <= 5


def test_labels_do_not_cover_each_other() -> None:
    rng = np.random.default_rng(2)
    at = [(float(x), float(y)) for x, y in rng.uniform(20, 280, (14, 2))]
    spots = spread_labels(at, [40.0] * len(at), (0, 0, 320, 300))
    placed = [spot for spot in spots if spot is not None]
    assert len(placed) >= 12
    for i, (x, y) in enumerate(placed):
        assert 0 <= x <= 280
        assert not any(abs(x - a) < 40 and abs(y - b) < 11 for a, b in placed[i + 1 :])
