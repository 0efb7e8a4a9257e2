"""Many settings, one document: a grid or one knob at a time, each point measured on a server of its own."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, get_type_hints

from forebay.bench.client.load import Observer
from forebay.bench.facts import new_result
from forebay.bench.metrics import best_share, figures_of
from forebay.bench.rate_search import Probe, RateFound, check_search, find_rate, shown
from forebay.bench.result import Result
from forebay.bench.serve import check_load
from forebay.bench.served import Served, Server, check_target, served
from forebay.bench.server_process import changed_settings
from forebay.bench.slo import SLO
from forebay.bench.statistics import share_interval
from forebay.bench.workload.arrivals import MAX_ARRIVALS
from forebay.bench.workload.spec import WorkloadSpec
from forebay.errors import BenchError, RequestError, SetupError
from forebay.profile import Profile, parse_assignment
from forebay.profile.schema import with_values

Kind = Literal["profile", "load"]
MAX_POINTS = 1000
PROBE_SECONDS = (0.1, 86_400.0)  # least, most
_PROBE_SEED = 10_007  # between the seeds of two probes, so that no prompt comes twice


@dataclass(frozen=True, slots=True)
class Knob:
    """name: a dotted setting of the profile, or a field of WorkloadSpec."""

    kind: Kind
    name: str
    values: tuple[Any, ...]


Point = Mapping[str, Any]  # knob's name -> value


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGoal:
    """Find the highest Poisson rate at which the SLO holds for at least `attain` of the requests. See find_rate.

    duration_s: requests of a probe arrive for so long; longer if fewer than min_requests would. The duration is what is
    fixed, not the number: a few requests at a very high rate are a burst, which says nothing of the rate.
    """

    slo: SLO
    attain: float = 0.9
    start: float = 1.0
    width: float = 0.1
    duration_s: float = 30.0
    min_requests: int = 30

    def check(self) -> None:
        """Raises BenchError for values that no search can work with, by the names of their flags."""
        check_search(start=self.start, attain=self.attain, width=self.width)
        least, most = PROBE_SECONDS
        if not least <= self.duration_s <= most:
            wanted = f"a number from {least:g} to {most:g}"
            raise BenchError(f"--probe-seconds must be {wanted}, got {self.duration_s}", param="probe-seconds")
        if self.start * self.duration_s > MAX_ARRIVALS:
            raise BenchError(
                f"--start-rate {self.start:g} for --probe-seconds {self.duration_s:g} makes more than {MAX_ARRIVALS} "
                "requests; lower one of them",
                param="start-rate",
            )

    def load(self, spec: WorkloadSpec, rate: float) -> WorkloadSpec:
        """The load of a probe."""
        duration_s = max(self.duration_s, self.min_requests / rate)
        return replace(spec, arrivals=f"poisson:{rate!r}", duration_s=duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """target: the profile that profile knobs change, or a server (load knobs only). spec: the load that load knobs
    change. repeats: runs of each point. warmup: requests before, not counted."""

    target: Profile | Server
    spec: WorkloadSpec
    knobs: tuple[Knob, ...] = ()
    one_at_a_time: bool = False
    goal: RateGoal | None = None
    slo: SLO | None = None
    repeats: int = 1
    warmup: int = 8
    timeout_s: float = 600.0

    def points(self) -> list[Point]:
        """Raises BenchError for a plan that makes no sense, or a load that cannot be."""
        self._check()
        points = points_of(self.knobs, one_at_a_time=self.one_at_a_time)
        for point in points:
            spec = self.load_at(point)
            check_load(spec if self.goal is None else self.goal.load(spec, self.goal.start), self.warmup)
        return points

    def load_at(self, point: Point) -> WorkloadSpec:
        chosen = self._chosen(point, "load")
        chosen |= {name: Path(chosen[name]) for name in ("trace", "text") if name in chosen}
        return replace(self.spec, **chosen)

    def target_at(self, point: Point) -> Profile | Server:
        return (
            self.target if isinstance(self.target, Server) else with_values(self.target, self._chosen(point, "profile"))
        )

    def _chosen(self, point: Point, kind: Kind) -> dict[str, Any]:
        return {knob.name: point[knob.name] for knob in self.knobs if knob.kind == kind}

    def _check(self) -> None:
        names = [knob.name for knob in self.knobs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BenchError(f"knob {twice} is given twice; give all its values at once", param=twice)
        if isinstance(self.target, Server) and any(knob.kind == "profile" for knob in self.knobs):
            raise BenchError("a server that runs keeps its profile: sweep a model with --set, or the load with --vary")
        check_target(self.target, self.timeout_s)
        if self.goal is not None:
            self.goal.check()
            chosen = ("arrivals", "concurrency", "requests", "duration_s")
            varied = [name for name in chosen if name in names or getattr(self.spec, name) is not None]
            if varied:
                raise BenchError(
                    f"--find-rate chooses rate, number and duration itself: leave out {varied[0]}", param=varied[0]
                )


def points_of(knobs: Sequence[Knob], *, one_at_a_time: bool) -> list[Point]:
    """The grid, the last knob fastest; or the first values of all, and then each knob's others alone.

    Raises BenchError for more than MAX_POINTS.
    """
    count = math.prod(len(knob.values) for knob in knobs)
    if not one_at_a_time and count > MAX_POINTS:
        raise BenchError(f"the grid has {count} points, more than {MAX_POINTS}; try --one-at-a-time", param="set")
    names = [knob.name for knob in knobs]
    if not one_at_a_time:
        return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*(k.values for k in knobs))]
    base = {knob.name: knob.values[0] for knob in knobs}
    return [base, *({**base, knob.name: value} for knob in knobs for value in knob.values[1:])]


def profile_knob(text: str) -> Knob:
    """ "scheduler.token_budget=128,256" -> a knob of a profile. Raises ProfileError, BenchError."""
    name, values = _parts(text)
    assignments = [parse_assignment(f"{name}={value}") for value in values]
    knob = Knob("profile", assignments[0][0], tuple(value for _, value in assignments))
    for value in knob.values:
        with_values(Profile(), {knob.name: value})  # a wrong value is an error now, not in an hour
    return knob


def load_knob(text: str) -> Knob:
    """ "concurrency=1,8,32" -> a knob of the load. Values with a comma are parted by semicolons. Raises BenchError."""
    name, values = _parts(text)
    hints = get_type_hints(WorkloadSpec)
    if name not in hints or name in ("seed", "max_model_len"):
        known = ", ".join(field.name for field in dataclasses.fields(WorkloadSpec))
        raise BenchError(f"{name!r} is no part of the load; known are {known}", param=name)
    return Knob("load", name, tuple(_converted(name, hints[name], value) for value in values))


class Watch(Protocol):
    """Makes the observer of a run: of point `index` of `count`, which is `what` in words, with so many requests."""

    def __call__(self, index: int, count: int, what: str, requests: int) -> Observer | None: ...


def unwatched(index: int, count: int, what: str, requests: int) -> None:
    """Nobody watches."""


def run_sweep(
    plan: SweepPlan,
    *,
    seed: int = 0,
    label: str = "",
    watch: Watch = unwatched,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> Result:
    """Measure every point in order. A row per point: its knobs and figures, or the error that kept it from being
    measured; rows that no other beats in throughput, TTFT and ITL at once (with a goal: in rate) are marked `pareto`.

    Ctrl-C ends it: the document then holds what was done, and says so. Raises BenchError if no point could be measured.
    """
    points = plan.points()
    rows: list[dict[str, Any]] = []
    interrupted = False
    for index, point in enumerate(points):
        what = words(point)
        try:
            row = _row(plan, point, seed, lambda n, more="", i=index, w=what: watch(i, len(points), w + more, n))
        except KeyboardInterrupt:
            interrupted = True
            break
        rows.append(row)
        on_row(row)
        if row.get("interrupted"):
            interrupted = True
            break
    return _document(plan, rows, len(points), interrupted, seed, label)


def words(point: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items()) or "as it is"


_Watched = Callable[..., Observer | None]  # (requests, further words)


def _row(plan: SweepPlan, point: Point, seed: int, watch: _Watched) -> dict[str, Any]:
    try:
        return {"knobs": dict(point), **_figures_at(plan, point, seed, watch)}
    except (SetupError, RequestError) as error:
        return {"knobs": dict(point), "valid": False, "invalid_reasons": [error.message], "error": error.message}


def _figures_at(plan: SweepPlan, point: Point, seed: int, watch: _Watched) -> dict[str, Any]:
    """Start what the point says, measure it, stop it."""
    spec = replace(plan.load_at(point), seed=seed)
    with served(plan.target_at(point), name=words(point), timeout_s=plan.timeout_s) as server:
        if plan.goal is not None:
            return _highest_rate(server, plan, spec, plan.goal, watch)
        workloads, warmup = server.planned(spec, runs=plan.repeats, warmup=plan.warmup)
        requests = sum(workload.num_requests for workload in workloads)
        result = server.measure(workloads, warmup=warmup, slo=plan.slo, seed=seed, observer=watch(requests))
    assert result.summary is not None
    return {
        **figures_of(result.summary),
        "valid": result.valid,
        "invalid_reasons": result.invalid_reasons,
        "workload_digest": result.workload["digest"],
        "profile": result.target.get("profile"),
    }


def _highest_rate(
    server: Served, plan: SweepPlan, spec: WorkloadSpec, goal: RateGoal, watch: _Watched
) -> dict[str, Any]:
    seeds = itertools.count(spec.seed, _PROBE_SEED)

    def probe(rate: float) -> Probe:
        at = replace(goal.load(spec, rate), seed=next(seeds))
        workloads, _ = server.planned(at, runs=1, warmup=0)
        watching = watch(workloads[0].num_requests, f" at {shown(rate)} a second")
        result = server.measure(workloads, slo=goal.slo, seed=at.seed, observer=watching)
        summary = result.summary
        assert summary is not None
        judged = summary.requests - summary.cancelled
        attained = summary.slo_attained or 0.0
        return Probe(
            rate=rate,
            attained=attained,
            ceiling=best_share(result.runs[0].records, goal.slo),
            interval=share_interval(round(attained * judged), judged),
            invalid_reasons=tuple(result.invalid_reasons),
            row=figures_of(summary),
        )

    _, warmup = server.planned(spec, runs=0, warmup=plan.warmup)
    if warmup is not None:
        server.run_once(warmup)
    return rate_figures(find_rate(probe, start=goal.start, attain=goal.attain, width=goal.width))


def rate_figures(found: RateFound) -> dict[str, Any]:
    """The row of a search: figures are those of the last probe at the rate found."""
    at = [probe for probe in found.probes if probe.rate == found.rate]
    reasons = at[-1].invalid_reasons if at else ("no rate held the SLO",)
    if found.hopeless:
        reasons = ("the SLO cannot be held at any rate", *found.probes[-1].invalid_reasons)
    row: dict[str, Any] = {
        "rate": found.rate,
        "fails_at": found.fails_at,
        "attained": at[-1].attained if at else None,
        "attained_interval": at[-1].interval if at else None,
        **(at[-1].row if at else {}),
        "valid": found.rate is not None and not at[-1].invalid_reasons,
        "invalid_reasons": list(reasons),
        "notes": list(found.notes),
        "probes": [probe.as_row() for probe in found.probes],
    }
    return {**row, "interrupted": True} if found.interrupted else row


# figure of a row -> whether more is better
OBJECTIVES = {"output_token_rate": True, "ttft_p50_s": False, "itl_p50_s": False}
RATE_OBJECTIVES = {"rate": True}


def pareto(rows: Sequence[Mapping[str, Any]], objectives: Mapping[str, bool]) -> list[bool]:
    """For each row whether no other valid row is at least as good in every objective and better in one. A row that is
    invalid or lacks an objective is not in question."""
    scores = [_score(row, objectives) for row in rows]
    known = [score for score in scores if score is not None]
    return [
        score is not None
        and not any(other != score and all(b >= a for a, b in zip(score, other, strict=True)) for other in known)
        for score in scores
    ]


def _score(row: Mapping[str, Any], objectives: Mapping[str, bool]) -> tuple[float, ...] | None:
    if not row.get("valid") or any(row.get(name) is None for name in objectives):
        return None
    return tuple(row[name] if more else -row[name] for name, more in objectives.items())


def _document(
    plan: SweepPlan, rows: list[dict[str, Any]], points: int, interrupted: bool, seed: int, label: str
) -> Result:
    errors = [row["error"] for row in rows if "error" in row]
    if errors and len(errors) == len(rows) and not interrupted:
        raise BenchError(f"no point of the sweep could be measured; the first: {errors[0]}")
    marks = pareto(rows, OBJECTIVES if plan.goal is None else RATE_OBJECTIVES)
    doubtful = [row for row in rows if not row["valid"]]
    reasons = [f"interrupted after {len(rows)} of {points} points"] if interrupted else []
    reasons += [f"{len(doubtful)} of {len(rows)} points are invalid; their rows say why"] if doubtful else []
    slo = plan.slo if plan.goal is None else plan.goal.slo
    return new_result(
        "sweep",
        label=label,
        seed=seed,
        reasons=reasons,
        target=_target(plan.target),
        workload={
            "spec": plan.spec.plain(), "knobs": {knob.name: list(knob.values) for knob in plan.knobs},
            "one_at_a_time": plan.one_at_a_time, "repeats": plan.repeats, "warmup_requests": plan.warmup,
            "goal": None if plan.goal is None else {**dataclasses.asdict(plan.goal), "slo": str(plan.goal.slo)},
        },
        slo=None if slo is None else str(slo),
        rows=[{**row, "pareto": mark} for row, mark in zip(rows, marks, strict=True)],
    )  # fmt: skip


def _target(target: Profile | Server) -> dict[str, Any]:
    if isinstance(target, Server):
        return {"url": target.url, "model": target.model}
    return {"model": target.model.source, "settings": changed_settings(target)}


def _parts(text: str) -> tuple[str, list[str]]:
    name, found, rest = text.partition("=")
    values = [value.strip() for value in rest.split(";" if ";" in rest else ",")]
    if not found or not name.strip() or not all(values):
        raise BenchError(f"{text!r} is no knob; write NAME=VALUE,VALUE, such as scheduler.token_budget=128,256")
    return name.strip(), values


def _converted(name: str, hint: Any, text: str) -> Any:
    kinds = set(get_args(hint)) or {hint}
    try:
        if bool in kinds:
            return {"true": True, "false": False}[text.lower()]
        if int in kinds:
            return int(text)
        return float(text) if float in kinds else text
    except (ValueError, KeyError):
        wanted = "true or false" if bool in kinds else "an integer" if int in kinds else "a number"
        raise BenchError(f"{name} must be {wanted}, got {text!r}", param=name) from None
