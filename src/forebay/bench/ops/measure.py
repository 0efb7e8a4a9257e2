"""Times one op through a backend, as a plan that holds many copies of it, against the same plan without them.

time of the op = (time of a step with `copies` of it - time of the step without) / copies, both timed in turn in each
round and repeated until they are long enough for the clock. The difference takes the call, the checks, the embedding of
the inputs and the thread pool's start out of the figure; what stays is what an op costs inside a step, its barrier
included.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from forebay.bench.ops.cases import Case
from forebay.bench.ops.model_shape import ModelShape
from forebay.bench.ops.roofline import Roofline, working_set_step
from forebay.bench.ops.subjects import Extent, Record, Subject, kv_spec
from forebay.bench.ops.synthetic import StepShape, blocks_needed, fill_steps, sampling, step_of
from forebay.core.kv_spec import KVSpec
from forebay.errors import BenchError
from forebay.ops.protocol import Backend, Plan, PlanLimits, SampleBatch
from forebay.ops.reference import ReferenceBackend
from forebay.ops.tensor import F32Array
from forebay.weights.formats import FORMATS

HOT_BYTES = 2**19  # of a hot working set: stays in the second-level cache of one core
CACHES_TIMES = 3  # a cold working set is so many times the last-level cache
MOST_COPIES = 512
PLAN_SECONDS = 0.05  # copies are limited so that one step takes about as long, at the machine's peak
ACTIVATIONS = 2**23  # ops without weights: as many copies as make this many bytes
_UNKNOWN_CACHE = 2**25
_TOLERANCE = 2e-3  # of the largest output: rounding, and int8 codes of activations that round the other way


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call of the op, over rounds. spread: (largest - smallest) / median, of whole steps."""

    median: float
    best: float
    spread: float


def last_level_cache_bytes(root: Path = Path("/")) -> int:
    """The largest cache of processor 0, from sysfs; 32 MiB where that does not tell."""
    sizes = []
    for file in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text[:-1].isdigit() and text[-1:] in "KM":
            sizes.append(int(text[:-1]) << (10 if text.endswith("K") else 20))
    return max(sizes, default=_UNKNOWN_CACHE)


def sweep_bytes(case: Case, shape: ModelShape, cache_bytes: int) -> int:
    """What a step reads before it comes back to the same weight: all of the model's matrices, if all were in the case's
    format. Beyond a few times the last-level cache more makes no difference."""
    subject = case.subject
    name = subject.format if subject.op in ("linear", "embed") and subject.format else shape.embed_format
    fmt = FORMATS[name]
    return min(shape.weight_values * fmt.block_bytes // fmt.block_size, CACHES_TIMES * cache_bytes)


def copies_for(case: Case, wanted_bytes: int, peak: float) -> int:
    """How many copies make a working set of `wanted_bytes`, within what is reasonable to run. peak: operations a
    second."""
    if case.subject.samples:
        return 1  # a plan samples its logits once
    by_bytes = wanted_bytes // case.cost.reused if case.cost.reused else ACTIVATIONS // case.cost.bytes
    by_time = int(PLAN_SECONDS * peak / case.cost.operations) if case.cost.operations else MOST_COPIES
    return max(1, min(by_bytes, by_time, MOST_COPIES))


def working_set(case: Case, copies: int) -> int:
    """Bytes that a step with `copies` goes through again and again."""
    return case.cost.bytes + (copies - 1) * case.cost.reused


@dataclass(frozen=True, slots=True)
class Plans:
    """A subject recorded twice on a backend: with `copies` of the op and without any."""

    subject: Subject
    kv: KVSpec
    copies: int
    full: Plan
    without: Plan

    def close(self) -> None:
        self.full.close()
        self.without.close()


def build(backend: Backend, cases: Sequence[Case], shape: ModelShape, copies: int, seed: int) -> Plans:
    """Plans for cases of one subject, checked.

    Raises BenchError when the output is not that of the reference: a wrong kernel's time means nothing.
    """
    subject, largest = cases[0].subject, _largest([case.step for case in cases])
    kv = kv_spec(subject, shape, copies)
    record = subject.make(np.random.default_rng(seed), Extent(largest.rows, largest.context, copies))
    full = _compile(backend, record, copies, kv, largest)
    plans = Plans(subject, kv, copies, full, _compile(backend, record, 0, kv, largest))
    try:
        _check(backend, plans, largest, shape, seed)
    except BaseException:
        plans.close()
        raise
    return plans


def _largest(steps: Sequence[StepShape]) -> StepShape:
    """A step that has room for each of them."""
    return replace(max(steps, key=lambda step: step.rows), context=max(step.context for step in steps))


def _compile(backend: Backend, record: Record, copies: int, kv: KVSpec, step: StepShape) -> Plan:
    limits = PlanLimits(
        max_tokens=step.rows,
        max_requests=step.rows,
        max_logit_rows=step.rows,
        max_model_len=step.context,
        num_blocks=max(1, blocks_needed(step, kv)),
    )
    return backend.compile(lambda ops: record(ops, copies), kv, limits)


class Measurement:
    """A case on its plans, and the rounds timed so far."""

    def __init__(self, case: Case, plans: Plans) -> None:
        subject, step = plans.subject, case.step
        rows = step.rows if subject.all_rows else 1
        self.case = case
        self._plans = plans
        self._batch = step_of(step, plans.kv, logit_rows=rows, write=subject.writes, sample=_sampling(subject, rows))
        self._full_s: list[float] = []
        self._without_s: list[float] = []
        self._calls = (1, 1)

    def warm_up(self, seconds: float) -> None:
        """Fill the cache, run both plans, and find how often each must run to take `seconds` (the one without copies a
        quarter of that)."""
        _fill(self._plans.full, self.case.step, self._plans.kv, self._plans.subject)
        self._time(self._plans.full, 1)
        self._time(self._plans.without, 1)
        full, without = self._time(self._plans.full, 1), self._time(self._plans.without, 1)
        self._calls = _calls(seconds, full), _calls(seconds / 4, without)

    def round(self) -> None:
        calls, calls_without = self._calls
        self._full_s.append(self._time(self._plans.full, calls) / calls)
        self._without_s.append(self._time(self._plans.without, calls_without) / calls_without)

    def timing(self) -> Timing | None:
        """None when the op is too small to be told from the rest of its step."""
        middle, best = (of(self._full_s) - of(self._without_s) for of in (median, min))
        if middle <= 0 or best <= 0:
            return None
        spread = (max(self._full_s) - min(self._full_s)) / median(self._full_s)
        return Timing(middle / self._plans.copies, best / self._plans.copies, spread)

    def _time(self, plan: Plan, calls: int) -> float:
        run = plan.run if self._plans.subject.samples else plan.run_logits
        batch = self._batch
        began = time.perf_counter()
        for _ in range(calls):
            run(batch)
        return time.perf_counter() - began


def _calls(seconds: float, one: float) -> int:
    return max(1, min(round(seconds / max(one, 1e-7)), 100_000))


def _fill(plan: Plan, step: StepShape, kv: KVSpec, subject: Subject) -> None:
    """Write something into every cache slot that `step` reads, if the op reads any that it does not write."""
    if subject.has_cache and not subject.writes:
        for batch in fill_steps(step, kv):
            plan.run_logits(batch)


def _sampling(subject: Subject, rows: int) -> SampleBatch:
    return sampling(
        rows,
        temperature=0.8 if "drawn" in subject.variant else 0.0,
        top_p=0.95 if "top_p" in subject.variant else 1.0,
        num_logprobs=5 if "logprobs" in subject.variant else -1,
    )


def small_step(step: StepShape) -> StepShape:
    """A step of the same plan that the reference computes quickly: few requests and rows, little context."""
    rows_each = min(step.rows_each, 8)
    return StepShape(min(step.requests, 4), rows_each, max(rows_each, min(step.context, 96)))


def _check(backend: Backend, plans: Plans, step: StepShape, shape: ModelShape, seed: int) -> None:
    """Compare a small step with the reference, which needs one copy only: all copies give the same."""
    subject = plans.subject
    one_kv = kv_spec(subject, shape, 1)
    record = (subject.observe or subject.make)(np.random.default_rng(seed), Extent(step.rows, step.context, 1))
    expected = _compile(ReferenceBackend(), record, 1, one_kv, step)
    observed = None if subject.observe is None else _compile(backend, record, 1, one_kv, step)
    try:
        wanted = _outputs(expected, small_step(step), one_kv, subject)
        got = _outputs(observed or plans.full, small_step(step), one_kv if observed else plans.kv, subject)
    finally:
        expected.close()
        if observed is not None:
            observed.close()
    _compare(subject, got, wanted)


def _outputs(plan: Plan, step: StepShape, kv: KVSpec, subject: Subject) -> F32Array:
    """Logits of every row, or the tokens sampled from them."""
    _fill(plan, step, kv, subject)
    sample = _sampling(subject, step.rows)
    batch = step_of(step, kv, logit_rows=step.rows, write=subject.writes, sample=sample)
    return plan.run(batch).token.astype(np.float32) if subject.samples else plan.run_logits(batch)


def _compare(subject: Subject, got: F32Array, wanted: F32Array) -> None:
    largest = float(np.abs(wanted).max())
    error = float(np.abs(got - wanted).max())
    if not error <= _TOLERANCE * largest + 1e-6:
        raise BenchError(
            f"{subject.op} {subject.variant} {subject.format or ''} differs from the reference by {error:.3g} "
            f"(largest output {largest:.3g}); a wrong kernel is not timed: run the tests of tests/ops"
        )


def memory_bytes(case: Case, copies: int) -> int:
    """About what `build` takes: packed weights or caches of all copies (a packed form may be twice as large)."""
    return 2 * copies * case.cost.reused + 4 * case.cost.bytes


def fractions(case: Case, timing: Timing, roofline: Roofline, working_set_bytes: int) -> dict[str, float | str | None]:
    """Achieved rates, and their share of the best measured ones.

    floor_fraction: the least time the machine could take, over the time taken. bound: which of the two sets that floor.
    """
    cost = case.cost
    by_bandwidth = cost.bytes / roofline.rate(working_set_step(working_set_bytes)).best
    by_peak = cost.operations / roofline.rate(cost.arithmetic).best if cost.arithmetic else 0.0
    return {
        "gbps": cost.bytes / timing.median / 1e9,
        "gops": cost.operations / timing.median / 1e9,
        "bandwidth_fraction": by_bandwidth / timing.median,
        "peak_fraction": by_peak / timing.median if cost.arithmetic else None,
        "floor_seconds": max(by_bandwidth, by_peak),
        "floor_fraction": max(by_bandwidth, by_peak) / timing.median,
        "bound": "compute" if by_peak > by_bandwidth else "bandwidth",
    }
