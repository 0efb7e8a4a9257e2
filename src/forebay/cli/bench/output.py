"""What every bench command does with its result: show it, write it, print it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from forebay.bench.result import Distribution, Result, Summary, check_writable, write_result

PANEL = "Result"


def _writable(path: Path | None) -> Path | None:
    """Better to hear before the measurement than after it. Raises BenchError."""
    if path is not None:
        check_writable(path)
    return path


Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Write the result (JSON; .gz packs it).", rich_help_panel=PANEL, callback=_writable
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result document instead.", rich_help_panel=PANEL)]
Label = Annotated[str, typer.Option(help="A name for it in tables and plots.", rich_help_panel=PANEL)]
Seed = Annotated[int, typer.Option(help="The same seed gives the same workload.", min=0, rich_help_panel=PANEL)]

_LATENCIES = (("TTFT", "ttft_s"), ("ITL", "itl_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s"), ("queue", "queue_s"),
              ("send lag", "send_lag_s"))  # fmt: skip


def finish(result: Result, output: Path | None, as_json: bool) -> None:
    """Write the document if a file is named, and show it."""
    if output is not None:
        write_result(result, output)
    if as_json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        return
    console = Console()
    for summary in (result.summary, result.server):
        if summary is not None:
            show_summary(summary, console)
    show_validity(result, console)
    if output is not None:
        console.print(f"written to {output}; a page of it: forebay bench report {output} --html report.html")


def show_validity(result: Result, console: Console) -> None:
    for reason in result.invalid_reasons:
        console.print(f"[bold red]invalid:[/bold red] {reason}")


def show_summary(summary: Summary, console: Console) -> None:
    failed = sum(summary.failures.values())
    parts = [f"{summary.completed} of {summary.requests} requests completed"]
    parts += [f"{failed} failed ({_classes(summary)})"] if failed else []
    parts += [f"{summary.cancelled} cancelled"] if summary.cancelled else []
    console.print(f"\n[bold]{summary.boundary}[/bold]: {', '.join(parts)}, in {summary.duration_s:.1f} s")
    rates = f"{summary.request_rate:.2f} requests/s, {summary.output_token_rate:.1f} output token/s"
    console.print(f"{rates}, {summary.total_token_rate:.1f} token/s with prompts")
    if summary.goodput is not None and summary.slo_attained is not None:
        console.print(
            f"goodput {summary.goodput:.2f} requests/s within the SLO ({summary.slo_attained:.1%} of requests)"
        )
    table = Table("ms", "mean", "p50", "p90", "p95", "p99", "max", box=None, header_style="dim", pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, field in _LATENCIES:
        found: Distribution | None = getattr(summary, field)
        if found is not None:
            figures = (found.mean, found.p50, found.p90, found.p95, found.p99, found.max)
            table.add_row(name, *(f"{value * 1e3:.1f}" for value in figures))
    console.print(table)


def _classes(summary: Summary) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in summary.failures.items())
