"""The tables of a run, as markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from forebay.bench.result import Result

TITLES = {
    "in_process": "In process",
    "http": "Over HTTP, each engine's own server",
}
# figure, heading, factor, digits
COLUMNS = (
    ("output_token_rate", "output token/s", 1.0, 0),
    ("ttft_p50_s", "TTFT p50 ms", 1e3, 0),
    ("ttft_p95_s", "TTFT p95 ms", 1e3, 0),
    ("itl_p50_s", "ITL p50 ms", 1e3, 1),
    ("itl_p95_s", "ITL p95 ms", 1e3, 1),
)


def as_markdown(result: Result) -> str:
    """Every figure is the median of the valid rounds, or of all with a mark where none is valid."""
    parts = [_facts(result)]
    for transport, title in TITLES.items():
        rows = [row for row in result.rows if row["transport"] == transport]
        if rows:
            parts += [f"## {title}", *(_cell(cell, rows) for cell in _unique(row["cell"] for row in rows))]
    parts += [_sweep(result), _unavailable(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(cell: str, rows: list[dict[str, Any]]) -> str:
    own = [row for row in rows if row["cell"] == cell]
    lines = [
        f"### {cell}",
        "",
        "| engine | setting | " + " | ".join(heading for _, heading, *_ in COLUMNS) + " | valid rounds |",
        "|---|---|" + "---:|" * (len(COLUMNS) + 1),
    ]
    groups = [
        [row for row in own if (row["engine"], row["setting"]) == key]
        for key in _unique((row["engine"], row["setting"]) for row in own)
    ]
    groups.sort(key=lambda group: -_median(group, "output_token_rate"))
    for group in groups:
        figures = (_figure(group, name, factor, digits) for name, _, factor, digits in COLUMNS)
        valid = sum(not row["invalid"] for row in group)
        lines.append(
            f"| {group[0]['engine']} | {group[0]['setting']} | {' | '.join(figures)} | {valid} of {len(group)} |"
        )
    return "\n".join(lines)


def _figure(group: list[dict[str, Any]], name: str, factor: float, digits: int) -> str:
    value = _median(group, name)
    mark = "" if any(not row["invalid"] for row in group) else " (!)"
    return "" if math.isnan(value) else f"{value * factor:,.{digits}f}{mark}"


def _median(group: list[dict[str, Any]], name: str) -> float:
    valid = [row for row in group if not row["invalid"]] or group
    values = [row[name] for row in valid if row.get(name) is not None]
    return statistics.median(values) if values else math.nan


def _facts(result: Result) -> str:
    lines = [
        "## Engines",
        "",
        "| engine | version | bits per weight | KV | perplexity | load s | peak MB |",
        "|---|---|---:|---|---:|---:|---:|",
    ]
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
        lines.append(f"| {' | '.join(figures)} |")
    return "\n".join(lines)


def _is(row: dict[str, Any], name: str) -> bool:
    return f"{row['transport']}/{row['engine']} {row['weights']}" == name


def _sweep(result: Result) -> str:
    lines = [
        "## The sweep",
        "",
        "One run per setting. Above stands the best of each format of weights, by the geometric mean of both rates.",
        "",
        "| transport | engine | setting | 8 streams, output token/s | 32 streams, output token/s |",
        "|---|---|---|---:|---:|",
    ]
    sweep = result.target["sweep"]
    for key in _unique((row["transport"], row["engine"], row["setting"]) for row in sweep):
        own = [row for row in sweep if (row["transport"], row["engine"], row["setting"]) == key]
        rates = {row["cell"]: f"{row['output_token_rate']:.0f}" for row in own if "error" not in row}
        error = next((row["error"].splitlines()[0][:120] for row in own if "error" in row), "")
        lines.append(f"| {' | '.join(key)} | {rates.get('8 streams', error)} | {rates.get('32 streams', '')} |")
    return "\n".join(lines)


def _unavailable(result: Result) -> str:
    return "\n".join(f"{name}: {reason}" for name, reason in result.target["unavailable"].items())


def _unique(values: Iterable[Any]) -> Iterator[Any]:
    return iter(dict.fromkeys(values))
