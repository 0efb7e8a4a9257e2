"""forebay bench compare"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.bench.workload.build import WorkloadSpec
from forebay.cli.bench.output import AsJson, Label, Output, Seed, figures_table, finish, interruptible
from forebay.cli.bench.run_flags import ApiKey, Slo, Timeout, Tokenizer, Warmup
from forebay.cli.bench.workload_flags import with_workload
from forebay.cli.profile_flags import with_profile
from forebay.profile import Profile

if TYPE_CHECKING:
    from forebay.bench.ab import Compared
    from forebay.bench.served import Server

HELP = """Compare two results, profiles or servers.

A and B are each a result file (.json, .json.gz), a profile (.toml), settings on top of the profile flags
(set:NAME=VALUE,...; "set:" for none), or a URL. Profiles and servers are measured in turns (AB BA AB ...) with the same
requests; a profile's server is paused while the other one is measured. A verdict needs an interval that excludes 1.

\b
Examples:
  forebay bench compare before.json after.json
  forebay bench compare set: set:scheduler.token_budget=128 --concurrency 8 --pairs 7
  forebay bench compare old.toml new.toml --concurrency 8 -o ab.json --fail-if-slower
  forebay bench compare http://127.0.0.1:8000 http://127.0.0.1:8001 --concurrency 4
"""
CONCURRENCY, REQUESTS = 8, 32
RESULTS = (".json", ".json.gz")
Model = Annotated[str | None, typer.Option(help="The model of both profiles, or which one the servers serve.")]
Pairs = Annotated[int, typer.Option(help="How often each is measured; an interval needs 3.", min=1)]
FailIfSlower = Annotated[bool, typer.Option("--fail-if-slower", help="Exit with 1 if B is slower.")]


def add(app: typer.Typer) -> None:
    app.command("compare", help=HELP)(with_workload(with_profile(compare)))


def compare(
    profile: Profile,
    spec: WorkloadSpec,
    a: Annotated[str, typer.Argument(metavar="A", help="What is there.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What may be faster.")],
    model: Model = None,
    pairs: Pairs = 5,
    warmup: Warmup = 8,
    slo: Slo = None,
    fail_if_slower: FailIfSlower = False,
    tokenizer: Tokenizer = None,
    api_key: ApiKey = None,
    timeout: Timeout = 600.0,
    seed: Seed = 0,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    from forebay.bench.ab import compare_files, compare_served
    from forebay.bench.progress import Bars
    from forebay.bench.slo import parse_slo

    files = [text.endswith(RESULTS) for text in (a, b)]
    if any(files) and not all(files):
        raise typer.BadParameter("a result can only be compared with a result: give two .json files, or none")
    if all(files):
        found = compare_files(Path(a), Path(b), label=label)
    else:
        spec = replace(
            spec,
            seed=seed,
            concurrency=spec.concurrency or (None if spec.arrivals or spec.trace else CONCURRENCY),
            requests=spec.requests or (None if spec.trace or spec.duration_s else REQUESTS),
        )
        sides = [_side(text, profile, model, tokenizer, api_key) for text in (a, b)]
        with interruptible(), Bars() as bars:
            found = compare_served(
                sides[0], sides[1], spec, names=(_name(a), _name(b)), pairs=pairs, warmup=warmup,
                slo=None if slo is None else parse_slo(slo), seed=seed, label=label, timeout_s=timeout,
                watch=bars.start,
            )  # fmt: skip
    if not as_json:
        _show(found)
    finish(found.document, output, as_json)
    if fail_if_slower and found.headline.verdict == "slower":
        raise typer.Exit(1)


def _side(
    text: str, profile: Profile, model: str | None, tokenizer: str | None, api_key: str | None
) -> Profile | Server:
    """What A or B says. Raises BenchError, ProfileError."""
    from forebay.bench.served import Server
    from forebay.errors import BenchError
    from forebay.profile import load_profile, parse_assignment
    from forebay.profile.schema import with_values

    if text.startswith(("http://", "https://")):
        return Server(url=text, model=model, api_key=api_key, tokenizer=tokenizer)
    if text.endswith(".toml"):
        return load_profile(Path(text), {"model.source": model})
    if text.startswith("set:"):
        words = [word for word in text.removeprefix("set:").split(",") if word]
        return with_values(profile, dict(parse_assignment(word) for word in words))
    raise BenchError(
        f"{text!r} is nothing to compare; give a result (.json), a profile (.toml), set:NAME=VALUE,... or a URL"
    )


def _name(text: str) -> str:
    return "as it is" if text == "set:" else text.removeprefix("set:")


def _show(found: Compared) -> None:
    from rich.console import Console
    from rich.markup import escape

    from forebay.bench.report.units import ABSENT, clean, duration, figure

    console = Console()
    comparison, headline = found.comparison, found.headline
    table = figures_table("", "B is", "A", "B", "B / A", "95 % interval", words=2)
    for metric in comparison.metrics:
        shown = duration if metric.name.partition(".")[0].endswith("_s") else figure
        ratio = ABSENT if metric.ratio is None else f"{metric.ratio:.3f}"
        interval = ABSENT if metric.interval is None else "{:.3f} to {:.3f}".format(*metric.interval)
        color = {"faster": "green", "slower": "red"}.get(metric.verdict, "dim")
        verdict = f"[{color}]{metric.verdict}[/{color}]"
        table.add_row(escape(clean(metric.name)), verdict, shown(metric.a), shown(metric.b), ratio, interval)
    console.print(f"A: {clean(comparison.a)}\nB: {clean(comparison.b)}", markup=False)
    console.print(table)
    if found.answers.of:
        console.print(f"same answers: {found.answers.same} of {found.answers.of}")
    console.print(f"by {escape(clean(headline.name))}, B is: [bold]{headline.verdict}[/bold]")
    for warning in comparison.warnings:
        console.print(f"note: {clean(warning)}", style="dim", markup=False)
