"""What every bench command does with its result: show it, write it, print it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from forebay.bench.report.units import clean
from forebay.bench.result import Result, Summary, check_writable, write_result

PANEL = "Result"
SAID_CHARS = 160  # of a failure's own words


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
Seed = Annotated[
    int, typer.Option(help="The same seed gives the same workload.", min=0, max=2**53, rich_help_panel=PANEL)
]


def figures_table(*heads: str, words: int = 1) -> RichTable:
    """A table without lines. Its first `words` columns are words, the others figures."""
    table = RichTable(*heads, box=None, header_style="dim", pad_edge=False)
    for column in table.columns[words:]:
        column.justify = "right"
    return table


@contextmanager
def interruptible() -> Iterator[None]:
    """For a command that writes nothing before its end: Ctrl-C is one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("forebay: interrupted; nothing was written", err=True)
        raise typer.Exit(130) from None


def finish(result: Result, output: Path | None, as_json: bool) -> None:
    """Write the document if a file is named, and show it."""
    if output is not None:
        write_result(result, output)
    if as_json:
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        return
    console = Console(emoji=False)  # a path may look like one
    _show(result, console)
    for reason in result.invalid_reasons:
        console.print(f"[bold red]invalid:[/bold red] {escape(clean(reason))}")
    if output is not None:
        file = clean(output)
        console.print(f"written to {file}; a page of it: forebay bench report {file} --html report.html", markup=False)


def _show(result: Result, console: Console) -> None:
    from forebay.bench.report.tables import not_sent

    if result.summary is not None:
        show_summary(result.summary, console, not_sent(result))
    if result.server is not None:
        show_summary(result.server, console)
    for line in notes(result):
        console.print(line, style="dim", markup=False)


def notes(result: Result) -> Iterator[str]:
    """What a reader of the figures should know, without doubting them: what failed and why, and what is not known."""
    from forebay.bench.report.tables import failure_table

    failures = failure_table(result)
    for kind, _, words in failures.rows if failures is not None else ():
        said = " ".join(words.text.split())
        yield f"{kind.text}, the first: {said if len(said) <= SAID_CHARS else said[: SAID_CHARS - 1] + '…'}"
    if result.summary is not None and (assumed := result.summary.counted_by.get("assumed", 0)):
        yield f"tokens of {assumed} requests are assumed to be one a chunk: the server sent no usage"
    if result.reconciled is not None and (unmatched := result.reconciled.unmatched):
        yield f"the server's record does not tell the whole life of {unmatched} completed requests"


def show_summary(summary: Summary, console: Console, unsent: int = 0) -> None:
    """unsent: requests that were planned beyond those of the summary."""
    from forebay.bench.report.tables import latency_table

    failed = sum(summary.failures.values())
    parts = [f"{summary.completed} of {summary.requests} requests completed"]
    parts += [f"{failed} failed ({_classes(summary)})"] if failed else []
    parts += [f"{summary.cancelled} cancelled"] if summary.cancelled else []
    parts += [f"{unsent} not sent"] if unsent else []
    console.print(f"\n[bold]{summary.boundary}[/bold]: {', '.join(parts)}, in {summary.duration_s:.1f} s")
    rates = f"{summary.request_rate:.2f} requests/s, {summary.output_token_rate:.1f} output token/s"
    console.print(f"{rates}, {summary.total_token_rate:.1f} token/s with prompts")
    if summary.goodput is not None and summary.slo_attained is not None:
        console.print(
            f"goodput {summary.goodput:.2f} requests/s within the SLO ({summary.slo_attained:.1%} of requests)"
        )
    if (latencies := latency_table(summary)) is not None:
        table = figures_table(*latencies.heads)
        for row in latencies.rows:
            table.add_row(*(escape(cell.text) for cell in row))
        console.print(table)


def _classes(summary: Summary) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in summary.failures.items())
