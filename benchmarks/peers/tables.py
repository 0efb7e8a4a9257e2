"""The tables of a run, as markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from cells import cell_named, stage_of

from forebay.bench.report.markdown import table_lines
from forebay.bench.result import Result

WAYS = {"in_process": "in process", "http": "over HTTP"}
TITLES = {
    "in_process": "In process",
    "in_process, long": "In process, long contexts",
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
# of one stream the two speeds are told apart: prompt / TTFT, and 1 / TPOT
COLUMNS_ALONE = (
    ("prompt_rate", "prompt token/s", 1.0, 0),
    ("prompt_floor_share", "% of floor", 1e2, 0),
    ("decode_rate", "decode token/s", 1.0, 0),
    ("decode_floor_share", "% of floor", 1e2, 0),
    *COLUMNS[1:],
)
FLOORS = """Of floor: the least time that the machine could take, over the time taken. For a token that is the packed
weights and the keys and values it reads over the bandwidth of a working set as large; for a prompt, operations over the
peaks of int8 and float32. Both were measured in the same run, between the cells (`rooflines` in the JSON)."""
STARTS = """Ready: from the exec of the engine's process, its interpreter and its imports included, to its word that it
takes requests (in process), or to the answer to a first request of one token, asked for every 20 ms (over HTTP). The
model's file is in the page cache. First token: of the next request, of 64 prompt tokens, from sending it to its first
token."""
MEMORY = """Memory while the requests of `at` run. KV tokens: what the cache has room for. Peak: the most that each of
the engine's processes held, summed; pages that they share count in each. PSS: the most that was seen at one time of
their proportional set sizes, where a shared page counts once, also among engines that map the same file."""


def as_markdown(result: Result) -> str:
    """Every figure is the median of the valid rounds, or of all with a mark where none is valid."""
    parts = [_engines(result), _starts(result)]
    about = FLOORS if any("decode_floor_s" in row for row in result.rows) else ""
    for stage in TITLES:
        rows = [row for row in result.rows if stage_of(row) == stage]
        if rows:
            parts += [f"### {TITLES[stage]}", about]
            about = ""  # said once
            parts += [_cell(cell, rows) for cell in _unique(row["cell"] for row in rows)]
    parts += [_sweep(result), _unavailable(result)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(name: str, rows: list[dict[str, Any]]) -> str:
    cell = cell_named(name)
    own = [_with_speeds(row) for row in rows if row["cell"] == name]
    groups = [
        [row for row in own if (row["engine"], row["setting"]) == key]
        for key in _unique((row["engine"], row["setting"]) for row in own)
    ]
    groups.sort(key=lambda group: -_median(group, cell.ranked_by))
    columns = [c for c in (COLUMNS_ALONE if cell.alone else COLUMNS) if any(c[0] in row for row in own)]
    rendered = []
    for group in groups:
        figures = [_figure(group, name, factor, digits) for name, _, factor, digits in columns]
        valid = sum(not row["invalid"] for row in group)
        rendered.append((group[0]["engine"], group[0]["setting"], *figures, f"{valid} of {len(group)}"))
    heads = ("engine", "setting", *(heading for _, heading, *_ in columns), "valid rounds")
    return "\n".join([f"#### {name}", "", *table_lines(heads, rendered, "ll" + "r" * (len(columns) + 1))])


def _with_speeds(row: dict[str, Any]) -> dict[str, Any]:
    """A row of one stream with its two speeds, and what they are of their floors where these are known."""
    cell, ttft, tpot = cell_named(row["cell"]), row.get("ttft_p50_s"), row.get("tpot_p50_s")
    if not cell.alone or not ttft or not tpot:
        return row
    found = {**row, "prompt_rate": cell.prompt / ttft, "decode_rate": 1 / tpot}
    if "decode_floor_s" in row:
        found["decode_floor_share"] = row["decode_floor_s"] / tpot
        found["prompt_floor_share"] = row["prompt_floor_s"] / ttft
    return found


def _figure(group: list[dict[str, Any]], name: str, factor: float, digits: int) -> str:
    value = _median(group, name)
    mark = "" if any(not row["invalid"] for row in group) else " (!)"
    return "" if math.isnan(value) else f"{value * factor:,.{digits}f}{mark}"


def _median(group: list[dict[str, Any]], name: str) -> float:
    valid = [row for row in group if not row["invalid"]] or group
    values = [row[name] for row in valid if row.get(name) is not None]
    return statistics.median(values) if values else math.nan


def _engines(result: Result) -> str:
    """A row for each setting and room it was given; over HTTP only what was not measured in process too."""
    facts = result.target["facts"]
    rendered = []
    for key in sorted(facts, key=lambda key: list(TITLES).index(key.partition("/")[0])):
        stage, _, name = key.partition("/")
        if stage == "http" and f"in_process/{name}" in facts:
            continue
        rendered.append((*name.split(" ", 1), *_formats(facts[key]), *_memory(result, key)))
    formats, memory = ("version", "bits per weight", "KV", "perplexity"), ("at", "KV tokens", "peak MB", "PSS MB")
    heads = ("engine", "setting", *formats, *memory)
    return "\n".join(["### Engines", "", MEMORY, "", *table_lines(heads, rendered, "lllrlrlrrr")])


def _formats(facts: dict[str, Any]) -> tuple[str, ...]:
    bits, loss = facts.get("bits_per_weight"), facts.get("mean_nll")
    return (
        str(facts.get("version", "")),
        "" if bits is None else f"{bits:.2f}",
        str(facts.get("kv_dtype", "")),
        "" if loss is None else f"{math.exp(loss):.3f}",
    )


def _memory(result: Result, key: str) -> tuple[str, ...]:
    """Of the cell in which it was read: its name, the room for keys and values, the largest figures of all rounds."""
    own = [row for row in result.rows if _key(row) == key and "pss_mb" in row]
    tokens = result.target["facts"][key].get("kv_tokens")
    room = "as needed" if tokens is None and "kv_tokens" in result.target["facts"][key] else _count(tokens)
    peak, pss = (max((row.get(name) or 0 for row in own), default=0) for name in ("peak_rss_mb", "pss_mb"))
    return own[0]["cell"] if own else "", room, _count(peak), _count(pss)


def _key(row: dict[str, Any]) -> str:
    return f"{stage_of(row)}/{row['engine']} {row['setting']}"


def _count(value: float | None) -> str:
    return f"{value:,.0f}" if value else ""


def _starts(result: Result) -> str:
    """From exec to first token, for each way in; an engine of several rooms is shown with its first."""
    rendered = []
    for key, facts in result.target["facts"].items():
        stage, _, name = key.partition("/")
        if stage in WAYS and "start_s" in facts and "first_token_s" in facts:
            ready, first = facts["start_s"], facts["first_token_s"]
            words = (*name.split(" ", 1), WAYS[stage])
            rendered.append((*words, f"{ready:.2f}", f"{first * 1e3:.0f}", f"{ready + first:.2f}"))
    if not rendered:
        return ""
    heads = ("engine", "setting", "asked", "ready s", "first token ms", "exec to first token s")
    return "\n".join(["### From exec to first token", "", STARTS, "", *table_lines(heads, rendered, "lllrrr")])


def _sweep(result: Result) -> str:
    sweep = result.target["sweep"]
    if not sweep:
        return ""
    lines = [
        "### The sweep",
        "",
        "One run per setting, repeated once if other processes disturbed it; `(!)` if they did again. Above stands the",
        "best setting of each precision of weights (under 6 bits a weight, under 12, more) and of keys and values.",
        "",
    ]
    rendered = []
    for key in _unique((row["transport"], row["engine"], row["setting"]) for row in sweep):
        own = [row for row in sweep if (row["transport"], row["engine"], row["setting"]) == key]
        rates = {
            row["cell"]: f"{row['output_token_rate']:.0f}{' (!)' if row['invalid'] else ''}"
            for row in own
            if "error" not in row
        }
        error = next((_short(row["error"]) for row in own if "error" in row), "")
        rendered.append((*key, rates.get("16 streams", error)))
    heads = ("transport", "engine", "setting", "16 streams, output token/s")
    return "\n".join([*lines, *table_lines(heads, rendered, "lllr")])


def _unavailable(result: Result) -> str:
    """Each a paragraph of one line."""
    reasons = result.target["unavailable"].items()
    return "\n\n".join(f"Not measured: {name}: {_short(reason)}" for name, reason in reasons)


def _short(text: str) -> str:
    """The first and the last line of an error, without what would end the cell of a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["for no reason given"]
    said = " … ".join(line[:160] for line in dict.fromkeys((lines[0], lines[-1])))
    return said.replace("|", "\\|")


def _unique(values: Iterable[Any]) -> Iterator[Any]:
    return iter(dict.fromkeys(values))
