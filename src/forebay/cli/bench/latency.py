"""forebay bench latency"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from forebay.cli.bench.output import AsJson, Label, Output, Seed, figures_table, finish, interruptible
from forebay.cli.profile_flags import with_profile
from forebay.profile import Profile

HELP = """Measure one stream in process: how fast prompts are computed and tokens decoded, by length of the context.

Medians over repeats, with the smallest and largest; lengths take turns, and every prompt is computed from nothing.

\b
Examples:
  forebay bench latency
  forebay bench latency ./model.gguf --lengths 64,512,4096 --output-tokens 64 --repeat 9
  forebay bench latency --threads 1 -o latency.json
"""


def add(app: typer.Typer) -> None:
    app.command("latency", help=HELP)(with_profile(latency))


def latency(
    profile: Profile,
    model: Annotated[str | None, typer.Argument(help="What to run.", show_default="smollm2-135m")] = None,
    lengths: Annotated[str, typer.Option(help="Prompt tokens.")] = "64,256,512,1024",
    output_tokens: Annotated[int, typer.Option(help="Tokens decoded behind each prompt.", min=2)] = 32,
    repeat: Annotated[int, typer.Option(help="Requests of each length that count.", min=1)] = 5,
    seed: Seed = 0,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    from forebay.bench.latency import measure_latency
    from forebay.bench.offline import open_llm
    from forebay.bench.progress import StepBar

    wanted = _lengths(lengths)
    with interruptible(), open_llm(profile) as llm, StepBar("measuring", len(wanted) * (repeat + 1)) as bar:
        result = measure_latency(
            llm, lengths=wanted, output=output_tokens, repeats=repeat, seed=seed, label=label or llm.info.model_name,
            on_sample=lambda length: bar.step(f"{length} tokens"),
        )  # fmt: skip
    if not as_json:
        _show(result.rows)
    finish(result, output, as_json)


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--lengths must be numbers with commas between them, got {text!r}") from None


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console

    from forebay.bench.report.units import bounds, duration, figure

    heads = ("length", "TTFT", "prefill token/s", "from, to", "decode token/s", "from, to", "ITL p50", "ITL p99")
    table = figures_table(*heads, words=0)
    for row in rows:
        rates = [
            text
            for name in ("prefill_token_rate", "decode_token_rate")
            for text in (figure(row[name]), bounds(tuple(row[f"{name}_range"])))
        ]
        seconds = [duration(row[name]) for name in ("ttft_s", "itl_p50_s", "itl_p99_s")]
        table.add_row(str(row["length"]), seconds[0], *rates, *seconds[1:])
    Console().print(table)
