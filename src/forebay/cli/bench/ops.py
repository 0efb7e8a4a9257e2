"""forebay bench ops"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forebay.cli.bench.output import AsJson, Label, Output, Seed, figures_table, finish, interruptible

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
_WORDS = ("op", "what", "step", "kernels")
_FIGURES = ("us", "spread", "GB/s", "GOP/s", "bandwidth", "peak")


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
    from forebay.bench.ops.run import OpsOptions, measure_ops
    from forebay.bench.progress import StepBar

    options = OpsOptions(
        ops=tuple(op or ()), backends=tuple(backend or ("native",)), isas=tuple(isa or ("auto",)),
        threads=threads or "auto", shapes=tuple(shape or ()), model=model, working_set=working_set, rounds=rounds,
        seconds=seconds, seed=seed,
    )  # fmt: skip
    with interruptible(), StepBar("measuring") as bar:
        result = measure_ops(options, bar.at, label=label)
    if not as_json:
        _show(result.rows)
    finish(result, output, as_json)


def _show(rows: list[dict[str, Any]]) -> None:
    """The cases by op, then the roofline."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = _FILE_WIDTH  # lines in a file need not be cut
    table = figures_table(*_WORDS, *_FIGURES, "of the floor", words=len(_WORDS))
    table.columns[-1].justify = "left"
    for column in table.columns:
        column.no_wrap = True
    cases = [row for row in rows if row["op"] != "roofline"]
    for row in sorted(cases, key=lambda row: row["op"]):  # stable: otherwise in the order they were measured
        what = " ".join(word for word in (row["variant"], row["format"]) if word)
        table.add_row(row["op"], what, row["shape"], row["isa"] or row["backend"], *_figures(row))
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
