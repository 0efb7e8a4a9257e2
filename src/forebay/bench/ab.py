"""Two servers on one machine, measured in turns: what differs is the servers, and not the hour."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from forebay.bench.client.load import Observer
from forebay.bench.comparison import Comparison, MetricComparison, compare
from forebay.bench.facts import new_result
from forebay.bench.metrics import figures_of, summarize
from forebay.bench.plan import Workload
from forebay.bench.record import RequestRecord
from forebay.bench.result import Result, Run, read_result
from forebay.bench.serve import Measured, check_load, document
from forebay.bench.served import Served, Server, check_target, served
from forebay.bench.slo import SLO
from forebay.bench.workload.spec import WorkloadSpec
from forebay.errors import BenchError
from forebay.profile import Profile

Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")


@dataclass(frozen=True, slots=True)
class Answers:
    """Of the requests that both completed: how many got the same text."""

    same: int
    of: int


@dataclass(frozen=True, slots=True)
class Compared:
    """document: of kind "compare", with a row per pair and both summaries in `buckets`. comparison: of B, as seen from
    A. headline: the figure the comparison is about (see `headline_of`)."""

    document: Result
    comparison: Comparison
    headline: MetricComparison
    answers: Answers


def order_of(pair: int) -> tuple[Side, Side]:
    """Who goes first alternates (AB, BA, AB ...), so that a machine that grows slower or faster hits both alike."""
    return ("A", "B") if pair % 2 == 0 else ("B", "A")


def compare_served(
    a: Profile | Server,
    b: Profile | Server,
    spec: WorkloadSpec,
    *,
    names: tuple[str, str] = ("A", "B"),
    pairs: int = 5,
    warmup: int = 8,
    slo: SLO | None = None,
    seed: int = 0,
    label: str = "",
    timeout_s: float = 600.0,
    watch: Callable[[str, int], Observer | None] = lambda words, requests: None,
) -> Compared:
    """Measure both `pairs` times, each pair with one workload for both and prompts that no other pair has. A server of
    ours is paused while the other one is measured.

    watch: makes the observer of a run, from words and the number of requests. Raises BenchError.
    """
    if pairs < 1:
        raise BenchError(f"pairs must be at least 1, got {pairs}", param="pairs")
    check_load(spec, warmup)
    for target in (a, b):
        check_target(target, timeout_s)
    with (
        served(a, name=names[0], timeout_s=timeout_s) as first,
        served(b, name=names[1], timeout_s=timeout_s) as second,
    ):
        servers: dict[Side, Served] = {"A": first, "B": second}
        workloads, before = _shortest(servers).planned(spec, runs=pairs, warmup=warmup)
        for server in servers.values():
            server.pause()
        measured: dict[Side, list[Measured]] = {"A": [], "B": []}
        if before is not None:
            for side in SIDES:
                _alone(servers[side], before, None)
        for pair, workload in enumerate(workloads):
            for side in order_of(pair):
                words = f"pair {pair + 1} of {pairs}, {side} {servers[side].name}"
                measured[side].append(_alone(servers[side], workload, watch(words, workload.num_requests)))
    documents = {
        side: document(
            workloads, measured[side], target=server.facts, warmup=before, slo=slo, seed=seed, label=server.name
        )
        for side, server in servers.items()
    }
    answers = [same_answers(x.records, y.records) for x, y in zip(measured["A"], measured["B"], strict=True)]
    rows = [_row(pair, measured, found, slo) for pair, found in enumerate(answers)]
    closed_loop = workloads[0].concurrency is not None
    return _compared(documents, answers, rows, closed_loop, label or f"{names[0]} and {names[1]}")


def compare_files(a: Path, b: Path, *, label: str = "") -> Compared:
    """Compare two documents. The one that results has no rows. Raises BenchError."""
    first, second = read_result(a), read_result(b)
    documents: dict[Side, Result] = {"A": first, "B": second}
    same_load = first.workload.get("digest") is not None and first.workload["digest"] == second.workload.get("digest")
    pairs = list(zip(first.runs, second.runs, strict=False)) if same_load else []
    answers = [same_answers(x.records, y.records) for x, y in pairs]
    spec = first.workload.get("spec")
    closed_loop = isinstance(spec, dict) and spec.get("concurrency") is not None
    return _compared(documents, answers, [], closed_loop, label or f"{first.label} and {second.label}")


def headline_of(comparison: Comparison, *, closed_loop: bool) -> MetricComparison:
    """The figure that says which is faster: throughput where requests follow each other; where they come on their own,
    goodput if there is an SLO, else the slow end of E2E."""
    found = {metric.name: metric for metric in comparison.metrics}
    for name in ("output_token_rate",) if closed_loop else ("goodput", "e2e_s.p95"):
        if name in found:
            return found[name]
    return comparison.metrics[0]


def same_answers(a: Sequence[RequestRecord], b: Sequence[RequestRecord]) -> Answers:
    """Of two runs of one workload."""
    theirs = _digests(b)
    both = [(digest, theirs[index]) for index, digest in _digests(a).items() if index in theirs]
    return Answers(sum(one == other for one, other in both), len(both))


def _digests(records: Sequence[RequestRecord]) -> dict[int, str]:
    return {record.index: record.output_digest for record in records if record.completed and record.output_digest}


def _shortest(servers: dict[Side, Served]) -> Served:
    """The one with the shorter context: what it can take, both can."""
    return min(servers.values(), key=lambda server: server.max_model_len or 2**62)


def _alone(server: Served, workload: Workload, observer: Observer | None) -> Measured:
    """Measure one while the other one is paused."""
    server.resume()
    try:
        return server.run_once(workload, observer)
    finally:
        server.pause()


def _compared(
    documents: dict[Side, Result],
    answers: Sequence[Answers],
    rows: list[dict[str, Any]],
    closed_loop: bool,
    label: str,
) -> Compared:
    a, b = documents["A"], documents["B"]
    total = Answers(sum(one.same for one in answers), sum(one.of for one in answers))
    comparison = compare(a, b)
    comparison = msgspec.structs.replace(comparison, warnings=[*comparison.warnings, *_broken_promise(a, b, total)])
    headline = headline_of(comparison, closed_loop=closed_loop)
    runs = [(run, pair, side) for side in SIDES for pair, run in enumerate(documents[side].runs)]
    result = new_result(
        "compare",
        label=label,
        seed=a.seed,
        reasons=[*a.invalid_reasons, *b.invalid_reasons],
        target={
            "a": {"label": a.label, **a.target},
            "b": {"label": b.label, **b.target},
            "headline": headline.name,
            "comparison": msgspec.to_builtins(comparison),
            "same_answers": total.same,
            "answers_compared": total.of,
        },
        workload=a.workload,
        slo=a.slo,
        buckets={f"{side}: {documents[side].label}": s for side in SIDES if (s := documents[side].summary)},
        runs=[_numbered(*one) for one in sorted(runs, key=lambda one: one[0].started_ns)],
        rows=rows,
    )
    return Compared(result, comparison, headline, total)


def _broken_promise(a: Result, b: Result, answers: Answers) -> Iterator[str]:
    """Greedy answers of one answer class are promised to be equal."""
    answer_class = a.target.get("answer_class")
    if answers.same < answers.of and answer_class is not None and answer_class == b.target.get("answer_class"):
        yield (
            f"{answers.of - answers.same} of {answers.of} answers differ although both servers are of answer class "
            f"{answer_class}: unless the load samples at a temperature, this is a fault; please report it"
        )


def _numbered(run: Run, pair: int, side: Side) -> Run:
    """side: 0 for A, 1 for B."""
    return msgspec.structs.replace(run, values={**run.values, "pair": float(pair), "side": float(SIDES.index(side))})


def _row(pair: int, measured: dict[Side, list[Measured]], answers: Answers, slo: SLO | None) -> dict[str, Any]:
    figures = {side: figures_of(summarize([measured[side][pair].records], slo=slo)) for side in SIDES}
    return {
        "pair": pair,
        "order": "".join(order_of(pair)),
        **{f"{side.lower()}_{name}": value for side in SIDES for name, value in figures[side].items()},
        "same_answers": answers.same,
        "answers_compared": answers.of,
    }
