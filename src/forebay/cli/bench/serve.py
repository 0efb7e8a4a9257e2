"""forebay bench serve"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from forebay.bench.workload.build import WorkloadSpec
from forebay.cli.bench.output import AsJson, Label, Output, Seed, finish
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
    tokenizer: Annotated[
        str | None,
        typer.Option(help="What counts tokens: the served model's GGUF, folder or name.", show_default="model"),
    ] = None,
    api_key: Annotated[str | None, typer.Option(help="A bearer token.", show_default="OPENAI_API_KEY")] = None,
    slo: Annotated[str | None, typer.Option(help="Limits for goodput: ttft:500ms,itl:50ms,tpot:40ms,e2e:5s.")] = None,
    repeat: Annotated[int, typer.Option(help="Runs, each with prompts of its own.", min=1)] = 1,
    warmup: Annotated[int, typer.Option(help="Requests before the first run, not counted.", min=0)] = 8,
    timeout: Annotated[float, typer.Option(help="Most seconds a request may take.", min=0.1)] = 600.0,
    server_record: Annotated[
        Path | None, typer.Option(help="The file that `forebay serve --record` writes, on this machine.")
    ] = None,
    seed: Seed = 0,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    from forebay import env
    from forebay.bench.client.load import Endpoint
    from forebay.bench.progress import LiveProgress
    from forebay.bench.serve import measure, planned
    from forebay.bench.slo import parse_slo
    from forebay.bench.target import identify, tokenizer_of

    api_key = api_key or env.openai_api_key()
    limits = None if slo is None else parse_slo(slo)
    target = identify(url, model=model, api_key=api_key)
    counting, source = tokenizer_of(target, tokenizer)
    spec = replace(spec, seed=seed, max_model_len=spec.max_model_len or target.max_model_len)
    workloads, warm = planned(spec, counting, runs=repeat, warmup=warmup)
    endpoint = Endpoint(base_url=target.url, model=target.model, api_key=api_key, timeout_s=timeout)
    with LiveProgress(sum(workload.num_requests for workload in workloads)) as progress:
        result = measure(
            endpoint,
            workloads,
            warmup=warm,
            slo=limits,
            seed=seed,
            label=label or target.model,
            record=server_record,
            target={**target.facts, "tokenizer": source},
            observer=progress,
        )
    finish(result, output, as_json)
