"""The tables of a run, as markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

import cells

from forebay.bench.report.markdown import table_lines
from forebay.bench.result import Result

TITLES = {
    "in_process": "In process",
    "http": "Over HTTP, each engine's own server",
}
PROMPTS = {cell.name: cell.prompt for cell in (*cells.IN_PROCESS, *cells.HTTP)}
ALONE = {cell.name for cell in (*cells.IN_PROCESS, *cells.HTTP) if cell.streams == 1}
# figure, heading, factor, digits
COLUMNS = (
    ("output_token_rate", "output token/s", 1.0, 0),
    ("ttft_p50_s", "TTFT p50 ms", 1e3, 0),
    ("ttft_p95_s", "TTFT p95 ms", 1e3, 0),
    ("itl_p50_s", "ITL p50 ms", 1e3, 1),
    ("itl_p95_s", "ITL p95 ms", 1e3, 1),
)
# of one stream the two speeds are told apart: prompt / TTFT, and 1 / TPOT
COLUMNS_ALONE = (("prompt_rate", "prompt token/s", 1.0, 0), ("decode_rate", "decode token/s", 1.0, 0), *COLUMNS[1:])


def as_markdown(result: Result) -> str:
    """Every figure is the median of the valid rounds, or of all with a mark where none is valid."""
    parts = [_facts(result)]
    for transport, title in TITLES.items():
        rows = [row for row in result.rows if row["transport"] == transport]
        if rows:
            parts += [f"### {title}", *(_cell(cell, rows) for cell in _unique(row["cell"] for row in rows))]
    parts += [_sweep(result), _unavailable(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(cell: str, rows: list[dict[str, Any]]) -> str:
    columns = COLUMNS_ALONE if cell in ALONE else COLUMNS
    own = [_with_speeds(row) for row in rows if row["cell"] == cell]
    groups = [
        [row for row in own if (row["engine"], row["setting"]) == key]
        for key in _unique((row["engine"], row["setting"]) for row in own)
    ]
    groups.sort(key=lambda group: -_median(group, "output_token_rate" if cell != "prompt of 512" else "prompt_rate"))
    rendered = []
    for group in groups:
        figures = [_figure(group, name, factor, digits) for name, _, factor, digits in columns]
        valid = sum(not row["invalid"] for row in group)
        rendered.append((group[0]["engine"], group[0]["setting"], *figures, f"{valid} of {len(group)}"))
    heads = ("engine", "setting", *(heading for _, heading, *_ in columns), "valid rounds")
    return "\n".join([f"#### {cell}", "", *table_lines(heads, rendered, "ll" + "r" * (len(columns) + 1))])


def _with_speeds(row: dict[str, Any]) -> dict[str, Any]:
    speeds = {}
    if row["cell"] in ALONE and row.get("ttft_p50_s") and row.get("tpot_p50_s"):
        speeds = {"prompt_rate": PROMPTS[row["cell"]] / row["ttft_p50_s"], "decode_rate": 1 / row["tpot_p50_s"]}
    return {**row, **speeds}


def _figure(group: list[dict[str, Any]], name: str, factor: float, digits: int) -> str:
    value = _median(group, name)
    mark = "" if any(not row["invalid"] for row in group) else " (!)"
    return "" if math.isnan(value) else f"{value * factor:,.{digits}f}{mark}"


def _median(group: list[dict[str, Any]], name: str) -> float:
    valid = [row for row in group if not row["invalid"]] or group
    values = [row[name] for row in valid if row.get(name) is not None]
    return statistics.median(values) if values else math.nan


def _facts(result: Result) -> str:
    rendered = []
    for name, facts in result.target["facts"].items():
        if not name.startswith("in_process/") and f"in_process/{name.partition('/')[2]}" in result.target["facts"]:
            continue
        bits, loss = facts.get("bits_per_weight"), facts.get("mean_nll")
        peak = max((row.get("peak_rss_mb") or 0 for row in result.rows if _is(row, name)), default=0)
        figures = (
            name.partition("/")[2],
            str(facts.get("version", "")),
            "" if bits is None else f"{bits:.2f}",
            str(facts.get("kv_dtype", "")),
            "" if loss is None else f"{math.exp(loss):.3f}",
            f"{facts['load_s']:.1f}" if "load_s" in facts else "",
            f"{peak:.0f}" if peak else "",
        )
        rendered.append(figures)
    heads = ("engine", "version", "bits per weight", "KV", "perplexity", "load s", "peak MB")
    return "\n".join(["### Engines", "", *table_lines(heads, rendered, "llrlrrr")])


def _is(row: dict[str, Any], name: str) -> bool:
    return f"{row['transport']}/{row['engine']} {row['weights']}" == name


def _sweep(result: Result) -> str:
    lines = [
        "### The sweep",
        "",
        "One run per setting, repeated once if other processes disturbed it; `(!)` if they did again. Above stands the",
        "best setting of each precision of weights: under 6 bits a weight, under 12, more.",
        "",
    ]
    rendered = []
    sweep = result.target["sweep"]
    for key in _unique((row["transport"], row["engine"], row["setting"]) for row in sweep):
        own = [row for row in sweep if (row["transport"], row["engine"], row["setting"]) == key]
        rates = {
            row["cell"]: f"{row['output_token_rate']:.0f}{' (!)' if row['invalid'] else ''}"
            for row in own
            if "error" not in row
        }
        error = next((row["error"].splitlines()[0][:120] for row in own if "error" in row), "")
        rendered.append((*key, rates.get("16 streams", error)))
    heads = ("transport", "engine", "setting", "16 streams, output token/s")
    return "\n".join([*lines, *table_lines(heads, rendered, "lllr")])


def _unavailable(result: Result) -> str:
    return "\n".join(f"{name}: {reason}" for name, reason in result.target["unavailable"].items())


def _unique(values: Iterable[Any]) -> Iterator[Any]:
    return iter(dict.fromkeys(values))
