"""Which ops are measured, at which sizes, and that what is timed is the op and is right."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay.bench.ops.cases import OPS, SHAPE_SETS, Case, cases_of, check_names
from forebay.bench.ops.measure import (
    HOT_BYTES,
    Measurement,
    build,
    copies_for,
    last_level_cache_bytes,
    sweep_bytes,
    working_set,
)
from forebay.bench.ops.model_shape import load_shape, small_shape
from forebay.bench.ops.run import OpsOptions, measure_ops
from forebay.bench.ops.synthetic import step_of
from forebay.bench.result import read_result, write_result
from forebay.core.kv_spec import KVSpec
from forebay.errors import BenchError
from forebay.ops.native import NativeBackend, NativePlan, supported_isas
from forebay.ops.protocol import Ops, PlanLimits
from forebay.weights.formats import FORMATS

QUICK = OpsOptions(shapes=("small",), threads=1, rounds=3, seconds=0.001)
SHAPE = small_shape()
NO_KV = KVSpec(groups=(), block_size=16)


def op_set() -> set[str]:
    """The methods of the protocol that compute something."""
    return {name for name, _ in inspect.getmembers(Ops, inspect.isfunction) if not name.startswith("_")} - {
        "segment",
        "hidden",
    }


def small_cases(*ops: str) -> list[Case]:
    return cases_of(SHAPE, SHAPE_SETS["small"], ops or OPS)


def test_every_op_has_a_case_in_the_shapes_of_a_step() -> None:
    assert set(OPS) == op_set()
    for shapes in ("small", "decode"):
        assert {case.subject.op for case in cases_of(SHAPE, SHAPE_SETS[shapes])} == op_set()
    of_prefill = {case.subject.op for case in cases_of(SHAPE, SHAPE_SETS["prefill"])}
    assert op_set() - of_prefill == {"rows", "logits", "softcap"}  # a chunk of a prompt has one logit row at most


def test_linear_is_measured_in_every_format() -> None:
    assert {case.subject.format for case in small_cases("linear")} == set(FORMATS)


def test_every_op_is_measured_on_every_backend_and_is_right() -> None:
    """Each plan is compared with the reference before it is timed; see the next test for what that finds."""
    found = measure_ops(OpsOptions(**{**options(QUICK), "backends": ("native", "reference"), "rounds": 2})).rows
    rows, roofline = ([row for row in found if (row["op"] == "roofline") == limits] for limits in (False, True))
    for backend in ("native", "reference"):
        assert {row["op"] for row in rows if row["backend"] == backend} == op_set()
    assert len(rows) == 2 * len(small_cases())
    timed = [row for row in rows if row["seconds"] is not None]
    assert len(timed) > 0.5 * len(rows)  # a busy machine may hide the smallest
    for row in timed:
        assert row["seconds"] > 0
        assert row["floor_fraction"] == max(row["bandwidth_fraction"], row["peak_fraction"] or 0.0)
        assert row["floor_fraction"] == pytest.approx(row["floor_seconds"] / row["seconds"])
        assert row["gbps"] * 1e9 * row["seconds"] == pytest.approx(row["bytes"])
        assert row["gops"] * 1e9 * row["seconds"] == pytest.approx(row["operations"])
        assert row["bound"] == ("compute" if (row["peak_fraction"] or 0) > row["bandwidth_fraction"] else "bandwidth")
    assert {row["kind"] for row in roofline} == {"read", "dot_u8", "dot_u4", "fma_f32"}
    assert all(math.isfinite(row.get("gbps", row.get("gops"))) for row in roofline)


class Idle:
    """The op set of a backend in which one op does nothing but hand its first input on."""

    def __init__(self, ops: Any, idle: str) -> None:
        self._ops, self._idle = ops, idle

    def __getattr__(self, name: str) -> Any:
        if name != self._idle:
            return getattr(self._ops, name)
        return lambda *inputs, **_: None if name == "kv_write" else inputs[0]


class IdleBackend(NativeBackend):
    """The native backend with a fault: `idle` is not computed."""

    def __init__(self, idle: str) -> None:
        super().__init__("auto", 1)
        self._idle = idle
        self.plans: list[NativePlan] = []

    def compile(self, forward: Callable[[Ops[Any]], None], kv: KVSpec, limits: PlanLimits) -> NativePlan:
        self.plans.append(super().compile(lambda ops: forward(Idle(ops, self._idle)), kv, limits))
        return self.plans[-1]


@pytest.mark.parametrize(
    "op", ["linear", "rms_norm", "rope", "kv_write", "attention", "act_mul", "add", "scale", "softcap"]
)
def test_an_op_that_does_nothing_is_not_timed(op: str) -> None:
    # a square matrix, so that an input may pass for an output
    case = next(case for case in small_cases(op) if op != "linear" or "q,o" in case.subject.variant)
    with pytest.raises(BenchError, match=rf"{op} .*differs from the reference"):
        build(IdleBackend(op), [case], SHAPE, 2, seed=0)


def best_seconds(*cases_and_copies: tuple[Case, int]) -> list[float]:
    """The best time of one op in each, timed in turn; 0 where it cannot be told from its step."""
    backend = NativeBackend("auto", 1)
    plans = [build(backend, [case], SHAPE, copies, seed=0) for case, copies in cases_and_copies]
    measured = [Measurement(case, plan) for (case, _), plan in zip(cases_and_copies, plans, strict=True)]
    for measurement in measured:
        measurement.warm_up(0.0002)  # so short that some are not interrupted even on a busy machine
    for _ in range(100):
        for measurement in measured:
            measurement.round()
    for plan in plans:
        plan.close()
    timings = [measurement.timing() for measurement in measured]
    return [0.0 if timing is None else timing.best for timing in timings]


def test_the_time_is_that_of_one_op() -> None:
    """More copies take longer, an op does not; more rows of it do."""
    matrix = [case for case in small_cases("linear") if case.subject.format == "f32"]
    few, many = (case for case in matrix if "down" in case.subject.variant)
    assert many.step.rows == 4 * few.step.rows
    eight, sixty_four, of_few = best_seconds((many, 8), (many, 64), (few, 64))
    assert 0.4 < eight / sixty_four < 2.5
    assert sixty_four > 1.5 * of_few


def test_the_rest_of_the_step_does_not_count() -> None:
    """An addition of a few hundred numbers takes far less than the call of a plan that holds one."""
    case = small_cases("add")[0]
    (of_one, of_many) = best_seconds((case, 1), (case, 512))
    assert of_one < 1e-6  # the call takes 2 us and more
    assert 0 < of_many < 5e-7


def test_what_is_timed_has_logit_rows() -> None:
    """Drawing from four rows of 320 logits takes microseconds; from none, nothing."""
    case = next(case for case in small_cases("logits") if case.subject.variant.startswith("drawn,"))
    assert best_seconds((case, 1))[0] > 1e-7


def test_copies_make_the_wanted_working_set() -> None:
    case = next(case for case in small_cases("linear") if "q,o" in case.subject.variant)  # 64 x 64 q4_1: 2560 bytes
    assert case.cost.reused == 2560
    copies = copies_for(case, 2**20, peak=1e15)
    assert copies == 2**20 // 2560
    assert 2**20 - 2560 < working_set(case, copies) < 2**20 + case.cost.bytes
    assert copies_for(case, 2**20, peak=1.0) == 1  # one call takes longer than a step should
    assert copies_for(case, 1, peak=1e15) == 1
    attention = small_cases("attention")[0]
    assert copies_for(attention, HOT_BYTES, peak=1e15) == HOT_BYTES // attention.cost.reused


def test_a_steps_sweep_is_the_model_or_what_no_cache_holds() -> None:
    case = next(case for case in small_cases("linear") if case.subject.format == "f32")
    weights = 320 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 256 * 64)
    assert SHAPE.weight_values == weights
    assert sweep_bytes(case, SHAPE, cache_bytes=2**30) == 4 * weights
    assert sweep_bytes(case, SHAPE, cache_bytes=1000) < 4 * weights


def test_the_last_level_cache_is_read_from_sysfs(tmp_path: Path) -> None:
    for index, size in enumerate(("32K", "1024K", "16M", "odd")):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
    assert last_level_cache_bytes(tmp_path) == 2**24
    assert last_level_cache_bytes(tmp_path / "elsewhere") == 2**25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ops": ("linaer",)}, r"op 'linaer' is not known; did you mean linear\?"),
        ({"ops": ("zzz",)}, r"op 'zzz' is not known; choose from embed, linear"),
        ({"shapes": ("decod",)}, r"shape 'decod' is not known; did you mean decode\?"),
        ({"backends": ("torch",)}, "backend 'torch' is not known; choose from native, reference"),
        ({"isas": ("mmx",)}, "isa 'mmx' is not known; choose from auto, generic"),
        ({"working_set": "cold"}, "working_set 'cold' is not known; choose from model, hot"),
        ({"threads": 0}, "threads must be auto or at least 1"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"seconds": math.nan}, r"seconds in \(0, 60\]"),
        ({"shapes": ("prefill",), "ops": ("logits",), "model": "smollm2-135m"}, "no case of these ops"),
    ],
)
def test_what_cannot_be_measured_is_said(change: dict[str, Any], message: str, request: pytest.FixtureRequest) -> None:
    if "model" in change:
        change = change | {"model": str(request.getfixturevalue("smollm2_path"))}
    with pytest.raises(BenchError, match=message):
        measure_ops(OpsOptions(**{**options(QUICK), **change}))


def options(given: OpsOptions) -> dict[str, Any]:
    return {name: getattr(given, name) for name in OpsOptions.__dataclass_fields__}


def test_names_are_checked_alone() -> None:
    check_names(OPS, SHAPE_SETS)
    with pytest.raises(BenchError, match="did you mean attention"):
        check_names(["atention"], [])


def test_every_instruction_set_is_measured_and_the_document_can_be_read_back(tmp_path: Path) -> None:
    isas = tuple(supported_isas())
    seen: list[tuple[int, int]] = []
    given = OpsOptions(**{**options(QUICK), "ops": ("add",), "isas": isas, "working_set": "hot"})
    result = measure_ops(given, lambda done, of, what: seen.append((done, of)), label="test")
    write_result(result, tmp_path / "ops.json")
    assert read_result(tmp_path / "ops.json").rows == result.rows
    assert result.workload["working_set"] == "hot"
    assert [row["isa"] for row in result.rows if row["op"] == "add"] == [isa for isa in isas for _ in range(2)]
    assert {row["isa"] for row in result.rows if row["op"] == "roofline"} == set(isas)
    assert seen == sorted(seen)
    assert all(0 <= done < of for done, of in seen)


def test_shapes_come_from_the_model(smollm2_path: Path) -> None:
    shape = load_shape(str(smollm2_path))
    assert (shape.hidden, shape.heads, shape.kv_heads, shape.vocab, shape.layers) == (576, 9, 3, 49152, 30)
    assert shape.linears["gate"] == (1536, 576, "q4_1")
    assert shape.linears["head"] == (49152, 576, "q8_0")
    cases = cases_of(shape, SHAPE_SETS["decode"], ["linear"])
    assert {case.subject.format for case in cases} == set(FORMATS)
    assert {case.step.rows for case in cases} == {1, 8, 32}


def test_plans_are_closed_when_the_check_fails() -> None:
    backend = IdleBackend("add")
    case = small_cases("add")[0]
    with pytest.raises(BenchError):
        build(backend, [case], SHAPE, 1, seed=0)
    assert len(backend.plans) == 2
    for plan in backend.plans:
        with pytest.raises(ValueError, match="the plan is closed"):
            plan.run_logits(step_of(case.step, NO_KV, logit_rows=1, write=False))
