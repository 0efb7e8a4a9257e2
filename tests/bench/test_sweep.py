"""Sweeps: points, knobs, marks; and real ones on a tiny model."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.bench.client.observer import NoObserver
from forebay.bench.rate_search import Probe, RateFound
from forebay.bench.served import Server
from forebay.bench.server_process import ServerProcess
from forebay.bench.slo import parse_slo
from forebay.bench.sweep import (
    OBJECTIVES,
    Knob,
    RateGoal,
    SweepPlan,
    load_knob,
    pareto,
    points_of,
    profile_knob,
    rate_figures,
    run_sweep,
)
from forebay.bench.workload.spec import WorkloadSpec
from forebay.errors import BenchError, ProfileError
from tests.bench.profiles import closed_loop, tiny_profile
from tests.support.fake_openai import fail, fake_server, script


def test_a_grid_and_one_at_a_time() -> None:
    knobs = (Knob("profile", "a", (1, 2, 3)), Knob("load", "b", ("x", "y")))
    assert [tuple(point.values()) for point in points_of(knobs, one_at_a_time=False)] == [
        (1, "x"), (1, "y"), (2, "x"), (2, "y"), (3, "x"), (3, "y"),
    ]  # fmt: skip
    assert [tuple(point.values()) for point in points_of(knobs, one_at_a_time=True)] == [
        (1, "x"), (2, "x"), (3, "x"), (1, "y"),
    ]  # fmt: skip
    assert points_of((), one_at_a_time=False) == [{}]
    with pytest.raises(BenchError, match="1024 points"):
        points_of([Knob("load", f"k{i}", (1, 2)) for i in range(10)], one_at_a_time=False)


def test_knobs_are_read_and_checked() -> None:
    assert profile_knob("token_budget=128,256") == Knob("profile", "scheduler.token_budget", (128, 256))
    assert profile_knob("kv.prefix_cache=true, false") == Knob("profile", "kv.prefix_cache", (True, False))
    assert load_knob("concurrency=1,8") == Knob("load", "concurrency", (1, 8))
    assert load_knob("input=64;lognormal:256,0.6") == Knob("load", "input", ("64", "lognormal:256,0.6"))
    assert load_knob("fixed_output=true,false").values == (True, False)
    assert load_knob("scale_rate=0.5,2").values == (0.5, 2.0)
    for wrong in ("token_budget", "token_budget=", "=1", "concurrency=1,,2"):
        with pytest.raises(BenchError, match="is no knob"):
            load_knob(wrong)
    with pytest.raises(ProfileError, match="token_budget"):
        profile_knob("token_budgt=1")
    with pytest.raises(ProfileError, match=r"kv\.block_size must be"):
        profile_knob("kv.block_size=16,big")
    with pytest.raises(BenchError, match="concurrency must be an integer, got 'many'"):
        load_knob("concurrency=1,many")
    with pytest.raises(BenchError, match="no part of the load"):
        load_knob("cuncurrency=1")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"knobs": (load_knob("concurrency=1"), load_knob("concurrency=2"))}, "given twice"),
        ({"target": Server(url="http://x"), "knobs": (profile_knob("kv.block_size=8"),)}, "keeps its profile"),
        ({"goal": RateGoal(slo=parse_slo("ttft:1s"))}, "leave out concurrency"),
        ({"goal": RateGoal(slo=parse_slo("ttft:1s")), "spec": WorkloadSpec(requests=5)}, "leave out requests"),
        ({"knobs": (load_knob("concurrency=1,0"),)}, "concurrency"),
        ({"knobs": (load_knob("output=2,x"),)}, "output 'x': 'x' is no length"),
        ({"knobs": (load_knob("text=/no/such/file"),)}, "text '/no/such/file' cannot be read"),
        ({"spec": WorkloadSpec(arrivals="poisson:1,2")}, "rate '1,2' must be a number"),
        ({"spec": WorkloadSpec(arrivals="poisson:1"), "warmup": 70_000}, "concurrency must be from 1 to 65536"),
        ({"timeout_s": float("nan")}, "timeout_s=nan must be above 0"),
        ({"target": Server(url="http://x", api_key="two words")}, "api_key"),
        ({"goal": RateGoal(slo=parse_slo("ttft:1s"), start=1e5), "spec": WorkloadSpec()}, "more than 1000000 requests"),
    ],
)
def test_plans_that_make_no_sense_are_refused_before_anything_starts(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchError, match=message):
        run_sweep(SweepPlan(**{"target": tiny_profile(), "spec": closed_loop(), **plan}))


def test_pareto_marks_what_no_other_row_beats() -> None:
    def row(rate: float, ttft: float, itl: float, valid: bool = True) -> dict[str, Any]:
        return {"output_token_rate": rate, "ttft_p50_s": ttft, "itl_p50_s": itl, "valid": valid}

    rows = [row(10, 1, 1), row(20, 1, 1), row(5, 0.5, 1), row(20, 2, 1), row(99, 0.1, 0.1, valid=False), row(20, 1, 1)]
    assert pareto(rows, OBJECTIVES) == [False, True, True, False, False, True]
    assert pareto([{"valid": True, "output_token_rate": 3.0}], OBJECTIVES) == [False]  # no latency is known


def test_the_row_of_a_search() -> None:
    probes = (Probe(rate=4, attained=1.0, row={"completed": 5}), Probe(rate=8, attained=0.1, row={"completed": 9}))
    row = rate_figures(RateFound(rate=4, fails_at=8, probes=probes, notes=("a note",)))
    assert (row["rate"], row["attained"], row["completed"], row["valid"], row["notes"]) == (4, 1.0, 5, True, ["a note"])
    assert [probe["completed"] for probe in row["probes"]] == [5, 9]
    none = rate_figures(RateFound(rate=None, fails_at=8, probes=probes))
    assert (none["rate"], none["valid"], none["invalid_reasons"]) == (None, False, ["no rate held the SLO"])
    failed = Probe(rate=8, attained=0.0, invalid_reasons=("no request completed",))
    never = rate_figures(RateFound(rate=None, fails_at=8, probes=(failed,), hopeless=True))
    assert never["invalid_reasons"] == ["the SLO cannot be held at any rate", "no request completed"]


def test_a_grid_on_a_tiny_model() -> None:
    """Two settings by two loads, with a point that cannot start."""
    plan = SweepPlan(
        target=tiny_profile(),
        spec=closed_loop(concurrency=None),
        knobs=(profile_knob("scheduler.token_budget=16,4"), load_knob("concurrency=1,3")),
        warmup=1,
    )
    seen: list[str] = []
    result = run_sweep(
        plan, seed=5, label="grid", watch=lambda i, n, what, requests: seen.append(f"{i + 1}/{n} {what}, {requests}")
    )
    budget = "scheduler.token_budget"
    assert [row["knobs"] for row in result.rows] == [
        {budget: 16, "concurrency": 1}, {budget: 16, "concurrency": 3},
        {budget: 4, "concurrency": 1}, {budget: 4, "concurrency": 3},
    ]  # fmt: skip
    good, bad = result.rows[:2], result.rows[2:]
    assert all((row["completed"], row["failed"]) == (8, 0) and row["output_token_rate"] > 0 for row in good)
    assert good[0]["profile"] == good[1]["profile"]
    assert good[0]["workload_digest"] != good[1]["workload_digest"]
    assert all("token_budget = 4 is less than" in row["error"] and not row["valid"] for row in bad)
    assert seen == [f"1/4 {budget}=16, concurrency=1, 8", f"2/4 {budget}=16, concurrency=3, 8"]
    assert (result.kind, result.label, result.valid) == ("sweep", "grid", False)
    assert any("points are invalid" in reason for reason in result.invalid_reasons)
    assert result.workload["knobs"] == {budget: [16, 4], "concurrency": [1, 3]}


def test_nothing_that_could_be_measured_is_an_error() -> None:
    plan = SweepPlan(target=Server(url="http://127.0.0.1:9"), spec=closed_loop())
    with pytest.raises(BenchError, match=r"no point of the sweep could be measured; the first: .* does not answer"):
        run_sweep(plan)


def test_an_interrupt_keeps_the_points_that_are_done(tiny_server: ServerProcess) -> None:
    class Impatient(NoObserver):
        def sent(self, session: int, turn: int) -> None:
            raise KeyboardInterrupt

    there = Server(url=tiny_server.url, tokenizer=tiny_profile().model.source)
    plan = SweepPlan(target=there, spec=closed_loop(), knobs=(load_knob("concurrency=1,2,3"),), warmup=0)
    result = run_sweep(plan, watch=lambda index, count, what, requests: Impatient() if index == 1 else None)
    assert [row["knobs"] for row in result.rows] == [{"concurrency": 1}]
    assert result.invalid_reasons[0] == "interrupted after 1 of 3 points"


def test_the_highest_rate_of_a_tiny_model_is_found() -> None:
    """Its queue is so short that it refuses what comes too fast, however fast the machine is."""
    profile = tiny_profile(max_requests=1, max_waiting=1)
    spec = WorkloadSpec(input="8", output="2")
    goal = RateGoal(slo=parse_slo("e2e:60s"), start=400.0, attain=0.7, width=0.9, duration_s=0.1, min_requests=8)
    result = run_sweep(SweepPlan(target=profile, spec=spec, goal=goal, warmup=1))
    (row,) = result.rows
    probes = {probe["rate"]: probe for probe in row["probes"]}
    assert row["rate"] is None or row["rate"] < row["fails_at"]
    assert probes[row["fails_at"]]["failed"] > 0.2 * probes[row["fails_at"]]["completed"]
    assert all(
        probe["attained_interval"][0] <= probe["attained"] <= probe["attained_interval"][1] for probe in row["probes"]
    )
    assert result.slo == "e2e:60s"
    assert row["pareto"] == row["valid"]


@pytest.mark.parametrize("slo", ["ttft:1us", "ttft:60s"], ids=["an SLO that nobody can hold", "all fail"])
def test_an_slo_that_no_rate_can_hold_ends_the_search(tiny_server: ServerProcess, slo: str) -> None:
    """Long before the rates are so low that a probe takes hours."""
    with fake_server({"fake": script(fail(500))}) as broken:
        url = tiny_server.url if slo == "ttft:1us" else broken.url
        there = Server(url=url, tokenizer=tiny_profile().model.source)
        goal = RateGoal(slo=parse_slo(slo), start=16.0, duration_s=0.5, min_requests=8)
        (row,) = run_sweep(SweepPlan(target=there, spec=WorkloadSpec(input="8", output="2"), goal=goal, warmup=0)).rows
    assert row["rate"] is None
    assert row["invalid_reasons"][0] == "the SLO cannot be held at any rate"
    assert len({probe["rate"] for probe in row["probes"]}) < 8
    assert all((probe["completed"] > 0) == (slo == "ttft:1us") for probe in row["probes"])


def test_a_probe_lasts_long_enough_and_has_enough_requests() -> None:
    goal = RateGoal(slo=parse_slo("e2e:1s"), duration_s=30.0, min_requests=30)
    assert [goal.load(WorkloadSpec(), rate).duration_s for rate in (0.5, 1.0, 100.0)] == [60.0, 30.0, 30.0]
    assert goal.load(WorkloadSpec(), 0.1 + 0.2).arrivals == "poisson:0.30000000000000004"
