"""forebay bench ops"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.cli.bench.output import AsJson, Label, Output, Seed

if TYPE_CHECKING:
    from rich.console import Console

HELP = """Measure every kernel against this machine's own limits.

Each op is timed at the shapes of a model and set against the bandwidth and the arithmetic peak of this machine, which
are measured in the same run: `floor` is the least time the machine could take over the time that was taken.

\b
Examples:
  forebay bench ops
  forebay bench ops --op linear --op attention --shape decode
  forebay bench ops --op linear --isa avx2 --isa generic --threads 1 --working-set hot
  forebay bench ops --backend native --backend reference --shape small -o ops.json
"""
_BAR = 10
_FILE_WIDTH = 200


def add(app: typer.Typer) -> None:
    app.command("ops", help=HELP)(ops)


def ops(
    model: Annotated[str, typer.Argument(help="Whose shapes: a known name, a GGUF file or a folder.")] = "smollm2-135m",
    op: Annotated[list[str] | None, typer.Option(help="Only this op (repeatable).", show_default="all")] = None,
    backend: Annotated[
        list[str] | None, typer.Option(help="native or reference (repeatable).", show_default="native")
    ] = None,
    isa: Annotated[
        list[str] | None,
        typer.Option(help="An instruction set of the native backend (repeatable).", show_default="the best"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the native backend.", min=1, show_default="one per core")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="decode, prefill or small (repeatable).", show_default="decode and prefill"),
    ] = None,
    working_set: Annotated[
        str, typer.Option(help="model: as much as a step goes through; hot: stays in a core's cache.")
    ] = "model",
    rounds: Annotated[int, typer.Option(help="Timings of each case, taken in turn.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="How long a timing takes.", min=0.001, max=60)] = 0.02,
    seed: Seed = 0,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    import sys
    import time

    from rich.console import Console

    from forebay.bench.facts import new_result
    from forebay.bench.machine_load import Meter
    from forebay.bench.ops.run import OpsOptions, ops_result
    from forebay.bench.result import Run
    from forebay.cli.bench.output import finish

    options = OpsOptions(
        ops=tuple(op or ()), backends=tuple(backend or ("native",)), isas=tuple(isa or ("auto",)),
        threads=threads or "auto", shapes=tuple(shape or ()), model=model, working_set=working_set, rounds=rounds,
        seconds=seconds, seed=seed,
    )  # fmt: skip
    started_ns = time.monotonic_ns()
    with Meter() as meter, _Bar(sys.stderr.isatty()) as progress:
        measured = ops_result(new_result("ops"), options, progress)
    load = meter.facts()
    result = new_result(
        "ops", label=label, seed=seed, loads=[load], in_process=True, workload=measured.workload, rows=measured.rows,
        runs=[Run(started_ns=started_ns, load=load)],
    )  # fmt: skip
    if not as_json:
        show_rows(result.rows, Console())
    finish(result, output, as_json)


class _Bar:
    """A progress bar on stderr, where that is a terminal."""

    def __init__(self, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=2, disable=not shown)
        self._task = self._bar.add_task("", total=None)

    def __call__(self, done: int, of: int, what: str) -> None:
        self._bar.update(self._task, completed=done, total=of, description=what)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def show_rows(rows: list[dict[str, Any]], console: Console) -> None:
    """The cases by op, then the roofline."""
    from rich.table import Table

    cases = [row for row in rows if row["op"] != "roofline"]
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("op", "what", "step", "kernels"):
        table.add_column(name, no_wrap=True)
    for name in ("us", "spread", "GB/s", "GOP/s", "bandwidth", "peak"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("of the floor", no_wrap=True)
    for row in sorted(cases, key=lambda row: row["op"]):  # stable: otherwise in the order they were measured
        what = " ".join(word for word in (row["variant"], row["format"]) if word)
        table.add_row(row["op"], what, row["shape"], row["isa"] or row["backend"], *_figures(row))
    if not console.is_terminal:
        console.width = _FILE_WIDTH  # lines in a file need not be cut
    console.print(table)
    console.print("\n[bold]roofline[/bold], the best of this run")
    for row in rows:
        if row["op"] == "roofline":
            console.print(_roof(row))


def _figures(row: dict[str, Any]) -> tuple[str, ...]:
    """bandwidth, peak: share of the measured ones; floor: the larger of them, marked with what it is bound by."""
    if row["seconds"] is None:
        return ("?", "", "", "", "", "", "too small to be told from the rest of a step")
    share = row["floor_fraction"]
    filled = min(_BAR, round(share * _BAR))
    return (
        f"{row['seconds'] * 1e6:.1f}",
        f"{row['spread']:.0%}",
        f"{row['gbps']:.1f}",
        f"{row['gops']:.1f}",
        f"{row['bandwidth_fraction']:.0%}",
        "" if row["peak_fraction"] is None else f"{row['peak_fraction']:.0%}",
        f"{'█' * filled}{'░' * (_BAR - filled)} {share:4.0%} {row['bound']}",
    )


def _roof(row: dict[str, Any]) -> str:
    what = f"{row['isa']}, {row['threads']} threads"
    if row["kind"] == "read":
        return f"  {what}: read {row['working_set_bytes'] >> 10} KiB  {row['gbps']:.1f} GB/s"
    return f"  {what}: {row['kind']}  {row['gops']:.1f} GOP/s"
