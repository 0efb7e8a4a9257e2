"""What is measured of each engine, and one measurement of it: in process through its driver, or over HTTP.

Both give the same RequestRecords, so the same functions make the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from processes import Driver, Server

from forebay.bench.client.load import Endpoint, run_load
from forebay.bench.machine_load import Meter, invalid_reasons
from forebay.bench.metrics import figures_of, summarize
from forebay.bench.plan import Workload
from forebay.bench.record import RequestRecord
from forebay.bench.workload.build import WorkloadSpec, build_workload
from forebay.tokenizer import Tokenizer


@dataclass(frozen=True)
class Cell:
    """A closed loop: `requests` prompts of `prompt` tokens, each answered with `output` tokens, `streams` at a time."""

    name: str
    streams: int
    requests: int
    prompt: int = 256
    output: int = 128

    def workload(self, tokenizer: Tokenizer, seed: int) -> Workload:
        """Prompts of real text as token ids, none like another."""
        spec = WorkloadSpec(
            input=str(self.prompt),
            output=str(self.output),
            requests=self.requests,
            concurrency=self.streams,
            seed=seed,
        )
        return build_workload(spec, tokenizer)


# Single stream first: its decode speed is 1 / TPOT and its prompt speed prompt / TTFT.
IN_PROCESS = (
    Cell("1 stream", 1, 4),
    Cell("prompt of 512", 1, 4, prompt=512, output=2),
    Cell("8 streams", 8, 16),
    Cell("32 streams", 32, 32),
)
HTTP = (Cell("1 stream", 1, 4), Cell("8 streams", 8, 16), Cell("32 streams", 32, 32))
SWEEP = (Cell("16 streams", 16, 16, output=64),)
WARMUP = Cell("warm-up", 2, 4, prompt=64, output=16)


def measure_driver(driver: Driver, cell: Cell, tokenizer: Tokenizer, seed: int) -> dict[str, Any]:
    """One run in process. Raises PeerError."""
    turns = list(cell.workload(tokenizer, seed).turns())
    requests = [{"prompt_token_ids": turn.prompt, "max_tokens": turn.max_tokens} for turn in turns]
    with Meter(driver.pids) as meter:
        answer = driver.run(requests, cell.streams)
    records = [_record(index, cell, one) for index, one in enumerate(answer["requests"])]
    return _figures(cell, records, meter, in_process=True) | {"peak_rss_mb": answer["peak_rss_mb"]}


def measure_server(server: Server, cell: Cell, tokenizer: Tokenizer, seed: int) -> dict[str, Any]:
    """One run over HTTP."""
    workload = cell.workload(tokenizer, seed)
    with Meter(server.pids) as meter:
        records = run_load(workload, Endpoint(base_url=server.url, model=server.model))
    return _figures(cell, records, meter, in_process=False)


def _record(index: int, cell: Cell, one: dict[str, Any]) -> RequestRecord:
    times, counts = tuple(one["token_times_ns"]), tuple(one["token_counts"])
    return RequestRecord(
        index=index,
        intended_ns=one["sent_ns"],
        sent_ns=one["sent_ns"],
        token_ns=times,
        token_counts=counts,
        counted_by="chunks",
        end_ns=times[-1],
        planned_prompt_tokens=cell.prompt,
        planned_output_tokens=cell.output,
        prompt_tokens=cell.prompt,
        output_tokens=sum(counts),
        finish_reason="length",
    )


def _figures(cell: Cell, records: Sequence[RequestRecord], meter: Meter, *, in_process: bool) -> dict[str, Any]:
    """The figures of one run, flat; latencies in seconds. tokens_missing: answers shorter than asked for."""
    load = meter.facts()
    return {
        "cell": cell.name,
        "requests": len(records),
        "tokens_missing": sum(cell.output - record.output_tokens for record in records if record.completed),
        **figures_of(summarize([records])),
        "engine_cores": load.target_cores,
        "client_cores": load.client_cores,
        "foreign_share": load.foreign_share,
        "steal_share": load.steal_share,
        "invalid": invalid_reasons([load], in_process=in_process),
    }
