"""A server measured over HTTP: plan the load, play it, account for what else ran, put it into a document."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from forebay.bench.client.load import Endpoint, Observer, no_collector, run_load
from forebay.bench.doubts import doubts, record_doubts
from forebay.bench.facts import against, new_result
from forebay.bench.machine_load import Meter, pids_behind
from forebay.bench.metrics import by_bucket, server_records, shifted, summarize
from forebay.bench.plan import Workload
from forebay.bench.reconcile import reconcile, step_series
from forebay.bench.record import RequestRecord
from forebay.bench.result import LoadFacts, Result, Run
from forebay.bench.slo import SLO
from forebay.bench.workload.build import WorkloadSpec, build_workload
from forebay.bench.workload.spec import check_spec
from forebay.errors import SetupError
from forebay.observe.recorder import Record, read_record
from forebay.tokenizer import Tokenizer

RECORD_WAIT_S = 2.0
_WARMUP_SEED = 1_000_003  # away from the seeds of runs, which count up from the first


def planned(
    spec: WorkloadSpec, tokenizer: Tokenizer, *, runs: int = 1, warmup: int = 0
) -> tuple[list[Workload], Workload | None]:
    """The workloads of `runs` runs, each with prompts of its own (so that no run finds the one before in the server's
    prefix cache), and of a warm-up of `warmup` requests (None for 0). Raises BenchError."""
    workloads = [build_workload(replace(spec, seed=spec.seed + run), tokenizer) for run in range(runs)]
    return workloads, build_workload(_before(spec, warmup), tokenizer) if warmup else None


def check_load(spec: WorkloadSpec, warmup: int) -> None:
    """Raises BenchError if the load or its warm-up cannot be, as far as that shows before there is a server."""
    check_spec(spec)
    if warmup:
        check_spec(_before(spec, warmup))


def _before(spec: WorkloadSpec, warmup: int) -> WorkloadSpec:
    """The load of a warm-up."""
    return replace(
        spec,
        requests=warmup,
        seed=spec.seed + _WARMUP_SEED,
        arrivals=None,
        duration_s=None,
        scale_rate=1.0,
        concurrency=spec.concurrency or warmup,
        cancel_share=0.0,
        slow_share=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run with absolute times (CLOCK_MONOTONIC)."""

    records: tuple[RequestRecord, ...]
    run: Run

    @classmethod
    def of(cls, records: tuple[RequestRecord, ...], load: LoadFacts) -> Measured:
        started_ns = min((record.intended_ns for record in records), default=0)
        relative = tuple(shifted(record, -started_ns) for record in records)
        return cls(records=records, run=Run(started_ns=started_ns, load=load, records=relative))


def run_once(workload: Workload, endpoint: Endpoint, observer: Observer | None = None) -> Measured:
    """Play one workload and account for the machine meanwhile."""
    with no_collector(), Meter(pids_behind(endpoint.base_url)) as meter:  # collecting is not part of the load
        records = run_load(workload, endpoint, observer)
    return Measured.of(records, meter.facts())


def document(
    workloads: Sequence[Workload],
    measured: Sequence[Measured],
    *,
    target: dict[str, Any],
    warmup: Workload | None = None,
    slo: SLO | None = None,
    seed: int = 0,
    label: str = "",
    record: Path | None = None,
) -> Result:
    """One run per workload against one server. warmup: was played before. target: what is known of the server. record:
    the file that it writes with --record, on this machine. Raises BenchError."""
    runs = [one.records for one in measured]
    result = new_result(
        "serve",
        label=label,
        seed=seed,
        loads=[one.run.load for one in measured],
        reasons=doubts(workloads, runs),
        target=target,
        workload=described(workloads, warmup),
        slo=None if slo is None else str(slo),
        summary=summarize(runs, slo=slo, seed=seed),
        buckets=by_bucket(runs, slo=slo, seed=seed),
        runs=[one.run for one in measured],
    )
    if record is None:
        return result
    try:
        return _with_server_view(result, measured, _whole_record(record, measured), slo)
    except SetupError as error:  # what the clients saw is not lost with it
        return against(result, [f"the server's view is missing: {error.message}"])


def described(workloads: Sequence[Workload], warmup: Workload | None = None) -> dict[str, Any]:
    """The workload part of a document: one digest over all runs, and how the first was made."""
    digest = hashlib.sha256("".join(workload.digest for workload in workloads).encode()).hexdigest()
    return {
        "digest": digest,
        "runs": len(workloads),
        "requests": sum(workload.num_requests for workload in workloads),
        "warmup_requests": 0 if warmup is None else warmup.num_requests,
        "spec": dict(workloads[0].spec) if workloads else {},
    }


def _whole_record(path: Path, measured: Sequence[Measured]) -> Record:
    """The server's record, once it holds all completed requests: it is written when the engine comes to rest, which may
    be a moment after the client has its last byte. What is still missing after RECORD_WAIT_S stays unmatched."""
    wanted = {one.response_id for run in measured for one in run.records if one.completed}
    deadline = time.monotonic() + RECORD_WAIT_S
    while True:
        record = read_record(path)
        if wanted <= {line.request_id for line in record.requests} or time.monotonic() > deadline:
            return record
        time.sleep(0.05)


def _with_server_view(result: Result, measured: Sequence[Measured], record: Record, slo: SLO | None) -> Result:
    """Add what the server recorded about the same requests."""
    client = [one for run in measured for one in run.records]
    wanted = {one.response_id for one in client}
    lines = [line for line in record.requests if line.request_id in wanted]
    per_run = [[line for line in lines if line.request_id in _ids(run.records)] for run in measured]
    started_ns, ended_ns = measured[0].run.started_ns, max((one.end_ns for one in client), default=0)
    reconciled = reconcile(client, lines)
    return msgspec.structs.replace(
        against(result, record_doubts(client, record.requests, reconciled)),
        server=summarize(
            [server_records(some) for some in per_run], slo=slo, boundary="server_receive", seed=result.seed
        ),
        reconciled=reconciled,
        steps=step_series(record.steps, started_ns, ended_ns),
    )


def _ids(records: Sequence[RequestRecord]) -> set[str]:
    return {record.response_id for record in records if record.response_id is not None}
