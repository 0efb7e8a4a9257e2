"""A summary for a pull request, in GitHub-flavoured markdown; it needs no optional package.

Text from documents stands in code spans only: markdown does not act on it there, nor do mentions or links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from forebay.bench.report import facts, series, tables, units
from forebay.bench.report.columns import Cell
from forebay.bench.report.tables import SummaryMetric, Table
from forebay.bench.report.versus import split, versus
from forebay.bench.result import Result
from forebay.errors import BenchError

_LABEL, _VALUE, _ROWS = 60, 300, 60


def render_markdown(results: Sequence[Result]) -> str:
    """Raises BenchError for no results or columns of different lengths."""
    if not results:
        raise BenchError("a report needs one result at least; name the files that --output wrote", param="results")
    for result in results:
        series.check(result, f"result {units.clean(result.label)!r}")
    given, results = results, split(results)
    parts = [f"### forebay bench: {' against '.join(code(one.label, _LABEL) for one in results)}"]
    parts += [_validity(one, len(given) > 1) for one in given]
    parts += _metric_tables(results, given)
    for one in results:
        parts += _rows(one, len(results) > 1)
    parts += [_details(one, len(results) > 1) for one in results]
    return "\n\n".join(parts) + "\n"


def code(text: object, limit: int = _VALUE) -> str:
    """Any text as one code span that also holds inside a table."""
    plain = re.sub(r"\s+", " ", units.clean(text)).strip()
    plain = (plain if len(plain) <= limit else f"{plain[: limit - 1]}…") or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}".replace("|", "\\|")


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """The lines of a table. align: a letter a column, l or r."""
    rule = "|".join({"l": "---", "r": "---:"}[letter] for letter in align)
    return [f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def _validity(result: Result, several: bool) -> str:
    name = f" {code(result.label, _LABEL)}" if several else ""
    if result.valid:
        return f"**Valid**{name}: nothing was found that stands against it."
    reasons = [code(reason) for reason in result.invalid_reasons[:50]] or ["the document gives no reason"]
    lines = ["> [!WARNING]", f"> **Invalid**{name}: do not quote these figures.", *(f"> - {r}" for r in reasons)]
    return "\n".join(lines)


def _metric_tables(results: Sequence[Result], given: Sequence[Result]) -> list[str]:
    known = [one for one in results if one.summary is not None]
    if not known:
        return []
    if len(known) == 1:
        return [_single(known[0])]
    found = versus(given)
    if found is None:
        return []
    warnings = "\n".join(f"- {code(warning)}" for warning in found.warnings[:20])
    return [_table(found.table, code_heads=True), *filter(None, [warnings])]


def _single(result: Result) -> str:
    assert result.summary is not None  # the caller chose it so
    summary = result.summary
    done, of, failed, cancelled = map(
        units.count, (summary.completed, summary.requests, sum(summary.failures.values()), summary.cancelled)
    )
    more = f", {units.count(left)} more not sent" if (left := tables.not_sent(result)) else ""
    requests = ("Requests", f"{done} of {of} completed, {failed} failed, {cancelled} cancelled{more}", "")
    rows = [*map(_metric_row, tables.metrics(summary)), requests]
    return "\n".join(table_lines(("metric", "value", "95 % interval"), rows, "lrr"))


def _metric_row(one: SummaryMetric) -> tuple[str, str, str]:
    unit = one.unit_for()
    value = units.with_unit(units.figure(one.value, unit, one.interval), unit)
    return one.name, value, units.bounds(one.interval, unit)


def _rows(result: Result, several: bool) -> list[str]:
    found = tables.row_tables(result)
    name = [f"**{code(result.label, _LABEL)}**"] if several and found else []
    return [*name, *(_table(one, code_heads=True) for one in found)]


def _table(one: Table, *, code_heads: bool = False) -> str:
    """Words in code spans (they may come from a document), figures as they are."""
    own = {"", "ratio", "verdict", "run", "class", "requests", "for example"}
    heads = [head if not code_heads or head in own else code(head) for head in one.heads]
    align = "".join("r" if one.rows and one.rows[0][n].number else "l" for n in range(len(one.heads)))
    lines = table_lines(heads, [[_cell(cell) for cell in row] for row in one.rows[:_ROWS]], align)
    if len(one.rows) > _ROWS:
        lines.append(f"\n{len(one.rows) - _ROWS} more rows are in the document.")
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    if not cell.number and not cell.ours:
        return code(cell.text, 120)
    return f"{cell.text} ({cell.small})" if cell.small else cell.text


def _details(result: Result, several: bool) -> str:
    """The facts, folded."""
    found = facts.facts(result)
    lines = ["<details><summary>How to repeat it</summary>", ""]
    if several:
        lines += [code(result.label, _LABEL), ""]
    if found.command:
        lines += [code(found.command, 2000), ""]
    rows = [(code(f"{title}: {key}"), code(value)) for title, items in found.groups for key, value in items]
    lines += table_lines(("fact", "value"), rows, "ll")
    if found.load is not None:
        lines += ["", _table(found.load)]
    if (failures := tables.failure_table(result)) is not None:
        lines += ["", _table(failures)]
    return "\n".join([*lines, "", "</details>"])
