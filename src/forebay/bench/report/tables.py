"""The tables of a report as values; page.py and markdown.py write them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.bench.report import series, units
from forebay.bench.report.columns import Cell, column, term, word
from forebay.bench.result import Distribution, Interval, Result, Summary

ROWS_SHOWN, COLUMNS_SHOWN = 400, 24
LATENCIES = {
    "ttft_s": "TTFT",
    "itl_s": "ITL",
    "tpot_s": "TPOT",
    "e2e_s": "E2E",
    "queue_s": "Queue",
    "send_lag_s": "Send lag",
}
_FIGURES = ("mean", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMetric:
    """A figure of a summary that can be compared. better: +1 more is better, -1 less, 0 neither."""

    name: str
    unit: units.Unit | None  # None: a duration
    better: int
    value: float | None
    interval: Interval | None = None

    def unit_for(self, typical: float | None = None) -> units.Unit:
        return self.unit or units.duration_unit(typical if typical is not None else self.value or 0.0)


def metrics(summary: Summary) -> list[SummaryMetric]:
    """In the order a reader asks for them. Latencies are absent where nothing was completed."""
    intervals = summary.intervals
    found = [
        SummaryMetric(name="Output tokens", unit=units.PER_SECOND, better=1, value=summary.output_token_rate,
               interval=intervals.get("output_token_rate")),
        SummaryMetric(name="All tokens", unit=units.PER_SECOND, better=1, value=summary.total_token_rate,
               interval=intervals.get("total_token_rate")),
        SummaryMetric(name="Requests completed", unit=units.PER_SECOND, better=1, value=summary.request_rate,
               interval=intervals.get("request_rate")),
    ]  # fmt: skip
    for field, name in LATENCIES.items():
        one = getattr(summary, field)
        if one is None or field == "send_lag_s":
            continue
        for part in ("mean", "p50", "p95", "p99"):
            value, interval = getattr(one, part), one.intervals.get(part)
            found.append(SummaryMetric(name=f"{name} {part}", unit=None, better=-1, value=value, interval=interval))
    for field, name, unit in (
        ("goodput", "Goodput", units.PER_SECOND),
        ("slo_attained", "SLO attained", units.PERCENT),
        ("correct", "Right answers", units.PERCENT),
    ):
        if getattr(summary, field) is not None:
            value, interval = getattr(summary, field), intervals.get(field)
            found.append(SummaryMetric(name=name, unit=unit, better=1, value=value, interval=interval))
    return found


def latency_table(summary: Summary, title: str = "Latencies") -> Table | None:
    """One row a latency, in a unit of its own, intervals under the figures."""
    rows = []
    for field, name in LATENCIES.items():
        found: Distribution | None = getattr(summary, field)
        if found is None:
            continue
        unit = units.duration_unit(found.p50 or found.mean)
        cells = [
            Cell(
                units.figure(getattr(found, part), unit, found.intervals.get(part)),
                units.bounds(found.intervals.get(part), unit),
            )
            for part in _FIGURES
        ]
        rows.append((term(f"{name}, {unit.name}"), Cell(units.count(found.count)), *cells))
    if not rows:
        return None
    note = f"Completed requests only, boundary {units.clean(summary.boundary)}. Ranges: 95 % bootstrap intervals."
    return Table(title=title, heads=("", "count", *_FIGURES), rows=tuple(rows), note=note)


def not_sent(result: Result) -> int:
    """Requests that were planned and never sent: the turns after a failed one."""
    planned = result.workload.get("requests")
    if result.summary is None or not isinstance(planned, int):
        return 0
    return max(0, planned - result.summary.requests)


def count_table(summary: Summary, unsent: int = 0) -> Table:
    """What was done, in whole numbers and rates."""
    rows: list[tuple[Cell, ...]] = [
        (term("Duration"), Cell(units.duration(summary.duration_s))),
        (term("Requests"), Cell(units.count(summary.requests))),
        *([(term("Planned, but not sent"), Cell(units.count(unsent)))] if unsent else []),
        (term("Completed"), Cell(units.count(summary.completed))),
        (term("Failed"), Cell(units.count(sum(summary.failures.values())))),
        (term("Cancelled on purpose"), Cell(units.count(summary.cancelled))),
        (term("Prompt tokens, sum"), Cell(units.count(summary.prompt_tokens))),
        (term("of these from the cache"), Cell(units.count(summary.cached_tokens))),
        (term("Output tokens, sum"), Cell(units.count(summary.output_tokens))),
    ]
    for one in metrics(summary):
        if one.unit is None:
            continue
        text = units.with_unit(units.figure(one.value, one.unit, one.interval), one.unit)
        rows.append((term(one.name), Cell(text, units.bounds(one.interval, one.unit))))
    counted = ", ".join(f"{units.clean(how)} {units.count(number)}" for how, number in summary.counted_by.items())
    note = f"Tokens counted by: {counted}." if counted else ""
    return Table(title="Work", heads=("", ""), rows=tuple(rows), note=note)


def bucket_table(buckets: Mapping[str, Summary]) -> Table | None:
    """The figures that matter for each kind of request."""
    if not buckets:
        return None
    rows = []
    for name, one in buckets.items():
        cells = [word(name), Cell(units.count(one.requests)), Cell(units.count(one.completed))]
        cells.append(Cell(units.count(sum(one.failures.values()))))
        cells.append(Cell(units.figure(one.output_token_rate, units.NO_UNIT, one.intervals.get("output_token_rate"))))
        for field, part in (("ttft_s", "p50"), ("ttft_s", "p95"), ("itl_s", "p50"), ("itl_s", "p95"), ("e2e_s", "p95")):
            cells.append(_duration_cell(getattr(one, field), part))
        attained = one.slo_attained
        cells.append(Cell(units.with_unit(units.figure(attained, units.PERCENT), units.PERCENT)))
        rows.append(tuple(cells))
    heads = ("bucket", "requests", "completed", "failed", "output tokens/s")
    figures = ("TTFT p50", "TTFT p95", "ITL p50", "ITL p95", "E2E p95", "SLO attained")
    return Table(title="By bucket", heads=(*heads, *figures), rows=tuple(rows))


def _duration_cell(found: Distribution | None, part: str) -> Cell:
    if found is None:
        return Cell(units.ABSENT)
    value, interval = getattr(found, part), found.intervals.get(part)
    unit = units.duration_unit(value)
    return Cell(units.with_unit(units.figure(value, unit, interval), unit), units.bounds(interval, unit))


def failure_table(result: Result) -> Table | None:
    """How many of each class, and what the server said the first time."""
    if result.summary is None or not result.summary.failures:
        return None
    said: dict[str, str] = {}
    for run in result.runs:
        for record in run.records:
            if record.failure is not None and str(record.failure.kind) not in said:
                status = record.failure.http_status
                said[str(record.failure.kind)] = " ".join(filter(None, (str(status or ""), record.failure.detail)))
    rows = [
        (word(kind), Cell(units.count(number)), word(said.get(kind, units.ABSENT)))
        for kind, number in sorted(result.summary.failures.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Table(title="Failures", heads=("class", "requests", "for example"), rows=tuple(rows))


def stretch_table(result: Result) -> Table | None:
    if result.reconciled is None or not result.reconciled.stretches:
        return None
    rows = []
    for name, found in result.reconciled.stretches.items():
        unit = units.duration_unit(found.p50 or found.mean)
        cells = [Cell(units.figure(getattr(found, part), unit, found.intervals.get(part))) for part in _FIGURES]
        rows.append((word(f"{name.replace('->', '→')}, {unit.name}"), *cells))
    return Table(title="Stretches of a request", heads=("", *_FIGURES), rows=tuple(rows))


def row_tables(result: Result, title: str = "Rows") -> list[Table]:
    """The rows of a result: measurements, what the machine can do (roofline), and the probes of each search."""
    limits = [row for row in result.rows if row.get("op") == "roofline"]
    rows = [row for row in result.rows if row.get("op") != "roofline"]
    found = [_row_table(title, rows), _row_table("What this machine can do", limits)]
    for number, row in enumerate(rows[:20], 1):
        if isinstance(probes := row.get("probes"), list) and all(isinstance(probe, dict) for probe in probes):
            found.append(_row_table(f"Probes of row {number}", probes))
    return [one for one in found if one is not None]


def _same(name: str, value: Any) -> str:
    """A column of which all cells are the same, in words."""
    head, cells = column(name, [value])
    words, _, unit = head.rpartition(", ")
    return f"{words} {cells[0].text} {unit}" if words else f"{head} {cells[0].text}"


def _left_out(name: str, names: Sequence[str]) -> bool:
    """Columns that only a program reads: digests of loads, and p99 where there is p95."""
    return name.endswith("_digest") or ("_p99" in name and name.replace("_p99", "_p95") in names)


def _row_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table | None:
    """A unit a column, and what is the same in all rows said once under them."""
    flat = [series.flat(row) for row in rows[:ROWS_SHOWN]]
    names = [name for name in dict.fromkeys(name for row in flat for name in row) if name != "probes"]
    every, names = len(names), [name for name in names if not _left_out(name, names)]
    if not names:
        return None
    texts = {name: {units.plain(row.get(name)) for row in flat} for name in names}
    same = [name for name in names if len(flat) > 2 and len(texts[name]) == 1]
    mixed = all(isinstance(row.get("unit"), str) for row in flat)  # then each figure is written with its own unit
    shown = [name for name in names if name not in same and not (mixed and name == "unit")][:COLUMNS_SHOWN]
    row_units = [str(row["unit"]) for row in flat] if mixed else None
    columns = [column(name, [row.get(name) for row in flat], row_units) for name in shown]
    notes = []
    said = [_same(n, flat[0].get(n)) for n in same[:40] if texts[n] not in ({units.ABSENT}, {"none"})]
    if said:
        notes.append(f"In every row: {', '.join(said)}.")
    if (left := every - len(same) - len(shown) - mixed) > 0:
        notes.append(f"{left} more columns are in the document.")
    if (left := len(rows) - len(flat)) > 0:
        notes.append(f"{units.count(left)} more rows are in the document.")
    cells = tuple(zip(*(cells for _, cells in columns), strict=True)) if columns else ()
    return Table(title=title, heads=tuple(head for head, _ in columns), rows=cells, note=" ".join(notes))
