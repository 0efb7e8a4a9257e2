"""Results as real runs leave them, made from a seed: the report is tested and looked at with these."""

from __future__ import annotations

import heapq
from typing import Any

import msgspec
import numpy as np

from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import Distribution, LoadFacts, Reconciled, Result, Run, StepSeries, Summary

STARTED_NS = 8_123_456_789_012
BLOCKS, SLOTS = 640, 16
FAILURES = {
    37: Failure(kind=FailureKind.OVERLOADED, http_status=429, detail="the waiting queue is full; retry in 2 s"),
    81: Failure(kind=FailureKind.OVERLOADED, http_status=429, detail="the waiting queue is full; retry in 1 s"),
    90: Failure(kind=FailureKind.CUT, http_status=200, detail="the stream ended after 17 tokens"),
    144: Failure(kind=FailureKind.TIMEOUT, detail="no end after 60 s"),
}
CANCELLED = {23, 66, 120, 171}


def distribution(values: np.ndarray, *, intervals: bool = True) -> Distribution | None:
    """Figures of some durations in seconds; the intervals are a normal approximation, wide enough to look real."""
    if values.size == 0:
        return None
    p50, p90, p95, p99 = (float(v) for v in np.percentile(values, (50, 90, 95, 99)))
    mean, error = float(values.mean()), float(values.std()) / max(1.0, values.size**0.5)
    spans = {"mean": (mean, 1.96), "p50": (p50, 2.4), "p95": (p95, 5.0), "p99": (p99, 9.0)}
    found = {name: (max(0.0, v - k * error), v + k * error) for name, (v, k) in spans.items()}
    low, high = float(values.min()), float(values.max())
    return Distribution(
        count=values.size, mean=mean, min=low, p50=p50, p90=p90, p95=p95, p99=p99, max=high,
        intervals=found if intervals else {},
    )  # fmt: skip


def records(seed: int, *, requests: int = 200, rate: float = 6.0, pace: float = 1.0) -> tuple[RequestRecord, ...]:
    """An open loop of chat and document requests. pace: how much slower the server is than the first one."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(1 / rate, requests))
    made, ends = [], [0.0]
    for index in range(requests):
        bucket = "document" if rng.random() < 0.25 else "chat"
        prompt = int(rng.lognormal(6.6 if bucket == "document" else 4.8, 0.5))
        output = int(np.clip(rng.lognormal(3.9, 0.5), 4, 256))
        open_now = sum(end > at[index] for end in ends)
        sent = at[index] + rng.exponential(0.0004)
        first = sent + pace * (0.012 + prompt * 0.00021 + open_now * 0.004 + rng.exponential(0.02))
        gaps = pace * (0.006 + 0.0011 * open_now) * rng.lognormal(0, 0.25, output - 1)
        gaps[rng.random(output - 1) < 0.03] += pace * rng.exponential(0.09)  # a chunk of another's prompt in the step
        tokens = first + np.concatenate([[0.0], np.cumsum(gaps)])
        made.append(_record(index, bucket, prompt, float(at[index]), float(sent), tokens))
        ends.append(float(tokens[-1]))
    return tuple(made)


def _record(index: int, bucket: str, prompt: int, at: float, sent: float, tokens: np.ndarray) -> RequestRecord:
    failure, cancelled = FAILURES.get(index), index in CANCELLED
    if failure is not None:
        tokens = tokens[:17] if failure.kind is FailureKind.CUT else tokens[:0]
    elif cancelled:
        tokens = tokens[:8]
    if index % 10 == 7:  # several tokens in some chunks
        counts, chunks = [1] + [2] * ((len(tokens) - 1) // 2), tokens[::2]
    else:
        counts, chunks = [1] * len(tokens), tokens
    chunks = chunks[: len(counts)]
    late = {FailureKind.TIMEOUT: 6.0, FailureKind.OVERLOADED: 0.004}.get(failure.kind if failure else "", 0.03)
    return RequestRecord(
        index=index, session=index, bucket=bucket, intended_ns=int(at * 1e9), sent_ns=int(sent * 1e9),
        headers_ns=int((sent + 0.002) * 1e9), token_ns=tuple(int(t * 1e9) for t in chunks),
        token_counts=tuple(counts[: len(chunks)]), counted_by="chunks" if index % 10 == 7 else "usage",
        end_ns=int(chunks[-1] * 1e9) + 50_000 if len(chunks) else int((sent + late) * 1e9),
        planned_prompt_tokens=prompt, planned_output_tokens=sum(counts), prompt_tokens=prompt,
        cached_tokens=96 if bucket == "chat" else 0, output_tokens=sum(counts[: len(chunks)]),
        finish_reason=None if failure or cancelled else "length", cancelled=cancelled, failure=failure,
    )  # fmt: skip


def summary(found: tuple[RequestRecord, ...], boundary: str = "client_send", shift_s: float = 0.0) -> Summary:
    """Every metric of some records. shift_s: how much earlier a server sees the request than the client."""
    done = [r for r in found if r.completed and r.token_ns]
    failures: dict[str, int] = {}
    for record in found:
        if record.failure is not None:
            failures[record.failure.kind] = failures.get(record.failure.kind, 0) + 1
    duration = (max(r.end_ns for r in found) - min(r.intended_ns for r in found)) / 1e9 if found else 0.0
    output, prompt = sum(r.output_tokens for r in found), sum(r.prompt_tokens or 0 for r in found)
    ttft = np.array([r.token_ns[0] - r.intended_ns for r in done]) / 1e9 - shift_s
    e2e = np.array([r.end_ns - r.intended_ns for r in done]) / 1e9 - shift_s
    long = [r for r in done if r.output_tokens > 1]
    tpot = np.array([(r.token_ns[-1] - r.token_ns[0]) / 1e9 / (r.output_tokens - 1) for r in long])
    lag = np.array([r.sent_ns - r.intended_ns for r in found]) / 1e9
    span = max(duration, 1e-9)
    good = sum(t < 0.25 for t in ttft)
    return Summary(
        boundary=boundary, duration_s=duration, requests=len(found), completed=len(done),
        cancelled=sum(r.cancelled for r in found), failures=failures, prompt_tokens=prompt,
        cached_tokens=sum(r.cached_tokens or 0 for r in found), output_tokens=output,
        request_rate=len(done) / span, output_token_rate=output / span, total_token_rate=(output + prompt) / span,
        ttft_s=distribution(ttft), itl_s=distribution(gaps_of(done)), tpot_s=distribution(tpot),
        e2e_s=distribution(e2e), queue_s=None if shift_s == 0 else distribution(ttft * 0.2),
        send_lag_s=distribution(lag, intervals=False) if shift_s == 0 else None,
        goodput=float(good) / span if found else None,
        slo_attained=float(good) / max(1, len(found) - sum(r.cancelled for r in found)) if found else None,
        counted_by={"usage": sum(r.counted_by == "usage" for r in found), "chunks": len(found) // 10},
        intervals={"output_token_rate": (output / span * 0.975, output / span * 1.024)} if done else {},
    )  # fmt: skip


def gaps_of(done: list[RequestRecord]) -> np.ndarray:
    """All gaps in seconds: a chunk of k tokens is one gap and k - 1 of nothing."""
    found = [np.zeros(0)]
    for record in done:
        found += [np.diff(np.array(record.token_ns)) / 1e9, np.zeros(sum(record.token_counts) - len(record.token_ns))]
    return np.concatenate(found)


def steps(found: tuple[RequestRecord, ...], seed: int) -> StepSeries:
    """A server's steps for these requests: blocks grow with tokens and return to the prefix cache."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {name: [] for name in StepSeries.__struct_fields__}
    spans = [(r.token_ns[0] / 1e9, r.end_ns / 1e9, r) for r in found if r.token_ns]
    arrivals = [(r.sent_ns / 1e9, r.prompt_tokens or 0) for r in found if r.token_ns]
    heapq.heapify(arrivals)
    now, end, todo = arrivals[0][0], max(e for _, e, _ in spans), 0
    cached = 0
    while now < end:
        while arrivals and arrivals[0][0] <= now:
            todo += heapq.heappop(arrivals)[1]
        running = [r for a, e, r in spans if a <= now < e]
        prefill = min(todo, 256)
        todo -= prefill
        if not running and not prefill:
            now = arrivals[0][0] if arrivals else end
            continue
        took = float(0.004 + 0.0005 * len(running) + prefill * 0.00021) * float(rng.lognormal(0, 0.08))
        used = min(BLOCKS, sum((r.prompt_tokens or 0) // SLOTS + 2 for r in running) + prefill // SLOTS + 1)
        cached = min(BLOCKS - used, max(cached, int(now * 14)))
        row = (now, took, len(running) + (prefill > 0), prefill, len(running), todo // 300, used, cached,
               min(BLOCKS - used, 5 * len(running)), BLOCKS - used - cached, 7 * len(running))  # fmt: skip
        for name, value in zip(StepSeries.__struct_fields__, row, strict=True):
            columns[name].append(value)
        now += took
    return StepSeries(**columns)


def reconciled(found: tuple[RequestRecord, ...], seed: int) -> Reconciled:
    rng = np.random.default_rng(seed)
    done = [r for r in found if r.completed and r.token_ns]
    first = np.array([r.token_ns[0] - r.sent_ns for r in done]) / 1e9
    decode = np.array([r.end_ns - r.token_ns[0] for r in done]) / 1e9
    lag = np.array([r.sent_ns - r.intended_ns for r in done]) / 1e9
    parts = {
        "intended -> sent (client)": lag,
        "sent -> received (network, HTTP, parse)": 0.0008 + rng.exponential(0.0004, len(done)),
        "received -> tokenized": 0.0005 + rng.exponential(0.0002, len(done)),
        "tokenized -> queued (to the engine)": 0.0007 + rng.exponential(0.0004, len(done)),
        "queued -> admitted (waiting)": first * 0.2,
        "admitted -> first token (prefill)": first * 0.77,
        "first token -> client saw it (emit, detokenize, network)": 0.0006 + rng.exponential(0.0003, len(done)),
        "first token -> last token (decode)": decode,
        "last token -> client saw the end": 0.0007 + rng.exponential(0.0003, len(done)),
    }
    stretches = {name: d for name, values in parts.items() if (d := distribution(values)) is not None}
    return Reconciled(matched=len(done), unmatched=len(found) - len(done), stretches=stretches)


def load(**changes: float) -> LoadFacts:
    facts = LoadFacts(wall_s=36.2, client_cores=0.21, target_cores=1.74, foreign_share=0.012, steal_share=0.003)
    return msgspec.structs.replace(facts, **changes)


FACTS: dict[str, Any] = {
    "created": "2025-03-14T15:09:26Z",
    "machine": {"cpu": "AMD EPYC 9R14", "cores": 2, "memory_bytes": 16_508_887_040, "kernel": "6.8.0", "isa": "avx512"},
    "versions": {"forebay": "0.1.0", "python": "3.11.9", "numpy": "2.4.6", "kernel_contract": "3"},
    "target": {
        "url": "http://127.0.0.1:8000",
        "model": "smollm2-135m",
        "profile_digest": "e349505ac0785a1b7d0c4c9a",
        "settings": {
            "scheduler.token_budget": 256, "scheduler.max_running": 64, "cache.block_size": 16, "cache.num_blocks": 640,
            "runner.threads": 2, "runner.isa": "avx512_vnni", "kv.dtype": "f32", "cache.prefix_cache": True,
        },
    },
    "workload": {
        "spec": {"text": "sharegpt", "arrivals": {"kind": "poisson", "rate": 6.0}, "buckets": ["chat", "document"]},
        "requests": 200,
        "digest": "9b1c0e7a5d3f48b2a6c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a9",
    },
    "slo": "ttft:250ms,itl:60ms",
}  # fmt: skip


def serve(label: str = "main", seed: int = 7, pace: float = 1.0, **changes: Any) -> Result:
    """200 requests, two buckets, failures and cancelled ones, the server's steps and its own view."""
    found = records(seed, pace=pace)
    by_bucket = {name: tuple(r for r in found if r.bucket == name) for name in ("chat", "document")}
    result = Result(
        kind="serve", label=label, seed=seed,
        command=["forebay", "bench", "serve", "--url", "http://127.0.0.1:8000", "--workload", "chat mix"],
        summary=summary(found), buckets={name: summary(part) for name, part in by_bucket.items()},
        server=summary(found, "server_receive", 0.002), reconciled=reconciled(found, seed), steps=steps(found, seed),
        runs=[Run(started_ns=STARTED_NS, load=load(), records=found)], **FACTS,
    )  # fmt: skip
    return msgspec.structs.replace(result, **changes)


def sweep() -> Result:
    """Twelve points: three token budgets at four rates."""
    rows = []
    rng = np.random.default_rng(3)
    for budget in (64, 256, 1024):
        for limit in (4, 8, 16, 32):
            full = 420 * limit / (limit + 6) * (1 + 0.06 * (budget.bit_length() - 7)) * float(rng.normal(1, 0.01))
            itl = 0.006 * (1 + limit / 9) * (1 + budget / 900) * float(rng.normal(1, 0.02))
            ttft = (0.05 + 9 / budget) * (1 + limit / 14) * float(rng.normal(1, 0.03))
            rows.append({
                "knobs": {"scheduler.token_budget": budget, "scheduler.max_running": limit},
                "output_token_rate": full, "ttft_p50_s": ttft * 0.6, "ttft_p95_s": ttft,
                "itl_p50_s": itl * 0.7, "itl_p95_s": itl, "completed": 120, "failed": 0,
            })  # fmt: skip
    command = ["forebay", "bench", "sweep", "--set", "scheduler.token_budget=64,256,1024"]
    return Result(kind="sweep", label="budget and running", seed=3, command=command, rows=rows, **FACTS)


def ops() -> Result:
    """Thirty rows of kernels against what the machine could do."""
    rng = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for op in ("linear", "attention", "rms_norm"):
        for tokens in (1, 4, 16, 64, 256):
            for form in ("q4_0", "f32"):
                share = float(np.clip(rng.normal(0.7, 0.15), 0.2, 0.97))
                seconds = 2e-5 * tokens**0.8 * (2 if form == "f32" else 1) / share
                moved = 884_736 * tokens
                rows.append({
                    "op": op, "variant": "decode" if tokens < 16 else "prefill", "format": form,
                    "shape": f"{tokens} x 576 x 1536", "backend": "native", "isa": "avx512_vnni", "threads": 2,
                    "working_set_bytes": 98_566_144, "bytes": moved, "operations": 2 * moved, "seconds": seconds,
                    "seconds_best": seconds * 0.97, "spread": 0.06, "gbps": moved / seconds / 1e9,
                    "gops": 2 * moved / seconds / 1e9, "bandwidth_fraction": share,
                    "peak_fraction": share * 0.4 if op == "linear" else None, "floor_fraction": share,
                    "bound": "bandwidth" if tokens < 64 else "compute",
                })  # fmt: skip
    for kind, rate in (("read", 21.4), ("dot_u4", 181.0), ("fma_f32", 92.5)):
        rows.append({"op": "roofline", "isa": "avx512_vnni", "threads": 2, "kind": kind, "samples": 5,
                     "gbps" if kind == "read" else "gops": rate})  # fmt: skip
    return Result(kind="ops", label="avx512", seed=5, command=["forebay", "bench", "ops"], rows=rows, **FACTS)


def invalid() -> Result:
    reasons = [
        "another program took 31 % of the processor (limit 5 %)",
        "the client used 0.98 of a core: it was the limit",
    ]
    runs = [Run(started_ns=STARTED_NS, load=load(foreign_share=0.31, client_cores=0.98), records=records(9))]
    return serve("noisy neighbour", 9, valid=False, invalid_reasons=reasons, runs=runs)


def empty() -> Result:
    """Nothing completed: no connection at all."""
    failure = Failure(kind=FailureKind.CONNECT, detail="connection refused")
    found = tuple(
        RequestRecord(index=i, intended_ns=i * 10**8, sent_ns=i * 10**8, end_ns=i * 10**8 + 10**6,
                      planned_output_tokens=32, failure=failure)
        for i in range(12)
    )  # fmt: skip
    return Result(
        kind="serve", label="nobody there", seed=1, valid=False, invalid_reasons=["no request was completed"],
        summary=summary(found), runs=[Run(started_ns=STARTED_NS, load=load(target_cores=0.0), records=found)],
        created="2025-03-14T15:09:26Z",
    )  # fmt: skip


HOSTILE = "<script>alert(1)</script>\"'&]]><svg onload=x> $\\frac{$ |`*_[a](http://x) \x00\u202e\n![i](//x) @all -->"


def hostile() -> Result:
    """Every string of a serve result that a stranger could have written, and the rows, say something nasty."""
    calm = serve(HOSTILE, 7)
    assert calm.summary is not None
    assert calm.reconciled is not None
    bad = msgspec.structs.replace(
        calm.runs[0].records[0], bucket=HOSTILE, failure=Failure(kind=FailureKind.CUT, detail=HOSTILE)
    )
    first, *others = calm.reconciled.stretches.values()
    return msgspec.structs.replace(
        calm, kind=HOSTILE, created=HOSTILE, command=[HOSTILE], machine={HOSTILE: HOSTILE}, versions={HOSTILE: HOSTILE},
        target={"url": HOSTILE, "settings": {HOSTILE: [HOSTILE]}}, workload={"spec": HOSTILE}, slo=HOSTILE,
        valid=False, invalid_reasons=[HOSTILE], buckets={HOSTILE: calm.summary},
        summary=msgspec.structs.replace(calm.summary, boundary=HOSTILE, failures={HOSTILE: 2}, counted_by={HOSTILE: 1}),
        reconciled=Reconciled(
            matched=3, unmatched=0, stretches={HOSTILE: first, **{f"s{i}": d for i, d in enumerate(others)}}
        ),
        runs=[Run(started_ns=STARTED_NS, load=load(), records=(bad, *calm.runs[0].records[1:]), values={HOSTILE: 1.0})],
        rows=[
            {"knobs": {HOSTILE: f"{rate}{HOSTILE}"}, HOSTILE: HOSTILE, "output_token_rate": rate, "ttft_p95_s": 0.1,
             "list": [HOSTILE]}
            for rate in (1.0, 2.0)
        ],
    )  # fmt: skip


def startup() -> Result:
    """Times and sizes in one table: the unit is a column."""
    rows = [
        {"path": path, "figure": figure, "unit": unit, "first": 1.7 * value, "median": value,
         "range": [0.96 * value, 1.05 * value], "repeats": 5}
        for path, figure, unit, value in (
            ("server", "exec to ready line", "s", 0.5123),
            ("server", "ready line to first answer over HTTP", "s", 0.0412),
            ("server", "peak resident memory, server and engine", "B", 412_876_800.0),
            ("python", "import forebay with LLM", "s", 0.1311),
            ("python", "load the model", "s", 0.2087),
            ("python", "peak resident memory", "B", 301_989_888.0),
        )
    ]  # fmt: skip
    return Result(kind="startup", label="cold and warm", seed=0, command=["forebay", "bench", "startup"], rows=rows,
                  runs=[Run(started_ns=STARTED_NS, load=load())], **FACTS)  # fmt: skip


def compared() -> Result:
    """Two profiles measured in turns, three runs each, in one document."""
    sides = {"A": (1.0, "main"), "B": (1.1, "budget 1024")}
    runs, buckets = [], {}
    for side, (pace, name) in sides.items():
        mine = [records(20 + n, requests=60, pace=pace) for n in range(3)]
        for n, found in enumerate(mine):
            at = STARTED_NS + (2 * n + (side == "B")) * 40 * 10**9
            runs.append(Run(started_ns=at, load=load(), records=found, values={"pair": n, "side": float(side == "B")}))
        buckets[f"{side}: {name}"] = summary(tuple(r for found in mine for r in found))
    rows = [{"pair": n, "order": "AB" if n % 2 == 0 else "BA", "a_output_token_rate": 280.0 + n,
             "b_output_token_rate": 270.0 - n, "same_answers": 60} for n in range(3)]  # fmt: skip
    facts = {
        **FACTS,
        "target": {
            "a": {"name": "main", "model": "smollm2-135m"},
            "b": {"name": "budget 1024"},
            "same_answers": 180,
            "answers_compared": 180,
        },
    }
    return Result(kind="compare", label="main against budget 1024", seed=20, buckets=buckets, rows=rows,
                  runs=sorted(runs, key=lambda run: run.started_ns), **facts)  # fmt: skip
