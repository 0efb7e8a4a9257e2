"""forebay bench offline"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from forebay.bench.workload.build import WorkloadSpec
from forebay.cli.bench.output import AsJson, Label, Output, Seed, finish, interruptible
from forebay.cli.bench.run_flags import Repeat, Slo, Warmup
from forebay.cli.bench.workload_flags import with_workload
from forebay.cli.profile_flags import with_profile
from forebay.profile import Profile

HELP = """Measure throughput in process, through the Python API: no server, no network, a closed loop.

Times are those of the engine's own events; each run begins with an empty prefix cache.

\b
Examples:
  forebay bench offline
  forebay bench offline ./model.gguf --input-tokens 256 --output-tokens 128 --requests 64 --concurrency 8
  forebay bench offline --repeat 5 --threads 1 -o offline.json
"""

CONCURRENCY, REQUESTS = 8, 64


def add(app: typer.Typer) -> None:
    app.command("offline", help=HELP)(with_workload(with_profile(offline)))


def offline(
    profile: Profile,
    spec: WorkloadSpec,
    model: Annotated[str | None, typer.Argument(help="What to run.", show_default="smollm2-135m")] = None,
    slo: Slo = None,
    repeat: Repeat = 1,
    warmup: Warmup = 8,
    seed: Seed = 0,
    label: Label = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    from forebay.bench.offline import measure_offline, open_llm
    from forebay.bench.progress import LiveProgress
    from forebay.bench.serve import planned
    from forebay.bench.slo import parse_slo

    limits = None if slo is None else parse_slo(slo)
    with interruptible(), open_llm(profile) as llm:
        spec = replace(
            spec,
            seed=seed,
            max_model_len=llm.info.max_model_len,
            concurrency=spec.concurrency or (None if spec.arrivals else CONCURRENCY),
            requests=spec.requests or (None if spec.trace else REQUESTS),
        )
        workloads, warm = planned(spec, llm.tokenizer, runs=repeat, warmup=warmup)
        with LiveProgress(sum(workload.num_requests for workload in workloads)) as progress:
            result = measure_offline(
                llm, workloads, warmup=warm, slo=limits, seed=seed, label=label or llm.info.model_name,
                observer=progress,
            )  # fmt: skip
    finish(result, output, as_json)
