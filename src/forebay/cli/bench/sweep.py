"""forebay bench sweep"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.bench.workload.build import WorkloadSpec
from forebay.cli.bench.output import AsJson, Label, Output, Seed, figures_table, finish
from forebay.cli.bench.run_flags import ApiKey, Repeat, Slo, Timeout, Tokenizer, Warmup
from forebay.cli.bench.workload_flags import with_workload
from forebay.cli.profile_flags import with_profile
from forebay.profile import Profile

if TYPE_CHECKING:
    from forebay.bench.sweep import Knob, SweepPlan

HELP = """Measure many settings: a grid, or one knob at a time; each point on a server of its own.

With --find-rate: the highest rate of Poisson arrivals at which enough requests keep the SLO. Ctrl-C keeps what is done.

\b
Examples:
  forebay bench sweep --set scheduler.token_budget=128,256,512 --set kv.block_size=16,32 --concurrency 8
  forebay bench sweep --concurrency 1,8,32 -o sweep.json
  forebay bench sweep --url http://127.0.0.1:8000 --vary input=64,512 --concurrency 4
  forebay bench sweep --find-rate --slo ttft:500ms,itl:50ms --set scheduler.token_budget=128,512
"""
PANEL = "Sweep"
Url = Annotated[str | None, typer.Option(help="Measure this server: only the load can vary.", rich_help_panel=PANEL)]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A setting, and its values: kv.block_size=16,32.", metavar="NAME=VALUE,...", rich_help_panel=PANEL
    ),
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        help="A part of the load, and its values: input=64,512.", metavar="NAME=VALUE,...", rich_help_panel=PANEL
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option("--concurrency", "-c", help="Closed loop: so many at once, such as 1,8,32.", rich_help_panel=PANEL),
]
OneAtATime = Annotated[
    bool,
    typer.Option("--one-at-a-time", help="Vary each knob alone, others at their first value.", rich_help_panel=PANEL),
]
FindRate = Annotated[
    bool, typer.Option("--find-rate", help="Find the highest rate that holds --slo.", rich_help_panel=PANEL)
]
Attain = Annotated[float, typer.Option(help="Share of requests that must keep it.", rich_help_panel=PANEL)]
StartRate = Annotated[float, typer.Option(help="First rate tried, a second.", rich_help_panel=PANEL)]
Width = Annotated[float, typer.Option(help="How near to the edge, relative.", rich_help_panel=PANEL)]
ProbeSeconds = Annotated[
    float, typer.Option(help="For so long requests arrive at each rate.", min=0.1, rich_help_panel=PANEL)
]


def add(app: typer.Typer) -> None:
    app.command("sweep", help=HELP)(with_workload(with_profile(sweep)))


def sweep(
    profile: Profile,
    spec: WorkloadSpec,
    model: Annotated[str | None, typer.Argument(help="What to serve.", show_default="smollm2-135m")] = None,
    url: Url = None,
    sets: Sets = None,
    vary: Vary = None,
    concurrency: Concurrency = None,
    one_at_a_time: OneAtATime = False,
    find_rate: FindRate = False,
    attain: Attain = 0.9,
    start_rate: StartRate = 1.0,
    width: Width = 0.1,
    probe_seconds: ProbeSeconds = 30.0,
    slo: Slo = None,
    repeat: Repeat = 1,
    warmup: Warmup = 8,
    timeout: Timeout = 600.0,
    tokenizer: Tokenizer = None,
    api_key: ApiKey = None,
    seed: Seed = 0,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    from forebay.bench.progress import Bars
    from forebay.bench.served import Server
    from forebay.bench.slo import parse_slo
    from forebay.bench.sweep import RateGoal, SweepPlan, load_knob, run_sweep

    limits = None if slo is None else parse_slo(slo)
    goal = None
    if find_rate:
        if limits is None:
            raise typer.BadParameter("--find-rate needs --slo, such as --slo ttft:500ms,itl:50ms")
        goal = RateGoal(slo=limits, attain=attain, start=start_rate, width=width, duration_s=probe_seconds)
    settings, changed = _settings(profile, sets or [])
    there = None if url is None else Server(url=url, model=model, api_key=api_key, tokenizer=tokenizer)
    loads = [*(vary or []), *([f"concurrency={concurrency}"] if concurrency else [])]
    plan = SweepPlan(
        target=there or changed, spec=spec, knobs=(*settings, *map(load_knob, loads)), one_at_a_time=one_at_a_time,
        goal=goal, slo=limits, repeats=repeat, warmup=warmup, timeout_s=timeout,
    )  # fmt: skip
    with Bars() as bars:
        result = run_sweep(
            plan, seed=seed, label=label,
            watch=lambda index, count, what, requests: bars.start(f"point {index + 1} of {count}: {what}", requests),
        )  # fmt: skip
    if not as_json:
        _show(plan, result.rows)
    finish(result, output, as_json)


def _settings(profile: Profile, sets: Sequence[str]) -> tuple[list[Knob], Profile]:
    """Settings with several values are knobs; those with one are fixed."""
    from forebay.bench.sweep import profile_knob
    from forebay.profile.schema import with_values

    found = [profile_knob(text) for text in sets]
    fixed = {knob.name: knob.values[0] for knob in found if len(knob.values) == 1}
    return [knob for knob in found if len(knob.values) > 1], with_values(profile, fixed)


def _show(plan: SweepPlan, rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from forebay.bench.report.units import ABSENT, duration, figure, plain
    from forebay.bench.sweep import words

    knobs = [knob.name for knob in plan.knobs]
    rate = ["rate/s", "fails at", "within SLO"] if plan.goal is not None else []
    figures = ("output token/s", "request/s", "TTFT p50", "TTFT p95", "ITL p50", "ITL p95", "failed")
    columns = ("", *(name.split(".")[-1] for name in knobs), *rate, *figures)
    table = figures_table(*columns)
    for row in rows:
        mark = "[red]![/red]" if not row["valid"] else "*" if row["pareto"] else ""
        values = [escape(plain(row["knobs"][name])) for name in knobs]
        found = []
        if plan.goal is not None:
            share = row.get("attained")
            found = [figure(row.get("rate")), figure(row.get("fails_at")), ABSENT if share is None else f"{share:.1%}"]
        found += [figure(row.get(name)) for name in ("output_token_rate", "request_rate")]
        found += [duration(row.get(f"{name}_s")) for name in ("ttft_p50", "ttft_p95", "itl_p50", "itl_p95")]
        table.add_row(mark, *values, *found, plain(row.get("failed")))
    console = Console()
    console.print(table, "* no other point is better in every figure; ! do not believe it, see below", sep="\n")
    for row in rows:
        for text in (*row.get("notes", ()), *row["invalid_reasons"]):
            console.print(f"{plain(words(row['knobs']))}: {plain(text)}", style="dim", markup=False)
