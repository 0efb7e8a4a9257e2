"""forebay bench startup"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.bench.output import AsJson, Label, Output, figures_table, finish, interruptible
from forebay.cli.profile_flags import with_profile
from forebay.profile import Profile

if TYPE_CHECKING:
    from forebay.bench.result import Result

HELP = """Measure the time from start to the first token, and memory: of the server over HTTP, and of the Python API.

Every start is a fresh process. The first one is told apart: it may find files outside the page cache.

\b
Examples:
  forebay bench startup
  forebay bench startup ./model.gguf --repeat 10
"""


def add(app: typer.Typer) -> None:
    app.command("startup", help=HELP)(with_profile(startup))


def startup(
    profile: Profile,
    model: Annotated[str | None, typer.Argument(help="What to start.", show_default="smollm2-135m")] = None,
    repeat: Annotated[int, typer.Option(help="Starts that count, after the first.", min=1)] = 5,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    from forebay.bench.progress import StepBar
    from forebay.bench.startup import measure_startup

    with interruptible(), StepBar("starting", repeat + 1) as bar:
        result = measure_startup(profile, repeats=repeat, label=label or profile.model.source, on_run=bar.step)
    if not as_json:
        _show(result)
    finish(result, output, as_json)


def _show(result: Result) -> None:
    from rich.console import Console

    from forebay.bench.report.units import bounds, duration_unit, figure, size_unit, with_unit

    console = Console()
    cached = result.workload["model_cached_share"]
    before = "unknown" if cached is None else f"{cached:.0%}"
    console.print(f"of the model's files in the page cache before the first start: {before}")
    table = figures_table("", "", "first", "median", "from, to", words=2)
    for row in result.rows:
        unit = (size_unit if row["unit"] == "B" else duration_unit)(row["median"])
        shown = [with_unit(figure(row[name], unit), unit) for name in ("first", "median")]
        table.add_row(row["path"], row["figure"], *shown, bounds(tuple(row["range"]), unit))
    console.print(table)
