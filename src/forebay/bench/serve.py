"""Measure a running server over HTTP: warm up, play the workload, account for what else ran, put it into a document."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from forebay.bench.client.load import Endpoint, Observer, run_load
from forebay.bench.facts import new_result
from forebay.bench.machine_load import Meter, pids_behind
from forebay.bench.metrics import by_bucket, server_records, shifted, summarize
from forebay.bench.plan import Workload
from forebay.bench.reconcile import reconcile, step_series
from forebay.bench.record import RequestRecord
from forebay.bench.result import Result, Run
from forebay.bench.slo import SLO
from forebay.bench.workload.build import WorkloadSpec, build_workload
from forebay.observe.recorder import Record, read_record
from forebay.tokenizer import Tokenizer

RECORD_WAIT_S = 2.0
MAX_CACHED_SHARE = 0.01  # of prompt tokens that should be new
_WARMUP_SEED = 1_000_003  # away from the seeds of runs, which count up from the first


def planned(
    spec: WorkloadSpec, tokenizer: Tokenizer, *, runs: int = 1, warmup: int = 0
) -> tuple[list[Workload], Workload | None]:
    """The workloads of `runs` runs, each with prompts of its own (so that no run finds the one before in the server's
    prefix cache), and of a warm-up of `warmup` requests (None for 0). Raises BenchError."""
    workloads = [build_workload(replace(spec, seed=spec.seed + run), tokenizer) for run in range(runs)]
    if not warmup:
        return workloads, None
    before = replace(
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
    return workloads, build_workload(before, tokenizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run with absolute times (CLOCK_MONOTONIC)."""

    records: tuple[RequestRecord, ...]
    run: Run


def measure(
    endpoint: Endpoint,
    workloads: Sequence[Workload],
    *,
    warmup: Workload | None = None,
    slo: SLO | None = None,
    seed: int = 0,
    label: str = "",
    record: Path | None = None,
    target: dict[str, Any] | None = None,
    observer: Observer | None = None,
) -> Result:
    """One run per workload, in order, against one server.

    warmup: played first and not counted. record: the file that the server writes with --record, on this machine.
    target: what the document says of the server. Raises BenchError.
    """
    if warmup is not None:
        run_load(warmup, endpoint)
    measured = [run_once(workload, endpoint, observer) for workload in workloads]
    result = new_result(
        "serve",
        label=label,
        seed=seed,
        loads=[one.run.load for one in measured],
        reasons=_found_cached(workloads, [record for one in measured for record in one.records]),
        target={"url": endpoint.base_url, "model": endpoint.model, **(target or {})},
        workload=described(workloads, warmup),
        slo=None if slo is None else str(slo),
        summary=summarize([one.records for one in measured], slo=slo, seed=seed),
        buckets=by_bucket([one.records for one in measured], slo=slo, seed=seed),
        runs=[one.run for one in measured],
    )
    return result if record is None else _with_server_view(result, measured, _whole_record(record, measured), slo)


def run_once(workload: Workload, endpoint: Endpoint, observer: Observer | None = None) -> Measured:
    """Play one workload and account for the machine meanwhile."""
    with Meter(pids_behind(endpoint.base_url)) as meter:
        records = run_load(workload, endpoint, observer)
    started_ns = min((record.intended_ns for record in records), default=0)
    relative = tuple(shifted(record, -started_ns) for record in records)
    return Measured(records=records, run=Run(started_ns=started_ns, load=meter.facts(), records=relative))


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


def _found_cached(workloads: Sequence[Workload], records: Sequence[RequestRecord]) -> list[str]:
    """A reason against a run whose new prompts the server knew already. A mix and sessions say nothing of sharing."""
    sharing = [workload.spec.get("made", {}).get("prefix_sharing") for workload in workloads]
    if None in sharing or any(len(session.turns) > 1 for workload in workloads for session in workload.sessions):
        return []
    prompt = sum(record.prompt_tokens or 0 for record in records)
    cached = sum(record.cached_tokens or 0 for record in records)
    # the first prompt shares with nobody, but the warm-up may have brought what the prompts share
    least = min(workload.num_requests for workload in workloads)
    if cached <= (max(sharing) * least / max(least - 1, 1) + MAX_CACHED_SHARE) * prompt:
        return []
    return [
        f"the server had {cached / prompt:.0%} of the prompt tokens in its prefix cache, more than these prompts "
        "share; an earlier run had the same seed: give another --seed"
    ]


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
    steps = [step for step in record.steps if started_ns <= step.start_ns <= ended_ns]
    return msgspec.structs.replace(
        result,
        server=summarize(
            [server_records(some) for some in per_run], slo=slo, boundary="server_receive", seed=result.seed
        ),
        reconciled=reconcile(client, lines),
        steps=step_series(steps, started_ns),
    )


def _ids(records: Sequence[RequestRecord]) -> set[str]:
    return {record.response_id for record in records if record.response_id is not None}
