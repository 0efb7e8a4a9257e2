"""What the papers claim, measured on ourselves: the same engine, the same requests, one profile field changed.

    python benchmarks/claims.py TRACE.csv [--pairs 3] [--output benchmarks/results]

TRACE.csv: AzureLLMInferenceTrace_conv.csv, whose lengths the first two claims use. Both profiles of a comparison are
measured in turns (AB, BA, ...), the one that waits is paused. Writes claims.json and claims.md.

1. Batching that admits requests at every step (Orca, OSDI 2022, abstract: 36.9 times the throughput of
   FasterTransformer at the same latency, GPT-3 175B) against batches that run to their end.
2. Blocks waste little (PagedAttention, SOSP 2023, figure 2: 96.3 % of KV memory holds tokens, against 20.4 to 38.2 %
   in systems that reserve the longest output in one piece).
3. Chunked prefill keeps long prompts from stalling others (Sarathi-Serve, OSDI 2024, abstract: 2.6 times the load of
   vLLM within the same tail latency, Mistral-7B on one A100).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from forebay.bench.ab import Compared, compare_served
from forebay.bench.facts import new_result
from forebay.bench.interrupt import ended_by_sigterm
from forebay.bench.metrics import by_bucket, summarize
from forebay.bench.progress import Bars, LiveProgress
from forebay.bench.report import units
from forebay.bench.report.markdown import table_lines
from forebay.bench.result import Result, Run, StepSeries, Summary, write_result
from forebay.bench.served import served
from forebay.bench.statistics import ratio_interval
from forebay.bench.workload.spec import WorkloadSpec
from forebay.bench.workload.traces import read_trace
from forebay.profile import Profile, load_profile

MODEL = "smollm2-135m"
BLOCK_SIZE = 16
SCALE = 0.25  # of the trace's lengths, so that a run takes seconds; their spread is what matters
LONG_AMONG_CHAT = "short_chat=0.85,long_rag=0.15"


@dataclass
class Found:
    """One claim: rows for the table, and the documents behind them."""

    name: str
    lines: list[str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    documents: list[Result] = field(default_factory=list)


def profile(**changes: Any) -> Profile:
    fixed = {"model.source": MODEL, "kv.block_size": BLOCK_SIZE, "kv.prefix_cache": False}
    return load_profile(None, {**fixed, **{name.replace("__", "."): value for name, value in changes.items()}})


def batching(trace: Path, pairs: int) -> Found:
    """Static against continuous batching on the trace's lengths, 16 at once, in a closed loop and at a fixed rate."""
    static, continuous = (
        profile(scheduler__batching=kind, scheduler__max_requests=16) for kind in ("static", "continuous")
    )
    lengths = {"trace": trace, "scale_length": SCALE}
    # twice as many clients as places, so that there is always somebody to admit
    closed = WorkloadSpec(**lengths, requests=64, concurrency=32)
    loop = _compare(static, continuous, closed, ("static", "continuous"), pairs)
    rate = 0.7 * loop.document.buckets["B: continuous"].request_rate
    times = WorkloadSpec(**lengths, requests=64, scale_rate=rate / _trace_rate(trace, 64))
    steady = _compare(static, continuous, times, ("static", "continuous"), pairs)
    rows = [
        _ratio("closed loop, output token/s", loop, "output_token_rate"),
        _ratio("closed loop, E2E p95", loop, "e2e_s.p95"),
        _ratio(f"{rate:.1f} requests/s as in the trace, E2E p95", steady, "e2e_s.p95"),
        _ratio(f"{rate:.1f} requests/s as in the trace, TTFT p95", steady, "ttft_s.p95"),
    ]
    return Found(
        "Static and continuous batching",
        _table("static", "continuous", rows),
        rows,
        [loop.document, steady.document],
    )


def slack(trace: Path) -> Found:
    """How much of the KV cache holds no token while the trace's own lengths are served."""
    spec = WorkloadSpec(trace=trace, requests=48, concurrency=16)
    with served(profile(scheduler__max_requests=16), name="continuous") as server:
        workloads, warmup = server.planned(spec, runs=1, warmup=4)
        with LiveProgress(workloads[0].num_requests, "slack") as progress:
            result = server.measure(workloads, warmup=warmup, observer=progress)
    assert result.steps is not None
    row = slack_of(result.steps, BLOCK_SIZE)
    lines = [
        *table_lines(
            ("of the blocks in use", "share"),
            [("slots at the end of a request's last block that hold no token (slack)", f"{row['slack_share']:.2%}")],
            "lr",
        ),
        "",
        f"Promised and not yet taken: {row['promised_share']:.1%} of used and promised blocks together. They are no "
        "waste of the same kind: no memory is written, and they are why an admitted request always finishes.",
    ]
    return Found("Slack of paged blocks", lines, [row], [result])


def slack_of(steps: StepSeries, block_size: int) -> dict[str, Any]:
    """Shares over all steps, each weighted by how long it took."""
    weight = np.array(steps.duration_s)
    used, promised = np.array(steps.blocks_used, float), np.array(steps.blocks_promised, float)
    slots = np.array(steps.slack_slots, float)
    return {
        "slack_share": float((slots * weight).sum() / (used * block_size * weight).sum()),
        "promised_share": float((promised * weight).sum() / ((used + promised) * weight).sum()),
        "steps": len(weight),
    }


def chunking(pairs: int) -> Found:
    """Long prompts among chats, with a small and a large token budget."""
    small, large = (profile(scheduler__token_budget=budget) for budget in (128, 4096))
    spec = WorkloadSpec(mix=LONG_AMONG_CHAT, arrivals="poisson:1.2", requests=40)
    found = _compare(large, small, spec, ("4096", "128"), pairs)
    rows = [
        _ratio("chats, ITL p95", found, "itl_s.p95", "short_chat"),
        _ratio("chats, ITL p99", found, "itl_s.p99", "short_chat"),
        _ratio("chats, TTFT p95", found, "ttft_s.p95", "short_chat"),
        _ratio("long prompts, TTFT p50", found, "ttft_s.p50", "long_rag"),
    ]
    return Found(
        "Long prompts among chats, by token budget",
        _table("budget 4096", "budget 128", rows),
        rows,
        [found.document],
    )


def _compare(a: Profile, b: Profile, spec: WorkloadSpec, names: tuple[str, str], pairs: int) -> Compared:
    with Bars() as bars:
        return compare_served(a, b, spec, names=names, pairs=pairs, warmup=8, watch=bars.start)


def _runs(found: Compared, side: str) -> list[Run]:
    return [run for run in found.document.runs if run.values["side"] == "AB".index(side)]


def _trace_rate(trace: Path, requests: int) -> float:
    """Requests a second of the trace's beginning."""
    rows = read_trace(trace).rows[:requests]
    return len(rows) / (rows[-1].at_s - rows[0].at_s)


def _ratio(name: str, found: Compared, figure: str, bucket: str | None = None) -> dict[str, Any]:
    """A figure of both sides ("e2e_s.p95" of a summary), pair by pair, and the ratio B / A with its interval."""
    of = attrgetter(figure)
    sides = [[of(_summary(run, bucket)) for run in _runs(found, side)] for side in "AB"]
    ratio = ratio_interval(sides[0], sides[1], seed=0)
    return {
        "figure": name,
        "a": float(np.median(sides[0])),
        "b": float(np.median(sides[1])),
        "ratio": ratio.ratio,
        "interval": ratio.interval,
        "same_answers": f"{found.answers.same} of {found.answers.of}",
    }


def _summary(run: Run, bucket: str | None) -> Summary:
    return summarize([run.records]) if bucket is None else by_bucket([run.records])[bucket]


def _table(a: str, b: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    def shown(row: dict[str, Any], side: str) -> str:
        value = row[side]
        return f"{value:.0f}" if "token/s" in row["figure"] else f"{value * 1e3:.1f} ms"

    cells = [
        (row["figure"], shown(row, "a"), shown(row, "b"), f"{row['ratio']:.2f}", units.bounds(row["interval"]))
        for row in rows
    ]
    lines = table_lines(("", a, b, "ratio", "95 % over pairs"), cells, "lrrrr")
    return [*lines, "", f"Same answers on both sides: {rows[0]['same_answers']}."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    with ended_by_sigterm():
        claims = [batching(args.trace, args.pairs), slack(args.trace), chunking(args.pairs)]
    reasons = [reason for claim in claims for document in claim.documents for reason in document.invalid_reasons]
    result = new_result(
        "claims",
        label="the papers' claims on ourselves",
        reasons=reasons,
        rows=[{"claim": claim.name, **row} for claim in claims for row in claim.rows],
        target={claim.name: [_facts(document) for document in claim.documents] for claim in claims},
    )
    text = "\n\n".join(f"### {claim.name}\n\n" + "\n".join(claim.lines) for claim in claims) + "\n"
    write_result(result, args.output / "claims.json")
    (args.output / "claims.md").write_text(text)
    print(text)


def _facts(document: Result) -> dict[str, Any]:
    """What is kept of a document: everything but the requests themselves."""
    return {
        "workload": document.workload,
        "target": {name: value for name, value in document.target.items() if name != "comparison"},
        "buckets": msgspec.to_builtins(document.buckets),
        "summary": msgspec.to_builtins(document.summary),
        "loads": [msgspec.to_builtins(run.load) for run in document.runs],
        "rows": document.rows,
    }


if __name__ == "__main__":
    main()
