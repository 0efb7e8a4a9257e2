"""forebay bench serve"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from forebay.bench.workload.build import WorkloadSpec
from forebay.cli.bench.output import AsJson, Label, Output, Seed, finish, interruptible
from forebay.cli.bench.run_flags import ApiKey, Repeat, Slo, Timeout, Tokenizer, Warmup
from forebay.cli.bench.workload_flags import with_workload

HELP = """Load a running OpenAI-compatible server and measure what its clients see.

Latency counts from the moment the workload meant to send, so a server that stalls cannot hide it. A run during which
this client or other processes used too much of the machine is marked invalid.

\b
Examples:
  forebay bench serve http://127.0.0.1:8000 --concurrency 8 --input-tokens 256 --output-tokens 128
  forebay bench serve http://127.0.0.1:8000 --arrivals poisson:4 --slo ttft:500ms,itl:50ms
  forebay bench serve http://127.0.0.1:8000 --trace conv.csv --window 0:60 --endpoint chat
  forebay bench serve http://127.0.0.1:8000 -c 8 --server-record record.jsonl -o run.json
"""


def add(app: typer.Typer) -> None:
    app.command("serve", help=HELP)(with_workload(serve))


def serve(
    spec: WorkloadSpec,
    url: Annotated[str, typer.Argument(help="Where the server is, such as http://127.0.0.1:8000.")],
    model: Annotated[str | None, typer.Option(help="Which of the served models.", show_default="the only one")] = None,
    tokenizer: Tokenizer = None,
    api_key: ApiKey = None,
    slo: Slo = None,
    repeat: Repeat = 1,
    warmup: Warmup = 8,
    timeout: Timeout = 600.0,
    server_record: Annotated[
        Path | None, typer.Option(help="The file that `forebay serve --record` writes, on this machine.")
    ] = None,
    seed: Seed = 0,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    from forebay.bench.progress import LiveProgress
    from forebay.bench.served import Server, served
    from forebay.bench.slo import parse_slo

    limits = None if slo is None else parse_slo(slo)
    server = Server(url=url, model=model, api_key=api_key, tokenizer=tokenizer, record=server_record)
    with interruptible(), served(server, name=label, timeout_s=timeout) as there:
        workloads, warm = there.planned(replace(spec, seed=seed), runs=repeat, warmup=warmup)
        with LiveProgress(sum(workload.num_requests for workload in workloads)) as progress:
            result = there.measure(workloads, warmup=warm, slo=limits, seed=seed, observer=progress)
    finish(result, output, as_json)
