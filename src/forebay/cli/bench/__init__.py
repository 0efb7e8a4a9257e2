"""forebay bench: one thin file per kind of measurement."""

from __future__ import annotations

import typer

from forebay.bench.interrupt import ended_by_sigterm

HELP = """Measure a server, this engine, or its kernels.

\b
Examples:
  forebay bench serve http://127.0.0.1:8000 --concurrency 8
  forebay bench serve http://127.0.0.1:8000 --arrivals poisson:4 --slo ttft:500ms,itl:50ms -o run.json
  forebay bench offline --concurrency 8
  forebay bench sweep --set scheduler.token_budget=128,256,512 --concurrency 1,8
  forebay bench compare before.json after.json
  forebay bench report run.json --html run.html
"""


def begin(context: typer.Context) -> None:
    """Before any of the commands."""
    context.with_resource(ended_by_sigterm())


COMMANDS = {
    "serve": "Load a running server over HTTP and measure what its clients see.",
    "offline": "Measure throughput in process, through the Python API.",
    "latency": "Measure one stream in process: prompt and decode speed by length.",
    "startup": "Measure the time from start to the first token, and memory.",
    "ops": "Measure every kernel against this machine's own limits.",
    "sweep": "Measure many settings, or find the highest rate that holds an SLO.",
    "compare": "Compare two results, profiles or servers; the latter two interleaved.",
    "report": "Turn results into a page with plots, or into markdown.",
}
