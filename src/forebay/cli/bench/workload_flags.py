"""Workload flags of the bench commands, generated from WorkloadSpec, and what stands for each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_type_hints

import typer

from forebay.bench.workload.build import WorkloadSpec

PANEL = "Workload"
HELP = {
    "endpoint": "completions or chat.",
    "requests": "How many requests (100, or what the trace, arrivals or duration hold).",
    "duration_s": "Stop starting new ones after so many seconds.",
    "input": "Prompt tokens: 256, 64..512 or lognormal:256,0.6.",
    "output": "Output tokens, likewise.",
    "mix": "Named buckets instead: short_chat=0.7,long_rag=0.3.",
    "arrivals": "Open loop: constant:R, poisson:R, gamma:R,CV, ramp:R1..R2@S, steps:R1,R2@S or at-once (R a second).",
    "concurrency": "Closed loop: so many at once.",
    "trace": "Replay a trace (Azure csv, Mooncake or ServeGen jsonl; .gz too).",
    "trace_kind": "azure, mooncake or servegen, where the file does not tell.",
    "window": "Part of the trace, in seconds: 0:600.",
    "scale_rate": "Replay so many times as fast.",
    "scale_length": "Scale the trace's lengths.",
    "max_input": "Clip the trace's prompts to so many tokens.",
    "max_output": "Clip the trace's outputs to so many tokens.",
    "turns": "Turns of a session: 1, 2..6 (chat only).",
    "think_s": "Mean pause between turns, in seconds.",
    "shared_prefix": "Tokens that all prompts begin with.",
    "cancel_share": "Share of requests whose client hangs up half way.",
    "slow_share": "Share of clients that read slowly.",
    "slow_bytes_per_s": "How slowly, in bytes a second.",
    "fixed_output": "Generate exactly the planned output (ignore_eos).",
    "token_ids": "Send completion prompts as token ids.",
    "text": "A text to cut prompts from (UTF-8, .gz too), instead of Python's own documentation.",
}
SHORT = {"requests": "-n", "concurrency": "-c"}
# --output is where the result goes
NAMES = {"input": "input_tokens", "output": "output_tokens", "duration_s": "duration", "think_s": "think",
         "slow_bytes_per_s": "slow_rate"}  # fmt: skip
HIDDEN = frozenset({"seed", "max_model_len"})  # a command's own, and the server's
FIELDS = tuple(field.name for field in dataclasses.fields(WorkloadSpec) if field.name not in HIDDEN)


def with_workload(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the `spec: WorkloadSpec` parameter of a command by a flag for each field (`seed` is the command's).

    A flag that the command has itself, under the same name, is the command's; the field keeps its default.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != "spec"]
    taken = {p.name for p in own}
    added = [p for p in workload_parameters() if p.name not in taken]
    fields = [field for field in FIELDS if NAMES.get(field, field) not in taken]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        spec = WorkloadSpec(**{field: given.pop(NAMES.get(field, field)) for field in fields})
        command(spec=spec, **given)

    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]  # what inspect.signature reads
    run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    del run.__wrapped__  # typer would read the hints of the command instead
    return run


def workload_parameters() -> Iterator[inspect.Parameter]:
    """What `with_workload` puts in the place of `spec`."""
    hints = get_type_hints(WorkloadSpec)
    for field in dataclasses.fields(WorkloadSpec):
        if field.name in HIDDEN:
            continue
        kind, name = hints[field.name], NAMES.get(field.name, field.name)
        flag = name.replace("_", "-")
        flags = [f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"]
        flags += [SHORT[field.name]] if field.name in SHORT else []
        option = typer.Option(*flags, help=HELP[field.name], rich_help_panel=PANEL)
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[_plain(kind), option]
        )


def _plain(kind: Any) -> Any:
    """A Literal as the text it is on the command line; WorkloadSpec checks the choice."""
    if "Literal" not in str(kind):
        return kind
    return str | None if "None" in str(kind) else str
