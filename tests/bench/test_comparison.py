from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from forebay.bench import statistics
from forebay.bench.comparison import METRICS, Comparison, MetricComparison, compare, interleaved
from forebay.bench.metrics import summarize
from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import LoadFacts, Result, Run
from forebay.bench.slo import parse_slo
from forebay.errors import BenchError

S = 1_000_000_000
QUIET = LoadFacts(wall_s=1.0, client_cores=0.1, target_cores=1.0, foreign_share=0.0, steal_share=0.0)


def requests(rng: np.random.Generator, count: int, slower: float = 1.0, noise: float = 0.05) -> list[RequestRecord]:
    """A closed loop of one: TTFT around 100 ms, 5 gaps around 20 ms, one request after the other."""
    records, now = [], 0
    for index in range(count):
        waits = slower * np.array([0.1, *[0.02] * 5]) * rng.lognormal(0, noise, 6)
        token_ns = tuple(now + int(at * S) for at in np.cumsum(waits))
        records.append(
            RequestRecord(
                index=index,
                intended_ns=now,
                sent_ns=now,
                token_ns=token_ns,
                token_counts=(1,) * 6,
                end_ns=token_ns[-1],
                planned_output_tokens=6,
                prompt_tokens=10,
                output_tokens=6,
            )
        )
        now = token_ns[-1]
    return records


def document(of: list[list[RequestRecord]], starts: list[int] | None = None, **changes: Any) -> Result:
    starts = [index * 100 * S for index in range(len(of))] if starts is None else starts
    slo = None if changes.get("slo") is None else parse_slo(changes["slo"])
    if "summary" not in changes:
        changes["summary"] = summarize(of, slo=slo)
    values: dict[str, Any] = {
        "kind": "serve",
        "label": "one",
        "created": "",
        "seed": 0,
        "machine": {"cpu": "c", "available_bytes": 1},
        "workload": {"digest": "d"},
        "runs": [
            Run(started_ns=start, load=QUIET, records=tuple(records)) for start, records in zip(starts, of, strict=True)
        ],
    }
    return Result(**{**values, **changes})


def in_turns(seed: int, num_runs: int, slower: float, count: int = 20, **changes: Any) -> tuple[Result, Result]:
    """Two documents whose runs took turns while the machine became slower for both."""
    rng = np.random.default_rng(seed)
    drift = 1 + 0.5 * rng.random(num_runs)
    a = [requests(rng, count, by) for by in drift]
    b = [requests(rng, count, by * slower) for by in drift]
    starts = [index * 100 * S for index in range(2 * num_runs)]
    return document(a, starts[::2], **changes), document(b, starts[1::2], label="two", **changes)


def verdicts(found: Comparison) -> dict[str, str]:
    return {one.name: one.verdict for one in found.metrics}


def metric(found: Comparison, name: str) -> MetricComparison:
    return next(one for one in found.metrics if one.name == name)


LATENCIES = {"ttft_s.p50", "ttft_s.p95", "itl_s.p50", "itl_s.p95", "tpot_s.mean", "e2e_s.p95"}
RATES = {"output_token_rate", "request_rate"}


def test_a_document_never_differs_from_itself() -> None:
    rng = np.random.default_rng(0)
    one_run = document([requests(rng, 60)])
    several = document([requests(rng, 60) for _ in range(4)], slo="ttft:100ms")
    for one in (one_run, several):
        found = compare(one, one)
        assert {*verdicts(found).values()} <= {"no difference shown", "not comparable"}
        assert {name for name, verdict in verdicts(found).items() if verdict == "no difference shown"} >= LATENCIES
        assert all(entry.ratio == pytest.approx(1.0) for entry in found.metrics)
    assert set(verdicts(compare(several, several)).values()) == {"no difference shown"}


def test_a_tenth_more_time_is_seen_over_requests() -> None:
    rng = np.random.default_rng(1)
    a, b = document([requests(rng, 80)]), document([requests(rng, 80, slower=1.1)], label="two")
    found = compare(a, b)
    assert {name for name, verdict in verdicts(found).items() if verdict == "slower"} == LATENCIES
    assert {name for name, verdict in verdicts(compare(b, a)).items() if verdict == "faster"} == LATENCIES
    ttft = metric(found, "ttft_s.p50")
    assert (ttft.basis, ttft.higher_is_better) == ("requests", False)
    assert ttft.ratio == pytest.approx(1.1, rel=0.03)
    assert ttft.interval is not None
    assert ttft.interval[0] < 1.1 < ttft.interval[1]
    # one run says nothing of how rates vary
    rate = metric(found, "request_rate")
    assert (rate.verdict, rate.interval, rate.ratio) == ("not comparable", None, pytest.approx(1 / 1.1, rel=0.03))


def test_a_tenth_more_time_is_seen_over_pairs_in_spite_of_a_drift() -> None:
    a, b = in_turns(2, 4, slower=1.1, slo="ttft:120ms")
    found = compare(a, b)
    assert found.interleaved
    assert {name for name, verdict in verdicts(found).items() if verdict == "slower"} >= LATENCIES | RATES
    assert {name for name, verdict in verdicts(compare(b, a)).items() if verdict == "faster"} >= LATENCIES | RATES
    rate = metric(found, "output_token_rate")
    assert (rate.basis, rate.higher_is_better) == ("pairs of runs", True)
    assert rate.ratio == pytest.approx(1 / 1.1, rel=0.02)
    # laid apart, the drift of half the machine hides it from the rates
    later = [msgspec.structs.replace(run, started_ns=run.started_ns + 10_000 * S) for run in b.runs]
    separate = compare(a, msgspec.structs.replace(b, runs=later))
    assert not separate.interleaved
    assert metric(separate, "output_token_rate").basis == "runs"
    assert metric(separate, "output_token_rate").verdict == "no difference shown"
    assert any("did not take turns" in warning for warning in separate.warnings)


def test_runs_in_turns_are_found_by_their_times() -> None:
    def at(*starts: int) -> Result:
        return document([[]] * len(starts), list(starts))

    assert interleaved(at(1, 3, 5), at(2, 4, 6))
    assert interleaved(at(1, 4, 5), at(2, 3, 6))  # a b b a a b
    assert not interleaved(at(1, 2, 3), at(4, 5, 6))
    assert not interleaved(at(1, 3, 5), at(2, 4))
    assert not interleaved(at(1), at(2))
    assert not interleaved(at(1, 3), msgspec.structs.replace(at(2, 4), machine={"cpu": "other"}))
    assert interleaved(at(1, 3), msgspec.structs.replace(at(2, 4), machine={"cpu": "c", "available_bytes": 9}))


def false_share(seeds: range, pair: Any, names: set[str]) -> dict[str, float]:
    wrong = dict.fromkeys(names, 0)
    for seed in seeds:
        for name, verdict in verdicts(compare(*pair(seed))).items():
            if name in names:
                assert verdict != "not comparable"
                wrong[name] += verdict != "no difference shown"
    return {name: count / len(seeds) for name, count in wrong.items()}


def test_two_measurements_of_the_same_rarely_differ_over_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_RESAMPLES", 250)  # for time

    def pair(seed: int) -> tuple[Result, Result]:
        rng = np.random.default_rng(seed)
        a, b = (document([requests(rng, 45, noise=0.3)], summary=None) for _ in range(2))
        return a, b

    found = false_share(range(100), pair, LATENCIES)
    assert max(found.values()) <= 0.10
    assert sum(found.values()) / len(found) <= 0.07


def test_two_measurements_of_the_same_rarely_differ_over_pairs() -> None:
    def pair(seed: int) -> tuple[Result, Result]:
        return in_turns(seed, 5, slower=1.0, count=5, summary=None)

    found = false_share(range(200), pair, LATENCIES | RATES)
    assert max(found.values()) <= 0.10
    assert 0.02 <= sum(found.values()) / len(found) <= 0.08


def test_failed_and_cancelled_requests_are_not_compared() -> None:
    """Half of b was cut after a tenth of the time; what it completed is as fast as before."""
    records = requests(np.random.default_rng(8), 60)
    cut = [
        msgspec.structs.replace(one, failure=Failure(kind=FailureKind.CUT), token_ns=(one.intended_ns + S // 100,),
                                token_counts=(1,), end_ns=one.intended_ns + S // 50)
        for one in records
    ]  # fmt: skip
    gone = [msgspec.structs.replace(one, failure=None, cancelled=True) for one in cut]
    found = verdicts(compare(document([records]), document([records + cut + gone])))
    assert {found[name] for name in LATENCIES} == {"no difference shown"}


def test_rounding_is_no_difference() -> None:
    """The mean of 7 equal numbers and that of 11 may differ in the last bit."""
    same = requests(np.random.default_rng(0), 1)
    found = compare(document([same * 7]), document([same * 11]))
    assert "faster" not in verdicts(found).values()
    assert "slower" not in verdicts(found).values()


def test_goodput_needs_the_same_slo() -> None:
    rng = np.random.default_rng(3)
    runs = [requests(rng, 20, noise=0.3) for _ in range(3)]
    a, b = document(runs, slo="ttft:100ms"), document(runs, slo="ttft:110ms")
    found = metric(compare(a, b), "goodput")
    assert (found.verdict, found.ratio) == ("not comparable", None)
    assert found.a is not None
    assert found.b is not None
    assert found.a < found.b
    assert any(warning.startswith("different SLOs") for warning in compare(a, b).warnings)
    assert metric(compare(a, a), "goodput").verdict == "no difference shown"
    assert "goodput" not in verdicts(compare(document(runs), document(runs)))


def test_what_stands_against_a_verdict_is_said() -> None:
    runs = [requests(np.random.default_rng(4), 10)]
    a = document(runs)
    b = document(
        [requests(np.random.default_rng(5), 10)],
        label="two",
        seed=1,
        machine={"cpu": "other", "available_bytes": 2},
        workload={"digest": "e"},
        valid=False,
        invalid_reasons=["other processes used 9 %"],
    )
    found = compare(a, b)
    assert found.invalid == ["two is invalid: other processes used 9 %"]
    assert found.warnings == [
        "different machines: cpu differ",
        "different workloads: their digests differ",
        "different seeds: 0 and 1",
        "one is one run only: what differs from run to run is not in the intervals",
        "two is one run only: what differs from run to run is not in the intervals",
    ]
    calm = compare(*in_turns(0, 3, slower=1.0))
    assert (calm.invalid, calm.warnings) == ([], [])
    assert compare(a, a).warnings[0] == "both are the same measurement"


def test_what_cannot_be_compared_is_an_error() -> None:
    one = document([requests(np.random.default_rng(5), 10)])
    with pytest.raises(BenchError, match="'serve' and two is 'offline'"):
        compare(one, msgspec.structs.replace(one, kind="offline", label="two"))
    empty = msgspec.structs.replace(one, summary=None, runs=[])
    with pytest.raises(BenchError, match="no figure in common"):
        compare(empty, empty)
    with pytest.raises(BenchError, match="no figure in common"):
        compare(one, empty)
    damaged = msgspec.structs.replace(one.runs[0].records[0], token_counts=(1,))
    with pytest.raises(BenchError, match="token_counts"):
        compare(one, document([[]], runs=[Run(started_ns=0, load=QUIET, records=(damaged,))]))
    with pytest.raises(BenchError, match="names no latency"):
        compare(one, msgspec.structs.replace(one, slo="nonsense:1s"))


def test_a_document_without_records_shows_its_figures_but_no_verdict() -> None:
    bare = msgspec.structs.replace(document([requests(np.random.default_rng(6), 10)]), runs=[])
    found = compare(bare, bare)
    assert set(verdicts(found).values()) == {"not comparable"}
    assert metric(found, "ttft_s.p50").ratio == 1.0


def test_values_of_runs_are_compared_by_their_names() -> None:
    def of(*values: dict[str, float]) -> Result:
        runs = [Run(started_ns=index, load=QUIET, values=some) for index, some in enumerate(values)]
        return document([], summary=None, runs=runs, kind="startup")

    a = of(*({"ready_s": 1.0 + index / 100, "step_rate": 10.0, "note": 1.0} for index in range(3)))
    b = of(*({"ready_s": 2.0 + index / 100, "step_rate": 20.0, "note": 9.0, "own_s": 1.0} for index in range(3)))
    found = compare(a, b)
    assert verdicts(found) == {"ready_s": "slower", "step_rate": "faster"}
    assert metric(found, "ready_s").a == pytest.approx(1.01)


def test_every_metric_is_a_field_of_the_summary() -> None:
    found = document([requests(np.random.default_rng(7), 10)], slo="ttft:1s").summary
    for one in METRICS:
        value = getattr(found, f"{one.latency}_s" if one.latency else one.name)
        assert isinstance(getattr(value, one.figure) if one.latency else value, float)
