"""Several results side by side: figures, ratios to the first, and the verdicts of bench/comparison.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from forebay.bench.comparison import Comparison, MetricComparison, compare
from forebay.bench.report import units
from forebay.bench.report.columns import Cell, term
from forebay.bench.report.tables import SummaryMetric, Table, metrics, row_tables
from forebay.bench.result import Result
from forebay.errors import BenchError

# metric of a summary -> the same in bench/comparison.py
_COMPARED = {
    "Output tokens": "output_token_rate",
    "Requests completed": "request_rate",
    "Goodput": "goodput",
    **{
        f"{n} {part}": f"{n.lower()}_s.{part}"
        for n in ("TTFT", "ITL", "TPOT", "E2E")
        for part in ("mean", "p50", "p95")
    },
}
_TONES = {"faster": "better", "slower": "worse", "no difference shown": "same", "not comparable": "same"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """more: further tables, such as the pairs of runs that a comparison was made of."""

    table: Table
    warnings: tuple[str, ...]
    more: tuple[Table, ...] = ()


def split(results: Sequence[Result]) -> list[Result]:
    """A single document of kind compare as the two results it holds; anything else as it is."""
    if len(results) != 1 or results[0].kind != "compare":
        return list(results)
    one = results[0]
    sides = [_side(one, index, name) for index, name in enumerate("ab")]
    return sides if all(side.summary is not None for side in sides) else list(results)


def _side(one: Result, index: int, name: str) -> Result:
    known = one.target.get(name)
    target: Mapping[str, Any] = known if isinstance(known, dict) else {}
    return msgspec.structs.replace(
        one,
        label=str(target.get("label", name.upper())),
        target=dict(target),
        summary=next((s for label, s in one.buckets.items() if label.startswith(f"{name.upper()}: ")), None),
        buckets={},
        rows=[],
        runs=[run for run in one.runs if run.values.get("side") == index],
    )


def versus(results: Sequence[Result]) -> Versus | None:
    """Each figure of each result with its ratio to the first. None for fewer than two results with figures."""
    sides = split(results)
    found = _versus(sides)
    if found is None or len(sides) == len(results):
        return found
    target = results[0].target
    answers: tuple[str, ...] = ()
    if isinstance(of := target.get("answers_compared"), int) and of > 0:
        answers = (f"{units.plain(target.get('same_answers'))} of {units.count(of)} answers are the same",)
    more = tuple(row_tables(results[0], "Pairs of runs"))
    return Versus(table=found.table, warnings=(*answers, *found.warnings), more=more)


def _versus(results: Sequence[Result]) -> Versus | None:
    known = [(one, {m.name: m for m in metrics(one.summary)}) for one in results if one.summary is not None]
    if len(known) < 2:
        return None
    base, first = known[0]
    judged = [_judged(base, one) for one, _ in known[1:]]
    heads = ["", units.clean(base.label)]
    for one, _ in known[1:]:
        heads += [units.clean(one.label), "ratio", "verdict"]
    rows = []
    for name, metric in first.items():
        cells = [term(name), _figure_cell(metric, metric)]
        for (_, others), (verdicts, _) in zip(known[1:], judged, strict=True):
            other, verdict = others.get(name), verdicts.get(_COMPARED.get(name, ""))
            cells += [_figure_cell(other, metric), _ratio_cell(other, metric, verdict), _verdict_cell(verdict)]
        rows.append(tuple(cells))
    note = (
        f"Ratio to {units.clean(base.label)}, ranges: 95 % intervals. A verdict needs the interval of the ratio to "
        "leave out 1, and each is wrong by chance in 5 % of cases on its own."
    )
    warnings = dict.fromkeys(units.clean(warning) for _, found in judged for warning in found)
    table = Table(title="Comparison", heads=tuple(heads), rows=tuple(rows), note=note)
    return Versus(table=table, warnings=tuple(warnings))


def _judged(base: Result, other: Result) -> tuple[dict[str, MetricComparison], list[str]]:
    """Verdicts by name and warnings; where the two cannot be compared, only why."""
    try:
        found: Comparison = compare(base, other)
    except BenchError as error:
        return {}, [f"no verdicts: {error.message}"]
    return {one.name: one for one in found.metrics}, [*found.invalid, *found.warnings]


def _figure_cell(one: SummaryMetric | None, base: SummaryMetric) -> Cell:
    if one is None:
        return Cell(units.ABSENT)
    unit = base.unit_for()
    text = units.with_unit(units.figure(one.value, unit, one.interval), unit)
    return Cell(text, units.bounds(one.interval, unit))


def _ratio_cell(one: SummaryMetric | None, base: SummaryMetric, verdict: MetricComparison | None) -> Cell:
    known = None if verdict is None else verdict.ratio
    if known is None and one is not None and one.value is not None and base.value:
        known = one.value / base.value
    interval = None if verdict is None else verdict.interval
    text = units.figure(known, units.NO_UNIT, interval)
    return Cell(f"{text}\N{MULTIPLICATION SIGN}" if text != units.ABSENT else text, units.bounds(interval))


def _verdict_cell(verdict: MetricComparison | None) -> Cell:
    if verdict is None or verdict.interval is None:
        return term("")
    return Cell(verdict.verdict, number=False, ours=True, tone=_TONES[verdict.verdict])
