"""forebay bench ops: every op on every backend, interleaved, against a roofline measured in the same run."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from forebay.bench.facts import new_result
from forebay.bench.machine_load import Meter
from forebay.bench.ops.cases import OPS, SHAPE_SETS, Case, cases_of, check_names
from forebay.bench.ops.measure import (
    HOT_BYTES,
    MOST_COPIES,
    Measurement,
    Plans,
    build,
    copies_for,
    fractions,
    last_level_cache_bytes,
    memory_bytes,
    sweep_bytes,
    working_set,
)
from forebay.bench.ops.model_shape import ModelShape, load_shape, small_shape
from forebay.bench.ops.roofline import Roofline, working_set_step
from forebay.bench.result import Result, Run
from forebay.errors import BenchError
from forebay.ops.native import NativeBackend, supported_isas
from forebay.ops.protocol import Backend
from forebay.ops.reference import ReferenceBackend

BACKENDS = ("native", "reference")
WORKING_SETS = ("model", "hot")
ARITHMETIC = ("dot_u8", "dot_u4", "fma_f32")
SMALL = "small"
GROUP_BYTES = 2**30  # of weights and caches that are held at once, and so are measured in turn
REFERENCE_COPIES = 4
ROOFLINE_SAMPLES = 5  # in each round: of short ones more escape what else runs on the machine

Row = dict[str, Any]
Progress = Callable[[int, int, str], None]  # (done, of, what comes next)


@dataclasses.dataclass(frozen=True, slots=True)
class OpsOptions:
    """What to measure. Empty `ops` and `shapes`: all ops; decode and prefill (the reference: small).

    isas: "auto" or names of ops.native.supported_isas(); threads: of the native backend. model: whose shapes, named as
    for `forebay serve`. working_set: "model" goes through as many bytes before it comes back to a weight as a step of
    the model does, "hot" stays in a core's cache. rounds: timings per case, each of about `seconds`.
    """

    ops: tuple[str, ...] = ()
    backends: tuple[str, ...] = ("native",)
    isas: tuple[str, ...] = ("auto",)
    threads: int | Literal["auto"] = "auto"
    shapes: tuple[str, ...] = ()
    model: str = "smollm2-135m"
    working_set: str = "model"
    rounds: int = 5
    seconds: float = 0.02
    seed: int = 0


@dataclasses.dataclass(slots=True)
class _Target:
    """A backend to measure, the roofline it is set against, and its cases."""

    name: str
    backend: Backend
    roofline: Roofline
    cases: list[tuple[Case, ModelShape]]

    @property
    def most_copies(self) -> int:
        return REFERENCE_COPIES if self.name == "reference" else MOST_COPIES


@dataclasses.dataclass(frozen=True, slots=True)
class _Planned:
    target: _Target
    case: Case
    shape: ModelShape
    copies: int

    @property
    def subject_id(self) -> int:
        return id(self.case.subject)

    @property
    def key(self) -> tuple[int, int]:
        """Cases with equal keys run the same plans."""
        return id(self.target), self.subject_id if self.case.subject.op == "linear" else id(self.case)

    @property
    def words(self) -> str:
        subject = self.case.subject
        return f"{self.target.name} {self.target.roofline.isa}: {subject.op} {subject.variant} {self.case.words}"

    @property
    def working_set_bytes(self) -> int:
        return working_set(self.case, self.copies)


def measure_ops(options: OpsOptions, progress: Progress = lambda done, of, what: None, *, label: str = "") -> Result:
    """A row per case, and then those of the roofline. Raises BenchError for names that are not known, and for a wrong
    kernel."""
    started_ns = time.monotonic_ns()
    with Meter() as meter:
        rows = _measured(options, progress)
    load = meter.facts()
    return new_result(
        "ops",
        label=label,
        seed=options.seed,
        loads=[load],
        in_process=True,
        workload=dataclasses.asdict(options) | {"last_level_cache_bytes": last_level_cache_bytes()},
        rows=rows,
        runs=[Run(started_ns=started_ns, load=load)],
    )


def _measured(options: OpsOptions, progress: Progress) -> list[Row]:
    targets = _targets(options)
    planned = [plan for target in targets for plan in _plan(target, options)]
    if not planned:
        raise BenchError("no case of these ops at these shapes; leave out --op or --shape")
    rows: list[Row] = []
    for group in _groups(planned):
        rows += _measure_group(group, options, _Report(progress, len(rows), len(planned)))
    seen = {id(target.roofline): target.roofline for target in targets}
    return [*rows, *(row for roofline in seen.values() for row in roofline.rows())]


@dataclasses.dataclass(frozen=True, slots=True)
class _Report:
    """Progress within a group, which `before` cases of all `total` have gone before."""

    progress: Progress
    before: int
    total: int

    def __call__(self, done: int, what: str) -> None:
        self.progress(self.before + done, self.total, what)


def _targets(options: OpsOptions) -> list[_Target]:
    _check(options)
    shapes = options.shapes or ("decode", "prefill")
    shape_of = {SMALL: small_shape()}
    if "native" in options.backends and any(name != SMALL for name in shapes):
        model = load_shape(options.model)
        shape_of |= {name: model for name in shapes if name != SMALL}
    ops = options.ops or OPS
    targets = []
    for isa in options.isas:
        native = NativeBackend(isa, options.threads)
        roofline = Roofline(native.isa, native.threads)
        if "native" in options.backends:
            cases = [(case, shape_of[s]) for s in shapes for case in cases_of(shape_of[s], SHAPE_SETS[s], ops)]
            targets.append(_Target("native", native, roofline, cases))
    if "reference" in options.backends:
        cases = [(case, shape_of[SMALL]) for case in cases_of(shape_of[SMALL], SHAPE_SETS[SMALL], ops)]
        targets.append(_Target("reference", ReferenceBackend(), roofline, cases))
    return targets


def _check(options: OpsOptions) -> None:
    check_names(options.ops, options.shapes)
    for field, values, choices in (
        ("backend", options.backends, BACKENDS),
        ("isa", options.isas, ("auto", *supported_isas())),
        ("working_set", (options.working_set,), WORKING_SETS),
    ):
        for value in values:
            if value not in choices:
                raise BenchError(f"{field} {value!r} is not known; choose from {', '.join(choices)}", param=field)
    if options.threads != "auto" and options.threads < 1:
        raise BenchError(f"threads must be auto or at least 1, got {options.threads}", param="threads")
    if options.rounds < 1 or not 0 < options.seconds <= 60:
        raise BenchError(
            f"rounds must be at least 1 and seconds in (0, 60], got {options.rounds} and {options.seconds}",
            param="rounds",
        )


def _plan(target: _Target, options: OpsOptions) -> list[_Planned]:
    """Each case with its number of copies. Measures the peaks first, which limit it."""
    for kind in ARITHMETIC:
        target.roofline.sample(kind, options.seconds)
    cache = last_level_cache_bytes()
    planned: list[_Planned] = []
    for case, shape in target.cases:
        wanted = HOT_BYTES if options.working_set == "hot" else sweep_bytes(case, shape, cache)
        arithmetic = case.cost.arithmetic
        peak = target.roofline.rate(arithmetic).best if arithmetic else math.inf
        copies = copies_for(case, wanted, peak)
        planned.append(_Planned(target, case, shape, min(copies, target.most_copies)))
    return _sharing(planned)


def _sharing(planned: list[_Planned]) -> list[_Planned]:
    """Steps of different size go through the same weights, so that these are packed once."""
    fewest: dict[int, int] = {}
    for plan in planned:
        fewest[plan.subject_id] = min(fewest.get(plan.subject_id, plan.copies), plan.copies)
    return [
        dataclasses.replace(plan, copies=fewest[plan.subject_id]) if plan.case.subject.op == "linear" else plan
        for plan in planned
    ]


def _groups(planned: Iterable[_Planned]) -> Iterator[list[_Planned]]:
    """Cases that fit into memory together; they are measured in turn."""
    group: list[_Planned] = []
    needed: dict[tuple[int, int], int] = {}
    for plan in planned:
        more = {plan.key: memory_bytes(plan.case, plan.copies)}
        if group and sum((needed | more).values()) > GROUP_BYTES:
            yield group
            group, needed = [], {}
        group.append(plan)
        needed |= more
    if group:
        yield group


def _measure_group(group: list[_Planned], options: OpsOptions, progress: _Report) -> list[Row]:
    built: dict[tuple[int, int], Plans] = {}
    ready: list[Measurement] = []
    try:
        for plan in group:
            if plan.key not in built:
                progress(0, f"{plan.words}: preparing")
                alike = [other.case for other in group if other.key == plan.key]
                built[plan.key] = build(plan.target.backend, alike, plan.shape, plan.copies, options.seed)
            ready.append(Measurement(plan.case, built[plan.key]))
        for number in range(options.rounds):
            _sample_rooflines(group, options.seconds)
            for index, (plan, measurement) in enumerate(zip(group, ready, strict=True)):
                progress((number * len(ready) + index) // options.rounds, plan.words)
                if number == 0:
                    measurement.warm_up(options.seconds)
                measurement.round()
        return [_row(plan, measurement) for plan, measurement in zip(group, ready, strict=True)]
    finally:
        for plans in built.values():
            plans.close()


def _sample_rooflines(group: list[_Planned], seconds: float) -> None:
    """The peaks and the bandwidth of every working set in the group, once more."""
    for roofline in {id(plan.target.roofline): plan.target.roofline for plan in group}.values():
        own = [plan for plan in group if plan.target.roofline is roofline]
        sizes = sorted({working_set_step(plan.working_set_bytes) for plan in own})
        kinds = sorted({plan.case.cost.arithmetic for plan in own if plan.case.cost.arithmetic})
        for _ in range(ROOFLINE_SAMPLES):
            for size in sizes:
                roofline.sample(size, seconds / ROOFLINE_SAMPLES)
            for kind in kinds:
                roofline.sample(kind, seconds / ROOFLINE_SAMPLES)


def _row(plan: _Planned, measurement: Measurement) -> Row:
    case, timing = plan.case, measurement.timing()
    row: Row = {
        "op": case.subject.op,
        "variant": case.subject.variant,
        "format": case.subject.format,
        "shape": case.words,
        "rows": case.step.rows,
        "context": case.step.context,
        "backend": plan.target.name,
        "isa": plan.target.roofline.isa if plan.target.name == "native" else None,
        "threads": plan.target.roofline.threads if plan.target.name == "native" else 1,
        "copies": plan.copies,
        "working_set_bytes": plan.working_set_bytes,
        "bytes": case.cost.bytes,
        "operations": case.cost.operations,
        "arithmetic": case.cost.arithmetic,
        "seconds": None,
    }
    if timing is not None:
        row |= {"seconds": timing.median, "seconds_best": timing.best, "spread": timing.spread}
        row |= fractions(case, timing, plan.target.roofline, plan.working_set_bytes)
    return row
