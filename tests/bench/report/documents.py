"""Results as real runs leave them, made from a seed: the report is tested and looked at with these."""

from __future__ import annotations

import heapq
from typing import Any

import msgspec
import numpy as np

from forebay.bench.metrics import ServedRecord, summarize
from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import LoadFacts, Reconciled, Result, Run, StepSeries, Summary
from forebay.bench.slo import parse_slo
from forebay.bench.statistics import distribution

STARTED_NS = 8_123_456_789_012
BLOCKS, SLOTS = 640, 16
FAILURES = {
    37: Failure(kind=FailureKind.OVERLOADED, http_status=429, detail="the waiting queue is full; retry in 2 s"),
    81: Failure(kind=FailureKind.OVERLOADED, http_status=429, detail="the waiting queue is full; retry in 1 s"),
    90: Failure(kind=FailureKind.CUT, http_status=200, detail="the stream ended after 17 tokens"),
    144: Failure(kind=FailureKind.TIMEOUT, detail="no end after 60 s"),
}
CANCELLED = {23, 66, 120, 171}


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


def summary(*runs: tuple[RequestRecord, ...]) -> Summary:
    return summarize(runs, slo=parse_slo(FACTS["slo"]))


def server_summary(found: tuple[RequestRecord, ...]) -> Summary:
    """As a server sees them, 2 ms after the client has sent them."""
    seen = [
        ServedRecord(**{**msgspec.structs.asdict(r), "intended_ns": r.sent_ns + 2_000_000, "queue_s": 0.004})
        for r in found
    ]
    return summarize([seen], slo=parse_slo(FACTS["slo"]), boundary="server_receive")


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
    found_in = {name: distribution([(value,) for value in values], seed) for name, values in parts.items()}
    stretches = {name: one for name, one in found_in.items() if one is not None}
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
        server=server_summary(found), reconciled=reconciled(found, seed), steps=steps(found, seed),
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


def searched() -> Result:
    """The highest rate for two token budgets: every probe, with the share that kept the SLO."""
    rows: list[dict[str, Any]] = []
    for budget, edge in ((128, 6.1), (512, 4.2)):
        probes = []
        for rate in (1.0, 2.0, 4.0, 8.0, 6.0, 5.0, 5.5):
            share = float(1 / (1 + np.exp(2.2 * (rate - edge - 1))))
            ends = [max(0.0, share - 0.06), min(1.0, share + 0.06)]
            probes.append({"rate": rate, "attained": share, "attained_interval": ends, "holds": share >= 0.9,
                           "why": "between", "valid": True, "completed": 120})  # fmt: skip
        held = max(probe["rate"] for probe in probes if probe["holds"])
        rows.append({"knobs": {"scheduler.token_budget": budget}, "rate": held, "output_token_rate": 40 * held,
                     "ttft_p95_s": 0.4, "ttft_p99_s": 0.5, "itl_p95_s": 0.05, "valid": True, "invalid_reasons": [],
                     "workload_digest": f"{budget:064x}", "profile": f"{budget:040x}", "probes": probes})  # fmt: skip
    command = ["forebay", "bench", "sweep", "--find-rate"]
    facts = {**FACTS, "workload": {**FACTS["workload"], "goal": {"attain": 0.9, "slo": FACTS["slo"]}}}
    return Result(kind="sweep", label="rates", seed=3, command=command, rows=rows, **facts)


def latency(label: str = "one stream", pace: float = 1.0) -> Result:
    """Speeds at four lengths of the prompt."""
    rows = []
    for length in (64, 256, 512, 1024):
        prefill, decode = pace * 2400 / (1 + length / 4000), pace * 210 / (1 + length / 2500)
        rows.append({
            "length": length, "repeats": 5, "ttft_s": length / prefill,
            "ttft_s_range": [0.98 * length / prefill, 1.05 * length / prefill], "prefill_token_rate": prefill,
            "prefill_token_rate_range": [prefill / 1.05, prefill / 0.98], "decode_token_rate": decode,
            "decode_token_rate_range": [0.97 * decode, 1.02 * decode], "itl_p50_s": 1 / decode,
            "itl_p99_s": 1.4 / decode,
        })  # fmt: skip
    return Result(kind="latency", label=label, seed=0, command=["forebay", "bench", "latency"], rows=rows, **FACTS)


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
        buckets[f"{side}: {name}"] = summary(*mine)
    rows = [{"pair": n, "order": "AB" if n % 2 == 0 else "BA", "a_output_token_rate": 280.0 + n,
             "b_output_token_rate": 270.0 - n, "same_answers": 60} for n in range(3)]  # fmt: skip
    facts = {
        **FACTS,
        "workload": {**FACTS["workload"], "requests": 180},
        "target": {
            "a": {"label": "main", "model": "smollm2-135m"},
            "b": {"label": "budget 1024"},
            "same_answers": 180,
            "answers_compared": 180,
        },
    }
    return Result(kind="compare", label="main against budget 1024", seed=20, buckets=buckets, rows=rows,
                  runs=sorted(runs, key=lambda run: run.started_ns), **facts)  # fmt: skip
